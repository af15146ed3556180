"""The other roles: a process that the environment calls a scheduler or a server becomes the native
`cairn` program, which serves until the job is over and exits. Nothing after cairn.init() runs there.
Where a script goes on after serving, as Paddle's do, the program is a child of the process."""
from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from typing import NoReturn

from ..errors import Error, JobFailedError, NotFoundError
from . import variables

# A server that is told to stop says goodbye to its peers first; it takes a fraction of this.
_STOP_S = 10.0
_RETIRED = 75  # of `cairn server`


def _places() -> Iterator[pathlib.Path]:
    """Where the program may lie, best first."""
    given = os.environ.get("CAIRN_BIN")
    if given:
        yield pathlib.Path(given) / "cairn"
    # In a build folder: python/cairn/_runtime/serving.py, bin/cairn.
    yield pathlib.Path(os.path.abspath(__file__)).parents[3] / "bin" / "cairn"
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


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def serve(role: str) -> NoReturn:
    """Becomes `cairn scheduler` or `cairn server`, which read the same variables."""
    path = program()
    _flush()
    # Python ignores these, and that would be inherited.
    for name in ("SIGPIPE", "SIGXFSZ"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    os.execve(path, [path, role], variables.in_effect())


def serve_and_return() -> None:
    """Runs `cairn server` and returns when the job is over. The server ends with this process,
    however that ends; a Ctrl-C, or any other exception, ends the server first."""
    path = program()
    _flush()
    child = subprocess.Popen([path, "server", "--with-parent", str(os.getpid())],
                             env=variables.in_effect())
    try:
        code = child.wait()
    except BaseException:
        _stop(child)
        raise
    if code == _RETIRED:
        raise Error("the server was declared dead while it was paused: start it again")
    if code == 1:
        raise JobFailedError("the server has ended with an error: its last line says why")
    if code != 0:
        number = -code if code < 0 else code - 128
        raise Error(f"the server was ended by signal {number} before the job was over")


def _stop(child: subprocess.Popen[bytes]) -> None:
    child.send_signal(signal.SIGINT)  # at SIGTERM it would move its partitions away first
    try:
        child.wait(_STOP_S)
    except BaseException:  # too late, or a second Ctrl-C
        child.kill()
        child.wait()
