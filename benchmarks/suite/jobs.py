"""Starting what is measured: processes in groups of their own, with a deadline, never left behind."""
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("CAIRN_BIN") or ROOT / "build/release/bin")
_started = time.monotonic()


def say(text):
    """A line of progress, on standard error: the table alone is on standard output."""
    print(f"==> [{time.monotonic() - _started:4.0f} s] {text}", file=sys.stderr, flush=True)


def seconds_so_far():
    return time.monotonic() - _started


class Failed(Exception):
    """What could not be measured, and why: printed in its place in the table."""


def _end(child, grace=5.0):
    """The child and everything in its group: asked first, then killed."""
    for what, wait in ((signal.SIGTERM, grace), (signal.SIGKILL, grace)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, what)
        try:
            child.wait(wait)
        except subprocess.TimeoutExpired:
            continue
        # What is left of the group, if its leader went first.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        return


@contextlib.contextmanager
def process(command, env=None, **options):
    """A process of its own group; ended with all it has started when the block ends."""
    environment = {**os.environ, **(env or {})}
    child = subprocess.Popen([str(word) for word in command], env=environment,
                             start_new_session=True, **options)
    try:
        yield child
    finally:
        _end(child)


def output(command, env=None, timeout=120, errors=subprocess.STDOUT):
    """What a command prints. `errors`: what becomes of its standard error; None: people see it, as
    progress. Failed: with the end of what it said."""
    with process(command, env, text=True, stdout=subprocess.PIPE, stderr=errors) as child:
        try:
            out, err = child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise Failed(f"{_name(command)} took longer than {timeout} s") from None
    if child.returncode != 0:
        last = [line for line in (err or out or "").strip().splitlines() if line][-3:]
        why = " / ".join(last)[-300:] or "what it said is above"
        raise Failed(f"{_name(command)} ended with {child.returncode}: {why}")
    return out


def _name(command):
    return " ".join(pathlib.Path(str(word)).name for word in command[:2])
