"""A model's buffers (BatchNorm's statistics) and the parameters that the optimizer does not hold:
the first worker's are the truth, as in DistributedDataParallel.
"""
from __future__ import annotations

import warnings
from collections.abc import Iterable
from itertools import accumulate

import torch

from .. import _core
from .._tables.cpu_memory import FLOATS, INTEGERS
from .._tables.optimizer_settings import NO_HYPER
from .._tables.tensor_pieces import STAGED_TYPES, TensorPieces
from ..errors import UnavailableError
from ..modes import Mode, Sync

Tensors = list[torch.Tensor]


def shared_tensors(model: torch.nn.Module, held: Iterable[torch.Tensor]) -> tuple[Tensors, Tensors, Tensors]:
    """(buffers, tensors of other types, other parameters) of the model; those `held` are left out.

    Those of other types (num_batches_tracked, which counts the same on every worker by itself) are
    not worth a message in every step.
    """
    seen = {id(tensor) for tensor in held}

    def take(named: Iterable[tuple[str, torch.Tensor]], floats: bool) -> list[torch.Tensor]:
        taken = []
        for _, tensor in named:
            fits = tensor.dtype == torch.float32 or tensor.dtype in STAGED_TYPES
            if fits == floats and tensor.numel() > 0 and id(tensor) not in seen:
                seen.add(id(tensor))
                taken.append(tensor)
        return taken

    buffers, integers = take(model.named_buffers(), True), take(model.named_buffers(), False)
    others = take(model.named_parameters(), True)
    integers += take(model.named_parameters(), False)
    if any(tensor.is_complex() for tensor in integers):
        warnings.warn("complex tensors of the model are not shared: give all workers the same", stacklevel=2)
    return buffers, [tensor for tensor in integers if not tensor.is_complex()], others


class ServedTensors:
    """Tensors whose values one worker gives and all others take."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self.tensors = tensors
        self.table: _core.DenseTable | None = None
        shapes = [tensor.shape for tensor in tensors]
        self._out, self._in = TensorPieces(shapes), TensorPieces(shapes)

    def attach(self, client: _core.Client, name: str, mode: Mode) -> None:
        segments = list(accumulate(self._out.sizes))
        self.table = client.create_dense(
            name,
            segments[-1],
            mode="sync" if isinstance(mode, Sync) else "async",
            optimizer="sum",
            non_finite="allow",  # a buffer may well be infinite, and it is not ours to judge
            segments=segments,
        )

    def _read(self) -> list[int]:
        """Addresses of our values, as they are now."""
        return self._out.read(self.tensors)

    def give_and_take(self, gives: bool, joined: bool = False) -> _core.Pending:
        """Sync: a round in which one worker gives; `store` when it has ended."""
        assert self.table is not None
        keep = (self.tensors, self._in, self._out)
        sizes = self._in.sizes
        targets = self._in.targets(self.tensors)
        if gives and not joined:
            return self.table.push_pull(self._read(), sizes, targets, sizes, NO_HYPER,
                                        op=_core.OP_ASSIGN, keep=keep)
        return self.table.done_pull(targets, sizes, NO_HYPER, weight=0.0, joined=joined,
                                    op=_core.OP_ASSIGN, keep=keep)

    def finish(self, pending: _core.Pending) -> bool:
        """False if nobody gave values in this round (the one who should died): ours stay."""
        try:
            pending.wait()
        except UnavailableError:
            return False
        self.store()
        return True

    def give(self, once: bool) -> _core.Pending:
        """Async: our values become the servers'."""
        assert self.table is not None
        op = _core.OP_ASSIGN_ONCE if once else _core.OP_ASSIGN
        return self.table.push(self._read(), self._out.sizes, NO_HYPER, op=op,
                               keep=(self.tensors, self._out))

    def are_there(self) -> bool:
        """Async: somebody has given values that are not all 0."""
        assert self.table is not None
        found = torch.zeros(self.table.size, **FLOATS)
        self.table.pull([found.data_ptr()], [found.numel()], keep=found).wait()
        return bool(found.any())

    def take(self, when_assigned: bool) -> _core.Pending:
        assert self.table is not None
        return self.table.pull(self._in.targets(self.tensors), self._in.sizes, when_assigned=when_assigned,
                               keep=(self.tensors, self._in))

    def store(self) -> None:
        self._in.store(self.tensors, only_changes=True)  # another wrap may hold it


class ServedIntegers(ServedTensors):
    """Integers, bools and doubles: as float32 all the same, but exactly, 22 bits in each."""

    _BITS, _PARTS = 22, 3

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self._integers = tensors
        self._packed = torch.zeros(self._PARTS, sum(tensor.numel() for tensor in tensors), **FLOATS)
        super().__init__([self._packed])

    def _read(self) -> list[int]:
        whole = torch.cat([_as_int64(tensor).reshape(-1) for tensor in self._integers])
        for part in range(self._PARTS):
            self._packed[part] = (whole >> (self._BITS * part)) & ((1 << self._BITS) - 1)
        return super()._read()

    def store(self) -> None:
        super().store()
        whole = torch.zeros(self._packed.shape[1], **INTEGERS)
        for part in range(self._PARTS):
            whole |= self._packed[part].long() << (self._BITS * part)
        sizes = [tensor.numel() for tensor in self._integers]
        for tensor, mine in zip(self._integers, whole.split(sizes)):
            values = mine.view(torch.float64) if tensor.dtype == torch.float64 else mine
            tensor.copy_(values.reshape(tensor.shape))


def _as_int64(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach().cpu().contiguous()
    return tensor.view(torch.int64) if tensor.dtype == torch.float64 else tensor.long()
