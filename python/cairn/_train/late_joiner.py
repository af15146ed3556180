"""A late joiner (a worker that has joined a running job) in a loop that steps several optimizers.

It joined between two calls of the others: they may be about to step the second optimizer when the late
joiner, whose loop begins at its beginning, waits in the first, and each would wait for the other for ever.
So a worker that waits in a step for long tells the others in a small table (its rank: which optimizer,
which round). A late joiner that waits in one optimizer's step while another worker waits for it in a second
one takes part there without a gradient, as in join(). It does so until the loops are in step.
"""
from __future__ import annotations

import weakref
from itertools import chain
from typing import Protocol

import torch

from .. import _core
from .._runtime.calls_under_way import Awaited
from .._tables.cpu_memory import FLOATS, INTEGERS
from .._tables.optimizer_settings import NO_HYPER
from .served_parts import OnServers
from .served_tables import ServedTables

PATIENCE_MS = 100  # most steps end sooner, and nobody is told
_TURN_MS = 20  # between two looks of a late joiner
_PART = 1 << 20  # a round as two numbers that float32 holds exactly


class LateJoiner(Protocol):
    """A DistributedOptimizer, as far as it is asked here."""

    @property
    def _served(self) -> ServedTables: ...

    def _take_part(self, waited_for: bool) -> None:
        """Takes part in a step without a gradient, if it is waited for there, or ends such a step."""


_all: weakref.WeakSet[ServedTables] = weakref.WeakSet()
_late_joiners: weakref.WeakSet[LateJoiner] = weakref.WeakSet()


def add(optimizer: LateJoiner, joins: bool) -> None:
    """`joins`: it has joined a running job."""
    _all.add(optimizer._served)
    if joins:
        _late_joiners.add(optimizer)


def may_be_needed(served: ServedTables) -> bool:
    """One optimizer alone can't be waited for in another one."""
    ctx = served.context
    return served.sync and ctx is not None and not ctx.embedded and len(_all) > 1


def wait_for(served: ServedTables, pending: Awaited) -> None:
    """Waits for a call of a step until it ends, or until there is nothing to do but wait."""
    if not may_be_needed(served) or pending.ready() or pending.wait_for(PATIENCE_MS):
        return
    assert served.context is not None
    table = _table(served.context.client)
    _tell(table, served)
    others = [other for other in _late_joiners if other._served is not served]
    while others and not pending.wait_for(_TURN_MS):
        waiting = _read(table, served)
        for other in others:
            other._take_part(waited_for=_place(other._served, given=False) in waiting)


def _table(client: _core.Client) -> _core.SparseTable:
    return client.create_sparse("steps waited in", 3, mode="async", optimizer="sum")


def _place(served: ServedTables, *, given: bool) -> tuple[int, int]:
    """The optimizer, and its round: the one to which this worker has given its part, or its next. What
    is all-reduced counts its steps, of which one is under way until it is applied."""
    places = chain((reduced.steps for reduced in served.reduced),
                   (_round(part) - given for part in served.on_servers))
    return served.number, next(places)


def _round(part: OnServers) -> int:
    assert part.table is not None
    return part.table.round()


def _tell(table: _core.SparseTable, served: ServedTables) -> None:
    assert served.context is not None
    number, turn = _place(served, given=True)
    key = torch.tensor([served.context.rank], **INTEGERS)
    row = torch.tensor([1 + number, turn // _PART, turn % _PART], **FLOATS)
    table.push(key.data_ptr(), 1, row.data_ptr(), NO_HYPER, op=_core.OP_ASSIGN, keep=(key, row))


def _read(table: _core.SparseTable, served: ServedTables) -> set[tuple[int, int]]:
    assert served.context is not None
    live = [rank for rank in served.context.client.live_ranks() if rank != served.context.rank]
    if not live:
        return set()
    keys, rows = torch.tensor(live, **INTEGERS), torch.zeros(len(live), 3, **FLOATS)
    table.pull(keys.data_ptr(), len(live), rows.data_ptr(), keep=(keys, rows)).wait()
    return {(int(number) - 1, int(high) * _PART + int(low)) for number, high, low in rows.tolist()
            if number > 0}
