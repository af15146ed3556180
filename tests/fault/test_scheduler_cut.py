"""The scheduler on a machine of its own is cut off from everybody for a while, with the default times."""
import json
import os
import pathlib
import subprocess
import time

import pytest

from cluster import wait_until
from namespaces import two_namespaces

BIN = pathlib.Path(os.environ.get("CAIRN_BIN", pathlib.Path(__file__).parents[2] / "build" / "dev" / "bin"))
SCHEDULER, OTHERS = "10.214.7.1", "10.214.7.2"
# Each is its own length of waiting; script/check --only deaths has the longer ones.
CUTS = [3, 10, 20] if os.environ.get("CAIRN_LONG_TESTS") else [3]


class Job:
    def __init__(self, folder, places):
        self.folder, self.places, self.processes = folder, places, {}

    def start(self, name, place, *command, **variables):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("CAIRN_", "MS_", "PADDLE_", "DMLC_"))}
        env |= {"CAIRN_SCHED_HOST": SCHEDULER, "CAIRN_SCHED_PORT": "7100", "CAIRN_NUM_SERVERS": "3",
                "CAIRN_NUM_WORKERS": "2"} | {k: str(v) for k, v in variables.items()}
        with open(self.folder / f"{name}.log", "wb") as log:
            self.processes[name] = subprocess.Popen([*self.places[place], *map(str, command)], env=env,
                                                    stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def logs(self):
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}"
                         for path in sorted(self.folder.glob("*.log")))

    def status(self):
        done = subprocess.run([*self.places[0], BIN / "cairn", "status", f"{SCHEDULER}:7100", "--json"],
                              capture_output=True, text=True, timeout=60)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def incarnations(self):
        status = self.status()
        return status and sorted((kind, node["incarnation"]) for kind in ("servers", "workers") for node in status[kind])

    def cut(self, down):
        """Of the scheduler's machine."""
        devices = subprocess.run([*self.places[0], "ip", "-o", "link"], capture_output=True, text=True, timeout=60).stdout
        device = next(line.split(": ")[1].split("@")[0] for line in devices.splitlines() if ": lo:" not in line)
        subprocess.run([*self.places[0], "ip", "link", "set", device, "down" if down else "up"], check=True, timeout=60)

    def end(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()


@pytest.mark.parametrize("seconds", CUTS)
def test_a_cut_of_the_scheduler_costs_nobody_anything(tmp_path, seconds):
    with two_namespaces([SCHEDULER, OTHERS]) as places:
        job = Job(tmp_path, places)
        try:
            job.start("scheduler", 0, BIN / "cairn", "scheduler", "--host", SCHEDULER, "--port", 7100,
                      "--state-dir", tmp_path / "state")
            for server in range(3):
                job.start(f"server{server}", 1, BIN / "cairn", "server", "--host", OTHERS, CAIRN_RANK=server)
            for rank in range(2):
                job.start(f"worker{rank}", 1, BIN / "cairn-soak", "--dir", tmp_path / "accounts", "--mode", "async",
                          "--until", tmp_path / "end", "--pause-us", 3000, "--region", 64, CAIRN_ROLE="worker",
                          CAIRN_RANK=rank)
            wait_until(lambda: "soak.async.sparse" in job.logs(), "the job", logs=job.logs)
            before = job.incarnations()
            assert before and len(before) == 5, job.logs()
            job.cut(True)
            time.sleep(seconds)  # this is the fault, not a wait for something
            job.cut(False)
            # Whoever would be blamed is blamed by now: a detection time and an extra one later.
            time.sleep(11)
            assert job.incarnations() == before, job.logs()
            (tmp_path / "end").touch()
            codes = {name: process.wait(60) for name, process in job.processes.items()}
            assert not any(codes.values()), (codes, job.logs())
            assert "lost: 0  twice: 0" in job.logs()
            assert "is dead" not in job.logs() and "is lost" not in job.logs(), job.logs()
        finally:
            job.end()
