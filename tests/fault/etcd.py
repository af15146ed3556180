"""Real etcd members for the fault tests, each a child of the test with ports and a folder of its own,
and a cluster whose schedulers keep their state in them."""
import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request

from cluster import BIN, SLOWER, Cluster, wait_until
from ports import free_port

LEASE_S = 2  # etcd's own least is 2 s with its default timing
PREFIX = "/tests/job"


class Etcd:
    """`members` of etcd on loopback, or on an address of a network namespace that the words of `enter` enter."""

    def __init__(self, folder, members=1, host="127.0.0.1", enter=()):
        program = shutil.which("etcd") or "/usr/bin/etcd"
        assert os.path.exists(program), "etcd is not installed: script/bootstrap installs it"
        self.program = program
        self.folder, self.host, self.enter = folder, host, list(enter)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.ports = [(free_port(), free_port()) for _ in range(members)]
        self.processes = {}

    def __enter__(self):
        for index in range(len(self.ports)):
            self.start(index)
        wait_until(lambda: all(self._healthy(i) for i in range(len(self.ports))), "etcd is up", logs=self.logs)
        return self

    def __exit__(self, *_):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()

    def start(self, index):
        client, peer = (f"http://{self.host}:{port}" for port in self.ports[index])
        peers = ",".join(f"m{i}=http://{self.host}:{port}" for i, (_, port) in enumerate(self.ports))
        command = [
            *self.enter, self.program, "--name", f"m{index}", "--data-dir", self.folder / f"m{index}", "--listen-client-urls", client,
            "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", peers, "--initial-cluster-token", str(self.folder), "--unsafe-no-fsync",
        ]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("ETCD_")}
        with open(self.folder / f"m{index}.log", "ab") as log:
            self.processes[index] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT,
                                                     stdin=subprocess.DEVNULL, env=environment)

    def signal(self, index, how):
        process = self.processes[index]
        assert process.poll() is None, f"member {index} ended by itself\n{self.logs()}"
        process.send_signal(how)
        if how == signal.SIGKILL:
            process.wait()

    def _get(self, index, path, body=None):
        address = f"http://{self.host}:{self.ports[index][0]}{path}"
        if self.enter:  # not to be reached from here
            return self._get_there(address, body)
        request = urllib.request.Request(address, data=body)
        try:
            with urllib.request.urlopen(request, timeout=2) as answer:
                return json.load(answer)
        except OSError:
            return None

    def _get_there(self, address, body):
        code = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], sys.stdin.buffer.read() or None, 2).read().decode())"
        done = subprocess.run([*self.enter, sys.executable, "-c", code, address], input=body or b"", capture_output=True,
                              timeout=20)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def _healthy(self, index):
        answer = self._get(index, "/health")
        return answer is not None and answer.get("health") == "true"

    def read(self, key, member=0):
        """The key's entry as etcd gives it, or None."""
        body = json.dumps({"key": base64.b64encode(f"{PREFIX}/{key}".encode()).decode()}).encode()
        answer = self._get(member, "/v3/kv/range", body)
        return (answer or {}).get("kvs", [None])[0]

    def leader(self, member=0):
        """Index of the member that leads etcd's own cluster."""
        ids = {}
        leads = None
        for index in range(len(self.ports)):
            answer = self._get(index, "/v3/maintenance/status", b"{}")
            if answer:
                ids[answer["header"]["member_id"]] = index
                leads = answer.get("leader", leads)
        return ids.get(leads)

    def url(self):
        return "etcd://" + ",".join(f"{self.host}:{port}" for port, _ in self.ports) + PREFIX

    def logs(self):
        return "\n".join(f"--- etcd {p.name}\n{p.read_text(errors='replace')[-1500:]}"
                         for p in sorted(self.folder.glob("*.log")))


class StandbyCluster(Cluster):
    """A cluster with several schedulers, `scheduler0` and so on, over etcd."""

    def __init__(self, folder, etcd, schedulers=2, **options):
        super().__init__(folder, **options)
        self.etcd = etcd
        self.scheduler_ports = [free_port() for _ in range(schedulers)]
        for name in ("CAIRN_SCHED_HOST", "CAIRN_SCHED_PORT"):
            del self.environment[name]
        self.environment["CAIRN_SCHEDULER"] = ",".join(f"127.0.0.1:{port}" for port in self.scheduler_ports)

    def start_scheduler(self):
        for index in range(len(self.scheduler_ports)):
            self.start_one(index)
            if index == 0:  # so that a test knows who leads first
                self.wait_leader("scheduler0")

    def start_one(self, index, name=None):
        return self.start(name or f"scheduler{index}",
                          [BIN / "cairn", "scheduler", "--port", str(self.scheduler_ports[index]), "--meta",
                           self.etcd.url(), "--lease", str(LEASE_S * SLOWER)], CAIRN_ROLE="scheduler")

    def wait_leader(self, name):
        wait_until(lambda: "this scheduler leads" in self.log(name), f"{name} leads",
                   logs=lambda: self.logs() + self.etcd.logs())

    def status(self, index=None):
        """The leader's; or what one scheduler says, None if it is a standby."""
        where = self.environment["CAIRN_SCHEDULER"] if index is None else f"127.0.0.1:{self.scheduler_ports[index]}"
        out = subprocess.run([BIN / "cairn", "status", where, "--json"], capture_output=True, text=True, timeout=30)
        return json.loads(out.stdout) if out.returncode == 0 else None

    def refusal(self, index):
        out = subprocess.run([BIN / "cairn", "status", f"127.0.0.1:{self.scheduler_ports[index]}"],
                             capture_output=True, text=True, timeout=30)
        assert out.returncode != 0, out.stdout
        return out.stderr
