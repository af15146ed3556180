"""The names of tables: by order of construction, the same on all workers, or as the user says."""
from __future__ import annotations

import re
import weakref
from typing import Any

import torch

from .._rows.row_caching import Caching
from .._rows.table_handle import TableHandle
from .._rows.unserved_steps import refuse_unserved_steps
from ..errors import InvalidArgumentError
from ..tables import _init, _storage

_unnamed = 0
_named: weakref.WeakValueDictionary[str, TableHandle] = weakref.WeakValueDictionary()


def handle_for(name: str | None, dim: int, init: Any, seed: int, *, storage: Any, device: Any,
               dtype: torch.dtype | None, requires_grad: bool, wire: str = "plain",
               caching: Caching = Caching()) -> TableHandle:
    """A new table; or the one of this name, which modules then share."""
    global _unnamed
    kind, a, b, own_seed = _init(init)
    values = (kind, a, b, own_seed or int(seed))
    storage = _storage(storage)
    if name is None:
        name, known = f"embedding-{_unnamed}", None
        _unnamed += 1
    elif re.fullmatch(r"embedding-\d+|.*~copy-\d+", name):
        raise InvalidArgumentError(
            f'name="{name}" is how tables without a name, and copies, are called, and one of them would '
            "share its rows: choose another name")
    else:
        known = _named.get(name)
    if known is not None:
        table = known.rows_of
        there = (table.dim, table.init[:4], table.source.storage)
        if there != (dim, values, storage):
            raise InvalidArgumentError(
                f'table "{name}" has dim {table.dim}, initial values {table.init[:4]} and storage '
                f"{table.source.storage}, and can't be shared by a module with dim {dim}, {values} and "
                f"{storage}: give the module another name, or none")
        if table.source.caching != caching:
            raise InvalidArgumentError(
                f'table "{name}" has {table.source.caching}, and can\'t be shared by a module with '
                f"{caching}: give both the same cache_rows and cache_steps, or another name")
        if table.source.wire != wire:
            raise InvalidArgumentError(
                f'table "{name}" travels as {table.source.wire}, and not as {wire} too: give all modules '
                "that share it the same wire=")
        given = torch.empty(0, device=device, dtype=dtype)
        if ((device is not None and given.device != known.device)
                or (dtype is not None and dtype != known.dtype)
                or (known.requires_grad and not requires_grad)):
            raise InvalidArgumentError(
                f'table "{name}" is on {known.device} in {known.dtype}, '
                f'requires_grad={known.requires_grad}, for all modules that share it: leave '
                'device, dtype and freeze out, or give the module another name')
        return known
    refuse_unserved_steps()
    handle = TableHandle.make(name, dim, values, device=device, dtype=dtype,
                              requires_grad=requires_grad, wire=wire, storage=storage, caching=caching)
    _named[name] = handle
    return handle
