"""Tables by hand: the plain client, for those who write their own loop.

    weights = cairn.dense_table("weights", (10, 784), mode=cairn.Async(), optimizer="sgd", lr=0.1)
    w = weights.pull().result()
    weights.push(gradient, lr=0.05).wait()

Calls return a Future at once. What is pushed must stay unchanged, and what is pulled into must be
left alone, until the future is done.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch

from . import _core
from ._runtime import context
from ._tables import hypers, tensors
from ._tables.wire_formats import wire_of_rows, wire_of_tensors
from .errors import DeadlineExceededError, InvalidArgumentError
from .modes import Async, Sync, check_mode, settings_of_table

Init = float | str | Sequence[Any] | None
_KINDS = {"zeros": 0, "constant": 1, "uniform": 2, "normal": 2}  # how many numbers each takes


class Future:
    """A call under way."""

    def __init__(self, pending: _core.Pending, output: tensors.Output | None = None):
        self._pending = pending
        self._output = output
        if pending.ready():
            pending.wait()  # what was refused at once is told at once, also to those who never wait

    def wait(self, timeout: float | None = None) -> None:
        """Returns when the call has ended; raises its error. With `timeout` (seconds) it raises
        DeadlineExceededError if that takes longer; the call goes on, and may be waited for again."""
        if timeout is not None and not self._pending.wait_for(int(min(max(timeout, 0), 1e9) * 1000)):
            raise DeadlineExceededError(f"the call has not ended within {timeout} s; it goes on")
        self._pending.wait()
        output = self._output
        if output is not None and output.finish is not None:
            self._output = output._replace(finish=None)
            output.finish()

    def result(self, timeout: float | None = None) -> torch.Tensor | None:
        """Waits, and gives the tensor that was pulled; None for a push."""
        self.wait(timeout)
        return self._output.result if self._output is not None else None

    def done(self) -> bool:
        """True if the call has ended, well or not."""
        return self._pending.ready()


def _milliseconds(timeout: float | None) -> int:
    if timeout is None:
        return 0
    if not timeout > 0:
        raise InvalidArgumentError(f"timeout={timeout} is not a number of seconds above 0")
    return max(1, int(min(timeout, 1e9) * 1000))


def _init(init: Init) -> tuple[str, float, float, int]:
    if init is None:
        return ("zeros", 0.0, 0.0, 0)
    if isinstance(init, (int, float)):
        return ("constant", float(init), 0.0, 0)
    parts: Sequence[Any] = (init,) if isinstance(init, str) else init
    kind, *numbers = parts
    most = _KINDS.get(kind, -1)
    if len(numbers) not in (most, most + (most == 2)):
        raise InvalidArgumentError(
            f'init is {init!r}: give a number, "zeros", ("uniform", low, high, seed) or '
            '("normal", mean, std, seed)')
    a, b, seed = [*numbers, 0.0, 0.0, 0][:2] + [numbers[2] if len(numbers) > 2 else 0]
    return (kind, float(a), float(b), int(seed))


def _dtype(dtype: str | torch.dtype) -> Literal["float32", "int64"]:
    name = str(dtype).replace("torch.", "")
    if name == "float32":
        return "float32"
    if name == "int64":
        return "int64"
    raise InvalidArgumentError(f"dtype is {dtype}: tables hold float32 or int64")


def _storage(storage: str | torch.dtype) -> str:
    name = str(storage).replace("torch.", "")
    if name not in ("float32", "bfloat16", "float16"):
        raise InvalidArgumentError(
            f"storage is {storage!r}: rows are kept as float32, bfloat16 or float16")
    return name


def _mode(mode: Any) -> dict[str, Any]:
    if mode in ("sync", "async"):
        mode = Sync() if mode == "sync" else Async()
    return settings_of_table(check_mode(mode))


class _Table:
    """What dense and sparse tables have in common."""

    _table: _core.DenseTable | _core.SparseTable

    def __init__(self, table: _core.DenseTable | _core.SparseTable, dtype: str, optimizer: hypers.Optimizer):
        self._table = table
        self._dtype = tensors.DTYPES[dtype]
        self._optimizer = optimizer
        self._named = f'table "{table.name}"'

    @property
    def name(self) -> str:
        return self._table.name

    @property
    def dtype(self) -> torch.dtype:
        return self._dtype

    def done(self, *, weight: float = 1.0, timeout: float | None = None, **settings: Any) -> Future:
        """Sync: ends this worker's part of the round without a gradient."""
        return Future(self._table.done(self._optimizer.hyper_with(settings), weight=weight,
                                       timeout_ms=_milliseconds(timeout)))

    def round(self) -> int:
        """Sync: the number of the round that the next push takes part in."""
        return self._table.round()

    def end_step(self, *, last: bool = False) -> None:
        """BoundedStaleness: this worker's step is over, every push of it begun. Waits for nothing. last:
        nobody waits for this worker in this table until it ends another step."""
        self._table.end_step(last=last)

    def drop(self) -> None:
        """Removes the table from the servers, for all workers."""
        context.current().client.drop_table(self.name)


class DenseTable(_Table):
    """An array of known shape on the servers, split among them."""

    _table: _core.DenseTable

    def __init__(self, table: _core.DenseTable, shape: tuple[int, ...], dtype: str,
                 optimizer: hypers.Optimizer):
        super().__init__(table, dtype, optimizer)
        self.shape = torch.Size(shape)

    def __repr__(self) -> str:
        return f"<cairn.DenseTable {self.name!r}, {tuple(self.shape)}, {self._optimizer.name}>"

    def _in(self, what: str, values: Any) -> tensors.Input:
        return tensors.take_input(what, values, self.shape, self._dtype, self._named)

    def _out(self, out: Any) -> tensors.Output:
        return tensors.take_output("out", out, self.shape, self._dtype, self._named)

    def push(self, gradient: torch.Tensor, *, weight: float = 1.0, timeout: float | None = None,
             **settings: Any) -> Future:
        """Sends a gradient. Sync: this worker's part of a round, with a weight in the mean. Settings
        (lr=…, momentum=…) replace those of the table for this push."""
        given = self._in("gradient", gradient)
        return Future(self._table.push(
            [given.address], [given.tensor.numel()], self._optimizer.hyper_with(settings), weight=weight,
            timeout_ms=_milliseconds(timeout), keep=given))

    def pull(self, out: torch.Tensor | None = None, *, when_assigned: bool = False,
             timeout: float | None = None) -> Future:
        """Fetches the values, into `out` if given. Sync: those after this worker's last round."""
        target = self._out(out)
        return Future(self._table.pull(
            [target.address], [target.tensor.numel()], when_assigned=when_assigned,
            timeout_ms=_milliseconds(timeout), keep=target), target)

    def push_pull(self, gradient: torch.Tensor, out: torch.Tensor | None = None, *, weight: float = 1.0,
                  timeout: float | None = None, **settings: Any) -> Future:
        """Both in one round trip: the values with this push in them."""
        given, target = self._in("gradient", gradient), self._out(out)
        return Future(self._table.push_pull(
            [given.address], [given.tensor.numel()], [target.address], [target.tensor.numel()],
            self._optimizer.hyper_with(settings), weight=weight, timeout_ms=_milliseconds(timeout),
            keep=(given, target)), target)

    def assign(self, values: torch.Tensor, *, once: bool = False, timeout: float | None = None) -> Future:
        """The values become these, whatever they were; the optimizer is not asked. once (async): only
        if nobody has assigned any yet; others pull with when_assigned=True."""
        given = self._in("values", values)
        return Future(self._table.push(
            [given.address], [given.tensor.numel()], self._optimizer.hyper,
            op=_core.OP_ASSIGN_ONCE if once else _core.OP_ASSIGN, timeout_ms=_milliseconds(timeout),
            keep=given))


class SparseTable(_Table):
    """Rows of `dim` values by 64-bit key, made when first needed. A negative key is taken bit by bit."""

    _table: _core.SparseTable

    def __init__(self, table: _core.SparseTable, dtype: str, optimizer: hypers.Optimizer, sync: bool):
        super().__init__(table, dtype, optimizer)
        self._sync = sync
        self._pushes = 0

    @property
    def dim(self) -> int:
        return self._table.dim

    def __repr__(self) -> str:
        return f"<cairn.SparseTable {self.name!r}, dim {self.dim}, {self._optimizer.name}>"

    def _shape(self, keys: torch.Tensor) -> tuple[int, ...]:
        return (*keys.shape, self.dim)

    def _step(self, step: int | None) -> int:
        """The number of this push among those of the table. Sync: of its round, the same on all workers;
        async: each worker counts its own."""
        if step is not None or not self._optimizer.counts_steps:
            return step or 0
        self._pushes += 1
        return self._table.round() + 1 if self._sync else self._pushes

    def done(self, *, weight: float = 1.0, timeout: float | None = None, step: int | None = None,
             **settings: Any) -> Future:
        """Sync: ends this worker's part of the round without a gradient."""
        return Future(self._table.done(self._optimizer.hyper_with(settings), weight=weight,
                                       step=self._step(step), timeout_ms=_milliseconds(timeout)))

    def push(self, keys: Any, rows: torch.Tensor, *, weight: float = 1.0, timeout: float | None = None,
             step: int | None = None, **settings: Any) -> Future:
        """Sends gradients of rows; keys may repeat, their rows are summed. step: which one of the table
        this is, from 1 on, where the optimizer asks for it; None: counted here."""
        keys = tensors.take_keys(keys)
        given = tensors.take_input("rows", rows, self._shape(keys), self._dtype, self._named)
        return Future(self._table.push(
            keys.data_ptr(), keys.numel(), given.address, self._optimizer.hyper_with(settings), weight=weight,
            step=self._step(step), timeout_ms=_milliseconds(timeout), keep=(keys, given)))

    def pull(self, keys: Any, out: torch.Tensor | None = None, *, state: str | None = None,
             timeout: float | None = None) -> Future:
        """Fetches rows: a tensor of the shape of `keys`, and dim. A key that was never pushed has its
        initial value, and is not made by this. state: what the optimizer keeps of the rows instead of
        their values ("sum", "exp_avg", …; "step"), with what a row has once in all of its elements."""
        keys = tensors.take_keys(keys)
        target = tensors.take_output("out", out, self._shape(keys), self._dtype, self._named)
        return Future(self._table.pull(
            keys.data_ptr(), keys.numel(), target.address, column=self._optimizer.column(state),
            timeout_ms=_milliseconds(timeout), keep=(keys, target)), target)

    def assign(self, keys: Any, rows: torch.Tensor, *, once: bool = False,
               timeout: float | None = None) -> Future:
        """The rows become these, the optimizer is not asked; rows that exist keep its state. Never a
        round: for one worker, between steps. once: only rows that do not exist yet. Of a key that
        repeats the last row counts."""
        keys = tensors.take_keys(keys)
        given = tensors.take_input("rows", rows, self._shape(keys), self._dtype, self._named)
        return Future(self._table.push(
            keys.data_ptr(), keys.numel(), given.address, self._optimizer.hyper,
            op=_core.OP_ASSIGN_ONCE if once else _core.OP_ASSIGN, timeout_ms=_milliseconds(timeout),
            keep=(keys, given)))

    def keys(self, *, timeout: float | None = None) -> torch.Tensor:
        """The keys of all rows that exist, in no particular order: int64, bit by bit. Sync: those after
        this worker's last round. Rows that others make meanwhile may be missing."""
        found = bytearray(self._table.keys(timeout_ms=_milliseconds(timeout)))
        return torch.frombuffer(found, dtype=torch.int64) if found else torch.empty(0, dtype=torch.int64)

    def push_pull(self, keys: Any, rows: torch.Tensor, out: torch.Tensor | None = None, *,
                  weight: float = 1.0, timeout: float | None = None, step: int | None = None,
                  **settings: Any) -> Future:
        """Both in one round trip: the same rows with this push in them."""
        keys = tensors.take_keys(keys)
        given = tensors.take_input("rows", rows, self._shape(keys), self._dtype, self._named)
        target = tensors.take_output("out", out, self._shape(keys), self._dtype, self._named)
        return Future(self._table.push_pull(
            keys.data_ptr(), keys.numel(), given.address, target.address,
            self._optimizer.hyper_with(settings), weight=weight, step=self._step(step),
            timeout_ms=_milliseconds(timeout), keep=(keys, given, target)), target)


def dense_table(name: str, shape: int | Sequence[int], *, mode: Any = Sync(), optimizer: str = "sgd",
                dtype: str | torch.dtype = "float32", init: Init = None,
                non_finite: Literal["reject", "allow"] = "reject",
                reduce: str = "mean", maximize: bool = False, wire: str | None = None,
                wire_topk: float | None = None, **settings: Any) -> DenseTable:
    """Makes a dense table, or finds it: all workers call this with the same arguments.

    optimizer: "sgd", "adagrad", "adam", "adamw", "rmsprop" with the settings of torch.optim (lr=…,
    momentum=…, …), "ftrl" (cairn.optim), "sum" (w += g), "mean" (sync: w = mean of the round) or "first"
    (int64, async).
    init: a number, ("normal", mean, std, seed) or ("uniform", low, high, seed). non_finite: "reject"
    or "allow" pushes with NaN or Inf.
    wire: None, "bf16", "f16", "topk" with wire_topk=0.01, or "lz4": fewer bytes between hosts.
    """
    sizes = (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)
    if any(n < 1 for n in sizes):
        raise InvalidArgumentError(f'table "{name}" has shape {sizes}: every dimension is at least 1')
    what = hypers.optimizer(optimizer, settings, maximize=maximize, reduce=reduce)
    kind = _dtype(dtype)
    table = context.current().client.create_dense(
        name, math.prod(sizes), dtype=kind, optimizer=what.name, flags=what.flags, non_finite=non_finite,
        initial_state=what.initial_state, init=_init(init), **_mode(mode),
        **wire_of_tensors(wire, wire_topk))
    return DenseTable(table, sizes, kind, what)


def sparse_table(name: str, dim: int, *, mode: Any = Sync(), optimizer: str = "sgd",
                 dtype: str | torch.dtype = "float32", init: Init = None,
                 non_finite: Literal["reject", "allow"] = "reject",
                 reduce: str = "mean", maximize: bool = False, wire: str | None = None,
                 storage: str | torch.dtype = "float32",
                 **settings: Any) -> SparseTable:
    """Makes a sparse table, or finds it: all workers call this with the same arguments.

    optimizer, which changes only the rows of a push: "sgd" without momentum, "adagrad", "sparse_adam",
    "rowwise_adagrad", "ftrl" with the settings of torch.optim and cairn.optim (lr=…, eps=…, betas=…, l1=…,
    initial_accumulator_value=…), "sum" (row += gradient) or "first" (int64, async). The rest is as in
    dense_table(); init may be different for each key: ("normal", 0, 0.01, seed).
    storage: how the servers keep the values of rows: "float32", or in half the memory "bfloat16" or
    "float16", rounded at random after each step. They are pushed and pulled as float32 always.
    """
    what = hypers.optimizer(optimizer, settings, maximize=maximize, reduce=reduce)
    if what.flags & _core.FLAG_MOMENTUM:
        raise InvalidArgumentError(
            f'table "{name}": "sgd" has no momentum on rows: use "adagrad" or "sparse_adam", or a dense '
            "table")
    kind, how = _dtype(dtype), _mode(mode)
    table = context.current().client.create_sparse(
        name, dim, dtype=kind, optimizer=what.name, flags=what.flags, non_finite=non_finite,
        initial_state=what.initial_state, init=_init(init), wire=wire_of_rows(wire),
        storage=_storage(storage), **how)
    return SparseTable(table, kind, what, sync=how["mode"] == "sync")
