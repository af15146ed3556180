"""The parameter that stands for a table of rows in a model, and in the optimizer that trains it."""
from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NoReturn

import torch

from .row_caching import Caching
from .row_source import RowSource
from .row_table import RowTable
from .table_copies import copied


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
        rows_of.held_by(handle)
        return handle

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass  # torch.Tensor's takes no arguments

    @classmethod
    def make(cls, name: str, dim: int, init: Sequence[Any], *, device: Any = None,
             dtype: torch.dtype | None = None, requires_grad: bool = True,
             wire: str = "plain", storage: str = "float32",
             caching: Caching = Caching()) -> TableHandle:
        """A new table; its initial rows depend on its name, and on `init`: kind, a, b, seed."""
        # The same on all workers and in all runs; 0 would mean a number of the servers'.
        digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
        stream = int.from_bytes(digest, "little") or 1
        kind, a, b, seed = init
        source = RowSource(name, dim, (kind, float(a), float(b), int(seed), stream), wire, storage,
                           caching)
        return cls(RowTable(source), device=device, dtype=dtype, requires_grad=requires_grad)

    @property
    def grad(self) -> torch.Tensor | None:
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
            f'table "{self.rows_of.name}" takes no part in the graph itself, so a hook on it would never '
            "run: change its .grad after backward(), or put a hook on what the module returns")

    def __repr__(self) -> str:  # type: ignore[override]  # torch's takes more
        table = self.rows_of
        return f"TableHandle({table.name!r}, dim {table.dim}, requires_grad={self.requires_grad})"

    def __deepcopy__(self, memo: dict[int, Any]) -> TableHandle:
        """A table of its own: table_copies.py."""
        if id(self) not in memo:
            memo[id(self)] = TableHandle(RowTable(copied(self.rows_of.source)), device=self.device,
                                         dtype=self.dtype, requires_grad=self.requires_grad)
        copy: TableHandle = memo[id(self)]
        return copy

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            f'table "{self.rows_of.name}" can\'t be pickled, its rows are on the servers: save the '
            'model\'s '
            "state_dict() (tables with num_embeddings) or the module's export()")
