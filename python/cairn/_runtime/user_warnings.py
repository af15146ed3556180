"""Warnings that name the user's line."""
from __future__ import annotations

import os
import sys
import warnings

import torch

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_INSIDE = (os.path.dirname(os.path.abspath(torch.__file__)) + os.sep, _PACKAGE + os.sep)


def warn_user(message: str) -> None:
    """As warnings.warn; it names the innermost line outside torch and cairn."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and os.path.abspath(frame.f_code.co_filename).startswith(_INSIDE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)
