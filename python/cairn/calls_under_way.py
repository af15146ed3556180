"""Calls that were begun and must end before the next ones: what a Ctrl-C leaves unfinished."""
from __future__ import annotations

from collections.abc import Callable

from . import _core


class CallsUnderWay:
    """In the order in which they were begun. Not thread-safe."""

    def __init__(self) -> None:
        self._ends: list[Callable[[], None]] = []

    def expect(self, pending: _core.Pending, then: Callable[[], None]) -> None:
        """`then` is called when it has ended well."""

        def end() -> None:
            pending.wait()
            then()

        self._ends.append(end)

    def expect_call(self, end: Callable[[], None]) -> None:
        self._ends.append(end)

    def under_way(self) -> bool:
        """Something was begun and has not been waited for to its end."""
        return bool(self._ends)

    def finish(self) -> None:
        """Waits for all. A KeyboardInterrupt leaves the rest to the next call; any other error is
        raised when the others have ended too, so that nothing uses memory that is let go."""
        first: Exception | None = None
        while self._ends:
            try:
                self._ends[0]()
            except Exception as error:
                first = first or error
            self._ends.pop(0)
        if first is not None:
            raise first

    def wait(self, pending: _core.Pending, then: Callable[[], None]) -> None:
        self.expect(pending, then)
        self.finish()
