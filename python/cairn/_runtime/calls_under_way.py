"""Calls that were begun and must end before the next ones: what a Ctrl-C leaves unfinished."""
from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from .. import _core

try:
    # Without turning numbers into enums and back, which takes most of their time: this is done in every step.
    import _signal as _handlers  # type: ignore[import-not-found]  # it has no stub
except ImportError:  # it is CPython's
    import signal as _handlers

_get_handler, _set_handler = _handlers.getsignal, _handlers.signal
_SIGINT = int(signal.SIGINT)


class Awaited(Protocol):
    """A call under way of whatever kind: an operation on a table, a vote, an all-reduce."""

    def ready(self) -> bool: ...

    def wait_for(self, milliseconds: int) -> bool: ...


class _Once:
    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call


@contextmanager
def interrupts_later() -> Iterator[None]:
    """A SIGINT in the block takes effect at its end. Only the main thread gets any."""
    before = _get_handler(_SIGINT)
    # A handler that is not Python's (None) could not be put back.
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield
        return
    noted: list[int] = []
    _set_handler(_SIGINT, lambda number, frame: noted.append(number))
    try:
        yield
    finally:
        _set_handler(_SIGINT, before)
        if noted:
            signal.raise_signal(signal.SIGINT)


class CallsUnderWay:
    """In the order in which they were begun. Not thread-safe."""

    def __init__(self, before_wait: Callable[[_core.Pending], None] = lambda pending: None) -> None:
        """`before_wait` may do something else as long as a call has not ended."""
        self._before_wait = before_wait
        self._ends: list[Callable[[], object] | _Once] = []

    def expect(self, pending: _core.Pending, then: Callable[[], None] = lambda: None) -> None:
        """`then` is called when it has ended well."""

        def end() -> None:
            self._before_wait(pending)
            pending.wait()
            then()

        self._ends.append(end)

    def expect_call(self, end: Callable[[], object]) -> None:
        """`end` may be called again after a Ctrl-C in it."""
        self._ends.append(end)

    def expect_once(self, end: Callable[[], None]) -> None:
        """`end` must neither be cut short nor be called again: a Ctrl-C waits for its end."""
        self._ends.append(_Once(end))

    def under_way(self) -> bool:
        """Something was begun and has not been waited for to its end."""
        return bool(self._ends)

    def finish(self) -> None:
        """Waits for all. A KeyboardInterrupt leaves the rest to the next call; any other error is
        raised when the others have ended too, so that nothing uses memory that is let go."""
        first: Exception | None = None
        while self._ends:
            end = self._ends[0]
            try:
                if isinstance(end, _Once):
                    self._ends.pop(0)
                    with interrupts_later():
                        end.call()
                    continue
                end()
            except Exception as error:
                first = first or error
                if isinstance(end, _Once):
                    continue
            self._ends.pop(0)
        if first is not None:
            raise first

    def wait(self, pending: _core.Pending, then: Callable[[], None]) -> None:
        self.expect(pending, then)
        self.finish()
