"""Starts jobs with `cairn run` and says what became of each worker's checks."""
import os
import pathlib
import re
import subprocess
import sys
import time
import uuid

HERE = pathlib.Path(__file__).resolve().parent
SECONDS = 150  # no job of these tests is near it


class Job:
    """A job that has ended."""

    def __init__(self, cairn_bin, script, *arguments, workers=2, servers=2, options=()):
        self.token = uuid.uuid4().hex
        path = os.pathsep.join(p for p in (str(HERE.parent), os.environ.get("PYTHONPATH", "")) if p)
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1",
                       "CAIRN_PYTHON": sys.executable, "CAIRN_CALL_TIMEOUT_MS": "60000",
                       "OPTIMIZER_TEST_TOKEN": self.token}
        command = [str(cairn_bin / "cairn"), "run", "-s", str(servers), "-w", str(workers),
                   "--no-logs", *options, str(HERE / script), *map(str, arguments)]
        try:
            done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  errors="replace", timeout=SECONDS)
        except subprocess.TimeoutExpired as expired:
            # The launcher has been killed; the kernel kills its children.
            raise AssertionError(f"the job does not end\n{_text(expired.stdout)}") from None
        self.code, self.output = done.returncode, done.stdout
        self.lines = self.output.splitlines()

    def of_worker(self, rank, pattern):
        """Matches in this worker's lines."""
        prefix = re.compile(rf"\[worker {rank}\] ?(.*)")
        said = [found.group(1) for found in map(prefix.search, self.lines) if found]
        return [found for found in (re.search(pattern, line) for line in said) if found]

    def left_behind(self):
        """Processes of this job that are still there, 10 s after its end at the latest."""
        end = time.monotonic() + 10
        while True:
            found = [pid for pid in _all_pids() if self.token in _environment_of(pid)]
            if not found or time.monotonic() > end:
                return found
            time.sleep(0.05)


class CheckedJob:
    """A job whose workers run checks (checks.py)."""

    def __init__(self, cairn_bin, script, checks, workers=2):
        self._job = Job(cairn_bin, script, workers=workers)
        self._checks = list(checks)
        ok = r"^ok (\S+) (\S+)$"
        self._ended = [dict(found.groups() for found in self._job.of_worker(rank, ok))
                       for rank in range(workers)]

    def assert_passed(self, name):
        if all(name in ended for ended in self._ended):
            digests = {ended[name] for ended in self._ended}
            assert len(digests) == 1, f"the workers end with different models\n{self._job.output}"
            return
        before = [n for n in self._checks if not all(n in ended for ended in self._ended)]
        if before[0] != name:
            raise AssertionError(f"not run, because {before[0]} failed")
        raise AssertionError(f"{name} failed:\n{self._job.output}")

    def assert_ended_well(self):
        assert self._job.code == 0, self._job.output
        assert self._job.left_behind() == []


def _text(output):
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


def _all_pids():
    return [int(entry.name) for entry in pathlib.Path("/proc").iterdir() if entry.name.isdigit()]


def _environment_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return ""
