"""LossMonitor: the lines in a worker's log that MindSpore's users look for."""
from __future__ import annotations

import math
from typing import Any

from ....errors import InvalidArgumentError, NotFiniteError


class LossMonitor:
    """Prints `epoch: 1 step: 1, loss is 2.302287`. Call it after each step, in your own loop:

        monitor = LossMonitor(per_print_times=100)
        ...
        monitor(epoch, step, loss)          # both from 1

    per_print_times: steps from one line to the next; the first comes with that step, as in
        MindSpore. 0: no lines.
    A loss that is NaN or infinite ends the training with an error, as there.
    """

    def __init__(self, per_print_times: int = 1) -> None:
        if type(per_print_times) is not int or per_print_times < 0:
            raise InvalidArgumentError(
                f"per_print_times is {per_print_times!r}, not a whole number from 0")
        self._every = per_print_times
        self._steps = 0

    def __call__(self, epoch: int, step: int, loss: Any) -> None:
        value = float(loss.detach() if hasattr(loss, "detach") else loss)
        if not math.isfinite(value):
            raise NotFiniteError(f"epoch: {epoch} step: {step}, loss is {value}: training can't go "
                                 "on. Look at the data and the learning rate")
        self._steps += 1
        if self._every and self._steps % self._every == 0:
            # At once: the log is a file, and people follow it.
            print(f"epoch: {epoch} step: {step}, loss is {value:.6f}", flush=True)
