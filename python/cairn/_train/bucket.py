"""The parameters of a group in several tables, for overlap=True: those whose gradients are there
together travel together."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .._tables.cpu_memory import FLOATS
from .._tables.optimizer_settings import GroupSettings
from .served_group import ServedGroup

_BUCKETS = 4  # of a group, about
_LEAST_BYTES, _MOST_BYTES = 64 << 10, 4 << 20  # of a bucket, unless one parameter is larger


def _cut(params: Sequence[torch.Tensor]) -> list[list[int]]:
    """Positions of parameters that travel together, in the order in which backward mostly gets to
    them: from the last one on."""
    sizes = [4 * param.numel() for param in params]
    target = min(max(sum(sizes) // _BUCKETS, _LEAST_BYTES), _MOST_BYTES)
    made: list[list[int]] = []
    held = target
    for position in reversed(range(len(params))):
        if held + sizes[position] > target:
            made.append([])
            held = 0
        made[-1].insert(0, position)
        held += sizes[position]
    return made


class Bucket(ServedGroup):
    """A part of a group whose new values are put into the parameters only by `store`."""

    def __init__(self, index: int, params: Sequence[torch.Tensor], names: Sequence[str],
                 settings: GroupSettings, number: int) -> None:
        super().__init__(index, params, names, settings)
        self.label = f"{index}.{number}"
        flat = torch.empty(sum(self.sizes), **FLOATS)
        self._arrived = [piece.view(param.shape) for piece, param in zip(flat.split(self.sizes), params)]
        self._arrived_at = [piece.data_ptr() for piece in self._arrived]

    def targets(self) -> list[int]:
        return self._arrived_at

    def store(self) -> None:
        self._values.check(self.params)
        for param, piece in zip(self.params, self._arrived):
            param.detach().copy_(piece)

    def keep(self, *others: Any) -> tuple[Any, ...]:
        return super().keep(self._arrived, others)


def buckets(index: int, params: Sequence[torch.Tensor], names: Sequence[str],
            settings: GroupSettings) -> list[ServedGroup]:
    return [Bucket(index, [params[i] for i in cut], [names[i] for i in cut], settings, number)
            for number, cut in enumerate(_cut(params))]
