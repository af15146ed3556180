"""What workers exchange among themselves: parameters that are all-reduced (allreduced.py), and the
collectives of users (collectives.py). Every exchange is an attempt in a process group, and a vote on it."""
