"""How a worker that joins a running job gets in step with the others (sync tables only).

A step is one round of each table of a wrap, but a table's rounds also count assigns, and the view
in which a worker joins may catch one table before the end of its round and another one after it. So
the root tells in a small table, whenever no step is under way, how far the tables' rounds are apart;
who joins takes part without a gradient where a table is behind.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from . import _core
from .modes import Async
from .optimizer_settings import NO_HYPER
from .served_buffers import ServedTensors

if TYPE_CHECKING:
    from .served_model import ServedModel


class Joining:
    def __init__(self, served: ServedModel) -> None:
        self._served = served
        self._distances: ServedTensors | None = None

    def _tables(self) -> list[_core.DenseTable]:
        served = self._served
        tables = [group.table for group in served.groups]
        if served.buffers is not None:
            tables.append(served.buffers.table)
        return [table for table in tables if table is not None]

    def _table_of_distances(self, count: int) -> ServedTensors:
        if self._distances is None or self._distances.tensors[0].numel() != count:
            self._distances = ServedTensors([torch.zeros(count)])
            self._served.make_table(self._distances, f"rounds-of-{count}", Async())
        return self._distances

    def tell(self) -> None:
        """Called where this worker has ended the last round of every table. Waits for nobody."""
        served = self._served
        assert served.context is not None
        if not served.sync or served.context.embedded or not served.gives():
            return
        rounds = [table.round() for table in self._tables()]
        distances = self._table_of_distances(len(rounds))
        distances.tensors[0].copy_(torch.tensor([float(r - rounds[0]) for r in rounds]))
        distances.give(once=False).wait()

    def catch_up(self) -> None:
        """Takes the values of all tables, each of them after the same step."""
        served = self._served
        behind = self._behind()
        # All at once: the others may need the mark of one table before they go on with another one.
        for more in range(max(behind) or 1):
            for group, lag in zip(served.groups, behind):
                assert group.table is not None
                targets, keep = group.targets(), group.keep()
                if lag > more:
                    pending = group.table.done_pull(targets, group.sizes, NO_HYPER, weight=0.0,
                                                    joined=True, keep=keep)
                elif more == 0:
                    pending = group.table.pull(targets, group.sizes, keep=keep)
                else:
                    continue
                served.calls.expect(pending, group.store)
            if served.buffers is not None and (more == 0 or behind[-1] > more):
                self._take_buffers(served.buffers, idle=behind[-1] > more)
            served.calls.finish()

    def _behind(self) -> list[int]:
        """How many rounds each table is behind the one that is furthest."""
        served = self._served
        rounds = [table.round() for table in self._tables()]
        assert served.context is not None
        if served.context.client.live_ranks() in ([], [served.context.rank]):
            return [0] * len(rounds)  # the only worker was started again: there are no others
        distances = self._table_of_distances(len(rounds))
        served.calls.wait(distances.take(when_assigned=True), distances.store)
        steps = [r - int(d) for r, d in zip(rounds, distances.tensors[0].tolist())]
        return [max(steps) - step for step in steps]

    def _take_buffers(self, buffers: ServedTensors, idle: bool) -> None:
        if not idle:
            return self._served.calls.expect(buffers.take(when_assigned=False), buffers.store)
        pending = buffers.give_and_take(gives=False, joined=True)
        self._served.calls.expect_call(lambda: (buffers.finish(pending), None)[1])
