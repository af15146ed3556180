"""How the samples of one epoch are cut into parts (one a worker) and chunks: arithmetic only.

Positions are places in the epoch's order, which may be shuffled; the ones that are left over from
an interrupted epoch can be cut again, for another number of workers (docs/guide/data.md). Neighbours:
epoch_claims.py says who has which chunk, cairn/data.py is the sampler.
"""
from __future__ import annotations

import bisect
import hashlib
import struct
from collections.abc import Iterable, Sequence
from itertools import accumulate

import torch

Range = tuple[int, int]  # [start, end)

CHUNKS_EACH = 64  # a worker, about: what its death can leave half done is small against an epoch
SMALLEST_CHUNK, LARGEST_CHUNK = 32, 4096


def hashed(*values: int | str) -> int:
    """63 bits, never 0, the same in every process and on every machine."""
    text = "/".join(map(str, values)).encode()
    (number,) = struct.unpack("<Q", hashlib.blake2b(text, digest_size=8).digest())
    return (number >> 1) or 1


def epoch_order(length: int, shuffle: bool, seed: int, epoch: int) -> torch.Tensor | range:
    """The dataset's indices in the order of this epoch."""
    if not shuffle:
        return range(length)
    generator = torch.Generator().manual_seed(hashed("order", seed, epoch))
    return torch.randperm(length, generator=generator)


def merged(ranges: Iterable[Sequence[int]]) -> list[Range]:
    """In order, without gaps of nothing between them."""
    found: list[Range] = []
    for start, end in sorted((int(start), int(end)) for start, end in ranges):
        if start >= end:
            continue
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def left_over(length: int, used: Iterable[Sequence[int]]) -> list[Range]:
    """What of [0, length) is not in `used`."""
    left, at = [], 0
    for start, end in merged(used):
        if start > at:
            left.append((at, start))
        at = end
    if at < length:
        left.append((at, length))
    return left


def part_bounds(samples: int, workers: int, part: int) -> Range:
    return samples * part // workers, samples * (part + 1) // workers


class EpochCut:
    """`ranges` of positions, cut into `workers` parts whose sizes differ by at most 1, and each
    part into chunks of `chunk` samples (its last one may be smaller). Chunks are numbered through.
    """

    def __init__(self, ranges: Sequence[Range], workers: int, chunk: int) -> None:
        self.ranges, self.workers, self.chunk = list(ranges), workers, chunk
        ends = list(accumulate(end - start for start, end in self.ranges))
        self._ends = ends
        self.samples = ends[-1] if ends else 0
        self.parts: list[range] = []  # numbers of the chunks of each part
        self.part_of: list[int] = []  # by chunk
        self._bounds: list[Range] = []  # of each chunk, counted over all ranges
        for part in range(workers):
            first, (start, end) = len(self._bounds), part_bounds(self.samples, workers, part)
            self._bounds += [(at, min(at + chunk, end)) for at in range(start, end, chunk)]
            self.parts.append(range(first, len(self._bounds)))
            self.part_of += [part] * len(self.parts[-1])

    @classmethod
    def make(cls, length: int, used: Iterable[Sequence[int]], workers: int,
             chunk: int | None) -> EpochCut:
        ranges = left_over(length, used)
        if chunk is None:
            each = -(-sum(end - start for start, end in ranges) // workers)
            chunk = min(max(-(-each // CHUNKS_EACH), SMALLEST_CHUNK), LARGEST_CHUNK)
        return cls(ranges, workers, chunk)

    @property
    def chunks(self) -> int:
        return len(self._bounds)

    def positions(self, chunk: int) -> list[Range]:
        """Where the samples of a chunk are in the epoch's order."""
        at, end = self._bounds[chunk]
        found = []
        place = bisect.bisect_right(self._ends, at)
        while at < end:
            start, stop = self.ranges[place]
            offset = at - (self._ends[place] - (stop - start))
            take = min(end - at, stop - start - offset)
            found.append((start + offset, start + offset + take))
            at += take
            place += 1
        return found

    # As numbers, so that workers can agree on it through a table.
    def numbers(self) -> list[int]:
        return [self.workers, self.chunk, *(bound for bounds in self.ranges for bound in bounds)]

    @classmethod
    def from_numbers(cls, numbers: Sequence[int]) -> EpochCut:
        bounds = list(zip(numbers[2::2], numbers[3::2]))
        return cls(bounds, numbers[0], numbers[1])
