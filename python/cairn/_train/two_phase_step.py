"""A step in two phases: gradients are summed up on the servers, which wait for the decision to apply or
skip them."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from .. import _core
from .._allreduce.allreduced import AllReduced
from .._tables.weight import Weight

Gradients = list[torch.Tensor | None]


class TwoPhaseStep:
    """A step whose gradients have left and that is not decided yet: what is known of it, once the gradients
    of all workers have been summed up, and what the decision will be."""

    def __init__(self, parts: Sequence[Any], gradients: list[Gradients], weight: Weight,
                 pendings: list[_core.Pending], reduced: AllReduced | None = None) -> None:
        params = [param for part in parts for param in part.params]
        sent = [gradient for part in gradients for gradient in part]
        self._sent = [(p, g, -1 if g is None else g._version) for p, g in zip(params, sent)]
        if reduced is not None:
            self._sent += [(p, p.grad, -1 if p.grad is None else p.grad._version) for p in reduced.params]
        self.weight, self.pendings, self.reduced = weight, pendings, reduced
        self.limits: list[float] = []  # of the norm, one a clip_grad_norm_()
        self.told = True  # clip_grad_norm_() has returned the norm for the last limit
        self.interrupted = False  # by a Ctrl-C, before it was summed up

    @property
    def finite(self) -> bool:
        reduced = self.reduced is None or self.reduced.info.finite
        return reduced and all(pending.finite for pending in self.pendings)

    def _clipped(self, limits: list[float]) -> tuple[float, float]:
        """The norm and the factor that so many clips lead to, each as torch computes it."""
        squares = sum(pending.sum_squares for pending in self.pendings)
        norm = math.sqrt(squares + (0.0 if self.reduced is None else self.reduced.info.sum_squares))
        scale = 1.0
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

    def same_gradients(self) -> bool:
        return all(param.grad is gradient and (gradient is None or gradient._version == version)
                   for param, gradient, version in self._sent)
