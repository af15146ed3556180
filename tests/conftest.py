"""Puts this folder on the path of the Python tests: they share ports.py, namespaces.py and mnist_data.py."""
