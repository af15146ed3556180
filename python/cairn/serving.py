"""The other roles: a process that the environment calls a scheduler or a server becomes the native
`cairn` program, which serves until the job is over and exits. Nothing after cairn.init() runs there."""
from __future__ import annotations

import os
import pathlib
import shutil
import signal
import sys
import sysconfig
from typing import Iterator, NoReturn

from .errors import NotFoundError


def _places() -> Iterator[pathlib.Path]:
    """Where the program may lie, best first."""
    given = os.environ.get("CAIRN_BIN")
    if given:
        yield pathlib.Path(given) / "cairn"
    # In a build folder: python/cairn/serving.py, bin/cairn.
    yield pathlib.Path(os.path.abspath(__file__)).parents[2] / "bin" / "cairn"
    yield pathlib.Path(sysconfig.get_path("scripts")) / "cairn"
    yield pathlib.Path(sysconfig.get_path("scripts", f"{os.name}_user")) / "cairn"
    yield pathlib.Path(sys.executable).parent / "cairn"
    found = shutil.which("cairn")
    if found:
        yield pathlib.Path(found)


def program() -> str:
    """The path of the native program of this installation."""
    for place in _places():
        if place.is_file() and os.access(place, os.X_OK):
            return str(place)
    raise NotFoundError(
        "the program `cairn` is not installed beside this package: install the package with pip, or set "
        "CAIRN_BIN to the folder that holds it"
    )


def serve(role: str) -> NoReturn:
    """Becomes `cairn scheduler` or `cairn server`, which read the same variables."""
    path = program()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    # Python ignores these, and that would be inherited.
    for name in ("SIGPIPE", "SIGXFSZ"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    os.execv(path, [path, role])
