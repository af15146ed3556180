"""How a late joiner (a worker that joins a running job) gets in step with the others (sync tables only).

A step is one round of each table of a wrap, but a table's rounds also count assigns, and the view
in which a worker joins may catch one table before the end of its round and another one after it. So
the root tells in a small table, whenever no step is under way, how far the tables' rounds are apart;
the late joiner takes part without a gradient where a table is behind. Parameters that are all-reduced
count their steps themselves (AllReduced.steps): how far those are from the rounds is told too.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from .. import _core
from .._tables.cpu_memory import FLOATS
from .._tables.optimizer_settings import NO_HYPER
from .._tables.weight import NO_WEIGHT
from ..modes import Async
from .served_buffers import ServedTensors
from .served_group import ServedGroup
from .served_tables import ServedTables


class CatchingUp:
    def __init__(self, served: ServedTables) -> None:
        self._served = served
        self._distances: ServedTensors | None = None

    def _tables(self) -> list[_core.DenseTable | _core.SparseTable]:
        """Those of the parts; that of the buffers comes last."""
        served = self._served
        tables = [part.table for part in served.parts]
        if served.buffers is not None:
            tables.append(served.buffers.table)
        return [table for table in tables if table is not None]

    def _table_of_distances(self, count: int) -> ServedTensors:
        """As many rounds, each as its distance from the first one, and that one's from the steps."""
        if self._distances is None or self._distances.tensors[0].numel() != count + 1:
            self._distances = ServedTensors([torch.zeros(count + 1, **FLOATS)])
            self._served.make_table(self._distances, f"rounds-of-{count}", Async())
        return self._distances

    def tell(self) -> None:
        """Called where this worker has ended the last round of every table. Waits for nobody."""
        served = self._served
        assert served.context is not None
        if not served.sync or served.context.embedded or not served.gives():
            return
        tables = self._tables()
        if not tables:
            return
        rounds = [table.round() for table in tables]
        steps = 0 if served.reduced is None else served.reduced.steps
        told = self._table_of_distances(len(rounds))
        told.tensors[0].copy_(torch.tensor([*(float(r - rounds[0]) for r in rounds),
                                            float(rounds[0] - steps)]))
        told.give(once=False).wait()

    def catch_up(self, *, with_reduced: bool = False) -> None:
        """Takes the values of everything, each of them after the same step."""
        begun = self._served.sync and any(table.round() > 0 for table in self._tables())
        if with_reduced and begun and not self._alone():
            return self._catch_up_both()
        if begun:
            self._catch_up_tables()
        if with_reduced:
            self._catch_up_reduced()

    def _alone(self) -> bool:
        """The only worker was started again: there are no others."""
        ctx = self._served.context
        assert ctx is not None
        return ctx.client.live_ranks() in ([], [ctx.rank])

    def _catch_up_tables(self) -> None:
        served = self._served
        behind = self._behind()
        # All at once: the others may need the mark of one table before they go on with another one.
        for more in range(max(behind) or 1):
            for group, lag in zip(served.groups, behind):
                if lag <= more and more == 0:
                    assert group.table is not None
                    pending = group.table.pull(group.targets(), group.sizes, keep=group.keep())
                    served.calls.expect(pending, group.store)
            if served.buffers is not None and more == 0 and behind[-1] == 0:
                served.calls.expect(served.buffers.take(when_assigned=False), served.buffers.store)
            self._begin_marks([lag > more for lag in behind])
            served.calls.finish()

    def _begin_marks(self, wanted: Iterable[bool]) -> None:
        """A step without a gradient, in those of the tables that are wanted."""
        served, wants = self._served, list(wanted)
        with served.trip():
            for part, wants_it in zip(served.parts, wants):
                if wants_it:
                    pending = part.done(NO_HYPER, NO_WEIGHT, joined=True)
                    served.calls.expect(pending, part.store if isinstance(part, ServedGroup)
                                        else lambda: None)
            buffers = served.buffers
            if buffers is not None and wants[-1]:
                shared = buffers.give_and_take(gives=False, joined=True)
                served.calls.expect_call(lambda: (buffers.finish(shared), None)[1])

    def _catch_up_reduced(self) -> None:
        served, reduced = self._served, self._served.reduced
        assert served.context is not None and reduced is not None
        reduced.attach(served.context, served.name)
        if reduced.joined_step is not None:
            reduced.apply()

    def _catch_up_both(self) -> None:
        """Tables, and parameters that are all-reduced. The others learn of this worker when they vote on
        a step, and say then which one it is. They get there only if no table waits for its mark; and a
        round in two phases is decided only after the vote. So it marks first, votes, and waits last."""
        reduced, rounds = self._served.reduced, [table.round() for table in self._tables()]
        assert self._served.context is not None and reduced is not None
        *distances, base = map(int, self._told(len(rounds)))
        marked = [r - distance - base for r, distance in zip(rounds, distances)]  # steps
        with self._served.trip():
            ends = [self._begin_mark(i) for i in range(len(marked))]

        def mark_through(step: int) -> None:
            for i in range(len(marked)):
                while marked[i] < step:
                    ends[i]()
                    ends[i], marked[i] = self._begin_mark(i), marked[i] + 1

        reduced.attach(self._served.context, self._served.name)
        if reduced.joined_step is not None:
            mark_through(reduced.joined_step)
            reduced.apply()
        while reduced.steps <= max(marked):  # some table began with the step after
            mark_through(reduced.steps)
            reduced.contribute(*NO_WEIGHT, joined=True)
            reduced.settle(reduced.vote())
            reduced.apply()
        for end in ends:
            end()

    def _begin_mark(self, index: int) -> Callable[[], None]:
        """A step of one table without a gradient. Call what it returns: it waits, and takes the values."""
        served = self._served
        if index == len(served.parts):
            buffers = served.buffers
            assert buffers is not None
            shared = buffers.give_and_take(gives=False, joined=True)
            return lambda: (buffers.finish(shared), None)[1]
        part = served.parts[index]
        pending = part.done(NO_HYPER, NO_WEIGHT, joined=True)

        def end() -> None:
            pending.wait()
            if isinstance(part, ServedGroup):
                part.store()

        return end

    def _told(self, count: int) -> list[float]:
        told = self._table_of_distances(count)
        self._served.calls.wait(told.take(when_assigned=True), told.store)
        return told.tensors[0].tolist()

    def _behind(self) -> list[int]:
        """How many rounds each table is behind the one that is furthest."""
        rounds = [table.round() for table in self._tables()]
        if self._alone():
            return [0] * len(rounds)
        steps = [r - int(d) for r, d in zip(rounds, self._told(len(rounds)))]
        return [max(steps) - step for step in steps]
