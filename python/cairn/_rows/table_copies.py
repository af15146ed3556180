"""What copy.deepcopy makes of a table of rows: a table of its own, with the rows as they are now."""
from __future__ import annotations

import sys
from types import FrameType

import torch
from torch.optim.swa_utils import AveragedModel

from .row_source import RowSource


def copied(source: RowSource) -> RowSource:
    """Raises where a copy would not be what its user takes it for."""
    if _is_to_be_averaged():
        raise TypeError(
            f'AveragedModel can\'t average the rows of table "{source.name}": they are on the servers, and '
            "the parameter that stands for them is empty. Give it the part of the model that has no tables "
            "(AveragedModel(model.top)), and evaluate with the tables of the model itself")
    if source.table is not None and source.num_rows is None:
        raise TypeError(
            f'table "{source.name}" is trained and unbounded, and may be larger than this process: '
            "copy.deepcopy does not copy its rows. By hand: new.load_rows(*module.export()) into a new "
            "module; or let the copy use this one: copy.deepcopy(model, {id(module): module})")
    with torch.inference_mode(False), torch.no_grad():
        return source.snapshot()


def _is_to_be_averaged() -> bool:
    """AveragedModel copies the model by copy.deepcopy, and torch has no other sign of it."""
    code = AveragedModel.__init__.__code__
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None
