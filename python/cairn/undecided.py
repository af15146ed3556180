"""The first half of a round in two phases: gradients that are summed up on the servers and wait for
the decision."""
from __future__ import annotations

import math
from typing import Optional

import torch

from . import _core
from .served_group import ServedGroup

Gradients = list[Optional[torch.Tensor]]


class Undecided:
    """What is known after the gradients of all workers have been summed up."""

    def __init__(self, groups: list[ServedGroup], gradients: list[Gradients], weight: float,
                 pendings: list[_core.Pending]) -> None:
        params = [param for group in groups for param in group.params]
        sent = [gradient for group in gradients for gradient in group]
        self._sent = [(p, g, -1 if g is None else g._version) for p, g in zip(params, sent)]
        self.weight, self.pendings = weight, pendings
        self.limits: list[float] = []  # of the norm, one a clip_grad_norm_()
        self.interrupted = False  # by a Ctrl-C, before it was summed up

    @property
    def finite(self) -> bool:
        return all(pending.finite for pending in self.pendings)

    def _clipped(self, limits: list[float]) -> tuple[float, float]:
        """The norm and the factor that so many clips lead to, each as torch computes it."""
        norm = math.sqrt(sum(pending.sum_squares for pending in self.pendings))
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
