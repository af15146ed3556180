"""`cairn` as a child of a test: its output as it comes, and waits with deadlines that show it."""
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading
import time

BIN = pathlib.Path(os.environ.get("CAIRN_BIN", pathlib.Path(__file__).parents[2] / "build" / "dev" / "bin"))
CAIRN = BIN / "cairn"
SECONDS = 120


# Logs and job files of the tests are their own: they neither find the user's jobs nor push out logs.
_own = tempfile.TemporaryDirectory(prefix="cairn-cli-")


def clean_environment(**variables):
    """This process's environment without anything that Cairn listens to. A variable None is unset."""
    families = ("CAIRN_", "MS_", "PADDLE_", "DMLC_", "TRAINING_ROLE", "POD_IP", "PS_VERBOSE", "OMP_", "MKL_",
                "VIRTUAL_ENV")
    env = {k: v for k, v in os.environ.items() if not k.startswith(families)}
    env |= {"XDG_STATE_HOME": f"{_own.name}/state", "XDG_RUNTIME_DIR": _own.name}
    env |= {k: str(v) for k, v in variables.items() if v is not None}
    return {k: v for k, v in env.items() if variables.get(k, "") is not None}


class Run:
    """A process of `cairn` whose standard output and error are gathered line by line."""

    def __init__(self, *arguments, before=(), **variables):
        """`before`: words in front of the command, such as those of a namespace."""
        self.process = subprocess.Popen([*before, CAIRN, *map(str, arguments)], env=clean_environment(**variables),
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True, errors="replace")
        self.lines = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(SECONDS)

    def _read(self):
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()

    @property
    def text(self):
        return "\n".join(self.lines)

    def wait_for(self, pattern, count=1):
        """The match of the count-th line that has `pattern`."""
        end = time.monotonic() + SECONDS
        with self._changed:
            while True:
                found = [m for m in (re.search(pattern, line) for line in self.lines) if m]
                if len(found) >= count:
                    return found[count - 1]
                assert self._changed.wait(max(0, end - time.monotonic())), f"no {pattern!r} in\n{self.text}"

    def wait(self):
        try:
            code = self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"does not end\n{self.text}") from None
        self._reader.join(SECONDS)
        return code

    def signal(self, number=signal.SIGINT):
        self.process.send_signal(number)


def wait_for_children(pid, count):
    """Its living children once there are so many. (The guard has its name a moment after its start.)"""
    end = time.monotonic() + SECONDS
    while len(found := children_of(pid)) != count:
        assert time.monotonic() < end, found
        time.sleep(0.02)
    return found


def children_of(pid):
    """pid → command line of its living children, without the launcher's guard."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            if int(fields[1]) == pid and fields[0] != "Z":
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if command != "cairn guard ":
                    found[int(entry.name)] = command
        except (OSError, IndexError):
            continue
    return found


def child_with(pid, words):
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        for child, command in children_of(pid).items():
            if words in command:
                return child
        time.sleep(0.02)  # between polls of a condition
    raise AssertionError(f"no child of {pid} with {words!r}: {children_of(pid)}")


def _lives(pid):
    """It may end between any two looks at it; a zombie has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_gone(pids):
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        if not any(_lives(pid) for pid in pids):
            return
        time.sleep(0.02)  # between polls of a condition
    raise AssertionError(f"still there: {pids}")
