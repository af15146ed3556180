"""Real processes for the fault tests: a scheduler, servers and cairn-soak workers, each a child of
the test, killed by its process id. Nothing here sleeps to synchronise: every wait is on a condition
with a deadline, and its failure shows the logs."""
import json
import os
import pathlib
import signal
import struct
import subprocess
import time

from ports import free_port

BIN = pathlib.Path(os.environ.get("CAIRN_BIN", pathlib.Path(__file__).parents[2] / "build" / "dev" / "bin"))
DEAD_AFTER_MS = 2000
SLOWER = 4 if os.environ.get("CAIRN_SANITIZE") else 1  # a sanitized build: less work, more patience
STREAMS = ("async dense", "async sparse", "sync dense", "sync sparse")
MAX_LIVES = 512  # as in tools/cairn-soak/account.h


def wait_until(condition, what, seconds=60, logs=None):
    """Polls `condition` until it returns something true."""
    end = time.monotonic() + seconds * SLOWER
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}\n{logs() if logs else ''}")
        time.sleep(0.02)  # between polls of a condition


class Account:
    """The account file of one rank of cairn-soak."""

    def __init__(self, folder, rank):
        self.path = pathlib.Path(folder) / f"rank-{rank}.account"

    def lives(self):
        if not self.path.exists() or self.path.stat().st_size < 16:
            return 0
        return struct.unpack_from("<QII", self.path.read_bytes())[2]

    def acknowledged(self, stream, life=None):
        """Acknowledged updates of one stream, of one life or of all."""
        if not self.lives():
            return 0
        data = self.path.read_bytes()
        index = STREAMS.index(stream)
        wanted = range(MAX_LIVES) if life is None else [life]
        return sum(struct.unpack_from("<QQQ", data, 16 + 24 * (4 * n + index))[1] for n in wanted)


class Cluster:
    def __init__(self, folder, servers=2, workers=3, threads=1, environment=None):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.processes = {}
        self.ports = {}  # of servers
        self.environment = dict(
            CAIRN_SCHED_HOST="127.0.0.1", CAIRN_SCHED_PORT=str(self.port), CAIRN_NUM_SERVERS=str(servers),
            CAIRN_NUM_WORKERS=str(workers), CAIRN_DEAD_AFTER_MS=str(DEAD_AFTER_MS), CAIRN_HEARTBEAT_MS="300",
            CAIRN_SERVER_THREADS=str(threads), CAIRN_CONNECT_TIMEOUT_MS="60000", CAIRN_CALL_TIMEOUT_MS="120000",
            **(environment or {}))
        self.servers, self.workers = servers, workers

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()

    def start(self, name, command, **variables):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("CAIRN_", "MS_", "PADDLE_", "DMLC_"))}
        env.update(self.environment, **variables)
        with open(self.folder / f"{name}.log", "ab") as log:
            process = subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        self.processes[name] = process
        return process

    def start_scheduler(self):
        return self.start("scheduler", [BIN / "cairn", "scheduler", "--state-dir", self.folder / "state"],
                          CAIRN_ROLE="scheduler")

    def start_server(self, index, *flags):
        """On the port that it had before, if it is started again."""
        if "--port" not in flags:
            flags = ("--port", str(self.ports.setdefault(index, free_port())), *flags)
        return self.start(f"server{index}", [BIN / "cairn", "server", *flags], CAIRN_ROLE="server")

    def start_worker(self, rank, *flags, program="cairn-soak"):
        return self.start(f"worker{rank}", [BIN / program, *flags], CAIRN_ROLE="worker", CAIRN_RANK=str(rank))

    def start_all(self, *soak_flags):
        self.start_scheduler()
        for index in range(self.servers):
            self.start_server(index)
        for rank in range(self.workers):
            self.start_worker(rank, "--dir", self.folder / "accounts", *soak_flags)

    def account(self, rank):
        return Account(self.folder / "accounts", rank)

    def log(self, name):
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def logs(self):
        return "\n".join(f"--- {p.name}\n{p.read_text(errors='replace')[-3000:]}" for p in sorted(self.folder.glob("*.log")))

    def kill(self, name, how=signal.SIGKILL):
        process = self.processes[name]
        assert process.poll() is None, f"{name} ended before it could be killed\n{self.logs()}"
        os.kill(process.pid, how)
        if how == signal.SIGKILL:
            process.wait()

    def wait_acknowledged(self, ranks, stream, count, life=None, seconds=60):
        wait_until(lambda: all(self.account(r).acknowledged(stream, life) >= count for r in ranks),
                   f"{count} updates of '{stream}' acknowledged by ranks {list(ranks)}", seconds, self.logs)

    def status(self):
        out = subprocess.run([BIN / "cairn", "status", f"127.0.0.1:{self.port}", "--json"], capture_output=True,
                             text=True, timeout=20)
        return json.loads(out.stdout) if out.returncode == 0 else None

    def wait_copies(self, seconds=60):
        """Every server is there, and every partition has all its owners in sync."""
        def whole():
            status = self.status()
            return status and len(status["servers"]) == self.servers and status["slots"]["copying"] == 0 and \
                status["slots"]["in_sync"] == status["slots"]["total"]
        wait_until(whole, "every partition has its copies", seconds, lambda: f"{self.status()}\n{self.logs()}")

    def wait_exit(self, names, seconds=120):
        for name in names:
            try:
                self.processes[name].wait(timeout=seconds * SLOWER)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"{name} did not exit within {seconds} s\n{self.logs()}") from None

    def expect_exact(self, lives=None):
        """Every process leaves in good order and rank 0 finds every sum exact."""
        self.wait_exit(self.processes)
        codes = {name: p.returncode for name, p in self.processes.items()}
        assert all(code == 0 for code in codes.values()), f"{codes}\n{self.logs()}"
        lines = [l for l in self.log("worker0").splitlines() if "acknowledged:" in l]
        assert len(lines) == 1 and lines[0].endswith("lost: 0  twice: 0"), self.logs()
        assert int(lines[0].split()[1]) > 0, lines
        if lives is not None:
            assert f"lives: {lives}" in self.log("worker0"), self.logs()
