"""Clicks that nobody made: the generated data of ctr.py. Synthetic, and the same in every run.

A sample has 13 floats and 26 ids, one of each field. The million ids are divided among the fields;
within a field they are drawn by Zipf's law with exponent 1.2, so few ids take most of the accesses,
as in real logs. The truth is logistic: each id has a weight, each float has one, and a click is
drawn with the probability sigmoid(their sum). So the best AUC that a model can reach is known.
"""
import functools
from typing import NamedTuple

import numpy as np
import torch

FLOATS = 13
FIELDS = 26
IDS = 1_000_000
ZIPF = 1.2
_TRUTH_SEED = 20240229
_SPREAD_OF_IDS, _SPREAD_OF_FLOATS = 0.35, 0.15  # of the weights: the truth's AUC is about 0.85
_BIAS = -1.3  # about a third of the samples is clicked
_AT_ONCE = 1 << 16  # samples made at a time: a longer set begins with the samples of a shorter one


class Clicks(NamedTuple):
    floats: torch.Tensor  # float32 [count, 13]
    ids: torch.Tensor  # int64 [count, 26], each in 0 … 999,999
    labels: torch.Tensor  # float32 [count]: 1 is a click
    truth: torch.Tensor  # float32 [count]: the logit that the label was drawn from


def _bounds() -> np.ndarray:
    """Field f has the ids from bounds[f] to below bounds[f + 1]."""
    return np.arange(FIELDS + 1, dtype=np.int64) * IDS // FIELDS


def _weights() -> tuple[np.ndarray, np.ndarray]:
    chance = np.random.Generator(np.random.PCG64(_TRUTH_SEED))
    of_ids = chance.standard_normal(IDS, dtype=np.float32) * np.float32(_SPREAD_OF_IDS)
    of_floats = chance.standard_normal(FLOATS, dtype=np.float32) * np.float32(_SPREAD_OF_FLOATS)
    return of_ids, of_floats


@functools.cache
def _shares(size: int) -> np.ndarray:
    """Of a field of so many ids: the share of the n most frequent ones, for every n."""
    up_to = np.cumsum(np.arange(1, size + 1, dtype=np.float64) ** -ZIPF)
    return up_to / up_to[-1]


def _by_zipf(chance: np.random.Generator, count: int) -> np.ndarray:
    """int64 [count, 26]: the ids of `count` samples."""
    bounds = _bounds()
    ids = np.empty((count, FIELDS), dtype=np.int64)
    for field in range(FIELDS):
        size = int(bounds[field + 1] - bounds[field])
        place = np.searchsorted(_shares(size), chance.random(count), side="right")
        # Frequent ids are not neighbours: 7919 is prime and no divisor of a field's size.
        ids[:, field] = bounds[field] + np.minimum(place, size - 1) * 7919 % size
    return ids


def make(count: int, part: str = "train") -> Clicks:
    """The first `count` samples of a part ("train" or "test"), which have nothing in common but the
    truth behind them."""
    of_ids, of_floats = _weights()
    pieces = []
    for number, first in enumerate(range(0, count, _AT_ONCE)):
        chance = np.random.Generator(np.random.PCG64([{"train": 1, "test": 2}[part], number]))
        ids = _by_zipf(chance, _AT_ONCE)
        floats = chance.standard_normal((_AT_ONCE, FLOATS), dtype=np.float32)
        logits = _BIAS + of_ids[ids].sum(1) + floats @ of_floats
        labels = chance.random(_AT_ONCE) < 1 / (1 + np.exp(-logits))
        rest = slice(0, min(_AT_ONCE, count - first))
        pieces.append([floats[rest], ids[rest], labels[rest].astype(np.float32), logits[rest]])
    if not pieces:
        raise ValueError(f"{count} samples: give at least 1")
    return Clicks(*(torch.from_numpy(np.concatenate(piece)) for piece in zip(*pieces)))


def area_of_truth(clicks: Clicks) -> float:
    """The AUC of the logits that the labels were drawn from: no model does better for long."""
    order = clicks.truth.argsort()
    ones = clicks.labels[order].bool()
    places = torch.arange(1, len(order) + 1, dtype=torch.float64)[ones].sum()
    count = int(ones.sum())
    return float((places - count * (count + 1) / 2) / (count * (len(order) - count)))
