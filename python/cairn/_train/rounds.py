"""A step of a DistributedOptimizer as rounds of its tables: plain, in two phases, joined.

A step begins the rounds of all tables before it waits for any: tables have their own rounds, and
two workers that waited in different orders would wait for each other. They travel together, one
round trip for all of them. Whatever a Ctrl-C interrupts has been begun on all tables; the next call
ends it as the other workers expect.
"""
from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from .. import _core
from .._allreduce.allreduced import AllReduced
from .._allreduce.joined_vote import JoinedVote, Polled
from .._runtime.calls_under_way import interrupts_later
from .._tables.finite_gradients import all_finite, is_refused, not_finite
from .._tables.optimizer_settings import Hyper
from .._tables.weight import NO_WEIGHT, Weight
from ..errors import DeadlineExceededError, Error, HyperMismatchError, NotFiniteError
from . import late_joiner
from .join import RoundWithoutData
from .overlap import Overlap
from .served_model import ServedModel
from .served_parts import Part
from .served_rows import ServedRows
from .two_phase_step import Gradients, TwoPhaseStep

_SKIP_TIMEOUT_MS = 1000


class Rounds:
    def __init__(self, served: ServedModel, overlap: Overlap | None = None) -> None:
        self._served, self._overlap = served, overlap
        self.two_phase_step: TwoPhaseStep | None = None  # summed up, or about to be; not decided yet
        self.updates_here = False  # in the inner optimizer's own step

    def _hyper(self, part: Part) -> Hyper:
        return part.hyper(self._served.optimizer)

    def _gradients(self) -> list[Gradients]:
        """Of all parts, before any is sent: what is wrong with one of them must stop them all."""
        gradients = [part.gradients() for part in self._served.parts]
        hypers = [self._hyper(part) for part in self._served.parts]
        for part, found, hyper in zip(self._served.parts, gradients, hypers):
            part.prepare(found, hyper)
        return gradients

    def _finite_gradients(self) -> list[Gradients]:
        """The same, and NaN or Inf in any of them stops them all. A single part needs no look: the
        core looks while it reads."""
        gradients = self._gradients()
        reduced = self._served.reduced
        named = [(part.names, found) for part, found in zip(self._served.parts, gradients)]
        if reduced is not None:
            named.append((reduced.names, [param.grad for param in reduced.params]))
        several = len(named) > 1 or reduced is not None
        if several and not all_finite([g for _, found in named for g in found if g is not None]):
            for names, found in named:
                if not all_finite([g for g in found if g is not None]):
                    raise NotFiniteError(not_finite(names, found))
        return gradients

    def _begin(self, start: Callable[[Part], _core.Pending | None], *, joined: bool = False,
               receives: bool = True, votes: bool = True, scale: float = 1.0,
               skip: bool = False) -> list[RoundWithoutData]:
        """Begins a round of every table. Call it with interrupts put off: a Ctrl-C between two tables
        would leave them at different steps. What is all-reduced has been contributed before, and is
        applied with `scale` or skipped, if the workers agree on that; `votes`: they have not voted on the
        sums yet."""
        served = self._served
        with served.trip():
            pendings: list[RoundWithoutData] = []
            if served.reduced is not None and votes:
                pendings.append(self._begin_vote(served.reduced, joined))
            for part in served.parts:
                pending = start(part)
                if pending is not None:
                    pendings.append(pending)
                    served.calls.expect(pending, part.store if receives else lambda: None)
            for table in served.tables:
                table.fetch(served.calls)
            if receives and served.reduces_only:
                served.calls.expect_once(self._update_here)
            pendings += self._begin_buffers(joined)
            if served.reduced is not None:
                reduced = served.reduced
                if not votes:
                    decision = reduced.decide(scale, skip)
                    served.calls.expect_call(lambda: served.wait_for(decision))
                served.calls.expect_call(lambda: reduced.apply(scale, skip or not reduced.info.finite))
            return pendings

    def _begin_vote(self, reduced: AllReduced, joined: bool) -> RoundWithoutData:
        """Waited for before all others: as long as the workers don't agree, none of them can go on."""
        calls = self._served.calls
        vote: Any = JoinedVote(reduced) if joined else reduced.vote()
        if joined:  # it is given only when the others have data to reduce
            calls.expect_call(vote.wait)
        calls.expect_call(lambda: self._served.wait_for(vote))
        calls.expect_call(lambda: reduced.settle(vote))
        taken: RoundWithoutData = vote
        return taken

    def _reduce(self, reduced: AllReduced, weight: Weight, value_scale: float = 1.0,
                not_finite: bool = False, two_phase: bool = False) -> None:
        """Others may wait for us elsewhere meanwhile: late_joiner.py."""
        if late_joiner.may_be_needed(self._served):
            reduced.contribute(*weight, value_scale, not_finite, wait=False, two_phase=two_phase)
            self._served.wait_for(Polled(reduced))
        reduced.contribute(*weight, value_scale, not_finite, two_phase=two_phase)

    def _begin_buffers(self, joined: bool = False) -> list[_core.Pending]:
        served, buffers = self._served, self._served.buffers
        if buffers is None or not served.sync:
            return []
        shared = buffers.give_and_take(served.gives(), joined)
        served.calls.expect_call(lambda: (buffers.finish(shared), None)[1])
        return [shared]

    def _update_here(self) -> None:
        """update="worker": the gradients are the workers' mean now. A round that nobody gave a
        gradient to, or that was skipped, is no step."""
        if all(group.applied for group in self._served.groups):
            self.updates_here = True
            try:
                self._served.optimizer.step()
            finally:
                self.updates_here = False

    # One phase.
    def plain(self, weight: Weight) -> None:
        if self._overlap is not None:
            return self._overlapped(self._overlap)
        gradients = dict(zip(self._served.parts, self._finite_gradients()))
        reduced = self._served.reduced
        if reduced is not None:
            self._reduce(reduced, weight)
        with interrupts_later():
            self._begin(lambda part: self._step(part, gradients[part], weight))
        self._served.calls.finish()
        self._check_reduced()

    def _overlapped(self, overlap: Overlap) -> None:
        """Most of it has begun in backward."""
        with interrupts_later():
            if self._served.sync:
                self._begin(overlap.start)
            else:
                with self._served.trip():
                    self._begin_async(overlap.start)
            wrong = overlap.end()
        self._served.calls.finish()
        if wrong is not None:
            raise wrong

    def _check_reduced(self) -> None:
        reduced = self._served.reduced
        if reduced is not None and not reduced.info.finite:
            raise NotFiniteError("the mean of the all-reduced gradients is NaN or infinite: they were not "
                                 "applied on any worker. Look for the cause in the loss, or use "
                                 "torch.amp.GradScaler")

    def _step(self, part: Part, gradients: Gradients, weight: Weight) -> _core.Pending | None:
        pending = part.step(gradients, self._hyper(part), weight, self._served.sync)
        if pending is not None and is_refused(pending):  # of several parts none is: they have been looked at
            raise NotFiniteError(not_finite(part.names, gradients))
        return pending

    def step_async(self, weight: Weight, value_scale: float, skips: bool) -> bool:
        """`skips`: this worker's gradients are not finite, under a GradScaler. False if what is
        all-reduced was not applied for such a reason on some worker."""
        served = self._served
        if self._overlap is not None:
            self._overlapped(self._overlap)
            return True
        gradients = {} if skips else dict(zip(served.parts, self._finite_gradients()))
        if served.reduced is not None:
            self._reduce(served.reduced, weight, value_scale, skips)
        with interrupts_later(), served.trip():
            if served.reduced is not None:
                self._begin_vote(served.reduced, joined=False)
            self._begin_async(lambda part: self._step(part, gradients[part], Weight()) if gradients else None)
            if served.reduced is not None:
                reduced = served.reduced
                served.calls.expect_call(lambda: reduced.apply(skip=not reduced.info.finite))
        served.calls.finish()
        return served.reduced is None or served.reduced.info.finite

    def _begin_async(self, start: Callable[[Part], _core.Pending | None]) -> None:
        served = self._served
        for part in served.parts:
            pending = start(part)
            if pending is None:
                continue
            if isinstance(part, ServedRows) and part.rows.source.cache is not None:
                part.rows.source.leave_under_way(pending)
                served.calls.expect_call(part.store)
            else:
                served.calls.expect(pending, part.store)
        for table in served.tables:
            table.fetch(served.calls)
        if served.buffers is not None and served.gives():
            served.calls.expect(served.buffers.give(once=False), lambda: None)

    def begin_joined(self) -> list[RoundWithoutData]:
        """One round without a gradient; its pendings tell whether every worker has run out of data."""
        if self._served.reduced is not None:
            self._served.reduced.contribute(*NO_WEIGHT, joined=True, wait=False)
        with interrupts_later():
            sync = self._served.sync
            return self._begin(lambda part: part.done(self._hyper(part), NO_WEIGHT, joined=True) if sync
                               else None,
                               joined=True)

    # Two phases.
    def contribute(self, weight: Weight, value_scale: float = 1.0, not_finite: bool = False,
                   limits: Sequence[float] = ()) -> TwoPhaseStep:
        """The parts of all workers are being summed up, none is applied. `summed_up` waits."""
        parts, reduced = self._served.parts, self._served.reduced
        sent = self._gradients()
        if reduced is not None:
            self._reduce(reduced, weight, value_scale, not_finite, two_phase=True)
        with interrupts_later():
            with self._served.trip():
                if reduced is not None:
                    self._begin_vote(reduced, joined=False)
                pendings = [self._contribute(part, gradients, weight, value_scale, not_finite)
                            for part, gradients in zip(parts, sent)]
            for pending in pendings:
                self._served.calls.expect(pending, lambda: None)
            self.two_phase_step = TwoPhaseStep(parts, sent, weight, pendings, reduced)
            self.two_phase_step.limits.extend(limits)
            self.two_phase_step.interrupted = True  # until it is summed up
        return self.two_phase_step

    def summed_up(self) -> None:
        step = self.two_phase_step
        assert step is not None
        try:
            self._served.calls.finish()
            step.interrupted = False
        except Exception:
            self._abandon(step)
            raise
        except BaseException:
            step.interrupted = True
            raise

    def _abandon(self, step: TwoPhaseStep) -> None:
        """Some tables could not be summed up (the workers disagree, or one of them is late): nothing
        is applied. Whoever is late may take long: the decision does not wait for its answer."""
        decisions = []
        for part, pending in zip(self._served.parts, step.pendings):
            try:
                pending.wait()
            except DeadlineExceededError:
                pass  # it may still be summed up, and nothing else can follow on this table before
            except Error:
                continue
            decisions.append(self._decide(part, step, skip=True, timeout_ms=_SKIP_TIMEOUT_MS))
        self.two_phase_step = None
        self._begin_buffers()  # as every step does, so that all workers' tables stay together
        reduced = step.reduced
        if reduced is not None and reduced.decide(1.0, skip=True).wait_for(_SKIP_TIMEOUT_MS):
            reduced.apply(skip=True)  # else the next step does that
        for decision in decisions:
            with contextlib.suppress(Error):
                decision.wait()

    def _contribute(self, part: Part, gradients: Gradients, weight: Weight, value_scale: float,
                    not_finite: bool) -> _core.Pending:
        hyper = self._hyper(part)
        if not not_finite:
            pending = part.contribute(gradients, hyper, weight, value_scale)
            if not is_refused(pending):
                return pending
        # All are told, so that nobody waits for us.
        return part.contribute_not_finite(hyper, weight)

    def _decide(self, part: Part, step: TwoPhaseStep, skip: bool, timeout_ms: int = 0) -> _core.Pending:
        scale = 1.0 if skip else step.scale
        return part.decide(self._hyper(part), step.weight, scale, skip, timeout_ms)

    def decide(self, *, skip: bool = False) -> bool:
        """Applies what was summed up, times its scale, unless some worker's part was not finite or
        it is to be skipped; false if it was skipped."""
        step = self.two_phase_step
        assert step is not None
        skip = skip or not step.finite
        with interrupts_later():
            self._begin(lambda part: self._decide(part, step, skip),
                        receives=not (skip and self._served.reduces_only), votes=False,
                        scale=1.0 if skip else step.scale, skip=skip)
            self.two_phase_step = None
        self._served.calls.finish()
        return not skip

    def drop(self) -> None:
        """Skips what was summed up. Workers that want to apply it are told that this one does not; it
        has what it wants."""
        with contextlib.suppress(HyperMismatchError):
            self.decide(skip=True)

    def clip(self, max_norm: float, weight: Weight) -> float:
        step = self.two_phase_step
        if step is not None and not step.same_gradients():
            self.drop()  # there was no step after the last one
        step = self.two_phase_step
        if step is None:
            step = self.contribute(weight, limits=[max_norm])
        elif step.told:
            step.limits.append(max_norm)
        else:  # a Ctrl-C came before it returned: this is the same call again
            step.limits[-1:] = [max_norm]
        step.told = False
        self.summed_up()
        norm = step.norm
        step.told = True
        return norm

    def check_clipped(self, weight: Weight, scaled: bool) -> None:
        """What was clipped is what the step is for. If not, this worker's error says why; workers that
        did nothing wrong get one that names it, and nobody applies the step."""
        step = self.two_phase_step
        assert step is not None
        why = ""
        if not step.same_gradients():
            why = ("gradients changed between clip_grad_norm_() and step(), after they had been "
                   "sent: change them before clip_grad_norm_()")
        elif scaled:
            why = ("the gradients that were clipped are scaled: call scaler.unscale_(optimizer) "
                   "before clip_grad_norm_()")
        elif weight.given and weight != step.weight:
            why = ("give samples= to clip_grad_norm_(), where the gradients leave, and the same to "
                   "step()")
        if why:
            self.drop()
            raise Error(f"{why}. The step was skipped")

    # After a Ctrl-C.
    def resume(self, *, steps: bool = False, clips: bool = False) -> bool:
        """Ends what was interrupted, before a step(), a clip_grad_norm_() or another call. The
        other workers go on to apply it, so it is applied; but a clip is left to the step() that it
        is for, and to the same clip_grad_norm_() again. True if there was anything."""
        step, calls = self.two_phase_step, self._served.calls
        interrupted = step is not None and step.interrupted
        if not interrupted and not calls.under_way():
            return False
        if interrupted:
            assert step is not None
            self.summed_up()
            if step.limits and step.same_gradients() and (steps or clips):
                if clips:
                    step.limits.clear()
                return True
        # The model may have other gradients by now, which are not this step's.
        held = [(param, param.grad) for param in self._served.params()]
        for param, _ in held:
            param.grad = None
        try:
            if interrupted:
                self.decide()
            else:
                calls.finish()
        finally:
            for param, grad in held:
                param.grad = grad
        return True
