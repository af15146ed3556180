"""Ports for tests that start real processes."""
import random
import socket

_given_ports = set()


def free_port():
    """A port that nobody else gets before its owner has bound it: below the range from which the
    kernel hands out its own, and never twice."""
    while True:
        port = random.randrange(12000, 30000)
        if port in _given_ports:
            continue
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given_ports.add(port)
        return port
