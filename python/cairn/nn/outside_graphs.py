"""torch.compile leaves a graph where rows are fetched: what servers answer can't be traced."""
from __future__ import annotations

from typing import TypeVar

import torch

Module = TypeVar("Module", bound=type[torch.nn.Module])

_waiting: list[type[torch.nn.Module]] = []


def outside_graphs(module: Module) -> Module:
    """Decorates a class whose forward() is not to be compiled."""
    _waiting.append(module)
    return module


def leave_graphs() -> None:
    """Called before the first of the modules is made: torch.compiler.disable imports what takes a
    second (as the first torch optimizer does), and `import cairn` must not."""
    while _waiting:
        module = _waiting.pop()
        module.forward = torch.compiler.disable(module.forward)
