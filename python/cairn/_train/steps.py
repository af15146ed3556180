"""The steps of a DistributedOptimizer, one after another: in one phase, in two, without data; and how the
next call goes on after a Ctrl-C. A single one: step.py."""
from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from .._runtime.calls_under_way import interrupts_later
from .._tables.weight import NO_WEIGHT, Weight
from ..errors import Error, HyperMismatchError, NotFiniteError
from .overlap import Overlap
from .served_model import ServedModel
from .step import State, Step
from .step_parts import Begun, Terms, parts_of


class Steps:
    def __init__(self, served: ServedModel, overlap: Overlap | None = None) -> None:
        self._served, self._overlap = served, overlap
        self.undecided: Step | None = None  # summed up, or about to be

    def _step(self, terms: Terms) -> Step:
        return Step(self._served, terms, parts_of(self._served))

    # One phase.
    def plain(self, weight: Weight) -> None:
        if self._overlap is not None:
            return self._overlapped(self._overlap)
        step = self._step(Terms(weight))
        step.look()
        step.check_finite()
        step.run()
        if not step.finite:
            raise NotFiniteError("the mean of the all-reduced gradients is NaN or infinite: they were not "
                                 "applied on any worker. Look for the cause in the loss, or use "
                                 "torch.amp.GradScaler")

    def _overlapped(self, overlap: Overlap) -> None:
        """Most of it has begun in backward."""
        step = Step(self._served, Terms(), parts_of(self._served, overlap))
        with interrupts_later():
            step.begin()
            wrong = overlap.end()
        step.finish()
        if wrong is not None:
            raise wrong

    def step_async(self, weight: Weight, value_scale: float, skips: bool) -> bool:
        """`skips`: this worker's gradients are not finite, under a GradScaler. False if what is
        all-reduced was not applied for such a reason on some worker."""
        if self._overlap is not None:
            self._overlapped(self._overlap)
            return True
        step = self._step(Terms(weight, value_scale, not_finite=skips))
        if not skips:
            step.look()
            step.check_finite()
        step.run()
        return step.finite

    def begin_joined(self) -> Begun:
        """A step without a gradient; what it returns tells whether every worker has run out of data."""
        step = self._step(Terms(NO_WEIGHT, joined=True))
        step.reduce()
        with interrupts_later():
            return step.begin()

    # Two phases.
    def contribute(self, weight: Weight, value_scale: float = 1.0, not_finite: bool = False,
                   limits: Sequence[float] = ()) -> Step:
        """The gradients of all workers are being summed up, none is applied. sum_up() waits."""
        step = self._step(Terms(weight, value_scale, not_finite, two_phase=True))
        step.limits.extend(limits)
        step.look()
        step.reduce()
        with interrupts_later():
            step.contribute()
            self.undecided = step
        return step

    @contextlib.contextmanager
    def _deciding(self) -> Iterator[Step]:
        """The block may decide it, or give it up."""
        step = self.undecided
        assert step is not None
        try:
            yield step
        finally:
            if not step.undecided:
                self.undecided = None

    def sum_up(self) -> None:
        with self._deciding() as step:
            step.sum_up()

    def decide(self, *, skip: bool = False) -> bool:
        with self._deciding() as step:
            return step.decide(skip=skip)

    def drop(self) -> None:
        """Skips what was summed up. Workers that want to apply it are told that this one does not; it
        has what it wants."""
        with contextlib.suppress(HyperMismatchError):
            self.decide(skip=True)

    def clip(self, max_norm: float, weight: Weight) -> float:
        step = self.undecided
        if step is not None and not step.same_gradients():
            self.drop()  # there was no step after the last one
        step = self.undecided
        if step is None:
            step = self.contribute(weight, limits=[max_norm])
        elif step.told:
            step.limits.append(max_norm)
        else:  # a Ctrl-C came before it returned: this is the same call again
            step.limits[-1:] = [max_norm]
        step.told = False
        self.sum_up()
        norm = step.norm
        step.told = True
        return norm

    def check_clipped(self, weight: Weight, scaled: bool) -> None:
        """What was clipped is what the step is for. If not, this worker's error says why; workers that
        did nothing wrong get one that names it, and nobody applies the step."""
        step = self.undecided
        assert step is not None
        why = ""
        if not step.same_gradients():
            why = ("gradients changed between clip_grad_norm_() and step(), after they had been "
                   "sent: change them before clip_grad_norm_()")
        elif scaled:
            why = ("the gradients that were clipped are scaled: call scaler.unscale_(optimizer) "
                   "before clip_grad_norm_()")
        elif weight.given and weight != step.terms.weight:
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
        step, calls = self.undecided, self._served.calls
        interrupted = step is not None and step.state is State.CONTRIBUTED
        if not interrupted and not calls.under_way():
            return False
        if interrupted:
            assert step is not None
            self.sum_up()
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
