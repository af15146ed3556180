"""Other processes of the job that a worker is in."""
import os
import pathlib


def process_of(words):
    """A process of this job, a child of the same launcher, whose command has these words."""
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            command = (entry / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue  # it has ended
        if parent == os.getppid() and set(words.split()) <= set(command):
            return int(entry.name)
    return None
