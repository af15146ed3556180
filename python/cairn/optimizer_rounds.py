"""A step of a DistributedOptimizer as rounds of its tables: plain, in two phases, joined.

A step begins the rounds of all tables before it waits for any: tables have their own rounds, and
two workers that waited in different orders would wait for each other. Whatever a Ctrl-C interrupts
has been begun on all tables; the next call ends it as the other workers expect.
"""
from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import torch

from . import _core
from .calls_under_way import interrupts_later
from .errors import DeadlineExceededError, Error, NotFiniteError
from .optimizer_settings import Hyper, check_unchanged, hyper_of
from .served_group import ServedGroup
from .served_model import ServedModel
from .undecided import Gradients, Undecided


_SKIP_TIMEOUT_MS = 1000


class Rounds:
    def __init__(self, served: ServedModel) -> None:
        self._served = served
        self.undecided: Undecided | None = None

    def _hyper(self, group: ServedGroup) -> Hyper:
        settings = self._served.param_group(group)
        if not self._served.reduces_only:
            check_unchanged(group.settings, self._served.optimizer, settings)
        return hyper_of(group.settings.kind, settings)

    def _gradients(self) -> list[Gradients]:
        """Of all groups, before any is sent: what is wrong with one of them must stop them all."""
        gradients = [group.gradients() for group in self._served.groups]
        if len(gradients) > 1:
            for group in self._served.groups:
                self._hyper(group)
        return gradients

    def _finite_gradients(self) -> list[Gradients]:
        """The same, and NaN or Inf in any of them stops them all. A single group needs no look: the
        core looks while it reads."""
        gradients = self._gradients()
        if len(gradients) > 1 and not _all_finite([g for group in gradients for g in group if g is not None]):
            for group, found in zip(self._served.groups, gradients):
                if not _all_finite([g for g in found if g is not None]):
                    raise NotFiniteError(_not_finite(group, found))
        return gradients

    def _begin(self, start: Callable[[ServedGroup], _core.Pending], *, joined: bool = False,
               receives: bool = True) -> list[_core.Pending]:
        """Begins a round of every table. Call it with interrupts put off: a Ctrl-C between two tables
        would leave them at different steps."""
        served = self._served
        pendings = [start(group) for group in served.groups]
        for group, pending in zip(served.groups, pendings):
            served.calls.expect(pending, group.store if receives else lambda: None)
        if receives and served.reduces_only:
            served.calls.expect_once(self._update_here)
        return pendings + self._begin_buffers(joined)

    def _begin_buffers(self, joined: bool = False) -> list[_core.Pending]:
        served, buffers = self._served, self._served.buffers
        if buffers is None:
            return []
        shared = buffers.give_and_take(served.gives(), joined)
        served.calls.expect_call(lambda: (buffers.finish(shared), None)[1])
        return [shared]

    def _update_here(self) -> None:
        """update="worker": the gradients are the workers' mean now. A round that nobody gave a
        gradient to, or that was skipped, is no step."""
        if all(group.applied for group in self._served.groups):
            self._served.optimizer.step()

    # One phase.
    def plain(self, weight: float) -> None:
        gradients = dict(zip(self._served.groups, self._finite_gradients()))

        def start(group: ServedGroup) -> _core.Pending:
            pending = self.push_pull(group, gradients[group], weight)
            if _is_refused(pending):  # of several groups none is: they have been looked at
                raise NotFiniteError(_not_finite(group, gradients[group]))
            return pending

        with interrupts_later():
            self._begin(start)
        self._served.calls.finish()

    def push_pull(self, group: ServedGroup, gradients: Gradients, weight: float) -> _core.Pending:
        assert group.table is not None
        if all(gradient is None for gradient in gradients) and not group.reduces_only:
            if not self._served.sync:
                return group.table.pull(group.targets(), group.sizes, keep=group.keep())
            return self._done(group, weight)
        addresses, mask = group.send(gradients)
        targets = group.targets()
        return group.table.push_pull(addresses, group.sizes, targets, group.sizes,
                                     self._hyper(group), weight=weight, mask=mask,
                                     keep=group.keep(gradients))

    def step_async(self) -> None:
        served = self._served
        for group, gradients in zip(served.groups, self._finite_gradients()):
            pending = self.push_pull(group, gradients, 1.0)
            if _is_refused(pending):
                served.calls.finish()
                raise NotFiniteError(_not_finite(group, gradients))
            served.calls.expect(pending, group.store)
        if served.buffers is not None and served.gives():
            served.calls.expect(served.buffers.give(once=False), lambda: None)
        served.calls.finish()

    def _done(self, group: ServedGroup, weight: float, joined: bool = False) -> _core.Pending:
        assert group.table is not None
        if group.reduces_only:
            group.expect_round()
        targets = group.targets()
        return group.table.done_pull(targets, group.sizes, self._hyper(group), weight=weight,
                                     joined=joined, keep=group.keep())

    def begin_joined(self) -> list[_core.Pending]:
        """One round without a gradient; its pendings tell whether every worker has run out of data."""
        with interrupts_later():
            return self._begin(lambda group: self._done(group, 0.0, joined=True), joined=True)

    # Two phases.
    def contribute(self, weight: float, value_scale: float = 1.0, not_finite: bool = False,
                   limits: Sequence[float] = ()) -> Undecided:
        """The parts of all workers are being summed up, none is applied. `summed_up` waits."""
        groups = self._served.groups
        sent = self._gradients()
        with interrupts_later():
            pendings = [self._contribute(group, gradients, weight, value_scale, not_finite)
                        for group, gradients in zip(groups, sent)]
            for pending in pendings:
                self._served.calls.expect(pending, lambda: None)
            self.undecided = Undecided(groups, sent, weight, pendings)
            self.undecided.limits.extend(limits)
            self.undecided.interrupted = True  # until it is summed up
        return self.undecided

    def summed_up(self) -> None:
        undecided = self.undecided
        assert undecided is not None
        try:
            self._served.calls.finish()
            undecided.interrupted = False
        except Exception:
            self._abandon(undecided)
            raise
        except BaseException:
            undecided.interrupted = True
            raise

    def _abandon(self, undecided: Undecided) -> None:
        """Some tables could not be summed up (the workers disagree, or one of them is late): nothing
        is applied. Whoever is late may take long: the decision does not wait for its answer."""
        decisions = []
        for group, pending in zip(self._served.groups, undecided.pendings):
            try:
                pending.wait()
            except DeadlineExceededError:
                pass  # it may still be summed up, and nothing else can follow on this table before
            except Error:
                continue
            decisions.append(self._decide(group, undecided, skip=True, timeout_ms=_SKIP_TIMEOUT_MS))
        self.undecided = None
        self._begin_buffers()  # as every step does, so that all workers' tables stay together
        for decision in decisions:
            with contextlib.suppress(Error):
                decision.wait()

    def _contribute(self, group: ServedGroup, gradients: Gradients, weight: float,
                    value_scale: float, not_finite: bool) -> _core.Pending:
        assert group.table is not None
        hyper = self._hyper(group)
        if not not_finite:
            addresses, mask = group.send(gradients)
            pending = group.table.contribute(addresses, group.sizes, hyper, weight=weight,
                                             mask=mask, value_scale=value_scale,
                                             keep=group.keep(gradients))
            if not _is_refused(pending):
                return pending
        # All are told, so that nobody waits for us.
        return group.table.contribute([], [], hyper, weight=weight, not_finite=True)

    def _decide(self, group: ServedGroup, undecided: Undecided, skip: bool,
                timeout_ms: int = 0) -> _core.Pending:
        assert group.table is not None
        wanted = not (skip and group.reduces_only)  # nothing was reduced: gradients stay
        targets, sizes = (group.targets(), group.sizes) if wanted else ([0], [sum(group.sizes)])
        scale = 1.0 if skip else undecided.scale
        return group.table.decide(targets, sizes, self._hyper(group), weight=undecided.weight,
                                  scale=scale, skip=skip, timeout_ms=timeout_ms, keep=group.keep())

    def decide(self, *, skip: bool = False) -> bool:
        """Applies what was summed up, times its scale, unless some worker's part was not finite or
        it is to be skipped; false if it was skipped."""
        undecided = self.undecided
        assert undecided is not None
        skip = skip or not undecided.finite
        with interrupts_later():
            self._begin(lambda group: self._decide(group, undecided, skip),
                        receives=not (skip and self._served.reduces_only))
            self.undecided = None
        self._served.calls.finish()
        return not skip

    def clip(self, max_norm: float, weight: float) -> float:
        undecided = self.undecided
        if undecided is not None and not undecided.same_gradients():
            self.decide(skip=True)  # there was no step after the last one
        undecided = self.undecided
        if undecided is None:
            undecided = self.contribute(weight, limits=[max_norm])
        else:
            undecided.limits.append(max_norm)
        self.summed_up()
        return undecided.norm

    def check_clipped(self, samples: float | None, scaled: bool) -> None:
        """What was clipped is what the step is for. Raises the same on all workers."""
        undecided = self.undecided
        assert undecided is not None
        why = ""
        if not undecided.same_gradients():
            why = ("gradients changed between clip_grad_norm_() and step(), after they had been "
                   "sent: change them before clip_grad_norm_()")
        elif scaled:
            why = ("the gradients that were clipped are scaled: call scaler.unscale_(optimizer) "
                   "before clip_grad_norm_()")
        elif samples is not None and samples != undecided.weight:
            why = ("give samples= to clip_grad_norm_(), where the gradients leave, and the same to "
                   "step()")
        if why:
            self.decide(skip=True)
            raise Error(f"{why}. The step was skipped")

    # After a Ctrl-C.
    def resume(self, *, steps: bool = False, clips: bool = False) -> bool:
        """Ends what was interrupted, before a step(), a clip_grad_norm_() or another call. The
        other workers go on to apply it, so it is applied; but a clip is left to the step() that it
        is for, and to the same clip_grad_norm_() again. True if there was anything."""
        undecided, calls = self.undecided, self._served.calls
        interrupted = undecided is not None and undecided.interrupted
        if not interrupted and not calls.under_way():
            return False
        if interrupted:
            assert undecided is not None
            self.summed_up()
            if undecided.limits and undecided.same_gradients() and (steps or clips):
                if clips:
                    undecided.limits.clear()
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


def _all_finite(gradients: list[torch.Tensor]) -> bool:
    if not gradients:
        return True
    largest = torch.nn.utils.get_total_norm([g.detach() for g in gradients], float("inf"))
    return bool(torch.isfinite(largest))


def _is_refused(pending: _core.Pending) -> bool:
    """The gradient is not finite: it was found before anything was sent."""
    if pending.ready():
        try:
            pending.wait()
        except NotFiniteError:
            return True
        except Error:
            pass  # whoever waits for it hears of it
    return False


def _not_finite(group: ServedGroup, gradients: Gradients) -> str:
    for name, gradient in zip(group.names, gradients):
        if gradient is None or bool(torch.isfinite(gradient).all()):
            continue
        what = "NaN" if bool(torch.isnan(gradient).any()) else "infinite"
        return (f"the gradient of {name} is {what} on this worker: nothing of it was sent. Look for "
                "the cause in the loss, or use torch.amp.GradScaler if it comes from half precision")
    return "the gradients of this worker are not finite: nothing of them was sent"
