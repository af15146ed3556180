"""Jobs that are started as the tutorials of MindSpore and Paddle do it: one process after the other,
each with the variables of its role."""
import pathlib
import re
import struct
import sys
import time

import torch

from ports import free_port

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
SECONDS = 120


def write_mnist(folder):
    """Ten patterns of 7 × 7 blocks, one pixel of ten of them noise, in MNIST's files."""
    generator = torch.Generator().manual_seed(7)
    shapes = ((torch.rand(10, 7, 7, generator=generator) < 0.3) * 255).repeat_interleave(4, 1).repeat_interleave(4, 2)
    for name, count in (("train", 1200), ("t10k", 300)):
        labels = torch.randint(10, (count,), generator=generator)
        noise = torch.randint(256, (count, 28, 28), generator=generator)
        images = torch.where(torch.rand(count, 28, 28, generator=generator) < 0.1, noise, shapes[labels])
        (folder / f"{name}-images-idx3-ubyte").write_bytes(
            struct.pack(">IIII", 0x803, count, 28, 28) + bytes(images.flatten().tolist()))
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, count) + bytes(labels.tolist()))
    return folder


class Started:
    """Some processes of one job, by name. Each `start` returns when that process has got as far as it
    can without the others."""

    def __init__(self, job, script, *arguments, before=()):
        self.job, self.script, self.arguments = job, script, arguments
        self.children = {}
        self.before = before  # words in front of the command, per name: {"server": ["ip", "netns", …]}

    def start(self, name, **more):
        command = [*dict(self.before).get(name, ()), sys.executable, "-u", self.script, *self.arguments]
        self.children[name] = self.job.start(command, **self.variables(name), **more)

    def text(self, name):
        return self.children[name].log.read_text() if name in self.children else ""

    def wait_until(self, name, arrived):
        until = time.monotonic() + SECONDS
        while not arrived():
            assert time.monotonic() < until and self.children[name].poll() is None, f"{name}:\n{self.text(name)}"
            time.sleep(0.01)

    def start_in_order(self, names):
        for name in names:
            self.start(name)
            self.wait_until(name, lambda: self.arrived(name))

    def finish(self, seconds=SECONDS):
        """Waits for all; they must end well. What each has said."""
        texts = {}
        for name, child in self.children.items():
            code, texts[name] = self.job.wait(child, seconds)
            assert code == 0, f"{name} exits with {code}:\n{texts[name]}"
        return texts


class MindSpore(Started):
    """scheduler, server, worker: the three scripts of the tutorial."""

    NAMES = ("scheduler", "server", "worker")
    ROLES = {"scheduler": "MS_SCHED", "server": "MS_PSERVER", "worker": "MS_WORKER"}

    def __init__(self, job, script, *arguments, host="127.0.0.1", workers=1, before=()):
        super().__init__(job, script, *arguments, before=before)
        self.host, self.port, self.workers = host, free_port(), workers

    def variables(self, name):
        return {"PS_VERBOSE": 1, "MS_SERVER_NUM": 1, "MS_WORKER_NUM": self.workers, "MS_SCHED_HOST": self.host,
                "MS_SCHED_PORT": self.port, "MS_ROLE": self.ROLES[name.rstrip("0123456789")]}

    def arrived(self, name):
        if name == "scheduler":
            return "Bind to role=scheduler" in self.text(name)
        if "scheduler" in self.children:
            return re.search(f"role={name.rstrip('0123456789')},", self.text("scheduler"))
        return "no answer from the scheduler" in self.text(name)


class Paddle(Started):
    """server0, server1, trainer0, trainer1: the tutorial's 2 × 2."""

    NAMES = ("server0", "server1", "trainer0", "trainer1")

    def __init__(self, job, script, *arguments, hosts=("127.0.0.1", "127.0.0.1"), ports=None, before=()):
        super().__init__(job, script, *arguments, before=before)
        self.hosts, self.ports = hosts, ports or [free_port(), free_port()]
        self.endpoints = [f"{host}:{port}" for host, port in zip(self.hosts, self.ports)]

    def variables(self, name):
        number = int(name[-1])
        shared = {"PADDLE_PSERVERS_IP_PORT_LIST": ",".join(self.endpoints), "PADDLE_TRAINERS_NUM": 2}
        if name.startswith("server"):
            return {"TRAINING_ROLE": "PSERVER", "POD_IP": self.hosts[number], "PADDLE_PORT": self.ports[number], **shared}
        return {"TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": number, **shared}

    def arrived(self, name):
        if name.startswith("server"):
            return "Server listening on" in self.text(name)
        if "server0" in self.children and "server1" in self.children:
            return f"(worker {name[-1]})" in self.text("server0")
        return "server not ready" in self.text(name)


def sockets_of(pids):
    """(local port, remote port) of every TCP socket of these processes; a listener's remote port is 0."""
    inodes = set()
    for pid in pids:
        for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            try:
                found = re.fullmatch(r"socket:\[(\d+)\]", str(fd.readlink()))
            except OSError:
                continue
            if found:
                inodes.add(found[1])
    pairs = []
    for table in ("tcp", "tcp6"):
        path = pathlib.Path(f"/proc/{pids[0]}/net/{table}")
        for line in path.read_text().splitlines()[1:] if path.exists() else []:
            words = line.split()
            if words[9] in inodes:
                pairs.append(tuple(int(words[i].rsplit(":", 1)[1], 16) for i in (1, 2)))
    return pairs


def accuracy(text):
    return float(re.findall(r"test accuracy: (\S+)$", text, re.M)[-1])
