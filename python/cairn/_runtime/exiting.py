"""Whether the process ends by an error: an exception that nobody caught, or sys.exit with a code.

Python tells an exit handler neither. So the hook for uncaught exceptions and sys.exit are wrapped as
long as there is a context; both go on as before, the former with a traceback that ends in the user's
program (shown_frames.py).
"""
from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from ..errors import RetiredError
from .shown_frames import for_users


def _interactive() -> bool:
    """At a prompt, an exception ends nothing."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)


class ExitWatch:
    """Install one, and ask for the failure at exit."""

    def __init__(self) -> None:
        self._hook: Callable[..., Any] | None = None
        self._exit: Callable[..., Any] | None = None
        self._exception: str | None = None
        self.retired = False  # by a RetiredError: this process can't go on, but another one could
        self._exiting: tuple[Any, int, object] | None = None  # outermost frame, where it was, code

    def install(self) -> None:
        self._hook, self._exit = sys.excepthook, sys.exit
        sys.excepthook = self._on_exception
        sys.exit = self._on_exit  # type: ignore[assignment]  # it ends in the one that was there

    def remove(self) -> None:
        # Whoever has wrapped ours keeps it: it goes on to the original.
        if sys.excepthook == self._on_exception:
            sys.excepthook = self._hook  # type: ignore[assignment]  # set by install()
        if sys.exit == self._on_exit:
            sys.exit = self._exit  # type: ignore[assignment]  # the same

    def failure(self) -> str | None:
        """What ends the process, in a few words; None if nothing is wrong."""
        if self._exception is not None:
            return self._exception
        if self._exiting is None:
            return None
        frame, at, code = self._exiting
        # A SystemExit that was caught on the way lets the outermost frame go on.
        if frame.f_lasti != at or code is None or code == 0:
            return None
        return f"sys.exit({code!r})"

    def _on_exception(self, kind: Any, value: Any, trace: Any) -> None:
        if not _interactive():
            self._exception = f"{kind.__name__}: {value}"[:300]
            self.retired = issubclass(kind, RetiredError)
        shown = for_users(value, trace)
        value.__traceback__ = shown  # Python's own hook looks there
        try:
            self._hook(kind, value, shown)  # type: ignore[misc]  # the same
        finally:
            value.__traceback__ = trace

    def _on_exit(self, code: object = None) -> None:
        if threading.current_thread() is threading.main_thread():
            frame = sys._getframe(1)
            while frame.f_back is not None:
                frame = frame.f_back
            self._exiting = (frame, frame.f_lasti, code)
        self._exit(code)  # type: ignore[misc]  # the same
