"""Joining a job whose processes people start by hand, one shell after the other: with more patience
than `cairn run` needs."""
from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from .._runtime import context, variables
from ..errors import InvalidArgumentError

PATIENCE_S = 600.0  # as long as a server waits for its scheduler


def patience_s() -> float:
    """How long the others may take to come: CAIRN_CONNECT_TIMEOUT_MS, or PATIENCE_S."""
    given = variables.read()["connect_timeout_ms"]
    return given / 1000 if given else PATIENCE_S


def connect(within_s: float | None = None) -> context.Context:
    """cairn.init(), as a worker."""
    return context.init(connect_timeout=patience_s() if within_s is None else max(within_s, 0.001))


def missing(names: Iterable[str]) -> list[str]:
    return [name for name in names if not os.environ.get(name)]


def require(names: Iterable[str], why: str) -> None:
    """A variable that is set to nothing counts as unset, as everywhere."""
    absent = missing(names)
    if absent:
        verb = "is" if len(absent) == 1 else "are"
        raise InvalidArgumentError(f"{', '.join(absent)} {verb} not set: {why}")


def say(line: str) -> None:
    """A line of the log, in one piece, where the native programs write theirs."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
