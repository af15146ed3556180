"""How workers keep step with each other: what `mode=` takes."""
from __future__ import annotations

from dataclasses import dataclass


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


Mode = Sync | Async


def check_mode(mode: object) -> Mode:
    if isinstance(mode, (Sync, Async)):
        return mode
    if mode is Sync or mode is Async:  # the class instead of an instance: what was meant is clear
        return Sync() if mode is Sync else Async()
    raise TypeError(f"mode is {mode!r}: give cairn.Sync() or cairn.Async()")
