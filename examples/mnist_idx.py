"""Reads MNIST's four IDX files into tensors: for the examples beside this file.

script/fetch-mnist gets the files. A missing, short or wrong file is an error that names it.
"""
import os
import struct
from pathlib import Path

import torch

MEAN, DEVIATION = 0.1307, 0.3081  # of the training images' pixels


def folder(given=None):
    """Where the data is: what was given, $CAIRN_MNIST, or where script/fetch-mnist puts it."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given or os.environ.get("CAIRN_MNIST") or Path(cache) / "cairn" / "mnist")


def read(path, magic):
    try:
        data = bytearray(Path(path).read_bytes())
    except FileNotFoundError:
        advice = "fetch the data with script/fetch-mnist, or give --data"
        raise SystemExit(f"{path} is not there: {advice}") from None
    header = 4 + 4 * (magic & 0xFF)  # the last byte is the number of dimensions
    if len(data) < header or struct.unpack_from(">I", data)[0] != magic:
        raise SystemExit(f"{path} is not the IDX file that belongs here")
    sizes = struct.unpack_from(f">{magic & 0xFF}I", data, 4)
    if len(data) - header != torch.Size(sizes).numel():
        raise SystemExit(f"{path} is cut short: fetch it again")
    return torch.frombuffer(data, dtype=torch.uint8, offset=header).reshape(sizes)


def load(where, name, limit=None):
    """("train" or "t10k") → images, float32 of [count, 1, 28, 28], normalised; labels, int64."""
    images = read(Path(where) / f"{name}-images-idx3-ubyte", 0x803)[:limit]
    labels = read(Path(where) / f"{name}-labels-idx1-ubyte", 0x801)[:limit]
    return (images.unsqueeze(1).float() / 255 - MEAN) / DEVIATION, labels.long()
