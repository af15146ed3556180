"""Data in MNIST's format, made up: ten patterns of 7 × 7 blocks, in which one pixel of ten is noise."""
import struct

import torch


def write(folder, *, train, test):
    """The four IDX files, with so many samples; the same every time."""
    generator = torch.Generator().manual_seed(7)
    blocks = (torch.rand(10, 7, 7, generator=generator) < 0.3) * 255
    shapes = blocks.repeat_interleave(4, 1).repeat_interleave(4, 2)
    _write_set(folder, "train", shapes, train, generator)
    _write_set(folder, "t10k", shapes, test, generator)


def _write_set(folder, name, shapes, count, generator):
    labels = torch.randint(10, (count,), generator=generator)
    noise = torch.randint(256, (count, 28, 28), generator=generator)
    images = torch.where(torch.rand(count, 28, 28, generator=generator) < 0.1, noise, shapes[labels])
    (folder / f"{name}-images-idx3-ubyte").write_bytes(
        struct.pack(">IIII", 0x803, count, 28, 28) + bytes(images.flatten().tolist()))
    (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, count) + bytes(labels.tolist()))
