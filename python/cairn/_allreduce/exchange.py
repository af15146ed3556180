"""What a collective may do within its process group: collectives.py makes one for each call."""
from __future__ import annotations

import torch

from .group import Group, Patience


class Exchange:
    """What a call may do within its group. Alone: without one."""

    def __init__(self, group: Group | None, patience: Patience | None, rank: int) -> None:
        self._group, self._patience = group, patience
        self.ranks = [rank] if group is None else [member.rank for member in group.members]

    def all_gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        if self._group is None or self._patience is None:
            return [tensor]
        work, found = self._group.all_gather(tensor)
        self._group.wait(work, self._patience)
        return found

    def sum(self, tensor: torch.Tensor) -> None:
        if self._group is not None and self._patience is not None:
            self._group.wait(self._group.all_reduce(tensor), self._patience)

    def broadcast(self, tensor: torch.Tensor, rank: int) -> None:
        if self._group is not None and self._patience is not None:
            source = self._group.members[self.ranks.index(rank)]
            self._group.wait(self._group.broadcast(tensor, source), self._patience)
