"""Tensors as the pieces of one flat table: their addresses, or a staged copy where the memory can't
be used as it is (another device or type, strides that are not row-major).

Nothing is copied for float32 tensors on the CPU that are contiguous: the core reads gradients and
writes parameters where they lie.
"""
from __future__ import annotations

from collections.abc import Sequence

import torch

from ..errors import InvalidArgumentError
from .cpu_memory import FLOATS

# On the servers everything is float32: halves gain by it, doubles would silently lose.
STAGED_TYPES = (torch.float16, torch.bfloat16)


def check_type(name: str, tensor: torch.Tensor) -> None:
    if tensor.device.type not in ("cpu", "cuda"):
        raise TypeError(
            f"parameter {name} lies on device {tensor.device}: only cpu and cuda are supported. Put the "
            "model there before you make the optimizer"
        )
    if tensor.dtype == torch.float32 or tensor.dtype in STAGED_TYPES:
        return
    raise TypeError(
        f"parameter {name} is {tensor.dtype}: the servers keep float32. Use model.float(), or leave it "
        "out of the optimizer that cairn wraps"
    )


def is_direct(tensor: torch.Tensor) -> bool:
    # Asked for every tensor in every step: the cheapest of the ways to ask (device.type makes two objects).
    return (
        tensor.dtype is torch.float32
        and tensor.is_cpu
        and tensor.is_contiguous()
        and not tensor.is_neg()
    )


class TensorPieces:
    """The pieces of one table, one a tensor, in a fixed order. Not thread-safe."""

    def __init__(self, shapes: Sequence[torch.Size]) -> None:
        self.sizes = [shape.numel() for shape in shapes]
        self._shapes = list(shapes)
        self._staging: dict[int, torch.Tensor] = {}
        self._copied: dict[int, torch.cuda.Event] = {}

    def _check(self, index: int, tensor: torch.Tensor) -> None:
        """The addresses are used for as many elements as there were when the table was made."""
        if tensor.shape != self._shapes[index] or tensor.is_complex() or tensor.dtype == torch.float64:
            raise InvalidArgumentError(
                f"a tensor of shape {tuple(self._shapes[index])} in float32 has become {tensor.dtype} of "
                f"shape {tuple(tensor.shape)} since the wrap: make a new optimizer and wrap that"
            )

    def check(self, tensors: Sequence[torch.Tensor]) -> None:
        for index, tensor in enumerate(tensors):
            self._check(index, tensor)

    def _stage(self, index: int, pinned: bool) -> torch.Tensor:
        staged = self._staging.get(index)
        if staged is None or staged.is_pinned() != pinned:
            staged = torch.empty(self._shapes[index], pin_memory=pinned, **FLOATS)
            self._staging[index] = staged
        elif index in self._copied:
            self._copied.pop(index).synchronize()  # the last copy out of it may still be under way
        return staged

    def read(self, tensors: Sequence[torch.Tensor | None]) -> list[int]:
        """Addresses of the values to send; None stands for zeros. Copies from a GPU are complete
        when this returns. Keep `tensors` and this object alive until the call has ended."""
        addresses, devices = [], set()
        for index, tensor in enumerate(tensors):
            if tensor is None:
                addresses.append(0)
                continue
            if is_direct(tensor) and tensor.shape == self._shapes[index]:
                addresses.append(tensor.data_ptr())
            else:
                self._check(index, tensor)
                on_gpu = tensor.device.type != "cpu"
                staged = self._stage(index, on_gpu)
                staged.copy_(tensor.detach(), non_blocking=on_gpu)
                if on_gpu:
                    devices.add(tensor.device)
                addresses.append(staged.data_ptr())
        for device in devices:
            torch.cuda.current_stream(device).synchronize()
        return addresses

    def targets(self, tensors: Sequence[torch.Tensor]) -> list[int]:
        """Addresses to receive values into; call `store` with the same tensors afterwards."""
        addresses = []
        for index, tensor in enumerate(tensors):
            if is_direct(tensor) and tensor.shape == self._shapes[index]:
                addresses.append(tensor.data_ptr())
            else:
                self._check(index, tensor)
                addresses.append(self._stage(index, tensor.device.type != "cpu").data_ptr())
        return addresses

    def store(self, tensors: Sequence[torch.Tensor], only_changes: bool = False) -> None:
        """Staged values into their tensors, on the current stream where they are on a GPU.
        only_changes: a tensor that has its value already is not written to."""
        if not self._staging:
            return
        for index, tensor in enumerate(tensors):
            if is_direct(tensor):
                continue
            on_gpu = tensor.device.type != "cpu"
            if only_changes and torch.equal(self._staging[index].to(tensor.device, tensor.dtype),
                                            tensor.detach()):
                continue
            tensor.detach().copy_(self._staging[index], non_blocking=on_gpu)
            if on_gpu:
                event = torch.cuda.Event()
                event.record(torch.cuda.current_stream(tensor.device))
                self._copied[index] = event


def mask_of(present: Sequence[bool]) -> bytes:
    """One bit a segment; empty where all are there."""
    if all(present):
        return b""
    bits = bytearray((len(present) + 7) // 8)
    for index, there in enumerate(present):
        if there:
            bits[index // 8] |= 1 << (index % 8)
    return bytes(bits)
