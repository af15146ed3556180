"""The package's tests with several workers, while servers and the scheduler of their jobs are
killed: they must pass as ever. For script/check; takes minutes.

    CAIRN_BIN=build/dev/bin python python/tests/check_server_deaths.py [TEST FILE …]

The tests find this file as the program `cairn`. It starts the real one, and every second or two
kills a server with -9, if every partition has its copies, or the scheduler. Jobs that count
restarts themselves (--max-restarts) are left in peace.
"""
import collections
import ctypes
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
FILES = ("test_optimizer_workers.py", "test_embedding_workers.py",
         "test_sync_equals_one_process.py", "test_allreduce_hybrid.py")
SECONDS = 600  # for a file of tests
REAL, LOG = "CHECKED_CAIRN", "CHECKED_KILLS"


class Job:
    """A `cairn run` with its servers and its scheduler."""

    def __init__(self, real, arguments):
        self._real = real
        self.launcher = subprocess.Popen([real, *arguments], preexec_fn=_end_with_parent)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _: self.launcher.send_signal(number))

    def nodes(self):
        """role → [(process, port of the scheduler)]"""
        found = collections.defaultdict(list)
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if parent != self.launcher.pid:
                    continue
                command = (entry / "cmdline").read_bytes().decode().split("\0")
                environment = (entry / "environ").read_bytes().decode(errors="replace")
            except OSError:
                continue  # it has ended
            port = re.search(r"(?:^|\0)CAIRN_SCHED_PORT=(\d+)", environment)
            if command[0] == self._real and command[1] in ("server", "scheduler") and port:
                found[command[1]].append((int(entry.name), port[1]))
        return found

    def may_lose_a_server(self, port, servers):
        asked = subprocess.run([self._real, "status", "--json", f"127.0.0.1:{port}"],
                               capture_output=True, text=True)
        status = json.loads(asked.stdout) if asked.returncode == 0 else {}
        slots = status.get("slots", {})
        return (status.get("phase") == "running" and status["replicas"] > 1
                and len(status["servers"]) >= servers and slots["in_sync"] == slots["total"])


def _end_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def run_with_kills(real, arguments):
    """In place of `cairn run`."""
    in_peace = "--max-restarts" in arguments
    job = Job(real, arguments if in_peace else ["run", "--max-restarts", "1000", *arguments[1:]])
    chance = random.Random()
    kills = collections.Counter()
    servers = 0
    while job.launcher.poll() is None:
        time.sleep(0.05 if in_peace else chance.uniform(0.2, 2))
        nodes = {} if in_peace else job.nodes()
        role = chance.choice(["server", "server", "scheduler"])
        if not nodes.get(role):
            continue
        servers = max(servers, len(nodes["server"]))
        process, port = chance.choice(nodes[role])
        if role == "server" and not job.may_lose_a_server(port, servers):
            continue
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
        kills[role] += 1
    with open(os.environ[LOG], "a") as log:
        print(json.dumps(kills), file=log)
    code = job.launcher.returncode
    return code if code >= 0 else 128 - code


def main():
    if real := os.environ.get(REAL):
        if sys.argv[1:2] == ["run"]:
            sys.exit(run_with_kills(real, sys.argv[1:]))
        os.execv(real, [real, *sys.argv[1:]])
    given = os.environ.get("CAIRN_BIN") or HERE.parents[1] / "build" / "dev" / "bin"
    folder = pathlib.Path(given).resolve()
    failed = []
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        (place / "bin").mkdir()
        program = place / "bin" / "cairn"
        program.write_text(f"#!{sys.executable}\n" + pathlib.Path(__file__).read_text())
        program.chmod(0o755)
        (place / "python").symlink_to(folder.parent / "python")
        for name in sys.argv[1:] or FILES:
            (place / "kills").write_text("")
            environment = {**os.environ, "CAIRN_BIN": str(place / "bin"),
                           "PYTHONPATH": str(place / "python"),
                           REAL: str(folder / "cairn"), LOG: str(place / "kills")}
            done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
                                   str(HERE / name)], env=environment, timeout=SECONDS)
            kills = collections.Counter()
            for line in (place / "kills").read_text().splitlines():
                kills.update(json.loads(line))
            print(f"{name}: killed {kills['server']} servers, {kills['scheduler']} schedulers",
                  flush=True)
            if done.returncode != 0 or not kills["server"]:
                failed.append(name)
    if failed:
        raise SystemExit(f"failed, or nothing was killed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
