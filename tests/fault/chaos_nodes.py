"""The processes of script/chaos: schedulers, servers and workers, each in a network namespace of its own
where this user may make some. Whatever is started here ends with this process."""
import ctypes
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

from chaos_loads import Failed
from etcd import LEASE_S, Etcd
from ports import free_port

IP_SECONDS = 20
SCHEDULERS = 3  # over etcd


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
        if os.geteuid() != 0 or shutil.which("ip") is None:
            return
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
        self.away = False    # stopped or cut off, until it is healed
        self.absent = False  # a server that is not in the job at the moment
        self.endpoint = None  # servers
        self.log_from = 0    # where the log of this process begins

    @property
    def alive(self):
        return self.process is not None and self.process.poll() is None


class Nodes:
    """The cluster of one leg. Places of the namespaces: schedulers, servers (one more where they scale), workers."""

    def __init__(self, folder, options, leg, namespaces):
        self.folder, self.options, self.leg, self.namespaces = pathlib.Path(folder), options, leg, namespaces
        self.folder.mkdir(parents=True)
        self.bin = pathlib.Path(options.bin)
        self.until = self.folder / "end"
        self.nodes, self.etcd = {}, None
        schedulers = SCHEDULERS if leg.schedulers == "etcd" else 1
        self.schedulers = [f"{self._host(i)}:{free_port()}" for i in range(schedulers)]
        shared = dict(CAIRN_SCHEDULER=",".join(self.schedulers), CAIRN_NUM_SERVERS=options.servers,
                      CAIRN_NUM_WORKERS=leg.load.workers, CAIRN_REPLICAS=options.replicas,
                      CAIRN_HEARTBEAT_MS=int(options.heartbeat * 1000), CAIRN_DEAD_AFTER_MS=int(options.dead_after * 1000),
                      CAIRN_SERVER_THREADS=options.threads, CAIRN_CONNECT_TIMEOUT_MS=120000,
                      CAIRN_CALL_TIMEOUT_MS=180000, CAIRN_REJOIN_GRACE_MS=120000)
        if leg.schedulers == "etcd":
            self.etcd = Etcd(self.folder / "etcd", host=self._host(None), enter=self._enter(None))
        for i, endpoint in enumerate(self.schedulers):
            host, port = endpoint.split(":")
            where = (["--meta", self.etcd.url(), "--lease", LEASE_S] if self.etcd
                     else ["--state-dir", self.folder / "state"])
            self._add("scheduler" if schedulers == 1 else f"scheduler{i}", "scheduler", i,
                      [self.bin / "cairn", "scheduler", "--host", host, "--port", port, *where], shared)
        for i in range(options.servers + leg.scaling):
            place = schedulers + i
            port = 20000 if namespaces else free_port()
            node = self._add(f"server{i}", "server", place,
                             [self.bin / "cairn", "server", "--host", self._host(place), "--port", port], shared)
            node.endpoint = f"{self._host(place)}:{port}"
        for rank in range(leg.load.workers):
            self._add(f"worker{rank}", "worker", schedulers + options.servers + leg.scaling + rank,
                      leg.load.command(self.folder, self.until),
                      shared | dict(CAIRN_RANK=rank) | leg.load.environment())
        self.accounts = [leg.load.progress(self.folder, rank) for rank in range(leg.load.workers)]

    @staticmethod
    def most_places(options):
        return SCHEDULERS + options.servers + 1 + options.workers

    def _enter(self, place):
        return self.namespaces.enter(place) if self.namespaces else []

    def _host(self, place):
        return self.namespaces.address(place) if self.namespaces else "127.0.0.1"

    def _add(self, name, role, place, command, environment):
        self.nodes[name] = Node(name, role, place, [*self._enter(place), *map(str, command)],
                                {k: str(v) for k, v in environment.items()} | {"CAIRN_ROLE": role})
        return self.nodes[name]

    def of(self, role):
        return [node for node in self.nodes.values() if node.role == role]

    def start(self, node):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("CAIRN_", "MS_", "PADDLE_", "DMLC_"))}
        with open(self.folder / f"{node.name}.log", "ab") as log:
            node.log_from = log.seek(0, os.SEEK_END)
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
        done = subprocess.run([*self._enter(None), self.bin / "cairn", "status", ",".join(self.schedulers), "--json",
                               "--timeout-ms", "1000"], capture_output=True, text=True, timeout=30)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def acknowledged(self):
        return sum(account.acknowledged() for account in self.accounts)

    def log(self, name):
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def registered(self, node):
        """It has got as far as that since it was last started."""
        return b"registered as server" in (self.folder / f"{node.name}.log").read_bytes()[node.log_from:]

    def tails(self, lines=12):
        text = []
        for path in sorted(self.folder.glob("*.log")):
            text += [f"--- {path.name}", *path.read_text(errors="replace").splitlines()[-lines:]]
        return "\n".join(text)

    def start_all(self):
        if self.etcd:
            self.etcd.__enter__()
        for node in self.nodes.values():
            if not node.absent:
                self.start(node)

    def stop_all(self):
        for node in self.nodes.values():
            if node.process is not None and node.process.poll() is None:
                node.process.kill()
        for node in self.nodes.values():
            if node.process is not None:
                node.process.wait()
        if self.etcd:
            self.etcd.__exit__()

    def wait_exit(self, nodes, seconds):
        end = time.monotonic() + seconds
        for node in nodes:
            try:
                node.process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise Failed(f"{node.name} has not ended within {seconds:.0f} s") from None
            if node.process.returncode != 0:
                raise Failed(f"{node.name} has ended with code {node.process.returncode}")
