"""cairn.metrics: figures about a model that need every worker's samples at once.

The mean of the workers' AUCs is not the AUC: here the samples of all workers are ranked together.
They meet in a table on the servers. Not thread-safe, as everything that waits in a barrier.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from . import _core
from ._data.epoch_claims import FirstWins
from ._runtime import context
from .errors import InvalidArgumentError, NotFoundError

__all__ = ["auc"]

_MOST_RANKS = 1 << 16  # places of the same rank are so far apart
_MOST = 1 << 24  # places, calls
_ROWS = 1 << 38  # keys of a place
_AT_ONCE = 1024  # of a look for the current call, or for workers
_ROWS_AT_ONCE = 1 << 20



def auc(scores: torch.Tensor, labels: torch.Tensor) -> float:
    """The area under the ROC curve over the samples of all workers: the chance that a sample with
    label 1 has a higher score than one with label 0, where an equal score counts half.

    scores: numbers of any shape, logits or probabilities. labels: as many, each 0 or 1. A worker
    may have none. Every live worker calls it, and all get the same exact number; NaN where only one
    kind of label exists. A worker that dies in it and is back before the others have come counts
    once; otherwise they go on with what it had brought, all or nothing. Without cairn.init() it is
    the AUC of this process. Blocks; each worker fetches 24 bytes for each distinct score of each.
    """
    counts = _count(*_checked(scores, labels))
    if context.initialised():
        counts = _merged(_of_all_workers(counts))
    return _area(counts)


def _checked(scores: Any, labels: Any) -> tuple[torch.Tensor, torch.Tensor]:
    scores, labels = torch.as_tensor(scores).detach(), torch.as_tensor(labels).detach()
    if scores.numel() != labels.numel():
        raise InvalidArgumentError(
            f"{scores.numel()} scores and {labels.numel()} labels: give one label for each score")
    if scores.is_complex() or labels.is_complex():
        raise InvalidArgumentError("complex numbers have no order: give real scores and labels")
    scores, labels = scores.flatten().cpu().double(), labels.flatten().cpu()
    if scores.isnan().any():
        raise InvalidArgumentError(
            f"{int(scores.isnan().sum())} of {scores.numel()} scores are NaN, which has no rank: "
            "has the training diverged?")
    if not ((labels == 0) | (labels == 1)).all():
        wrong = labels[(labels != 0) & (labels != 1)][0].item()
        raise InvalidArgumentError(f"a label is {wrong}: they are 0 or 1")
    return scores, labels.bool()


def _count(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """int64 [n, 3], a row for each distinct score: its place in the order, how many samples with
    label 0 have it, how many with label 1."""
    # The bits of a double, read as an integer, have the order of the numbers once the negative ones
    # are turned round. Adding 0.0 makes -0.0 the same as 0.0.
    bits = (scores + 0.0).view(torch.int64)
    order = torch.where(bits < 0, bits ^ torch.iinfo(torch.int64).max, bits)
    ones = labels.long()
    return _merged(torch.stack([order, 1 - ones, ones], 1))


def _merged(rows: torch.Tensor) -> torch.Tensor:
    """Rows with the same score become one; in the order of scores."""
    order, at = rows[:, 0].unique(return_inverse=True)
    sums = torch.zeros(len(order), 2, dtype=torch.int64).index_add_(0, at, rows[:, 1:])
    return torch.cat([order[:, None], sums], 1)


def _area(counts: torch.Tensor) -> float:
    zeros, ones = counts[:, 1], counts[:, 2]
    below = zeros.cumsum(0) - zeros
    # In integers to the end, so that it is exact and the same everywhere.
    twice_won = int((ones * (2 * below + zeros)).sum())
    pairs = int(zeros.sum()) * int(ones.sum())
    return twice_won / (2 * pairs) if pairs else float("nan")


def _of_all_workers(mine: torch.Tensor) -> torch.Tensor:
    """The rows of every worker, in any order."""
    ctx = context.current()
    calls = FirstWins(ctx.client, "metrics/auc")
    call = _current_call(calls)
    names = f"metrics/auc-{call}", f"metrics/auc-{call}/scores"
    place = _Place(FirstWins(ctx.client, names[0]), ctx.rank, int(ctx.client.incarnation))
    scores = _Scores(ctx.client, names[1])
    scores.push(place.key, mine)
    place.fill(len(mine))
    ctx.client.barrier()
    everything = torch.cat([scores.pull(key, count) for key, count in place.all_filled()])
    calls.push([call], [[1, 0]]).wait()
    ctx.client.barrier()
    if ctx.rank == min(ctx.client.live_ranks(), default=ctx.rank):
        for name in names:
            try:
                ctx.client.drop_table(name)
            except NotFoundError:
                pass  # a worker with another view of who is alive was faster
    return everything


def _current_call(calls: FirstWins) -> int:
    """The first one that is not over. One ends between its two barriers, so all who are in it, also
    a worker that was started again, read the same number."""
    for begin in range(0, _MOST, _AT_ONCE):
        still_open = (calls.pull(torch.arange(begin, begin + _AT_ONCE))[:, 0] == 0).nonzero()
        if len(still_open):
            return begin + int(still_open[0])
    raise InvalidArgumentError(f"{_MOST} calls of auc() in one job are the most")


class _Place:
    """Where in a call's table a worker's rows lie. A worker that died in the call and was started
    again brings its rows once more: it takes the next place of its rank, and only the last one that
    was filled counts. Row of a place: [incarnation of its owner, 1 + number of rows once filled].
    """

    def __init__(self, places: FirstWins, rank: int, incarnation: int) -> None:
        self._places = places
        for key in range(rank, _MOST, _MOST_RANKS):
            pending, row = places.push_pull(key, [incarnation, 0])
            pending.wait()
            if int(row[0]) == incarnation:
                self.key = key
                return
        raise InvalidArgumentError(f"rank {rank} was started too often")

    def fill(self, count: int) -> None:
        self._places.push([self.key], [[0, count + 1]]).wait()

    def all_filled(self) -> list[tuple[int, int]]:
        """(key, number of rows) of every worker that takes part. Those who joined later may have
        any rank, so the look ends where a whole range has nobody."""
        found: dict[int, tuple[int, int]] = {}
        for begin in range(0, _MOST_RANKS, _AT_ONCE):
            before = len(found)
            for first in range(begin, _MOST, _MOST_RANKS):
                owners, filled = self._places.pull(torch.arange(first, first + _AT_ONCE)).unbind(1)
                if not owners.any():
                    break
                for i in filled.nonzero().flatten().tolist():
                    found[begin + i] = first + i, int(filled[i]) - 1
            if len(found) == before:
                break
        return list(found.values())


class _Scores:
    """Rows of three int64, those of a place one after the other."""

    def __init__(self, client: _core.Client, name: str) -> None:
        self._table = client.create_sparse(name, 3, dtype="int64", mode="async", optimizer="sum")

    def _pieces(self, place: int, count: int) -> Iterator[tuple[torch.Tensor, slice]]:
        for begin in range(0, count, _ROWS_AT_ONCE):
            piece = slice(begin, min(begin + _ROWS_AT_ONCE, count))
            yield torch.arange(piece.start, piece.stop) + place * _ROWS, piece

    def push(self, place: int, rows: torch.Tensor) -> None:
        rows = rows.contiguous()
        for keys, piece in self._pieces(place, len(rows)):
            self._table.push(keys.data_ptr(), len(keys), rows[piece].data_ptr(),
                             keep=(keys, rows)).wait()

    def pull(self, place: int, count: int) -> torch.Tensor:
        out = torch.empty(count, 3, dtype=torch.int64)
        for keys, piece in self._pieces(place, count):
            self._table.pull(keys.data_ptr(), len(keys), out[piece].data_ptr(),
                             keep=(keys, out)).wait()
        return out
