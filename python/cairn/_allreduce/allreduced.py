"""AllReduced: the parameters of one wrap that are all-reduced among the workers, not on servers.

docs/guide/hybrid.md is its page. A step is

    contribute()   the gradients are all-reduced (attempt.py), or that fails
    vote()         all workers tell how it went (control.py)
    settle()       as long as anybody failed or is new: a group of the living, and again
    decide()       in two phases: all workers tell what is to become of the sums; they agree or apply nothing
    apply()        every worker makes the same update (update.py)

and in this order on every worker. Any of them may be called again after a Ctrl-C. Not thread-safe.
"""
from __future__ import annotations

import time
import warnings
from typing import Any

import torch

from .._runtime.calls_under_way import interrupts_later
from .._runtime.context import Context
from ..errors import DeadlineExceededError, HyperMismatchError
from .attempt import Attempt, Part, Sums
from .buckets import Bucket, Buckets
from .control import Ballot, Control, Outcome
from .group import AttemptFailed, Group, Patience, check_members, device_for
from .info import Ended, Info, gradient_for, mean_gradients
from .regrouping import Regrouping
from .update import Update, check_gradients, check_parameters

_PAUSE_S = 0.05  # after an attempt that failed, before the next one


class AllReduced:
    def __init__(self, params: list[torch.nn.Parameter], names: list[str],
                 optimizer: torch.optim.Optimizer, root_rank: int, *, reduce: str = "mean") -> None:
        check_parameters(params, names)
        self.params, self.names = list(params), list(names)
        self.joined_step: int | None = None
        self.steps = 0
        self._root, self._sums_only = root_rank, reduce == "sum"
        self._update = Update(self.params, optimizer)
        self._buckets = Buckets(self.params)
        self._device = torch.device("cpu")
        self._control: Control | None = None  # None: nobody else can ever be there
        self._group: Group | None = None  # None: this worker alone
        self._members: tuple[Any, ...] = ()
        self._new = True
        self._attempt: Attempt | None = None  # None: no step is under way
        self._ballot: Ballot | None = None
        self._regrouping: Regrouping | None = None
        self._to_vote = False  # in settle(): the vote on this attempt has not been cast yet
        self._failure: AttemptFailed | None = None  # of the attempt that is under way
        self._joins = False
        self._decision: Ballot | None = None
        self._settled = False  # not applied yet
        self._info: Info | None = None

    @property
    def info(self) -> Info:
        """Of the last step that was settled."""
        assert self._info is not None
        return self._info

    # Beginning.
    @torch.no_grad()
    def attach(self, ctx: Context, name: str) -> None:
        """Makes the process group, and everybody gets the root's values and state; in a worker that
        joins a running job, those of the others as they are before step `joined_step`, which it
        then takes part in: call apply() for it."""
        self._device = device_for(self.params)
        if ctx.embedded:
            self._new = False
            return
        if self._control is None:
            self._control = Control(ctx, f"{name}/allreduce")
            self._joins = self._control.attempt > 0
            self._begin_vote()
        self.settle()
        self._joins = False
        if self._attempt is not None:
            self.joined_step = self.steps

    @staticmethod
    def joins(ctx: Context, name: str) -> bool:
        """The others have begun this wrap."""
        return not ctx.embedded and Control(ctx, f"{name}/allreduce").attempt > 0

    @torch.no_grad()
    def give_from_root(self) -> None:
        """The root's values and state become everybody's. Every worker calls it."""
        if self._control is None:
            return
        if self.stage != "voting" or self._attempt is not None:  # else: such a call was interrupted
            self._finish_step()
            with interrupts_later():
                self._new = True
                self._begin_vote()
        self.settle()

    @property
    def stage(self) -> str:
        if self._ballot is not None or self._regrouping is not None or self._to_vote:
            return "voting"
        if self._attempt is None:
            return "idle"
        return "settled" if self._settled else "reducing"

    @property
    def under_way(self) -> bool:
        return self.stage != "idle"

    # A step.
    @torch.no_grad()
    def contribute(self, weight: float, weighted: bool = False, value_scale: float = 1.0,
                   not_finite: bool = False, joined: bool = False, wait: bool = True,
                   two_phase: bool = False) -> None:
        """All-reduces the gradients times value_scale; how it went is known when it returns (with
        wait=False: when poll() says so). Does not raise if other workers die.

        weight: of this worker in the mean; weighted: it was given, and all workers give one. joined: it has
        no gradient, and agrees to everything. two_phase: what is decided depends on the sums, or on what the
        worker does after them: so the workers vote on that too.
        """
        self._finish_step(keep="reducing")
        if self._attempt is None:
            gradients = [None if joined else param.grad for param in self.params]
            check_gradients(gradients, self.names)
            self._begin_attempt(Part(float(weight), float(weight) * float(value_scale), gradients,
                                     self._update.hypers(), not_finite, joined, weighted, two_phase))
        assert self._attempt is not None
        if wait:
            self._attempt.wait()
            self._give_up_if_failed()
        else:
            self._attempt.poll()  # the others don't wait until we look again

    @torch.no_grad()
    def poll(self) -> bool:
        """Goes on with what contribute(wait=False) has begun, without waiting for anybody."""
        attempt = self._attempt
        assert attempt is not None
        if not attempt.poll():
            return False
        self._give_up_if_failed()
        return True

    def _begin_attempt(self, part: Part) -> None:
        self._settled = False
        group, control = self._group, self._control
        patience = None
        if control is not None:
            patience = Patience(control, self._members, control.attempt, "an all-reduce", alone=True)
        rank = 0 if control is None else control.me.rank
        self._attempt = Attempt(group, self._buckets, part, patience, rank)
        if self._failure is not None:
            self._attempt.fail(self._failure)
        elif control is not None:
            try:
                check_members(control, self._members)
            except AttemptFailed as failure:
                self._attempt.fail(failure)

    def vote(self) -> Any:
        """Tells the others how the attempt went. The call that it returns is under way."""
        if self._control is None:
            return Ended()
        with interrupts_later():
            self._begin_vote()
        assert self._ballot is not None
        return self._ballot.pending

    def _begin_vote(self) -> None:
        assert self._control is not None
        self._ballot = self._control.vote(failed=self._failure is not None, new=self._new)

    def _give_up_if_failed(self) -> None:
        """So that the others don't wait for us in this attempt."""
        if self._attempt is not None and self._attempt.failure is not None:
            self._failure = self._attempt.failure
        if self._failure is not None and self._control is not None:
            with interrupts_later():
                self._leave_group()
                self._control.tell_failed(self._control.attempt)

    def _leave_group(self) -> None:
        self._buckets.leave_by(None)
        if self._group is not None and not self._group.abandon():
            self._buckets.leave_memory()
        self._group = None

    @torch.no_grad()
    def settle(self, pending: Any = None) -> None:
        """Returns when all workers that live have the same sums; `info` tells about them."""
        if self._control is None:
            assert self._attempt is not None
            self._attempt.wait()
            return self._end_vote()
        if self.stage == "reducing":  # nobody has voted for us
            self._to_vote = True
        until = time.monotonic() + self._control.deadline_s
        while not self._agreed():
            if self._regrouping is not None:
                self._regrouping.finish()
                with interrupts_later():
                    self._take_group(self._regrouping)
            if self._attempt is not None:
                self._attempt.wait()
            self._give_up_if_failed()
            if self._failure is not None and time.monotonic() > until:
                raise DeadlineExceededError(
                    f"{self._control.name}: no process group could be made within "
                    f"{self._control.deadline_s:.0f} s; the last reason: {self._failure}")
            with interrupts_later():
                self._begin_vote()
                self._to_vote = False
        self._end_vote()

    def _agreed(self) -> bool:
        """Waits for the vote that is under way. False if there is more to do before the next one."""
        while self._ballot is not None:
            outcome = self._ballot.wait()
            with interrupts_later():
                self._ballot = None
                self._take(outcome)
                if self._ballot is None and self._regrouping is None and not self._to_vote:
                    self._end_vote()  # here: a Ctrl-C before it would have us vote once more
        return self._regrouping is None and not self._to_vote

    def _take(self, outcome: Outcome) -> None:
        assert self._control is not None
        if outcome.decision is not None:
            self._begin_vote()  # we are new, and the others are still in the middle of a step
        elif outcome.failed or outcome.new or outcome.members != self._members:
            self._leave_group()  # the others do so too
            if self._failure is not None:
                time.sleep(_PAUSE_S)
            self._failure = None
            self._regrouping = Regrouping(self._control, outcome, self._update, self._device,
                                          self._root, self.steps, self._attempt is not None)

    def _take_group(self, made: Regrouping) -> None:
        """The new group, and what it begins with."""
        self._regrouping, self._to_vote = None, True
        part = None if self._attempt is None else self._attempt.part
        self._buckets.forget()
        self._failure = made.failure
        self._group, self._members = made.group, made.outcome.members
        if made.failure is None and self._new:
            if self._joins and made.from_own:
                warnings.warn(
                    f"{made.name}: the workers that had trained it are gone, and their values with "
                    "them: the all-reduced parameters start from this worker's", stacklevel=2)
            assert made.taken is not None
            self._new = False
            self.steps, in_step = made.taken
            if in_step:
                part = Part(0.0, 0.0, [None] * len(self.params), self._update.hypers(), joined=True)
        if part is not None:
            self._begin_attempt(part)

    def _end_vote(self) -> None:
        if self._attempt is None:
            self._overlap()
        if self._attempt is None or self._settled:
            return
        sums, part = self._attempt.sums, self._attempt.part
        assert sums is not None
        means: list[torch.Tensor | None] = [None] * len(self.params)
        if sums.weight > 0 and not sums.not_finite:
            buckets = None if self._group is None else self._buckets
            means = mean_gradients(sums, part, buckets, self._sums_only)
        self._info, self._settled = Info(sums, means), True

    def decide(self, scale: float, skip: bool) -> Any:
        """Tells the others what is to become of the sums, if all workers must agree on that: then it
        returns the call, which is under way. apply() waits for it."""
        if self._decision is None and self._is_decided_by_vote():
            with interrupts_later():
                self._vote_on(scale, skip)
        return Ended() if self._decision is None else self._decision.pending

    def _is_decided_by_vote(self) -> bool:
        """Known from the sums, so that all workers know the same."""
        if not self._settled or self._info is None or self._control is None:
            return False
        sums = self._info.sums
        return sums.weight > 0 and bool(sums.joined or any(sums.two_phase)) and not self._difference(sums)

    def _vote_on(self, scale: float, skip: bool) -> None:
        assert self._control is not None and self._attempt is not None and self._info is not None
        if self._attempt.part.joined:
            self._decision = self._control.decide(None)
            return
        # A rate may change between the phases; workers that are joined know those alone that came before.
        hypers = self._info.sums.hypers[0] if self._info.sums.joined else self._update.hypers()
        self._decision = self._control.decide((scale, skip), hypers)

    @torch.no_grad()
    def apply(self, scale: float = 1.0, skip: bool = False) -> None:
        """Steps the parameters with the mean gradient times scale, which p.grad is then. Workers
        that are joined or new hear from the others what is decided: what they say does not count.
        Where the workers vote on it, what decide() has told counts, if that was called.

        Without a step that is settled it does nothing: so it may be called again after a Ctrl-C."""
        info, attempt = self._info, self._attempt
        if not self._settled or info is None or attempt is None:
            return
        sums, part = info.sums, attempt.part
        differs, wanted = self._difference(sums), not skip
        if self._is_decided_by_vote():
            scale, skip, differs = self._decided(scale, skip)
        with interrupts_later():
            if not skip and not differs and sums.weight > 0 and not sums.not_finite:
                gradients = [gradient_for(param, own, mean, scale)
                             for param, own, mean in zip(self.params, part.gradients, info.means)]
                same = not sums.joined or self._update.hypers() == sums.hypers[0]
                self._update.step(gradients, None if same else sums.hypers[0])
            self.steps += 1
            self._attempt, self._decision, self._settled = None, None, False
            self._buckets.learn(0.0 if part.joined else part.factor)
            self._overlap()
        if differs and wanted:
            raise HyperMismatchError(differs)

    def _decided(self, scale: float, skip: bool) -> tuple[float, bool, str]:
        """The same on all workers, and so is what they disagree in."""
        self.decide(scale, skip)
        assert self._decision is not None
        outcome = self._decision.wait()
        assert outcome.decision is not None
        return *outcome.decision, outcome.difference()

    def _difference(self, sums: Sums) -> str:
        if len(set(sums.two_phase)) > 1:
            yes, no = (sums.active[sums.two_phase.index(given)] for given in (True, False))
            return (f"rank {yes} clips or uses a gradient scaler in this step of the all-reduced parameters, "
                    f"rank {no} does not. They were not changed; do the same on all workers")
        if len(set(sums.weighted)) > 1:
            yes, no = (sums.active[sums.weighted.index(given)] for given in (True, False))
            return (f"rank {yes} gives samples= in this step of the all-reduced parameters, rank {no} does "
                    "not. They were not changed; give the number of samples on every worker, or on none")
        for rank, hypers in list(zip(sums.active, sums.hypers))[1:]:
            what = self._update.difference(sums.hypers[0], hypers)
            if what is not None:
                return (f"ranks {sums.active[0]} and {rank} step the all-reduced parameters with "
                        f"different settings: {what}. They were not changed; give every worker the same")
        return ""

    def _overlap(self) -> None:
        """From now on buckets leave during the backward pass."""
        group = self._group

        def begin(bucket: Bucket) -> Any:
            assert group is not None and bucket.flat is not None
            try:
                return group.all_reduce(bucket.flat)
            except AttemptFailed:
                return None

        self._buckets.leave_by(None if group is None else begin)

    def _finish_step(self, keep: str = "idle") -> None:
        """What the last step left open: an exception came between its calls."""
        if self.stage == "voting":
            self.settle()
        if self.stage == "settled":
            self.apply(skip=True)
        if self.stage == "reducing" and keep != "reducing":
            assert self._attempt is not None
            self._attempt.wait()
            self.vote()
            self.settle()
            self.apply(skip=True)
