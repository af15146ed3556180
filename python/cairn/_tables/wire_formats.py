"""What `wire=` takes: how a table's values travel between hosts. docs/guide/pytorch.md, "Less on the
wire"."""
from __future__ import annotations

import numbers
from typing import Any

from ..errors import InvalidArgumentError

FOR_ROWS = ("f16", "bf16", "lz4")
FOR_TENSORS = (*FOR_ROWS, "topk")


def wire_of_rows(wire: str | None) -> str:
    """For tables of rows, as _core takes it."""
    if wire == "topk":
        raise InvalidArgumentError(
            'wire="topk" is for tensors, a push of rows has only those that were used: give "bf16", "f16" or '
            '"lz4"')
    return _checked(wire, FOR_ROWS)


def wire_of_tensors(wire: str | None, topk: float | None) -> dict[str, Any]:
    """For dense tables: the arguments of _core's create_dense."""
    kind = _checked(wire, FOR_TENSORS)
    if kind != "topk":
        if topk is not None:
            raise InvalidArgumentError(f'wire_topk={topk} goes with wire="topk", not with wire={wire!r}')
        return {"wire": kind}
    if not isinstance(topk, numbers.Real) or not 0 < topk <= 1:
        raise InvalidArgumentError(
            f"wire_topk={topk!r}: give the part of each tensor that is sent in a step, for example 0.01")
    return {"wire": kind, "wire_topk": float(topk)}


def _checked(wire: str | None, known: tuple[str, ...]) -> str:
    if wire is None:
        return "plain"
    if wire in known:
        return wire
    raise InvalidArgumentError(f"wire={wire!r} is unknown: it is one of {', '.join(known)}, or None")
