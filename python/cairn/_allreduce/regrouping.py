"""After a vote that was not unanimous: those who took part make a process group of their own, and
those of them who are new get the values of the others.

Each stage is kept, so that a Ctrl-C in any of them can be followed by another call of `finish`.
"""
from __future__ import annotations

from typing import Any

import torch

from .._runtime.calls_under_way import interrupts_later
from .control import Control, Member, Outcome
from .group import AttemptFailed, Group, Meeting, Patience
from .update import Update


class Regrouping:
    def __init__(self, control: Control, outcome: Outcome, update: Update, device: torch.device,
                 root_rank: int, steps: int, in_step: bool) -> None:
        self._control, self.outcome, self._update = control, outcome, update
        self._device, self._steps, self._in_step = device, steps, in_step
        self._source: Member = outcome.source(root_rank)
        self.group: Group | None = None  # also None where this worker is alone
        self.taken: tuple[int, bool] | None = None  # if new: the others' step, and whether in it
        self.failure: AttemptFailed | None = None
        self._meeting: Meeting | None = None
        self._data: torch.Tensor | None = None
        self._size_given: tuple[torch.Tensor, Any] | None = None
        self._data_given: Any = None
        self._over = False

    @property
    def name(self) -> str:
        return self._control.name

    @property
    def alone(self) -> bool:
        return self.outcome.members == (self._control.me,)

    @property
    def from_own(self) -> bool:
        """Nobody has any values but those it was started with, and they are this worker's."""
        return self._source == self._control.me and self._control.me in self.outcome.new

    def finish(self) -> None:
        while not self._over:
            try:
                self._go_on()
            except AttemptFailed as failure:
                self.failure = failure
                self._over = True

    def _go_on(self) -> None:
        outcome, control = self.outcome, self._control
        if self.alone:
            self.taken = (self._steps, self._in_step)
            self._over = True
            return
        if self.group is None:
            if self._meeting is None:
                self._meeting = Meeting(control, outcome.members, self._source, outcome.attempt,
                                        self._device)
            self.group = self._meeting.wait()
        if outcome.new:
            self._give(self.group, Patience(control, outcome.members, outcome.attempt,
                                            "giving values to new workers"))
        self._over = True

    def _give(self, group: Group, patience: Patience) -> None:
        """How many bytes, and then they."""
        gives = self._source == self._control.me
        with interrupts_later():
            if self._size_given is None:
                self._data = self._update.pack(self._steps, self._in_step) if gives else None
                length = 0 if self._data is None else self._data.numel()
                size = torch.tensor([length]).to(group.device)
                self._size_given = size, group.broadcast(size, self._source)
        size, work = self._size_given
        group.wait(work, patience)
        with interrupts_later():
            if self._data_given is None:
                if self._data is None:
                    self._data = torch.empty(int(size), dtype=torch.uint8)
                self._data = self._data.to(group.device)
                self._data_given = group.broadcast(self._data, self._source)
        group.wait(self._data_given, patience)
        assert self._data is not None
        if gives:
            self.taken = (self._steps, self._in_step)
        elif self._control.me in self.outcome.new:
            self.taken = self._update.unpack(self._data.cpu())
