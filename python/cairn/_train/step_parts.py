"""What a step of a DistributedOptimizer is made of: a part for each table on the servers, for all-reduced
parameters, for buffers, for rows that are read ahead, for an update that the worker makes itself. What a
model does not have is no part of its steps, so no code asks whether it is there.

A step (step.py) calls one phase of all its parts, then the next phase:

    look, prepare   this worker's gradients are looked at; nothing has been sent
    reduce          before the trip: gradients are all-reduced, which may wait for other workers
    vote            first in the trip: how the all-reduce went
    begin           in one phase: the rounds of the tables
    contribute      in two phases: gradients are summed up on the servers
    decide          in two phases, in a second trip: the sums are applied or skipped
    follow          last in the trip of begin or decide: what goes with every step
    give_up         instead of decide, if some gradients could not be summed up; then follow

A phase begins calls and queues them in CallsUnderWay; they are waited for in that order. A kind of part has
work in some of the phases, and in the others does nothing. Parts live for one step.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from .. import _core
from .._allreduce.allreduced import AllReduced
from .._allreduce.joined_vote import JoinedVote, Polled
from .._tables.finite_gradients import is_refused, not_finite
from .._tables.optimizer_settings import Hyper
from .._tables.weight import NO_WEIGHT, Weight
from ..errors import DeadlineExceededError, Error, NotFiniteError
from . import late_joiner
from .join import RoundWithoutData
from .overlap import Overlap
from .served_buffers import ServedTensors
from .served_parts import OnServers
from .served_rows import Gradients, ServedRows
from .served_tables import ServedTables

Begun = list[RoundWithoutData]  # what a phase has begun

_SKIP_TIMEOUT_MS = 1000


@dataclass(frozen=True)
class Terms:
    """What this worker gives to a step."""

    weight: Weight = Weight()
    value_scale: float = 1.0  # of its gradients
    not_finite: bool = False  # its gradients are not finite, and are not sent
    joined: bool = False  # it has none, and agrees to everything
    two_phase: bool = False


@dataclass(frozen=True)
class Decision:
    """What is to become of a step in two phases."""

    scale: float = 1.0
    skip: bool = False
    given_up: bool = False  # not everything was summed up: don't wait for other workers


class Part:
    """One part of one step."""

    params: Sequence[torch.Tensor] = ()  # those whose gradients it sends
    names: Sequence[str] = ()
    finds_not_finite = False  # finds NaN and Inf by itself, before it sends anything

    def __init__(self, served: ServedTables) -> None:
        self._served, self._calls = served, served.calls
        self.gradients: Gradients = []

    def look(self) -> None:
        """At the gradients. May raise."""

    def prepare(self) -> None:
        """All parts have looked."""

    def reduce(self, terms: Terms) -> None:
        """May wait for other workers."""

    def vote(self, terms: Terms) -> Begun:
        return []

    def begin(self, terms: Terms) -> Begun:
        return []

    def contribute(self, terms: Terms) -> list[_core.Pending]:
        """The caller waits for what it returns."""
        return []

    def sent(self) -> Gradients:
        """The gradients that have left."""
        return self.gradients

    @property
    def finite(self) -> bool:
        """What all workers have given together. Ask when it has been waited for."""
        return True

    @property
    def sum_squares(self) -> float:
        """Of the mean gradient; the same holds."""
        return 0.0

    def decide(self, terms: Terms, decision: Decision) -> None:
        """Two phases: everything has been summed up."""

    def give_up(self, terms: Terms) -> list[_core.Pending]:
        """Two phases: something could not be summed up. The caller waits for what it returns."""
        return []

    def follow(self, terms: Terms, decision: Decision | None) -> Begun:
        """decision: None in one phase."""
        return []


class ServedPart(Part):
    """The gradients of one table."""

    finds_not_finite = True  # the core looks while it reads

    def __init__(self, served: ServedTables, table: OnServers) -> None:
        super().__init__(served)
        self.params, self.names, self._table = table.params, table.names, table
        self._seen: Hyper | None = None
        self._sums: _core.Pending | None = None

    def _hyper(self) -> Hyper:
        return self._table.hyper(self._served.optimizer)

    def look(self) -> None:
        self.gradients, self._seen = self._table.gradients(), self._hyper()

    def prepare(self) -> None:
        assert self._seen is not None
        self._table.prepare(self.gradients, self._seen)

    def begin(self, terms: Terms) -> Begun:
        if self._served.bounded:
            return self._begin_bounded(terms)
        if terms.joined:
            pending = self._leave_out()
        elif terms.not_finite:
            pending = None  # Async: nobody waits for it
        else:
            pending = self._step(terms)
        if pending is None:
            return []
        self._table.expect(self._calls, pending)
        return [pending]

    def _leave_out(self) -> _core.Pending | None:
        return self._table.done(self._hyper(), NO_WEIGHT, joined=True) if self._served.sync else None

    def _step(self, terms: Terms) -> _core.Pending | None:
        sync = self._served.sync
        pending = self._table.step(self.gradients, self._hyper(), terms.weight if sync else Weight(), sync)
        if pending is not None and is_refused(pending):  # of several parts none is: they have been looked at
            raise NotFiniteError(not_finite(self.names, self.gradients))
        return pending

    def _begin_bounded(self, terms: Terms) -> Begun:
        """The gradient goes, this worker's step is over, and what is read then is within the bound."""
        given = None if terms.not_finite else self._table.give(self.gradients, self._hyper())
        if given is not None and is_refused(given):
            raise NotFiniteError(not_finite(self.names, self.gradients))
        assert self._table.table is not None
        self._table.table.end_step()
        values = self._table.read()
        if given is not None:
            self._table.expect(self._calls, given) if values is None else self._calls.expect(given)
        if values is not None:
            self._table.expect(self._calls, values)
        return [pending for pending in (given, values) if pending is not None]

    def contribute(self, terms: Terms) -> list[_core.Pending]:
        self._sums = self._contribute(terms)
        return [self._sums]

    def _contribute(self, terms: Terms) -> _core.Pending:
        hyper = self._hyper()
        if not terms.not_finite:
            pending = self._table.contribute(self.gradients, hyper, terms.weight, terms.value_scale)
            if not is_refused(pending):
                return pending
        # All are told, so that nobody waits for us.
        return self._table.contribute_not_finite(hyper, terms.weight)

    @property
    def finite(self) -> bool:
        return self._sums is None or self._sums.finite

    @property
    def sum_squares(self) -> float:
        return 0.0 if self._sums is None else self._sums.sum_squares

    def decide(self, terms: Terms, decision: Decision) -> None:
        pending = self._table.decide(self._hyper(), terms.weight, decision.scale, decision.skip, 0)
        if decision.skip and self._table.reduces_only:
            self._calls.expect(pending)  # nothing was reduced
        else:
            self._calls.expect(pending, self._table.store)

    def give_up(self, terms: Terms) -> list[_core.Pending]:
        assert self._sums is not None
        try:
            self._sums.wait()
        except DeadlineExceededError:
            pass  # it may still be summed up, and nothing else can follow on this table before
        except Error:
            return []
        return [self._table.decide(self._hyper(), terms.weight, 1.0, True, _SKIP_TIMEOUT_MS)]


class BegunInBackward(ServedPart):
    """overlap=True: most of it has begun."""

    def __init__(self, overlap: Overlap, served: ServedTables, table: OnServers) -> None:
        super().__init__(served, table)
        self._overlap = overlap

    def _step(self, terms: Terms) -> _core.Pending | None:
        return self._overlap.start(self._table)


class RowsAhead(Part):
    """What cairn.prefetch has asked of a table of rows, as it is after the step."""

    def __init__(self, served: ServedTables, rows: ServedRows) -> None:
        super().__init__(served)
        self._rows = rows

    def follow(self, terms: Terms, decision: Decision | None) -> Begun:
        if decision is None or not decision.given_up:
            self._rows.fetch(self._calls)
        return []


class UpdateHere(Part):
    """update="worker": the inner optimizer's step, with the mean that the tables hold."""

    def follow(self, terms: Terms, decision: Decision | None) -> Begun:
        if decision is None or not decision.skip:
            self._calls.expect_once(self._served.update_here)
        return []


class SharedBuffers(Part):
    """The model's buffers: in Sync() a round of their own in every step, so that all tables stay together."""

    def __init__(self, served: ServedTables, buffers: ServedTensors) -> None:
        super().__init__(served)
        self._buffers = buffers

    def follow(self, terms: Terms, decision: Decision | None) -> Begun:
        if self._served.sync:
            shared = self._buffers.give_and_take(self._served.gives(), terms.joined)
            self._calls.expect_call(partial(self._buffers.finish, shared))
            return [shared]
        if not terms.joined and self._served.gives():
            self._calls.expect(self._buffers.give(once=False))
        return []


class ReducedPart(Part):
    """Parameters that are all-reduced among the workers."""

    def __init__(self, served: ServedTables, reduced: AllReduced) -> None:
        super().__init__(served)
        self.params, self.names, self._reduced = reduced.params, reduced.names, reduced
        self._decision = Decision()

    def look(self) -> None:
        self.gradients = self.sent()

    def reduce(self, terms: Terms) -> None:
        reduced = self._reduced
        if terms.joined:
            return reduced.contribute(*NO_WEIGHT, joined=True, wait=False)
        contribute = partial(reduced.contribute, *terms.weight, terms.value_scale, terms.not_finite,
                             two_phase=terms.two_phase)
        if late_joiner.may_be_needed(self._served):  # others may wait for us elsewhere meanwhile
            contribute(wait=False)
            self._served.wait_for(Polled(reduced))
        contribute()

    def vote(self, terms: Terms) -> Begun:
        """Waited for before all others: as long as the workers don't agree, none of them can go on."""
        vote: Any = JoinedVote(self._reduced) if terms.joined else self._reduced.vote()
        if terms.joined:  # it is given only when the others have data to reduce
            self._calls.expect_call(vote.wait)
        self._calls.expect_call(partial(self._served.wait_for, vote))
        self._calls.expect_call(partial(self._reduced.settle, vote))
        return [vote]

    def sent(self) -> Gradients:
        return [param.grad for param in self.params]

    @property
    def finite(self) -> bool:
        return self._reduced.info.finite

    @property
    def sum_squares(self) -> float:
        return self._reduced.info.sum_squares

    def follow(self, terms: Terms, decision: Decision | None) -> Begun:
        if decision is not None:
            self._decision = decision
            decided = self._reduced.decide(decision.scale, decision.skip)
            if decision.given_up:
                if decided.wait_for(_SKIP_TIMEOUT_MS):
                    self._reduced.apply(skip=True)  # else the next step does that
                return []
            self._calls.expect_call(partial(self._served.wait_for, decided))
        self._calls.expect_call(self._apply)
        return []

    def _apply(self) -> None:
        self._reduced.apply(self._decision.scale, self._decision.skip or not self.finite)


def parts_of(served: ServedTables, overlap: Overlap | None = None) -> list[Part]:
    """Of a step that begins now. overlap: of one whose gradients have left in backward."""
    of_table: Callable[[ServedTables, OnServers], Part] = ServedPart
    if overlap is not None:
        of_table = partial(BegunInBackward, overlap)
    return [*(of_table(served, table) for table in served.on_servers),
            *(RowsAhead(served, rows) for rows in served.tables),
            *([UpdateHere(served)] if served.reduces_only else []),
            *(SharedBuffers(served, buffers) for buffers in served.buffers),
            *(ReducedPart(served, reduced) for reduced in served.reduced)]
