"""A plain torch optimizer that holds a table's handle would fail in words about shapes, or, where
the gradient has one row, train nothing and say nothing. One that is wrapped would step this worker's
copies alone. Both are told what is missing instead."""
from __future__ import annotations

import weakref
from typing import Any, Protocol

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ..errors import Error
from .table_handle import TableHandle


class Wrap(Protocol):
    """A DistributedOptimizer, as far as it is asked here."""

    optimizer: torch.optim.Optimizer

    def _refuses_inner_steps(self) -> bool | None:
        """Now; None: it is not in use (any more), and has no say."""


_registered = False
# Inner optimizer → its wrap, which may be gone while the other is used on.
_wraps: weakref.WeakKeyDictionary[torch.optim.Optimizer, weakref.ref[Wrap]]
_wraps = weakref.WeakKeyDictionary()


def refuse_unserved_steps() -> None:
    """From the first table or wrap on, in this process."""
    global _registered
    if not _registered:
        _registered = True
        register_optimizer_step_pre_hook(_look)


def refuse_steps_without(wrap: Wrap) -> None:
    """Of the optimizer that it wraps."""
    refuse_unserved_steps()
    _wraps[wrap.optimizer] = weakref.ref(wrap)


def _look(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    if hasattr(optimizer, "_served"):  # a DistributedOptimizer, maybe before its tables are made
        return
    kind = type(optimizer).__name__
    found = _wraps.get(optimizer)
    wrap = None if found is None else found()
    refuses = None if wrap is None else wrap._refuses_inner_steps()
    if refuses is False:
        return
    if refuses:
        raise Error(f"this {kind} is wrapped in a cairn.DistributedOptimizer, and its own step() would "
                    "change this worker's copies alone: call step() of the DistributedOptimizer")
    for group in optimizer.param_groups:
        for param in group["params"]:
            if not isinstance(param, TableHandle) or param.grad is None:
                continue
            table = (f'table "{param.rows_of.name}" is trained on the servers, and {kind} alone '
                     "can't reach them: ")
            if param.rows_of.table is None:
                raise Error(f"{table}cairn.init(), and wrap it in cairn.DistributedOptimizer(optimizer, "
                            "model)")
            raise Error(f"{table}call step() of the cairn.DistributedOptimizer that the table belongs to")
