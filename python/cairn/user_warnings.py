"""Warnings that name the user's line."""
from __future__ import annotations

import os
import sys
import warnings

import torch

_INSIDE = tuple(os.path.dirname(os.path.abspath(file)) + os.sep for file in (torch.__file__, __file__))


def warn_user(message: str) -> None:
    """As warnings.warn; it names the innermost line outside torch and cairn."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and os.path.abspath(frame.f_code.co_filename).startswith(_INSIDE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)
