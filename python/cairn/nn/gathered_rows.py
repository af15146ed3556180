"""Rows for ids, on the CPU: index_select and its backward pass without torch's cost a row.

index_select's backward pass adds row by row through a general kernel, which for a batch of small
rows takes longer than everything else that a table needs; here both directions are one pass. Each
is the other's derivative, so that a gradient of a gradient works.
"""
from __future__ import annotations

from typing import Any

import torch

from .. import _core


def gathered(rows: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """rows[places], for rows of two dimensions and int64 places of one."""
    if _plain(rows) and _is_places(places):
        found: torch.Tensor = _Gathered.apply(rows, places)  # type: ignore[no-untyped-call]  # torch's
        return found
    return rows.index_select(0, places)


def _plain(rows: torch.Tensor) -> bool:
    return (rows.dtype == torch.float32 and rows.device.type == "cpu" and type(rows) is torch.Tensor
            and rows.shape[1] > 0)


def _is_places(places: torch.Tensor) -> bool:
    return places.dtype == torch.int64 and places.is_contiguous() and places.device.type == "cpu"


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(places)
        ctx.count = rows.shape[0]
        rows, dim = rows.contiguous(), rows.shape[1]
        out = rows.new_empty((places.numel(), dim))
        _core.gather_rows(rows.data_ptr(), rows.shape[0], dim, places.data_ptr(), places.numel(),
                          out.data_ptr())
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        (places,) = ctx.saved_tensors
        if _plain(grad):
            return _Added.apply(grad, places, ctx.count), None  # type: ignore[no-untyped-call]  # torch's
        return grad.new_zeros((ctx.count, grad.shape[1])).index_add(0, places, grad), None


class _Added(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, places: torch.Tensor, count: int) -> torch.Tensor:
        ctx.save_for_backward(places)
        rows, dim = rows.contiguous(), rows.shape[1]
        sums = rows.new_zeros((count, dim))
        _core.add_rows(rows.data_ptr(), places.numel(), dim, places.data_ptr(), sums.data_ptr(), count)
        return sums

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return gathered(grad, ctx.saved_tensors[0]), None, None
