"""join(): workers that run out of data at different times. `optimizer.join()` and, for several optimizers,
`cairn.join(a, b)`."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from .._runtime.calls_under_way import Awaited
from ..errors import Error
from .served_tables import ServedTables

_open_blocks = 0
_TURN_MS = 1  # how long one optimizer is waited for before the others are looked at


class RoundWithoutData(Awaited, Protocol):
    """A part of a step that this worker gives no gradient to."""

    @property
    def all_joined(self) -> bool:
        """When it has ended: every worker has run out of data."""


class Joined(Protocol):
    """A DistributedOptimizer, as far as it is asked here."""

    @property
    def _served(self) -> ServedTables: ...

    def _begin_joining(self) -> list[RoundWithoutData]:
        """Begins a step without a gradient."""

    def _go_on_joining(self, pendings: list[RoundWithoutData]) -> list[RoundWithoutData]:
        """Ends it, and begins the next one; empty when all have left."""


@contextmanager
def join(*optimizers: Joined) -> Iterator[None]:
    """Around a training loop, on every worker: whoever leaves the block takes part in the others'
    steps, without a gradient, until all have left it.

    Give all optimizers that the loop steps: they may step at different rates.
    """
    global _open_blocks
    if not optimizers:
        raise TypeError("which optimizers? For example: with cairn.join(generator, discriminator):")
    if _open_blocks > 0:
        raise Error(
            "a join() block inside another one would wait for the outer one's optimizer for ever: use one "
            "block for all of them, with cairn.join(a, b):"
        )
    _open_blocks += 1
    try:
        yield
    finally:
        _open_blocks -= 1
    for one in optimizers:
        one._served.end_steps()
    _take_part([one for one in optimizers if one._served.in_step])


def _take_part(optimizers: list[Joined]) -> None:
    rounds = {optimizer: optimizer._begin_joining() for optimizer in optimizers}
    while rounds:
        for optimizer, pendings in list(rounds.items()):
            waits = next((pending for pending in pendings if not pending.ready()), None)
            if waits is not None and len(rounds) > 1:
                waits.wait_for(_TURN_MS)
                continue
            pendings = optimizer._go_on_joining(pendings)
            if pendings:
                rounds[optimizer] = pendings
            else:
                del rounds[optimizer]
