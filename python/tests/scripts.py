"""Python programs as children of a test: written to a file, started with a clean environment, waited
for with a deadline, and looked for afterwards: none may be left behind."""
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time
import uuid

SECONDS = 150  # after which a test counts as hung: torch alone takes long on a busy machine
_FAMILIES = ("CAIRN_", "MS_", "PADDLE_", "DMLC_", "TRAINING_ROLE", "POD_IP", "PS_VERBOSE", "SLURM", "OMPI_", "PMI",
             "TORCHELASTIC", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_")
_KEPT = ("CAIRN_BIN",)
MARK = "TEST_MARK"


def environment(**variables):
    """This process's environment, with nothing in it that cairn.init() listens to but `variables`.
    One that is None is unset."""
    env = {k: v for k, v in os.environ.items() if k in _KEPT or not k.startswith(_FAMILIES)}
    env |= {k: str(v) for k, v in variables.items()}
    return {k: v for k, v in env.items() if variables.get(k, "") is not None}


def write(folder, code, name="script.py"):
    path = pathlib.Path(folder) / name
    path.write_text(textwrap.dedent(code))
    return path


class Job:
    """Some processes that belong together."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.mark = uuid.uuid4().hex
        self._children = []

    def start(self, command, **variables):
        """Starts a program; its output goes to a file."""
        log = self.folder / f"output-{len(self._children)}"
        with log.open("wb") as out:
            child = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=out,
                                     stderr=subprocess.STDOUT, env=environment(**{MARK: self.mark}, **variables))
        child.log = log
        self._children.append(child)
        return child

    def python(self, script, *arguments, **variables):
        return self.start([sys.executable, script, *arguments], **variables)

    def wait(self, child, seconds=SECONDS):
        """Its exit code and what it said."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(seconds)
        text = child.log.read_text()
        assert child.poll() is not None, f"does not end within {seconds} s:\n{text}"
        return child.returncode, text

    def wait_for_text(self, child, words, seconds=SECONDS):
        until = time.monotonic() + seconds
        while words not in child.log.read_text():
            assert time.monotonic() < until and child.poll() is None, f"no {words!r} in:\n{child.log.read_text()}"
            time.sleep(0.01)

    def left(self):
        """Processes of this job that are still there, children of children too."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                if f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
        return found

    def assert_none_left(self, seconds=10):
        until = time.monotonic() + seconds
        while (left := self.left()) and time.monotonic() < until:
            time.sleep(0.02)
        assert not left, [pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() for pid in left]

    def kill(self):
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for child in self._children:
            child.wait(SECONDS)
