"""What Embedding and EmbeddingBag share: the table's handle, reading rows, filing gradients,
saving."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from .._rows.row_caching import CacheStats, Caching
from .._rows.row_table import RowTable, read
from .._rows.rows_ahead import Lookup
from .._rows.table_handle import TableHandle
from .._rows.unique_keys import keys_to
from .._runtime.user_warnings import warn_user
from .._tables.tensors import take_keys
from .._tables.wire_formats import wire_of_rows
from ..errors import Error, InvalidArgumentError
from .outside_graphs import leave_graphs
from .table_names import handle_for

_ID_TYPES = (torch.int64, torch.int32, torch.uint64)


class TableModule(torch.nn.Module):
    """A module over a table. `table` is its handle, and its only parameter.

    num_embeddings: None for unbounded 64-bit keys, of which negative ones are taken bit by bit.
    """

    num_embeddings: int | None
    embedding_dim: int
    padding_idx: int | None
    scale_grad_by_freq: bool
    sparse: bool

    def __init__(self, num_embeddings: int | None, embedding_dim: int, *, padding_idx: int | None,
                 max_norm: float | None, norm_type: float, scale_grad_by_freq: bool, sparse: bool,
                 weight: torch.Tensor | None, freeze: bool, device: Any, dtype: torch.dtype | None,
                 name: str | None, init: Any, seed: int, wire: str | None, storage: Any,
                 caching: Caching) -> None:
        super().__init__()
        leave_graphs()
        if max_norm is not None:
            raise InvalidArgumentError(
                "max_norm would write to rows in every forward pass, and rows are on the servers: "
                "leave it out, and clip gradients (optimizer.clip_grad_norm_) or normalise what "
                "the module returns")
        if name is not None and not (isinstance(name, str) and name):
            raise InvalidArgumentError(f"name={name!r}: a table's name is a text that is not empty")
        if not 0 <= seed < 1 << 64:
            raise InvalidArgumentError(f"seed={seed}: give a number from 0 to 2^64 - 1")
        if embedding_dim < 1 or (num_embeddings is not None and num_embeddings < 0):
            raise InvalidArgumentError(
                f"{num_embeddings} rows of {embedding_dim} values: give num_embeddings=None or a "
                "number of rows, and at least one value a row")
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = _padding(padding_idx, num_embeddings)
        self.max_norm, self.norm_type = None, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        self.table = handle_for(name, embedding_dim, init, seed, storage=storage, device=device,
                                dtype=dtype, requires_grad=not freeze, wire=wire_of_rows(wire),
                                caching=caching)
        if weight is not None:
            expected = [len(weight) if num_embeddings is None else num_embeddings, embedding_dim]
            assert list(weight.shape) == expected, (
                "Shape of weight does not match num_embeddings and embedding_dim")
            self._rows.load(keys_to(len(weight)), weight)
        elif self.padding_idx is not None and self._rows.table is None:  # as torch: zeros, never trained
            self._rows.load(torch.tensor([self.padding_idx], device="cpu"),
                            torch.zeros(1, embedding_dim, device="cpu"))

    @property
    def _rows(self) -> RowTable:
        return self.table.rows_of

    @property
    def name(self) -> str:
        """Of the table on the servers."""
        return self._rows.name

    # Reading.
    def _lookup(self, ids: Any) -> Lookup:
        self._check_type(ids)
        lookup = self._rows.lookup(ids)
        if self.num_embeddings is not None and lookup.keys.numel():
            low, high = (int(key) for key in torch.aminmax(lookup.keys))
            if low < 0 or high >= self.num_embeddings:
                raise IndexError(
                    f'index out of range in self: id {low if low < 0 else high} of table '
                    f'"{self.name}", which has ids 0 to {self.num_embeddings - 1} '
                    '(num_embeddings=None takes any)')
        return lookup

    def _ids_by_table(self, asked: Any) -> Iterator[tuple[RowTable, torch.Tensor]]:
        """For cairn.prefetch: ids, a tuple of which the first are ids, or a list of those."""
        for given in asked if isinstance(asked, list) else [asked]:
            ids = given[0] if isinstance(given, tuple) else given
            self._check_type(ids)
            yield self._rows, ids

    def _check_type(self, ids: Any) -> None:
        if not isinstance(ids, torch.Tensor):
            raise TypeError(
                f"ids are a {type(ids).__name__}, not a torch.Tensor: torch.as_tensor makes one")
        if ids.dtype not in _ID_TYPES:
            raise RuntimeError(
                f"ids of table \"{self.name}\" are {str(ids.dtype).replace('torch.', '')}: "
                "expected one of the "
                "scalar types Long, Int (or uint64), convert them with .long()")

    def _read(self, ids: Any) -> tuple[Lookup, torch.Tensor]:
        with torch.inference_mode(False), torch.no_grad():  # what is kept is for training too
            lookup = self._lookup(ids)
            return lookup, read([self._rows], [lookup])[0]

    def _weight(self, lookup: Lookup, rows: torch.Tensor) -> tuple[torch.Tensor, int | None]:
        """The rows of a lookup as a weight matrix for lookup.inverse, whose gradient is filed; and
        where in it the padding is."""
        padding = None
        if self.padding_idx is not None:
            at = (lookup.keys == self.padding_idx).nonzero()
            padding = int(at) if at.numel() else None
        handle = self.table
        weight = rows.to(handle.device, handle.dtype)
        if not (handle.requires_grad and torch.is_grad_enabled()):
            return weight, padding
        leaf = weight.detach().requires_grad_()
        leaf.register_post_accumulate_grad_hook(
            _Filing(self._rows, lookup, padding, self.scale_grad_by_freq))
        return leaf, padding

    def _output(self, lookup: Lookup, rows: torch.Tensor, *inputs: Any) -> torch.Tensor:
        """What forward(*inputs) returns, given the rows."""
        raise NotImplementedError

    def cache_stats(self) -> CacheStats:
        """What the cache of this worker (cache_rows=, cache_steps=) has done so far."""
        cache = self._rows.source.cache
        if cache is None:
            raise InvalidArgumentError(
                f'table "{self.name}" has no cache: give its module cache_rows= and cache_steps=')
        return CacheStats(**cache.stats())

    # Values.
    def export(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys (ascending int64) and rows of all rows that have been trained or loaded. Any worker
        may call it alone; in Sync() the rows are those after this worker's last step."""
        with torch.inference_mode(False), torch.no_grad():
            source = self._rows.source
            keys = source.existing_keys()
            return keys, source.read_all(keys)

    def load_rows(self, keys: Any, rows: torch.Tensor) -> None:
        """Gives rows values, as export() has them. They reach the servers when an optimizer is
        wrapped, or with optimizer.push_parameters() if one was before; the first worker's values
        win."""
        with torch.inference_mode(False), torch.no_grad():
            keys = take_keys(keys)
            keys = keys.view(torch.int64).reshape(-1)
            if rows.shape != (keys.numel(), self.embedding_dim):
                raise InvalidArgumentError(
                    f'rows of shape {tuple(rows.shape)} for {keys.numel()} keys of table '
                    f'"{self.name}": ({keys.numel()}, {self.embedding_dim}) is expected')
            if self.num_embeddings is not None and keys.numel() and not (
                    int(keys.min()) >= 0 and int(keys.max()) < self.num_embeddings):
                raise IndexError(
                    f"keys of table \"{self.name}\" are 0 to {self.num_embeddings - 1}")
            self._rows.load(keys, rows)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        del destination[prefix + "table"]  # stands for rows, has none
        if self.num_embeddings is not None:
            with torch.inference_mode(False), torch.no_grad():
                rows = self._rows.source.read_all(keys_to(self.num_embeddings))
            destination[prefix + "weight"] = rows.to(self.table.dtype)
        elif self._has_rows:
            self._rows.source.warn_once("state_dict()", f"state_dict(): {self._not_saved}")

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        refuse_to_save_nothing(self, args, kwargs)
        return super().state_dict(*args, **kwargs)

    @property
    def _has_rows(self) -> bool:
        """Rows may have been trained or loaded."""
        return self._rows.table is not None or self._rows.loaded() is not None

    @property
    def _not_saved(self) -> str:
        return (f'the rows of table "{self.name}" are not in it, since the table is unbounded. Save what '
                "export() of its module gives beside it; load_rows(keys, rows) takes them back")

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool,
                              missing_keys: list[str], unexpected_keys: list[str],
                              error_msgs: list[str]) -> None:
        handle = self._parameters.pop("table")
        try:
            super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys,
                                          unexpected_keys, error_msgs)
        finally:
            self._parameters["table"] = handle
        key = prefix + "weight"
        if key in unexpected_keys:
            unexpected_keys.remove(key)
        weight = state_dict.get(key)
        if self.num_embeddings is None:
            advice = "export() of its module gives them, load_rows(keys, rows) takes them back"
            if weight is not None:
                error_msgs.append(
                    f'{key}: table "{self.name}" is unbounded, its rows are not in a state_dict: '
                    f'{advice}')
            else:
                warn_user(
                    f'the rows of table "{self.name}" are not loaded: it is unbounded, and they '
                    f'are not in a state_dict; {advice}')
        elif weight is None:
            if strict:
                missing_keys.append(key)
        elif tuple(weight.shape) != (self.num_embeddings, self.embedding_dim):
            error_msgs.append(
                f"size mismatch for {key}: copying a param with shape {weight.shape} from "
                "checkpoint, the shape in current model is "
                f"{torch.Size((self.num_embeddings, self.embedding_dim))}.")
        else:
            with torch.no_grad():
                self._rows.load(keys_to(self.num_embeddings), weight)

    # As torch's modules.
    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        handle = self._parameters.pop("table")
        assert handle is not None
        try:
            super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # torch's
        finally:
            self._parameters["table"] = handle
        with torch.no_grad():
            handle.data = fn(handle.data)  # never another object: the optimizer holds this one
        return self

    def __getattr__(self, name: str) -> Any:
        if name == "weight":
            raise AttributeError(
                f'table "{self.name}" has no weight: its rows are on the servers, and come as they '
                'are needed. The parameter to give to an optimizer is .table; export() gives all '
                'rows, state_dict() too if num_embeddings is given; initial values are set by '
                'init=')
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "weight":
            raise AttributeError(
                f'the rows of table "{self.name}" are on the servers, and have no weight: '
                'load_rows(keys, rows) or from_pretrained() give them values; modules share a '
                'table by .table or name=')
        if name == "table" and isinstance(value, TableHandle):
            value.rows_of.source.bound(self.num_embeddings)
        super().__setattr__(name, value)

    def extra_repr(self) -> str:
        parts = [f"{self.num_embeddings}, {self.embedding_dim}"]
        if self.padding_idx is not None:
            parts.append(f"padding_idx={self.padding_idx}")
        if self.scale_grad_by_freq:
            parts.append(f"scale_grad_by_freq={self.scale_grad_by_freq}")
        if self._rows.source.storage != "float32":
            parts.append(f"storage={self._rows.source.storage!r}")
        return ", ".join([*parts, f"name={self.name!r}"])


class _Filing:
    """The hook of a leaf: what backward has added up there is filed, and the leaf is empty
    again."""

    def __init__(self, table: RowTable, lookup: Lookup,
                 padding: int | None, by_frequency: bool) -> None:
        self._table, self._keys, self._padding = table, lookup.keys, padding
        self._inverse = lookup.inverse if by_frequency else None
        table.awaited.add(self)

    def __call__(self, leaf: torch.Tensor) -> None:
        grad, leaf.grad = leaf.grad, None
        assert grad is not None
        keys, grad = self._keys, grad.detach()
        if self._inverse is not None:  # not by F.embedding_bag, which takes wrong counts
            counts = torch.bincount(self._inverse, minlength=len(keys))
            grad = grad / counts.to(grad).unsqueeze(1)
        if self._padding is not None:  # not even a gradient of zero
            kept = keys_to(len(keys)) != self._padding
            keys, grad = keys[kept], grad[kept.to(grad.device)]
        self._table.gradient.file(keys, grad)
        self._table.awaited.discard(self)
        if self._table.all_filed is not None and not self._table.awaited:
            self._table.all_filed()


def refuse_to_save_nothing(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """The state_dict of a module that has nothing but unbounded tables would be empty. As a part of a
    larger one (there is a destination) it is not."""
    if args or kwargs.get("destination") is not None:
        return
    tables = [part for part in module.modules() if isinstance(part, TableModule)]
    unsaved = [table for table in tables if table.num_embeddings is None and table._has_rows]
    saves = any(not isinstance(param, TableHandle) for param in module.parameters())
    if unsaved and len(unsaved) == len(tables) and not saves and next(module.buffers(), None) is None:
        raise Error(f"state_dict() would be empty: {unsaved[0]._not_saved}")


def _padding(padding_idx: int | None, num_embeddings: int | None) -> int | None:
    if padding_idx is None or num_embeddings is None:
        if padding_idx is not None and not -(1 << 63) <= padding_idx < 1 << 64:
            raise InvalidArgumentError(f"padding_idx {padding_idx} is no 64-bit key")
        if padding_idx is None or padding_idx < 1 << 63:
            return padding_idx
        return padding_idx - (1 << 64)
    within = -num_embeddings <= padding_idx < num_embeddings
    assert within, "Padding_idx must be within num_embeddings"
    return padding_idx + num_embeddings if padding_idx < 0 else padding_idx
