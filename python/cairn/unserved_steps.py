"""A plain torch optimizer that holds a table's handle would fail in words about shapes, or, where
the gradient has one row, train nothing and say nothing. It is told what is missing instead."""
from __future__ import annotations

from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from .errors import Error
from .table_handle import TableHandle

_registered = False


def refuse_unserved_steps() -> None:
    """From the first table on, in this process."""
    global _registered
    if not _registered:
        _registered = True
        register_optimizer_step_pre_hook(_look)


def _look(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    if hasattr(optimizer, "_served"):  # a DistributedOptimizer, maybe before its tables are made
        return
    for group in optimizer.param_groups:
        for param in group["params"]:
            if isinstance(
                param, TableHandle) and param.rows_of.table is None and param.grad is not None:
                raise Error(
                    f'table "{param.rows_of.name}" is trained on the servers, and '
                    f'{type(optimizer).__name__} alone '
                    "can't reach them: cairn.init(), and wrap it in "
                    "cairn.DistributedOptimizer(optimizer, model)")
