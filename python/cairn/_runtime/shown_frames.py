"""What a traceback shows of an error that is the user's to fix: the lines of the user's program, not
those of this package that found it out. CAIRN_VERBOSE=1 shows all.
"""
from __future__ import annotations

import dis
import os
import pathlib
from types import TracebackType

from ..errors import Error, InternalError

_HERE = str(pathlib.Path(__file__).parents[1]) + os.sep  # the package
_RAISE = dis.opmap["RAISE_VARARGS"]


def for_users(error: BaseException, trace: TracebackType | None) -> TracebackType | None:
    """The same without this package's frames, and torch's between them and the user's. Of errors that
    nobody has raised on purpose, all of it."""
    if os.environ.get("CAIRN_VERBOSE", "0") not in ("", "0") or not _on_purpose(error, trace):
        return trace
    entries = _entries(trace)
    inside = next(i for i, entry in enumerate(entries) if _is_ours(entry))
    while inside > 1 and _is_torchs(entries[inside - 1]):
        inside -= 1
    # What our code calls back (a closure, a hook) is the user's again.
    kept = [*entries[:inside], *(e for e in entries[inside:] if not _is_ours(e) and not _is_torchs(e))]
    made: TracebackType | None = None
    for entry in reversed(kept):
        made = TracebackType(made, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return made


def _entries(trace: TracebackType | None) -> list[TracebackType]:
    found = []
    while trace is not None:
        found.append(trace)
        trace = trace.tb_next
    return found


def _on_purpose(error: BaseException, trace: TracebackType | None) -> bool:
    entries = _entries(trace)
    if not entries or not _is_ours(entries[-1]) or _is_ours(entries[0]):
        return False
    if isinstance(error, Error):
        return not isinstance(error, InternalError)
    last = entries[-1]
    return isinstance(error, Exception) and last.tb_frame.f_code.co_code[last.tb_lasti] == _RAISE


def _is_ours(entry: TracebackType) -> bool:
    return entry.tb_frame.f_code.co_filename.startswith(_HERE)


def _is_torchs(entry: TracebackType) -> bool:
    return str(entry.tb_frame.f_globals.get("__name__", "")).split(".")[0] == "torch"
