"""One try of all members of a group to all-reduce a step's gradients.

The buckets, then one record of each worker: its weight, what it knows of its gradients, its
hyper-parameters. Buckets that left too early on any worker are all-reduced again. `poll` goes on
without waiting; the outcome is known when it returns True.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from .._runtime.calls_under_way import interrupts_later
from .buckets import Bucket, Buckets, Gradients
from .group import TURN_S, AttemptFailed, Group, Patience

_WEIGHT, _NOT_FINITE, _JOINED, _WEIGHTED, _TWO_PHASE, _HEADER = 0, 1, 2, 3, 4, 5


@dataclass
class Part:
    """What this worker gives to a step. joined: nothing, it has run out of data or is new."""

    weight: float
    factor: float  # weight × the scale of its gradients
    gradients: Gradients
    hypers: list[float]
    not_finite: bool = False
    joined: bool = False
    weighted: bool = False  # the weight was given by samples=
    two_phase: bool = False  # what becomes of the sums is decided after them, by a vote


@dataclass
class Sums:
    """The records of all workers: the same on each."""

    weight: float
    present: list[bool]  # of each parameter: somebody has a gradient
    not_finite: bool
    joined: list[int]  # ranks
    active: list[int]  # the other ranks
    hypers: list[list[float]]  # of the active ones
    weighted: list[bool]  # the same: samples= was given
    two_phase: list[bool]  # the same: to be decided


class Attempt:
    def __init__(self, group: Group | None, buckets: Buckets, part: Part,
                 patience: Patience | None, rank: int) -> None:
        self._group, self._buckets, self.part = group, buckets, part
        self._patience = patience
        self._rank = rank
        self.failure: AttemptFailed | None = None
        self.sums: Sums | None = None
        self._records: tuple[Any, list[torch.Tensor]] | None = None
        self._again: list[Bucket] | None = None

    @property
    def over(self) -> bool:
        return self.failure is not None or self.sums is not None and self._again == []

    def wait(self) -> None:
        """Until it is over. May be called again after a Ctrl-C."""
        while not self.poll(TURN_S):
            pass

    def poll(self, wait_s: float = 0.0) -> bool:
        """Waits so long at most. True: it is over."""
        if not self.over:
            try:
                self._go_on(wait_s)
                if not self.over and self._patience is not None:
                    self._patience.turn_if_due()
            except AttemptFailed as failure:
                self.failure = failure
        return self.over

    def fail(self, failure: AttemptFailed) -> None:
        self.failure = self.failure or failure

    def _go_on(self, wait_s: float) -> None:
        if self._group is None:
            self.sums, self._again = _summed([self._record([])], [self._rank], 0,
                                             len(self.part.gradients)), []
            return
        if self._records is None:
            with interrupts_later():
                self._launch(self._group)
        assert self._records is not None
        works = [b.work for b in self._buckets.buckets] + [self._records[0]]
        if self.sums is None:
            if not all(self._group.is_over(work, wait_s) for work in works):
                return
            with interrupts_later():
                self._read(self._group)
        assert self._again is not None
        while self._again:
            if not self._group.is_over(self._again[0].work, wait_s):
                return
            self._again.pop(0)

    def _launch(self, group: Group) -> None:
        part, buckets = self.part, self._buckets
        factor = 0.0 if part.joined or part.not_finite else part.factor
        buckets.launch_rest(part.gradients, factor, lambda bucket: _all_reduce(group, bucket))
        if any(bucket.work is None for bucket in buckets.buckets):
            raise AttemptFailed("a bucket could not leave during the backward pass")
        record = self._record([float(s) for s in buckets.stale(part.gradients, factor)])
        self._records = group.all_gather(record)

    def _record(self, stale: list[float]) -> torch.Tensor:
        part = self.part
        gives = not part.joined and not part.not_finite
        present = [float(gives and g is not None) for g in part.gradients]
        weight = 0.0 if part.joined else part.weight
        header = [weight, part.not_finite, part.joined, part.weighted, part.two_phase]
        return torch.tensor([*header, *stale, *present, *part.hypers], dtype=torch.float64)

    def _read(self, group: Group) -> None:
        assert self._records is not None
        buckets, params = self._buckets.buckets, self.part.gradients
        records = [record.cpu() for record in self._records[1]]
        sums = _summed(records, [m.rank for m in group.members], len(buckets), len(params))
        stale = [any(record[_HEADER + i] > 0 for record in records) for i in range(len(buckets))]
        if sums.not_finite:
            stale = [False] * len(buckets)  # it is skipped anyway
        part = self.part
        factor = 0.0 if part.joined or part.not_finite else part.factor
        self._again = [bucket for bucket, is_stale in zip(buckets, stale) if is_stale]
        for bucket in self._again:
            bucket.fill([part.gradients[i] for i in bucket.indices], self._buckets.params, factor, False)
            bucket.work = _all_reduce(group, bucket)
        self.sums = sums


def _all_reduce(group: Group, bucket: Bucket) -> Any:
    assert bucket.flat is not None
    return group.all_reduce(bucket.flat)


def _summed(records: list[torch.Tensor], ranks: list[int], buckets: int, params: int) -> Sums:
    first_present = _HEADER + buckets
    joined = [rank for rank, record in zip(ranks, records) if record[_JOINED] > 0]
    active = [(rank, record) for rank, record in zip(ranks, records) if record[_JOINED] == 0]
    present = torch.stack(records)[:, first_present:first_present + params].sum(0)
    return Sums(
        weight=float(sum(float(record[_WEIGHT]) for record in records)),
        present=(present > 0).tolist(),
        not_finite=any(bool(record[_NOT_FINITE] > 0) for record in records),
        joined=joined,
        active=[rank for rank, _ in active],
        hypers=[record[first_present + params:].tolist() for _, record in active],
        weighted=[bool(record[_WEIGHTED] > 0) for _, record in active],
        two_phase=[bool(record[_TWO_PHASE] > 0) for _, record in active],
    )
