"""Gradients in flat buffers that are all-reduced while the backward pass goes on, as DDP does it.

Parameters are taken in reverse order, about the order in which their gradients come. A bucket
leaves when the last gradient in it is expected to be final, and never before those in front of it:
so all workers begin the same collectives in the same order, whatever happens in their backward
pass. What leaves early is a guess (more backward passes may follow, somebody may clip): `stale`
tells afterwards which guesses were wrong, and those buckets are all-reduced again.
"""
from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .._runtime.calls_under_way import interrupts_later

_FIRST_BYTES, _BYTES = 1 << 20, 25 << 20
_STRIKES = 2  # so often may gradients change after backward() before we stop guessing

Gradients = list[torch.Tensor | None]


@dataclass
class Bucket:
    """Some parameters' part of an all-reduce. 16-bit gradients are summed in float32."""

    dtype: torch.dtype
    device: torch.device
    indices: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    flat: torch.Tensor | None = None
    # What was sent: the gradients and the factor; and if that was before the step, a copy of the flat
    # buffer. Versions would not do: GradScaler.unscale_() and writes through .data leave them alone.
    sent: list[torch.Tensor | None] | None = None
    factor: float = 0.0
    copy: torch.Tensor | None = None
    early: bool = False
    work: Any = None

    def bytes(self) -> int:
        return sum(self.sizes) * self.dtype.itemsize

    def views(self, params: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        assert self.flat is not None
        parts = self.flat.split(self.sizes)
        return [part.view(params[i].shape) for part, i in zip(parts, self.indices)]

    def fill(self, gradients: Sequence[torch.Tensor | None], params: Sequence[torch.Tensor],
             factor: float, early: bool) -> None:
        """gradients: of this bucket's parameters."""
        if self.flat is None:
            self.flat = torch.empty(sum(self.sizes), dtype=self.dtype, device=self.device)
        self.sent, self.factor, self.early = list(gradients), factor, early
        for view, gradient in zip(self.views(params), gradients):
            if gradient is None or factor == 0.0:
                view.zero_()  # a factor of 0 times infinity would not be 0
            else:
                view.copy_(gradient)
        if factor not in (0.0, 1.0):
            self.flat.mul_(factor)
        if early:
            if self.copy is None:
                self.copy = torch.empty_like(self.flat)
            self.copy.copy_(self.flat)

    def was_right(self, gradients: Sequence[torch.Tensor | None], factor: float) -> bool:
        """What was sent is what there is to send now."""
        assert self.sent is not None
        if factor != self.factor or any(now is not then for now, then in zip(gradients, self.sent)):
            return False
        if not self.early or factor == 0.0:
            return True
        assert self.copy is not None
        for now, then in zip(gradients, self.copy.split(self.sizes)):
            values = torch.zeros_like(then) if now is None else now.detach().reshape(-1).to(then.dtype)
            if not torch.equal(values if factor == 1.0 else values * factor, then):
                return False
        return True


def plan(params: Sequence[torch.Tensor], first_bytes: int = _FIRST_BYTES,
         most_bytes: int = _BYTES) -> list[Bucket]:
    """The same on every worker, since it depends on the parameters only."""
    done: list[Bucket] = []
    open_buckets: dict[tuple[torch.dtype, torch.device], Bucket] = {}
    for index in reversed(range(len(params))):
        param = params[index]
        dtype = torch.float64 if param.dtype == torch.float64 else torch.float32
        key = (dtype, param.device)
        bucket = open_buckets.setdefault(key, Bucket(*key))
        bucket.indices.append(index)
        bucket.sizes.append(param.numel())
        if bucket.bytes() >= (most_bytes if done else first_bytes):
            done.append(open_buckets.pop(key))
    return done + list(open_buckets.values())


class Buckets:
    """All buckets of a wrap. Hooks run on autograd's threads, while backward() is waited for."""

    def __init__(self, params: list[torch.nn.Parameter]) -> None:
        self.params = params
        self.buckets = plan(params)
        self._bucket_of = {i: b for b in self.buckets for i in b.indices}
        self._begin: Callable[[Bucket], Any] | None = None
        self._next = 0  # the bucket that leaves next
        self._fired = [0] * len(params)  # backward passes since the last step
        self._expected, self._last = [1] * len(params), [1] * len(params)
        self._factor = 1.0  # of the last step
        self._strikes = 0
        handles = [p.register_post_accumulate_grad_hook(_hook(weakref.ref(self), i))
                   for i, p in enumerate(params) if p.requires_grad]
        weakref.finalize(self, _remove, handles).atexit = False

    # During the backward pass.
    def leave_by(self, begin: Callable[[Bucket], Any] | None) -> None:
        """How a bucket that is filled leaves early; None: not before `launch_rest`."""
        self._begin = begin

    @torch.no_grad()
    def _ready(self, index: int) -> None:
        self._fired[index] += 1
        if self._begin is None or self._strikes >= _STRIKES:
            return
        while self._next < len(self.buckets):
            bucket = self.buckets[self._next]
            if any(self._fired[i] < self._expected[i] for i in bucket.indices):
                return
            gradients = [self.params[i].grad for i in bucket.indices]
            if any(g is None or g.layout != torch.strided for g in gradients):
                return
            if not self._launch(bucket, gradients, self._factor, self._begin, early=True):
                return

    def _launch(self, bucket: Bucket, gradients: Gradients, factor: float,
                begin: Callable[[Bucket], Any], *, early: bool) -> bool:
        with interrupts_later():
            bucket.fill(gradients, self.params, factor, early)
            self._next += 1
            bucket.work = begin(bucket)
        return bucket.work is not None

    # In the step.
    def launch_rest(self, gradients: Gradients, factor: float,
                    begin: Callable[[Bucket], Any]) -> None:
        while self._next < len(self.buckets):
            bucket = self.buckets[self._next]
            if not self._launch(bucket, [gradients[i] for i in bucket.indices], factor, begin, early=False):
                return

    def stale(self, gradients: Gradients, factor: float) -> list[bool]:
        """Of each bucket, whether something else was sent. All must have been launched."""
        found, more = [], False
        for bucket in self.buckets:
            found.append(not bucket.was_right([gradients[i] for i in bucket.indices], factor))
            more = more or any(self._fired[i] > self._expected[i] for i in bucket.indices)
        if any(found) and not more:
            self._strikes += 1
        return found

    def learn(self, factor: float) -> None:
        """After a step: how the next one will be, most likely."""
        for i, fired in enumerate(self._fired):
            if fired > self._expected[i] or (fired and fired == self._last[i]):
                self._expected[i] = fired
            self._last[i] = fired
        if factor > 0:
            self._factor = factor
        self._fired = [0] * len(self.params)
        self.forget()

    def forget(self) -> None:
        """Nothing has been sent: the next attempt begins with the first bucket."""
        self._next = 0
        for bucket in self.buckets:
            bucket.work = bucket.sent = None

    def leave_memory(self) -> None:
        """A collective that can't be stopped may still write to it."""
        for bucket in self.buckets:
            bucket.flat = None


def _hook(buckets: weakref.ref[Buckets], index: int) -> Callable[[torch.Tensor], None]:
    def ready(_: torch.Tensor) -> None:
        found = buckets()
        if found is not None:
            found._ready(index)

    return ready


def _remove(handles: list[Any]) -> None:
    for handle in handles:
        handle.remove()
