"""The loads of script/chaos: what its workers run, how far each has come, and what must be true at the end.

Soak     cairn-soak: numbered updates and an account of them. Workers may die, too.
Training LeNet or a click model in deterministic sync rounds (chaos_training.py). A worker that dies changes
         what is computed, so workers are only stopped for less than the detection time. At the end the same
         training is run in peace, and every loss must be the same to the last bit."""
import mmap
import os
import pathlib
import struct
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MAX_LIVES = 512  # as in tools/cairn-soak/account.h
STREAMS = {"async": (0, 1), "sync": (2, 3)}


class Failed(Exception):
    """The cluster, or the run, did not do what it must."""


class Account:
    """What a worker of cairn-soak has submitted and had acknowledged, read while it runs."""

    def __init__(self, path, mode):
        self.path, self.streams, self.map = pathlib.Path(path), STREAMS[mode], None

    def _data(self):
        size = 16 + 24 * 4 * MAX_LIVES
        if self.map is None and self.path.exists() and self.path.stat().st_size >= size:
            with open(self.path, "rb") as file:
                self.map = mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ)
        return self.map

    def lives(self):
        data = self._data()
        return struct.unpack_from("<QII", data)[2] if data else 0

    def _sum(self, field, lives):
        data = self._data()
        return 0 if not data else sum(
            struct.unpack_from("<QQQ", data, 16 + 24 * (4 * life + stream))[field]
            for life in lives for stream in self.streams)

    def submitted(self, life):
        return self._sum(0, [life])

    def acknowledged(self, life=None):
        return self._sum(1, range(self.lives()) if life is None else [life])


class Steps:
    """How many steps a training's worker has made, in the words of an Account."""

    def __init__(self, path):
        self.path = pathlib.Path(path)

    def acknowledged(self, _life=None):
        return self.path.stat().st_size // 8 if self.path.exists() else 0

    def submitted(self, _life):
        return self.acknowledged() + 1  # one may be under way

    def lives(self):
        return 1 if self.acknowledged() else 0


class Soak:
    workers_may_die = True
    between = 1000  # pushes that are acknowledged between two faults, at least
    unit = "acknowledged"

    def __init__(self, options, mode):
        self.options, self.mode, self.name, self.workers = options, mode, mode, options.workers
        self.words = ["--load", "soak", "--mode", mode]

    def command(self, folder, until):
        return [pathlib.Path(self.options.bin) / "cairn-soak", "--dir", folder / "accounts", "--mode", self.mode,
                "--until", until, "--lives", self.options.lives, "--region", 32, "--pause-us", self.options.pause_us,
                "--round-timeout-ms", 120000]

    def environment(self):
        return {}

    def progress(self, folder, rank):
        return Account(folder / "accounts" / f"rank-{rank}.account", self.mode)

    def result(self, folder, log):
        """(acknowledged, lost, twice, a line that says more) of a run that has ended."""
        lines = [line for line in log.splitlines() if line.startswith("acknowledged: ")]
        if not lines:
            raise Failed("worker 0 has not compared the servers' content with the accounts")
        words = lines[-1].split()
        longest = next((line for line in reversed(log.splitlines()) if line.startswith("longest push")), "")
        return int(words[1]), int(words[3]), int(words[5]), \
            longest and f"{longest} (kills, pauses and cuts of the workers themselves included)"


class Training:
    workers_may_die = False
    unit = "steps"
    PAUSE_MS = 30

    def __init__(self, options, name):
        self.options, self.name = options, name
        self.workers = min(options.workers, 2)
        self.between = 10 * self.workers
        self.words = ["--load", name]
        self.program = [options.python, HERE / "chaos_training.py", "--load", name]

    def missing(self):
        """Why it can't run here, or None."""
        if not pathlib.Path(self.options.python).exists():
            return f"there is no {self.options.python}: script/bootstrap makes it"
        tried = subprocess.run([self.options.python, "-c", "import torch, cairn"], capture_output=True, text=True,
                               timeout=300, env=os.environ | self.environment())
        return None if tried.returncode == 0 else tried.stderr.strip().splitlines()[-1]

    def command(self, folder, until):
        return [*self.program, "--dir", folder / "training", "--until", until, "--pause-ms", self.PAUSE_MS]

    def environment(self):
        return {"PYTHONPATH": str(pathlib.Path(self.options.bin).absolute().parent / "python"),
                "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}

    def progress(self, folder, rank):
        return Steps(folder / "training" / f"losses-{rank}")

    @staticmethod
    def losses(folder, rank):
        data = (folder / f"losses-{rank}").read_bytes()
        return struct.unpack(f"<{len(data) // 8}d", data)

    def result(self, folder, _log):
        hurt, peace = folder / "training", folder / "peace"
        steps = len(self.losses(hurt, 0))
        self.train_in_peace(steps, peace)
        for rank in range(self.workers):
            one, other = self.losses(peace, rank), self.losses(hurt, rank)
            if len(one) != len(other):
                raise Failed(f"worker {rank} has made {len(other)} steps, {len(one)} in peace")
            for step, (a, b) in enumerate(zip(one, other), 1):
                if a != b:
                    raise Failed(f"worker {rank}: step {step} has the loss {b!r}, {a!r} in peace ({hurt}, {peace})")
        if (hurt / "answer").read_text() != (peace / "answer").read_text():
            raise Failed(f"the trained model answers otherwise than the one trained in peace ({hurt}, {peace})")
        return steps * self.workers, 0, 0, f"{steps} steps on {self.workers} workers: each loss is that of a run in peace"

    def train_in_peace(self, steps, folder):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("CAIRN_", "MS_", "PADDLE_", "DMLC_"))}
        command = [pathlib.Path(self.options.bin) / "cairn", "run", "-s", 2, "-w", self.workers, "--no-logs", "--no-progress",
                   "--", *self.program, "--dir", folder, "--steps", steps]
        try:
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                                  env=env | self.environment(), stdin=subprocess.DEVNULL, timeout=self.options.left())
        except subprocess.TimeoutExpired:
            raise Failed("the run in peace has not ended within --timeout") from None
        if done.returncode != 0:
            raise Failed(f"the run in peace has ended with code {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")
