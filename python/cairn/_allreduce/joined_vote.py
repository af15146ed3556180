"""All-reduced steps as calls that can be waited for: the vote of a worker that has run out of data, an
all-reduce under way."""
from __future__ import annotations

import time

from .. import _core
from .allreduced import AllReduced


class JoinedVote:
    """The vote of a worker without data, which can't be given before the others have data to reduce."""

    def __init__(self, reduced: AllReduced) -> None:
        self._reduced = reduced
        self._vote: _core.Pending | None = None

    def _voted(self) -> _core.Pending | None:
        if self._vote is None and self._reduced.poll():
            self._vote = self._reduced.vote()
        return self._vote

    def ready(self) -> bool:
        vote = self._voted()
        return vote is not None and vote.ready()

    def wait_for(self, milliseconds: int) -> bool:
        deadline = time.monotonic() + milliseconds / 1000
        while True:
            vote = self._voted()
            left = max(0.0, deadline - time.monotonic())
            if vote is not None:
                return vote.wait_for(int(1000 * left))
            if left == 0.0:
                return False
            time.sleep(min(left, 0.001))

    def wait(self) -> None:
        while not self.wait_for(1000):
            pass
        assert self._vote is not None
        self._vote.wait()

    @property
    def all_joined(self) -> bool:
        return self._reduced.info.all_joined


class Polled:
    """An all-reduce under way, as something that can be waited for."""

    def __init__(self, reduced: AllReduced) -> None:
        self._reduced = reduced

    def ready(self) -> bool:
        return self._reduced.poll()

    def wait_for(self, milliseconds: int) -> bool:
        deadline = time.monotonic() + milliseconds / 1000
        while not self._reduced.poll():
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.001)
        return True
