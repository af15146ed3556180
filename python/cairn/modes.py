"""How workers keep step with each other: what `mode=` takes."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import _core


@dataclass(frozen=True)
class Sync:
    """One step of all workers is one update with the mean of their gradients.

    It gives what one process gives on the combined batch. With `deterministic` the gradients are
    summed in the order of ranks, so that a run repeats bit for bit.
    """

    deterministic: bool = False


@dataclass(frozen=True)
class Async:
    """Each gradient is applied when it arrives, with its own learning rate; nobody waits."""


@dataclass(frozen=True)
class BoundedStaleness:
    """Each gradient is applied when it arrives, as in Async(); but a worker reads only when no other is more
    than `staleness` steps behind it. The servers see to that. 0: nobody is ahead of anybody."""

    staleness: int = 0

    def __post_init__(self) -> None:
        value = self.staleness
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"staleness is a number of steps, not {value!r}")
        if not 0 <= value < _core.UNBOUNDED:
            raise ValueError(f"staleness is {value}: give a number of steps from 0 on, or use cairn.Async()")


Mode = Sync | Async | BoundedStaleness


def settings_of_table(mode: Mode) -> dict[str, Any]:
    """What the mode says of a table on the servers."""
    return {"mode": "sync" if isinstance(mode, Sync) else "async",
            "deterministic": isinstance(mode, Sync) and mode.deterministic,
            "staleness": mode.staleness if isinstance(mode, BoundedStaleness) else _core.UNBOUNDED}


def check_mode(mode: object) -> Mode:
    if isinstance(mode, (Sync, Async, BoundedStaleness)):
        return mode
    if mode is Sync or mode is Async:  # the class instead of an instance: what was meant is clear
        return Sync() if mode is Sync else Async()
    raise TypeError(f"mode is {mode!r}: give cairn.Sync(), cairn.Async() or cairn.BoundedStaleness(steps)")
