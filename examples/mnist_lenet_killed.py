"""A server and the scheduler are killed while mnist_lenet.py trains: the losses stay the same.

    python examples/mnist_lenet_killed.py
    python examples/mnist_lenet_killed.py -s 3 -w 2 --kill server scheduler server

Trains twice, with `cairn run` and the same seed: in peace, then with a kill -9 here and there.
The training script knows nothing of it. Every partition of the parameters lies on two servers, so
another one goes on where one dies, and `cairn run` starts the dead again. Sync with
deterministic=True repeats bit for bit, so the two runs can be compared to the last bit: exit code 0
says that every loss of every worker was the same.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
LOSS = re.compile(r"\[worker (\d+)\] epoch: (\d+) step: (\d+), loss is (\S+)$")
ASK_EVERY_S = 0.2


def cairn_program():
    beside = str(pathlib.Path(sys.executable).parent)
    folders = [os.environ.get("CAIRN_BIN"), beside, os.environ.get("PATH")]
    found = shutil.which("cairn", path=os.pathsep.join(filter(None, folders)))
    if found is None:
        raise SystemExit("no `cairn` on the path: pip install . or set CAIRN_BIN")
    return found


class Training:
    """One run of the job: its lines as they come, and the losses in them."""

    def __init__(self, options, name):
        self.losses = {rank: [] for rank in range(options.workers)}
        self.longest_pause_s, self.cluster, self._seen_s = 0.0, None, None
        self._cairn = cairn_program()
        self._log = open(pathlib.Path(options.keep) / f"{name}.log", "w") if options.keep else None
        command = [self._cairn, "run", "-s", str(options.servers), "-w", str(options.workers),
                   "--replicas", "2", "--max-restarts", str(len(options.kill)),
                   "--no-logs", "--no-progress",
                   str(HERE / "mnist_lenet.py"), "--exact", "--every", "1", "--epochs", "1",
                   "--limit", str(options.limit)]
        command += ["--data", options.data] if options.data else []
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                         stdin=subprocess.DEVNULL, text=True,
                                         env={"CAIRN_PYTHON": sys.executable, **os.environ})
        self._limit = threading.Timer(options.timeout, self._process.kill)
        self._began_s = time.monotonic()

    def __enter__(self):
        self._limit.start()
        return self

    def __exit__(self, *_):
        self._limit.cancel()
        self._process.kill()  # if it is still there; its children go with it
        self._process.wait()
        if self._log:
            self._log.close()

    def __iter__(self):
        last = collections.deque(maxlen=15)
        for line in self._process.stdout:
            line = line.rstrip("\n")
            last.append(line)
            if self._log:
                print(line, file=self._log, flush=True)
            self._note(line)
            yield line
        if self._process.wait() != 0:
            end = f"the training ended with exit code {self._process.returncode}"
            raise SystemExit("\n".join([*last, end]))
        self.seconds = time.monotonic() - self._began_s

    def _note(self, line):
        if found := re.search(r"registered as server \d+ of cluster (\S+)", line):
            self.cluster = found[1]
        if found := LOSS.match(line):
            self.losses[int(found[1])].append(found[4])
            if found[1] == "0":
                now_s = time.monotonic()
                self.longest_pause_s = max(self.longest_pause_s, now_s - (self._seen_s or now_s))
                self._seen_s = now_s

    @property
    def steps(self):
        return len(self.losses[0])

    def every_partition_has_two_copies(self):
        """False also while the scheduler is away."""
        asked = subprocess.run([self._cairn, "status", "--json", self.cluster],
                               capture_output=True, text=True)
        slots = json.loads(asked.stdout)["slots"] if asked.returncode == 0 else None
        return slots is not None and slots["in_sync"] == slots["total"]

    def process_of(self, words):
        """The child of `cairn run` whose command has these words."""
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                command = (entry / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue  # it has ended
            if parent == self._process.pid and f" {words} " in f" {' '.join(command)} ":
                return int(entry.name)
        return None


class Killer:
    """Kills in the order that was asked for, spread over the steps."""

    def __init__(self, training, what, steps, servers):
        self._training, self._asked_s = training, 0.0
        self._due = [(max(1, steps * (i + 1) // (len(what) + 1)), one)
                     for i, one in enumerate(what)]
        self._servers, self._next_server = servers, 0

    @property
    def left(self):
        return [what for _, what in self._due]

    def look(self):
        """After each line."""
        if not self._due or self._training.steps < self._due[0][0]:
            return
        what = self._due[0][1]
        if what == "server":
            # Two copies survive one death. Before the next one, the copies that died must be back.
            if time.monotonic() - self._asked_s < ASK_EVERY_S:
                return
            self._asked_s = time.monotonic()
            if not self._training.every_partition_has_two_copies():
                return
            name = f"server {self._next_server}"
            process = self._training.process_of(f"--rank {self._next_server}")
        else:
            name, process = "the scheduler", self._training.process_of("scheduler")
        if process is None:
            return  # it is just being started
        print(f"  step {self._training.steps}: kill -9 {name} (process {process})", flush=True)
        os.kill(process, signal.SIGKILL)
        self._due.pop(0)
        self._next_server = (self._next_server + (what == "server")) % self._servers


def differences(before, after):
    """One line for each worker whose losses are not the same."""
    for rank, wanted in before.items():
        found = after[rank]
        if len(found) != len(wanted):
            yield f"worker {rank}: {len(wanted)} steps without kills, {len(found)} with"
        for step, (one, other) in enumerate(zip(wanted, found), 1):
            if one != other:
                yield f"worker {rank}: step {step} has the loss {one} without kills, {other} with"
                break


def told(line):
    """What the cluster says about it."""
    return line.startswith("[cairn]") or (line.startswith("[scheduler]") and " is done" not in line)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-s", "--servers", type=int, default=3)
    parser.add_argument("-w", "--workers", type=int, default=2)
    parser.add_argument("--kill", nargs="+", choices=["server", "scheduler"],
                        default=["server", "scheduler"],
                        help="whom, in this order, spread over the steps")
    parser.add_argument("--limit", type=int, default=12800,
                        help="train on the first so many samples")
    parser.add_argument("--data", help="folder of the IDX files (script/fetch-mnist's)")
    parser.add_argument("--keep", metavar="FOLDER",
                        help="the whole output of both runs goes there")
    parser.add_argument("--timeout", type=float, default=300, help="seconds that a run may take")
    options = parser.parse_args()
    if options.servers < 2:
        parser.error("with one server there is nobody else to go on: give -s 2 or more")
    return options


def main():
    options = arguments()
    print("training in peace …", flush=True)
    with Training(options, "in-peace") as peace:
        for _ in peace:
            pass
    print(f"  {peace.steps} steps on each of {options.workers} workers, {peace.seconds:.1f} s; "
          f"longest pause between two steps {peace.longest_pause_s:.2f} s")
    print("the same training, with kills …", flush=True)
    with Training(options, "with-kills") as killed:
        killer = Killer(killed, options.kill, peace.steps, options.servers)
        for line in killed:
            if killer.left != options.kill and told(line):
                print(f"    {line}", flush=True)
            killer.look()
    print(f"  {killed.steps} steps on each of {options.workers} workers, {killed.seconds:.1f} s; "
          f"longest pause between two steps {killed.longest_pause_s:.2f} s")
    if killer.left:
        raise SystemExit("the training was over before everybody was killed (left: "
                         f"{', '.join(killer.left)}): give a larger --limit")
    if found := list(differences(peace.losses, killed.losses)):
        raise SystemExit("\n".join(found))
    for rank, losses in peace.losses.items():
        print(f"worker {rank}: {len(losses)} losses, from {losses[0]} to {losses[-1]}: "
              "the same in both runs")


if __name__ == "__main__":
    main()
