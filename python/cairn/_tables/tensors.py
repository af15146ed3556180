"""Tensors at the door to the extension: what is taken as it is, what is copied, what is refused.

A push reads and a pull writes where a tensor lies, if it is a contiguous CPU tensor of the table's
dtype. Anything else is staged: a non-contiguous input is copied, a CUDA tensor goes through pinned
memory, an output is written back when the operation has ended.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from ..errors import InvalidArgumentError

DTYPES = {"float32": torch.float32, "int64": torch.int64}


class Input(NamedTuple):
    tensor: torch.Tensor  # CPU, contiguous, without grad: its memory is read

    @property
    def address(self) -> int:
        return self.tensor.data_ptr()


class Output(NamedTuple):
    tensor: torch.Tensor  # CPU, contiguous: its memory is written
    result: torch.Tensor  # what the caller gets
    finish: Callable[[], None] | None  # to be called when the operation has ended

    @property
    def address(self) -> int:
        return self.tensor.data_ptr()


def _shape(shape: Sequence[int]) -> str:
    return "(" + ", ".join(str(n) for n in shape) + ("," if len(shape) == 1 else "") + ")"


def _describe(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).replace('torch.', '')} of shape {_shape(tensor.shape)}"


def _require_tensor(what: str, value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value
    raise InvalidArgumentError(
        f"{what} is a {type(value).__name__}, not a torch.Tensor: torch.as_tensor makes one")


def _require_dense(what: str, tensor: torch.Tensor) -> None:
    if tensor.layout != torch.strided:
        raise InvalidArgumentError(f"{what} is a tensor of layout {tensor.layout}: .to_dense() first")
    if tensor.device.type not in ("cpu", "cuda"):
        raise InvalidArgumentError(
            f"{what} lies on device {tensor.device}: only cpu and cuda are supported, .cpu() first")


def _require_dtype(what: str, tensor: torch.Tensor, dtype: torch.dtype, table: str) -> None:
    if tensor.dtype == dtype:
        return
    advice = ".float()" if dtype == torch.float32 else ".long()"
    raise InvalidArgumentError(
        f"{table} holds {str(dtype).replace('torch.', '')}, {what} is {_describe(tensor)}: convert it "
        f"with {advice}")


def _require_shape(what: str, tensor: torch.Tensor, shape: Sequence[int], table: str) -> None:
    """The same shape, or flat: anything else with as many elements would be taken in a wrong order."""
    flat = tensor.dim() == 1 and tensor.numel() == math.prod(shape)
    if tensor.shape != torch.Size(shape) and not flat:
        raise InvalidArgumentError(
            f"{table} has shape {_shape(shape)}, {what} has shape {_shape(tensor.shape)}")


def take_input(what: str, value: Any, shape: Sequence[int], dtype: torch.dtype, table: str) -> Input:
    """What is pushed. It may need grad (only its values count); of `shape`, or flat."""
    tensor = _require_tensor(what, value).detach()
    _require_dense(what, tensor)
    _require_dtype(what, tensor, dtype, table)
    _require_shape(what, tensor, shape, table)
    return Input(on_cpu(tensor))


def on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, contiguous in memory that the CPU reads."""
    tensor = tensor.resolve_conj().resolve_neg()
    if tensor.device.type == "cuda":
        staged = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
        staged.copy_(tensor, non_blocking=True)
        torch.cuda.current_stream(tensor.device).synchronize()
        return staged
    return tensor.contiguous()


def take_output(what: str, value: Any | None, shape: Sequence[int], dtype: torch.dtype,
                table: str) -> Output:
    """Where a pull writes: a new tensor of `shape`, or the caller's."""
    if value is None:
        fresh = torch.empty(tuple(shape), dtype=dtype, device="cpu")
        return Output(fresh, fresh, None)
    tensor = _require_tensor(what, value)
    _require_dense(what, tensor)
    _require_dtype(what, tensor, dtype, table)
    _require_shape(what, tensor, shape, table)
    if tensor.requires_grad and not tensor.is_leaf:
        raise InvalidArgumentError(
            f"{what} is the result of a computation that needs grad, and would be overwritten: pull into a "
            "tensor of its own, or into .detach()")
    target = tensor.detach()
    if target.device.type == "cpu" and target.is_contiguous() and not target.is_neg():
        # A parameter is a leaf: its values change as under torch.no_grad(), and autograd is told.
        return Output(target, tensor, lambda: _written(tensor))
    staged = torch.empty(target.shape, dtype=dtype, device="cpu", pin_memory=target.device.type == "cuda")

    def write_back() -> None:
        with torch.no_grad():
            target.copy_(staged, non_blocking=True)  # for the current stream, as any kernel would
            if target.device.type == "cuda":
                torch.cuda.current_stream(target.device).synchronize()  # the staging memory is given back
        _written(tensor)

    return Output(staged, tensor, write_back)


def _written(tensor: torch.Tensor) -> None:
    """Memory was written behind torch's back: autograd must notice that saved values are stale."""
    if not tensor.is_inference():
        torch.autograd.graph.increment_version(tensor)


def take_keys(keys: Any) -> torch.Tensor:
    """Keys of a sparse table as contiguous 64-bit integers on the CPU; negative ones are taken bit by bit."""
    if not isinstance(keys, torch.Tensor):
        try:
            keys = torch.as_tensor(keys)
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise InvalidArgumentError(
                f"keys are a {type(keys).__name__}, which is no array of integers: {error}") from None
        if keys.numel() == 0:
            keys = keys.to(torch.int64)
    _require_dense("keys", keys)
    if keys.dtype not in (torch.int64, torch.uint64):
        raise InvalidArgumentError(
            f"keys are {_describe(keys)}: they must be int64 or uint64, convert them with .long()")
    return on_cpu(keys.detach())
