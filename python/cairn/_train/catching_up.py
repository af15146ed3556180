"""How a late joiner (a worker that joins a running job) gets in step with the others (sync tables only).

A step is one round of each table of a wrap, but a table's rounds also count assigns, and the view
in which a worker joins may catch one table before the end of its round and another one after it. So
the root tells in a small table, whenever no step is under way, how far the tables' rounds are apart;
the late joiner takes part without a gradient where a table is behind. Parameters that are all-reduced
count their steps themselves (AllReduced.steps): how far those are from the rounds is told too.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import torch

from .. import _core
from .._allreduce.allreduced import AllReduced
from .._tables.cpu_memory import FLOATS
from .._tables.optimizer_settings import NO_HYPER
from .._tables.weight import NO_WEIGHT
from ..modes import Async
from .served_buffers import ServedTensors
from .served_group import ServedGroup
from .served_parts import OnServers
from .served_tables import ServedTables


class CatchingUp:
    def __init__(self, served: ServedTables) -> None:
        self._served = served
        self._distances: ServedTensors | None = None

    def _tables(self) -> list[_core.DenseTable | _core.SparseTable]:
        """Those of the parts; that of the buffers comes last."""
        return [one.table for one in self._with_rounds() if one.table is not None]

    def _with_rounds(self) -> list[OnServers | ServedTensors]:
        return [*self._served.on_servers, *self._served.buffers]

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
        steps = next((reduced.steps for reduced in served.reduced), 0)
        told = self._table_of_distances(len(rounds))
        told.tensors[0].copy_(torch.tensor([*(float(r - rounds[0]) for r in rounds),
                                            float(rounds[0] - steps)]))
        told.give(once=False).wait()

    def catch_up(self, joined: list[AllReduced]) -> None:
        """Takes the values of everything, each of them after the same step. joined: what is all-reduced
        and has been begun by the others."""
        begun = self._served.sync and any(table.round() > 0 for table in self._tables())
        if joined and begun and not self._alone():
            return self._catch_up_both(*joined)
        if begun:
            self._catch_up_tables()
        for reduced in joined:
            self._catch_up_reduced(reduced)

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
            for one, lag in zip(self._with_rounds(), behind):
                if lag == more == 0:
                    self._take_values(one)
            self._begin_marks([lag > more for lag in behind])
            served.calls.finish()

    def _take_values(self, one: OnServers | ServedTensors) -> None:
        calls = self._served.calls
        if isinstance(one, ServedGroup):
            assert one.table is not None
            calls.expect(one.table.pull(one.targets(), one.sizes, keep=one.keep()), one.store)
        elif isinstance(one, ServedTensors):
            calls.expect(one.take(when_assigned=False), one.store)

    def _begin_marks(self, wanted: Iterable[bool]) -> None:
        """A step without a gradient, in those of the tables that are wanted."""
        served = self._served
        with served.trip():
            for one, wants_it in zip(self._with_rounds(), wanted):
                if not wants_it:
                    continue
                if isinstance(one, ServedTensors):
                    shared = one.give_and_take(gives=False, joined=True)
                    served.calls.expect_call(partial(one.finish, shared))
                else:
                    pending = one.done(NO_HYPER, NO_WEIGHT, joined=True)
                    served.calls.expect(pending, one.store if isinstance(one, ServedGroup) else lambda: None)

    def _catch_up_reduced(self, reduced: AllReduced) -> None:
        served = self._served
        assert served.context is not None
        reduced.attach(served.context, served.name)
        if reduced.joined_step is not None:
            reduced.apply()

    def _catch_up_both(self, reduced: AllReduced) -> None:
        """Tables, and parameters that are all-reduced. The others learn of this worker when they vote on
        a step, and say then which one it is. They get there only if no table waits for its mark; and a
        round in two phases is decided only after the vote. So it marks first, votes, and waits last."""
        rounds = [table.round() for table in self._tables()]
        assert self._served.context is not None
        *distances, base = map(int, self._told(len(rounds)))
        marked = [r - distance - base for r, distance in zip(rounds, distances)]  # steps
        with self._served.trip():
            ends = [self._begin_mark(one) for one in self._with_rounds()]

        def mark_through(step: int) -> None:
            for i in range(len(marked)):
                while marked[i] < step:
                    ends[i]()
                    ends[i], marked[i] = self._begin_mark(self._with_rounds()[i]), marked[i] + 1

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

    def _begin_mark(self, one: OnServers | ServedTensors) -> Callable[[], object]:
        """A step of one table without a gradient. Call what it returns: it waits, and takes the values."""
        if isinstance(one, ServedTensors):
            return partial(one.finish, one.give_and_take(gives=False, joined=True))
        pending = one.done(NO_HYPER, NO_WEIGHT, joined=True)

        def end() -> None:
            pending.wait()
            if isinstance(one, ServedGroup):
                one.store()

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
