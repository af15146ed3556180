"""Rank 0 hosts the cluster: scheduler and servers on threads of the first of the processes that
torchrun, srun or mpirun started, and how the others learn where it is."""
from __future__ import annotations

import os
import socket
import time

from .. import _core
from ..errors import DeadlineExceededError, Error, UnavailableError
from .launchers import LOOPBACK, Launched

_WILDCARD = "0.0.0.0"
_POLL_S = 0.02
_ABORT_TIMEOUT_S = 2.0
Address = tuple[str, int]


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def free_port(host: str) -> int:
    """A port of this address of the machine's that nobody uses at this moment."""
    with socket.socket(_family(host)) as s:
        s.bind((host, 0))
        port: int = s.getsockname()[1]
        return port


def _address_towards(host: str) -> str:
    """The address of this machine from which packets to `host` leave. Nothing is sent."""
    try:
        with socket.socket(_family(host), socket.SOCK_DGRAM) as s:
            s.connect((host, 9))
            address: str = s.getsockname()[0]
            return address
    except OSError:
        return LOOPBACK


def own_address(master: str) -> str:
    """An address under which other machines reach this one."""
    given = os.environ.get("CAIRN_HOST")
    if given and given != _WILDCARD:
        return given
    # Debian maps a machine's own name to 127.0.1.1; any address outside shows the way out then.
    for host in (master, "192.0.2.1"):
        address = _address_towards(host)
        if not address.startswith("127."):
            return address
    return socket.gethostname()


class AgentStore:
    """torchrun's own store, in which rank 0 leaves the scheduler's address for the others."""

    def __init__(self, launched: Launched, timeout_s: float):
        import datetime

        import torch.distributed as dist

        self._store = dist.TCPStore(  # type: ignore[attr-defined]  # torch exports it at run time alone
            os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), None, False,
            datetime.timedelta(seconds=timeout_s), wait_for_workers=False)
        self._key = f"cairn/{launched.job}/scheduler"
        self._timeout_s = timeout_s

    def tell(self, text: str) -> None:
        self._store.set(self._key, text)

    def ask(self) -> Address:
        """Waits for rank 0's word. In small steps, so that Ctrl-C works."""
        until = time.monotonic() + self._timeout_s
        while not self._store.check([self._key]):
            if time.monotonic() >= until:
                raise DeadlineExceededError(
                    f"rank 0 has not started its cluster within {self._timeout_s:.0f} s: it must call "
                    "cairn.init() too")
            time.sleep(_POLL_S)
        kind, _, text = self._store.get(self._key).decode().partition(" ")
        if kind != "at":
            raise UnavailableError(f"rank 0 could not start its cluster: {text}")
        host, _, port = text.rpartition(":")
        return host, int(port)


def start(launched: Launched, servers: int, threads: int,
          store: AgentStore | None) -> _core.EmbeddedCluster:
    """The cluster for all workers of this job, in this process, which is rank 0."""
    if launched.one_host:
        host = advertised = ""  # loopback
    else:
        host, advertised = _WILDCARD, launched.host or own_address(os.environ.get("MASTER_ADDR", ""))
    try:
        cluster = _core.EmbeddedCluster(
            servers=servers, workers=launched.size, threads_per_server=threads, host=host,
            port=launched.port or 0, advertise_host=advertised, cluster_id=cluster_id(launched))
    except Error as error:
        if store is not None:
            store.tell(f"error {error}")
        raise
    if store is not None:
        store.tell(f"at {advertised or cluster.scheduler_host}:{cluster.scheduler_port}")
    return cluster


def cluster_id(launched: Launched) -> str:
    """Two jobs that meet at one port by accident refuse each other."""
    return os.environ.get("CAIRN_CLUSTER_ID") or launched.job


def abort(address: Address, reason: str) -> None:
    """Ends the job as failed, so that the other workers don't wait for this one."""
    try:
        with socket.create_connection(address, timeout=_ABORT_TIMEOUT_S) as s:
            s.sendall(_core.abort_message(reason))
            s.shutdown(socket.SHUT_WR)
            s.recv(1)  # until the scheduler has read it
    except OSError:
        pass  # it is gone already
