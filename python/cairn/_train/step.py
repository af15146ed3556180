"""One step of a DistributedOptimizer, from what the worker gives to the new values.

    new ── begin() ─────────────────────────────────────────▶ begun ──▶ ended
     │                                                          ▲
     └── contribute() ──▶ contributed ──▶ summed up ── decide() ┘
                               └────────▶ given up

A step begins the rounds of all tables before it waits for any: tables have their own rounds, and two workers
that waited in different orders would wait for each other. They travel together, one round trip for all of
them. Whatever a Ctrl-C interrupts has been begun on all tables; the next call ends it as the other workers
expect. What the parts do in each phase: step_parts.py.
"""
from __future__ import annotations

import contextlib
import enum
import math
from collections.abc import Sequence

from .._runtime.calls_under_way import interrupts_later
from .._tables.finite_gradients import all_finite, not_finite
from ..errors import Error, NotFiniteError
from .served_tables import ServedTables
from .step_parts import Begun, Decision, Part, Terms


class State(enum.Enum):
    NEW = enum.auto()  # no round of a table has begun
    CONTRIBUTED = enum.auto()  # two phases: the gradients of all workers are being summed up
    SUMMED_UP = enum.auto()  # two phases: nothing is applied before the decision
    GIVEN_UP = enum.auto()  # two phases: something could not be summed up, nothing is applied
    BEGUN = enum.auto()  # the servers apply or skip it, whether this worker waits or not
    ENDED = enum.auto()


_NEXT = {  # a Ctrl-C in a second sum_up() takes a step back from "summed up"
    State.NEW: {State.BEGUN, State.CONTRIBUTED},
    State.CONTRIBUTED: {State.CONTRIBUTED, State.SUMMED_UP, State.GIVEN_UP},
    State.SUMMED_UP: {State.CONTRIBUTED, State.SUMMED_UP, State.GIVEN_UP, State.BEGUN},
    State.GIVEN_UP: set[State](),
    State.BEGUN: {State.ENDED},
    State.ENDED: set[State](),
}


class Step:
    def __init__(self, served: ServedTables, terms: Terms, parts: Sequence[Part]) -> None:
        self._served, self.terms, self._parts = served, terms, parts
        self.state = State.NEW
        self.limits: list[float] = []  # of the norm, one a clip_grad_norm_()
        self.told = True  # clip_grad_norm_() has returned the norm for the last limit

    def _become(self, state: State) -> None:
        assert state in _NEXT[self.state], f"a step that is {self.state} becomes {state}"
        self.state = state

    # New: what this worker gives.
    def look(self) -> None:
        """At all parts, before any is sent: what is wrong with one of them must stop them all."""
        for part in self._parts:
            part.look()
        for part in self._parts:
            part.prepare()

    def check_finite(self) -> None:
        """NaN or Inf in any of them stops them all. A single part that finds it by itself needs no look."""
        giving = [part for part in self._parts if part.params]
        if len(giving) < 2 and all(part.finds_not_finite for part in giving):
            return
        if all_finite([g for part in giving for g in part.gradients if g is not None]):
            return
        for part in giving:
            if not all_finite([g for g in part.gradients if g is not None]):
                raise NotFiniteError(not_finite(part.names, part.gradients))

    def reduce(self) -> None:
        for part in self._parts:
            part.reduce(self.terms)

    # One phase.
    def run(self) -> None:
        """From "new" to its end."""
        self.reduce()
        with interrupts_later():
            self.begin()
        self.finish()

    def begin(self) -> Begun:
        """Begins a round of every table; returns the calls under way. Call it with interrupts put off: a
        Ctrl-C between two tables would leave them at different steps."""
        terms, begun = self.terms, []
        with self._served.trip():
            for part in self._parts:
                begun += part.vote(terms)
            for part in self._parts:
                begun += part.begin(terms)
            begun += self._follow(None)
            self._is_begun()
        return begun

    def _follow(self, decision: Decision | None) -> Begun:
        return [begun for part in self._parts for begun in part.follow(self.terms, decision)]

    def _is_begun(self) -> None:
        """It ends after the last call that is queued now, whichever call of the optimizer waits for that."""
        self._become(State.BEGUN)
        self._served.calls.expect_call(self._end)

    def _end(self) -> None:
        if self.state is State.BEGUN:  # else: called again, after a Ctrl-C
            self._become(State.ENDED)

    def finish(self) -> None:
        self._served.calls.finish()

    # Two phases.
    def contribute(self) -> None:
        """The gradients leave, to be summed up. Call it with interrupts put off, too."""
        calls = self._served.calls
        with self._served.trip():
            for part in self._parts:
                part.vote(self.terms)
            pendings = [pending for part in self._parts for pending in part.contribute(self.terms)]
        for pending in pendings:
            calls.expect(pending)
        self._sent = [(param, gradient, -1 if gradient is None else gradient._version)
                      for part in self._parts for param, gradient in zip(part.params, part.sent())]
        self._become(State.CONTRIBUTED)

    @property
    def undecided(self) -> bool:
        return self.state in (State.CONTRIBUTED, State.SUMMED_UP)

    def same_gradients(self) -> bool:
        """As they were when they left."""
        return all(param.grad is gradient and (gradient is None or gradient._version == version)
                   for param, gradient, version in self._sent)

    def sum_up(self) -> None:
        """Waits until the gradients of all workers have been summed up."""
        try:
            self.finish()
        except Exception:
            self._give_up()
            raise
        except BaseException:
            self._become(State.CONTRIBUTED)
            raise
        self._become(State.SUMMED_UP)

    def _give_up(self) -> None:
        """Some tables could not be summed up (the workers disagree, or one of them is late): nothing
        is applied. Whoever is late may take long: the decision does not wait for its answer."""
        decisions = [pending for part in self._parts for pending in part.give_up(self.terms)]
        self._become(State.GIVEN_UP)
        self._follow(Decision(skip=True, given_up=True))
        for pending in decisions:
            with contextlib.suppress(Error):
                pending.wait()

    @property
    def finite(self) -> bool:
        """What was reduced, on all workers."""
        return all(part.finite for part in self._parts)

    def _clipped(self, limits: list[float]) -> tuple[float, float]:
        """The norm and the factor that so many clips lead to, each as torch computes it."""
        norm, scale = math.sqrt(sum(part.sum_squares for part in self._parts)), 1.0
        for limit in limits:
            factor = min(1.0, limit / (norm + 1e-6))
            norm, scale = norm * factor, scale * factor
        return norm, scale

    @property
    def norm(self) -> float:
        """What the last clip_grad_norm_() found."""
        return self._clipped(self.limits[:-1])[0] if self.finite else math.inf

    @property
    def scale(self) -> float:
        return self._clipped(self.limits)[1]

    def decide(self, *, skip: bool = False) -> bool:
        """Applies what was summed up, times its scale, unless some worker's part was not finite or
        it is to be skipped; false if it was skipped."""
        skip = skip or not self.finite
        decision = Decision(1.0 if skip else self.scale, skip)
        with interrupts_later():
            with self._served.trip():
                for part in self._parts:
                    part.decide(self.terms, decision)
                self._follow(decision)
                self._is_begun()
        self.finish()
        return not skip
