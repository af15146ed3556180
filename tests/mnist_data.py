"""Data in MNIST's format, made up: ten patterns with noise."""
import random
import struct

SIDE = 28


def _write_set(folder, name, count, patterns, chance):
    labels = bytes(chance.randrange(10) for _ in range(count))
    images = b"".join(bytes(p if chance.random() < 0.8 else chance.randrange(256) for p in patterns[label])
                      for label in labels)
    (folder / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 0x803, count, SIDE, SIDE) + images)
    (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, count) + labels)


def write_mnist(folder):
    """600 images to train with and 200 to test with."""
    chance = random.Random(7)
    patterns = [[chance.choice((0, 0, 255)) for _ in range(SIDE * SIDE)] for _ in range(10)]
    _write_set(folder, "train", 600, patterns, chance)
    _write_set(folder, "t10k", 200, patterns, chance)
    return folder
