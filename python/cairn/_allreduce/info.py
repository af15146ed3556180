"""What a step of an all-reduce has come to: the mean gradient, and what is known of it."""
from __future__ import annotations

import math

import torch

from .attempt import Part, Sums
from .buckets import Buckets, Gradients


class Ended:
    """Like a _core.Pending that has ended: for a worker that needs nobody."""

    all_joined = False

    def wait(self) -> None: ...

    def wait_for(self, milliseconds: int) -> bool:
        return True

    def ready(self) -> bool:
        return True


class Info:
    """What is known of a step that is settled; the same on all workers."""

    def __init__(self, sums: Sums, means: Gradients) -> None:
        self.sums, self.means = sums, means
        self._sum_squares: float | None = None

    @property
    def all_joined(self) -> bool:
        return not self.sums.active

    @property
    def sum_squares(self) -> float:
        """Of the mean gradient."""
        if self._sum_squares is None:
            squares = [torch.linalg.vector_norm(mean, dtype=torch.float64).square()
                       for mean in self.means if mean is not None]
            self._sum_squares = float(sum(square.cpu() for square in squares)) if squares else 0.0
        return self._sum_squares

    @property
    def finite(self) -> bool:
        return not self.sums.not_finite and math.isfinite(self.sum_squares)


@torch.no_grad()
def mean_gradients(sums: Sums, part: Part, buckets: Buckets | None, sums_only: bool) -> Gradients:
    """In the buckets, which have been summed up over all workers. buckets: None where this worker
    is alone, and its own gradients are all there are."""
    divisor = 1.0 if sums_only else sums.weight
    if buckets is None:
        scale = part.factor / divisor
        return [g if g is None or scale == 1.0 else g * scale for g in part.gradients]
    means: Gradients = [None] * len(buckets.params)
    for bucket in buckets.buckets:
        assert bucket.flat is not None
        if divisor != 1.0:
            bucket.flat.div_(divisor)
        for index, view in zip(bucket.indices, bucket.views(buckets.params)):
            means[index] = view if sums.present[index] else None
    return means


def gradient_for(param: torch.Tensor, own: torch.Tensor | None, mean: torch.Tensor | None,
                 scale: float) -> torch.Tensor | None:
    """What a parameter's gradient is to be: in the memory of its own, if it has one."""
    if mean is None:
        return None
    target = torch.empty_like(param) if own is None else own
    if scale == 1.0:
        return target if target is mean else target.copy_(mean)
    return target.copy_(mean * scale)
