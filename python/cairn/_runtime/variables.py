"""The variables that say who this process is: the process's own, less those that a script has put
out of effect and with those that it says itself. cairn.compat does both; nobody else.

os.environ stays as the user set it: his own code may read it too.
"""
from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from .. import _core

_without: set[str] = set()
_given: dict[str, str] = {}


def hold_back(names: Iterable[str]) -> None:
    """As if these were not set, from now on."""
    _without.update(names)


def let_through(names: Iterable[str]) -> None:
    _without.difference_update(names)


def say(given: Mapping[str, str]) -> None:
    """As if these were set to this, and none of those of the last call."""
    _given.clear()
    _given.update(given)


def in_effect() -> dict[str, str]:
    """For a program that is to read the same."""
    return {**{k: v for k, v in os.environ.items() if k not in _without}, **_given}


def read() -> dict[str, Any]:
    """What they say; None where nothing. Raises where they make no sense or contradict each
    other."""
    if not _without and not _given:
        return _core.read_environment()
    return read_with(_given)


def read_with(given: Mapping[str, str]) -> dict[str, Any]:
    """The same, if the script said this."""
    return _core.read_environment(without=sorted(_without), given=dict(given))
