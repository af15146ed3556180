"""The processes of script/chaos: a scheduler, servers and cairn-soak workers, each in a network
namespace of its own where this user may make some. Whatever is started here ends with this process."""
import ctypes
import json
import mmap
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import time

from ports import free_port

MAX_LIVES = 512  # as in tools/cairn-soak/account.h
STREAMS = {"async": (0, 1), "sync": (2, 3)}
IP_SECONDS = 20


class Failed(Exception):
    """The cluster, or the run, did not do what it must."""


class Account:
    """What a worker has submitted and had acknowledged, read while it runs."""

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


class Namespaces:
    """One network namespace for each node, joined by a bridge in a further one, where the examiner is."""

    def __init__(self, count):
        self.tag = f"cairn-chaos-{os.getpid()}"
        self.hub = f"{self.tag}-hub"
        self.names = [f"{self.tag}-{i}" for i in range(count)]

    @staticmethod
    def ip(*words):
        done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=IP_SECONDS)
        if done.returncode != 0:
            raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")

    def make(self):
        """None, or why there are none."""
        if os.geteuid() != 0:
            return "that needs root"
        if shutil.which("ip") is None:
            return "there is no `ip` (package iproute2)"
        self.remove_left()
        try:
            self.ip("netns", "add", self.hub)
            self.ip("-n", self.hub, "link", "add", "br0", "type", "bridge")
            self.ip("-n", self.hub, "addr", "add", f"{self.address(None)}/16", "dev", "br0")
            for device in ("lo", "br0"):
                self.ip("-n", self.hub, "link", "set", device, "up")
            for i, name in enumerate(self.names):
                self.ip("netns", "add", name)
                self.ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", f"v{i}", "netns", self.hub)
                self.ip("-n", self.hub, "link", "set", f"v{i}", "master", "br0")
                self.ip("-n", self.hub, "link", "set", f"v{i}", "up")
                self.ip("-n", name, "addr", "add", f"{self.address(i)}/16", "dev", "eth0")
                for device in ("lo", "eth0"):
                    self.ip("-n", name, "link", "set", device, "up")
        except (OSError, subprocess.TimeoutExpired) as error:
            self.remove()
            return str(error)
        return None

    @staticmethod
    def address(i):
        return "10.213.0.1" if i is None else f"10.213.1.{i + 1}"

    def enter(self, i):
        return ["ip", "netns", "exec", self.hub if i is None else self.names[i]]

    def cut(self, i, down):
        self.ip("-n", self.hub, "link", "set", f"v{i}", "down" if down else "up")

    def remove(self):
        for name in [*self.names, self.hub]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=IP_SECONDS)

    @staticmethod
    def remove_left():
        """Those of a run that was killed."""
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, timeout=IP_SECONDS).stdout
        for line in listed.splitlines():
            name = line.split()[0] if line.split() else ""
            parts = name.split("-")
            if name.startswith("cairn-chaos-") and parts[2].isdigit() and not pathlib.Path(f"/proc/{parts[2]}").exists():
                subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=IP_SECONDS)


def _die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Node:
    """One process of the cluster and its successors."""

    def __init__(self, name, role, place, command, environment):
        self.name, self.role, self.place = name, role, place
        self.command, self.environment = command, environment
        self.process = None
        self.away = False  # stopped or cut off, until it is healed

    @property
    def alive(self):
        return self.process is not None and self.process.poll() is None


class Nodes:
    """The cluster of one run. Node i of the namespaces: scheduler 0, then servers, then workers."""

    def __init__(self, folder, options, mode, namespaces):
        self.folder, self.options, self.mode, self.namespaces = pathlib.Path(folder), options, mode, namespaces
        self.folder.mkdir(parents=True)
        self.bin = pathlib.Path(options.bin)
        self.until = self.folder / "end"
        self.port = free_port()
        self.nodes = {}
        host = self._host(0)
        shared = dict(CAIRN_SCHED_HOST=host, CAIRN_SCHED_PORT=self.port, CAIRN_NUM_SERVERS=options.servers,
                      CAIRN_NUM_WORKERS=options.workers, CAIRN_REPLICAS=options.replicas,
                      CAIRN_HEARTBEAT_MS=int(options.heartbeat * 1000), CAIRN_DEAD_AFTER_MS=int(options.dead_after * 1000),
                      CAIRN_SERVER_THREADS=options.threads, CAIRN_CONNECT_TIMEOUT_MS=120000,
                      CAIRN_CALL_TIMEOUT_MS=180000, CAIRN_REJOIN_GRACE_MS=120000)
        self._add("scheduler", "scheduler", 0,
                  ["cairn", "scheduler", "--host", host, "--port", self.port, "--state-dir", self.folder / "state"], shared)
        for i in range(options.servers):
            place = 1 + i
            port = 20000 if namespaces else free_port()
            self._add(f"server{i}", "server", place, ["cairn", "server", "--host", self._host(place), "--port", port], shared)
        accounts = self.folder / "accounts"
        for rank in range(options.workers):
            self._add(f"worker{rank}", "worker", 1 + options.servers + rank,
                      ["cairn-soak", "--dir", accounts, "--mode", mode, "--until", self.until, "--lives", options.lives,
                       "--region", 32, "--pause-us", options.pause_us, "--round-timeout-ms", 120000],
                      shared | dict(CAIRN_RANK=rank))
        self.accounts = [Account(accounts / f"rank-{rank}.account", mode) for rank in range(options.workers)]

    def _host(self, place):
        return self.namespaces.address(place) if self.namespaces else "127.0.0.1"

    def _add(self, name, role, place, command, environment):
        command = [self.bin / command[0], *command[1:]]
        words = self.namespaces.enter(place) if self.namespaces else []
        self.nodes[name] = Node(name, role, place, [*words, *map(str, command)],
                                {k: str(v) for k, v in environment.items()} | {"CAIRN_ROLE": role})

    def of(self, role):
        return [node for node in self.nodes.values() if node.role == role]

    def start(self, node):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("CAIRN_", "MS_", "PADDLE_", "DMLC_"))}
        with open(self.folder / f"{node.name}.log", "ab") as log:
            node.process = subprocess.Popen(node.command, env=env | node.environment, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=subprocess.STDOUT, preexec_fn=_die_with_parent)
        node.away = False

    def signal(self, node, number):
        if node.alive:
            os.kill(node.process.pid, number)
            if number == signal.SIGKILL:
                node.process.wait()

    def cut(self, node, down):
        self.namespaces.cut(node.place, down)

    def status(self):
        """What the scheduler says, None if it says nothing within a second."""
        words = self.namespaces.enter(None) if self.namespaces else []
        done = subprocess.run([*words, self.bin / "cairn", "status", f"{self._host(0)}:{self.port}", "--json",
                               "--timeout-ms", "1000"], capture_output=True, text=True, timeout=30)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def acknowledged(self):
        return sum(account.acknowledged() for account in self.accounts)

    def log(self, name):
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def tails(self, lines=12):
        text = []
        for path in sorted(self.folder.glob("*.log")):
            text += [f"--- {path.name}", *path.read_text(errors="replace").splitlines()[-lines:]]
        return "\n".join(text)

    def stop_all(self):
        for node in self.nodes.values():
            if node.process is not None and node.process.poll() is None:
                node.process.kill()
        for node in self.nodes.values():
            if node.process is not None:
                node.process.wait()

    def wait_exit(self, nodes, seconds):
        end = time.monotonic() + seconds
        for node in nodes:
            try:
                node.process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise Failed(f"{node.name} has not ended within {seconds} s") from None
            if node.process.returncode != 0:
                raise Failed(f"{node.name} has ended with code {node.process.returncode}")
