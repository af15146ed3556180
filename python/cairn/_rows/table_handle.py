"""The parameter that stands for a table of rows in a model, and in the optimizer that trains it."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import torch

if TYPE_CHECKING:
    from .row_table import RowTable


class TableHandle(torch.nn.Parameter):
    """An empty parameter of shape (0, dim): the rows themselves are on the servers.

    Its device and dtype are those that the rows get in a model; requires_grad_(False) freezes the
    table. `.grad` is the gradient that backward passes have filed, one row a key: None, or a tensor
    of shape (keys, dim) that may be changed in place (scaled, clipped)."""

    rows_of: RowTable

    def __new__(cls, rows_of: RowTable, *, device: Any = None, dtype: torch.dtype | None = None,
                requires_grad: bool = True) -> TableHandle:
        empty = torch.empty((0, rows_of.dim), device=device, dtype=dtype)
        if not empty.is_floating_point():
            raise TypeError(
                f"rows of dtype {empty.dtype}: they are float32, or another floating point type")
        handle = torch.Tensor._make_subclass(cls, empty, requires_grad)
        handle.rows_of = rows_of
        return handle

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass  # torch.Tensor's takes no arguments

    @property
    def grad(self) -> torch.Tensor | None:  # type: ignore[override]
        return self.rows_of.gradient.show(self.device, self.dtype)

    @grad.setter
    def grad(self, value: torch.Tensor | None) -> None:
        if value is None:
            self.rows_of.clear()
        else:
            self.rows_of.gradient.replace(value)

    @grad.deleter
    def grad(self) -> None:
        self.rows_of.clear()

    def register_hook(self, hook: Any) -> NoReturn:
        self._refuse_hook()

    def register_post_accumulate_grad_hook(self, hook: Any) -> NoReturn:
        self._refuse_hook()

    def _refuse_hook(self) -> NoReturn:
        raise RuntimeError(
            f'table "{self.rows_of.name}" takes no part in the graph itself, so a hook on it would never run: '
            "change its .grad after backward(), or put a hook on what the module returns")

    def __repr__(self) -> str:  # type: ignore[override]
        table = self.rows_of
        return f"TableHandle({table.name!r}, dim {table.dim}, requires_grad={self.requires_grad})"

    def __deepcopy__(self, memo: dict[int, Any]) -> TableHandle:
        """A table of its own: table_copies.py."""
        if id(self) not in memo:
            memo[id(self)] = self.rows_of.copied(self)
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            f'table "{self.rows_of.name}" can\'t be pickled, its rows are on the servers: save the '
            'model\'s '
            "state_dict() (tables with num_embeddings) or the module's export()")
