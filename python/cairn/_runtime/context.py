"""The process's one Context: cairn.init(), what it connects to, and cairn.shutdown().

    init() ── the environment says scheduler or server ──> serving.py, never returns
       ├───── CAIRN_*, MS_*, PADDLE_* or DMLC_* ─────────> connects as a worker
       ├───── torchrun, srun, mpirun ────────────────────> rank 0 hosts a cluster (hosting.py), all connect
       └───── nothing ───────────────────────────────────> an embedded cluster of this process alone
"""
from __future__ import annotations

import atexit
import hashlib
import multiprocessing
import os
import sys
import threading
import traceback
import weakref
from collections.abc import Callable
from typing import Any, NoReturn, TypedDict

from .. import _core
from ..errors import ForkedError, InvalidArgumentError, NotInitializedError
from . import hosting, launchers, serving, variables
from .exiting import ExitWatch

# Set while a process has a context, for children that run the module's top level again.
_OWNER = "CAIRN_OWNER"
# The exit code of a worker that was declared dead while it was paused: `cairn run` starts it again.
_START_AGAIN = 75
_lock = threading.RLock()
_context: Context | None = None
_exit_watch: ExitWatch | None = None

_CALL_TIMEOUT_S = 1800.0


class _Times(TypedDict):
    """As _core.connect takes them; 0: its own defaults."""

    connect_timeout_ms: int
    call_timeout_ms: int


class Context:
    """What this process is in its job. `cairn.init()` makes it; there is one at a time."""

    __module__ = "cairn"  # where users find it

    def __init__(self, client: _core.Client | None, *, rank: int, world_size: int, local_rank: int,
                 cluster: _core.EmbeddedCluster | None = None, launcher: str = "",
                 scheduler: hosting.Address | None = None, timeout_s: float = _CALL_TIMEOUT_S):
        self._client = client
        self._cluster = cluster
        self._launcher = launcher
        self._scheduler = scheduler
        self.call_timeout_s = timeout_s  # what a call may take that is given no other time
        self._pid = os.getpid()
        self._callbacks: list[Callable[[], object]] = []
        self._variables: dict[str, str] = {}
        self.collectives: Any = None  # _allreduce/collectives.py; made by the first call
        # settle(): before this worker enters one
        self.settled_by_barriers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.rank = rank
        self.world_size = world_size
        self.local_rank = local_rank

    @property
    def client(self) -> _core.Client:
        if self._client is None:
            _refuse_child()
        return self._client

    @property
    def embedded(self) -> bool:
        """The cluster is inside this process, and this is its only worker."""
        return self._cluster is not None and not self._launcher

    def first_rank(self) -> int:
        """The lowest rank that is alive."""
        return min(self.client.live_ranks(), default=self.rank)

    def on_shutdown(self, callback: Callable[[], object]) -> None:
        """To be called before this worker leaves, the last one first; not after an exception."""
        self._callbacks.append(callback)

    def __repr__(self) -> str:
        where = "embedded" if self.embedded else f"under {self._launcher}" if self._launcher else "worker"
        return f"<cairn.Context rank {self.rank} of {self.world_size}, {where}>"

    def _run_callbacks(self) -> None:
        while self._callbacks:
            self._callbacks.pop()()

    def _leave(self) -> None:
        self._run_callbacks()
        self.client.finish()
        # The others reach the cluster through this process: it stays until they are done too.
        if self._cluster is not None and self._launcher:
            self._cluster.wait(int(self.call_timeout_s * 1000))

    def _drop(self) -> None:
        """Without a word to the others, if nothing was said before."""
        if self._client is not None:
            self._client.close()
        if self._cluster is not None:
            self._cluster.stop()
        for name, value in self._variables.items():
            if os.environ.get(name) == value:
                del os.environ[name]

    def _abandon(self, reason: str) -> None:
        # torchrun and mpirun end the other processes by themselves; srun and people do not.
        if self._launcher in ("srun", "torch") and self._scheduler is not None:
            hosting.abort(self._scheduler, f"rank {self.rank} ended with {reason}")
            if self._cluster is not None:
                self._cluster.wait(5000)  # the others hear of it from here
        self._drop()

    def _set(self, **variables: object) -> None:
        """For torch.distributed and whoever else looks there. What is set already stays."""
        for name, value in variables.items():
            if not os.environ.get(name):
                self._variables[name] = os.environ[name] = str(value)


def _refuse_child() -> NoReturn:
    raise ForkedError(
        "this process was started by multiprocessing from a worker that had called cairn.init(), and is "
        "no worker itself: cairn.init() does nothing here. Workers of a DataLoader must not call cairn; "
        "do it in the process that called cairn.init()")


def _owner() -> str:
    # All processes that multiprocessing starts share the key of their common ancestor, however they
    # are started, and no other process has it.
    key = hashlib.sha256(bytes(multiprocessing.current_process().authkey)).hexdigest()[:16]
    return f"{os.getpid()}:{key}"


def _is_child_of_a_worker() -> bool:
    pid, _, key = os.environ.get(_OWNER, "").partition(":")
    own_pid, _, own_key = _owner().partition(":")
    return key == own_key and pid != own_pid


def init(*, servers: int = 1, threads: int = 0, timeout: float | None = None,
         connect_timeout: float | None = None) -> Context:
    """Makes this process a worker of its job, and returns its Context; a second call returns the same.

    In a process that the environment calls a scheduler or a server it does not return: the process
    serves until the job is over and exits. docs/reference/environment.md has the variables. Without any, and
    without torchrun, srun or mpirun, the cluster is embedded in this process.

    servers, threads: of an embedded cluster or one that rank 0 hosts; shard threads a server.
    timeout: seconds after which later calls fail that wait for others (1800).
    connect_timeout: seconds that the cluster may take to be complete (120).
    """
    global _context
    with _lock:
        if _context is not None:
            if _context._pid != os.getpid():
                return current()  # raises
            return _context
        if servers < 1 or threads < 0:
            raise InvalidArgumentError(f"servers={servers}, threads={threads}: there is at least one of each")
        if _is_child_of_a_worker():
            _context = Context(None, rank=_variable("RANK", 0), world_size=_variable("WORLD_SIZE", 1),
                               local_rank=_variable("LOCAL_RANK", 0))
            return _context
        environment = variables.read()
        role = environment["role"]
        if role in ("scheduler", "server"):
            serving.serve(role)
        times = _Times(
            connect_timeout_ms=_milliseconds("connect_timeout", connect_timeout,
                                             environment["connect_timeout_ms"]),
            call_timeout_ms=_milliseconds("timeout", timeout, environment["call_timeout_ms"]))
        launched = None if role else launchers.find(os.environ)
        if launched is not None:
            _context = _join(launched, servers, threads, times)
        elif role or environment["scheduler_port"]:
            _context = _connect(environment, times)
        else:
            _context = _embed(servers, threads, times)
        os.environ[_OWNER] = _owner()
        _watch_exit()
        return _context


def _variable(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else default


def _next_port(port: int) -> int:
    return port + 1 if port < 65_535 else port - 1


def _milliseconds(name: str, seconds: float | None, variable: int | None) -> int:
    if seconds is None:
        return variable or 0
    if not seconds > 0:
        raise InvalidArgumentError(f"{name}={seconds} is not a number of seconds above 0")
    return max(1, int(min(seconds, 1e9) * 1000))


def _connect(environment: dict[str, Any], times: _Times) -> Context:
    host, port = environment["scheduler_host"] or launchers.LOOPBACK, environment["scheduler_port"]
    if not port:
        raise InvalidArgumentError(
            "where is the scheduler? Set CAIRN_SCHED_HOST and CAIRN_SCHED_PORT (or those of MindSpore, "
            "Paddle or ps-lite: docs/reference/environment.md), or start with `cairn run`")
    rank = environment["rank"]
    client = _core.connect(host, port, cluster_id=environment["cluster_id"] or "",
                           rank=-1 if rank is None else rank,
                           more_schedulers=environment["more_schedulers"], **times)
    here = host in ("localhost", launchers.LOOPBACK, "::1")
    context = Context(client, rank=client.rank, world_size=client.world_size,
                      local_rank=_variable("LOCAL_RANK", client.rank if here else 0), scheduler=(host, port),
                      timeout_s=_call_timeout_s(times))
    context._set(RANK=context.rank, WORLD_SIZE=context.world_size, LOCAL_RANK=context.local_rank,
                 MASTER_ADDR=host, MASTER_PORT=_next_port(port))
    if here:
        context._set(LOCAL_WORLD_SIZE=context.world_size)
    return context


def _call_timeout_s(times: _Times) -> float:
    return times["call_timeout_ms"] / 1000 if times["call_timeout_ms"] else _CALL_TIMEOUT_S


# What rank 0 has started for a job in which it then could not connect: the next init() uses it.
_hosted: _core.EmbeddedCluster | None = None


def _join(launched: launchers.Launched, servers: int, threads: int, times: _Times) -> Context:
    global _hosted
    connect_s = (times["connect_timeout_ms"] or 120_000) / 1000
    store = hosting.AgentStore(launched, connect_s) if launched.host is None else None
    if launched.rank == 0:
        if _hosted is None:
            _hosted = hosting.start(launched, servers, threads, store)
        address = (_hosted.scheduler_host, _hosted.scheduler_port)
    elif store is not None:
        address = store.ask()
    else:
        assert launched.host is not None and launched.port is not None  # or there were a store to ask
        address = (launched.host, launched.port)
    client = _core.connect(*address, cluster_id=hosting.cluster_id(launched), rank=launched.rank, **times)
    context = Context(client, rank=client.rank, world_size=client.world_size, local_rank=launched.local_rank,
                      cluster=_hosted, launcher=launched.launcher, scheduler=address,
                      timeout_s=_call_timeout_s(times))
    _hosted = None
    context._set(RANK=context.rank, WORLD_SIZE=context.world_size, LOCAL_RANK=context.local_rank)
    if launched.local_size is not None:
        context._set(LOCAL_WORLD_SIZE=launched.local_size)
    if launched.host is not None and launched.port is not None:
        context._set(MASTER_ADDR=launched.host, MASTER_PORT=_next_port(launched.port))
    return context


def _embed(servers: int, threads: int, times: _Times) -> Context:
    if _variable("WORLD_SIZE", 1) > 1:
        raise InvalidArgumentError(
            f"WORLD_SIZE={os.environ['WORLD_SIZE']} says that there are more processes, but not where: set "
            "RANK, MASTER_ADDR and MASTER_PORT too, start with `cairn run` or torchrun, or unset it")
    cluster = _core.EmbeddedCluster(servers=servers, workers=1, threads_per_server=threads)
    try:
        client = _core.connect(cluster.scheduler_host, cluster.scheduler_port, rank=0, **times)
    except BaseException:
        cluster.stop()
        raise
    _leave_a_core()
    context = Context(client, rank=0, world_size=1, local_rank=0, cluster=cluster)
    # Not LOCAL_RANK: to accelerate, transformers and Lightning that says that there are other processes.
    host = cluster.scheduler_host
    context._set(RANK=0, WORLD_SIZE=1, MASTER_ADDR=host, MASTER_PORT=hosting.free_port(host))
    return context


def _leave_a_core() -> None:
    """The server's thread needs a core: torch's threads spin while they wait. Only where torch would
    take all cores, and nobody has said how many it should."""
    torch = sys.modules.get("torch")
    if torch is None or os.environ.get("OMP_NUM_THREADS") or os.environ.get("MKL_NUM_THREADS"):
        return
    cores = len(os.sched_getaffinity(0))
    if cores > 1 and torch.get_num_threads() >= cores:
        torch.set_num_threads(cores - 1)


def current() -> Context:
    """This process's Context; raises without one, and in a forked child."""
    context = _context
    if context is None:
        if _core.forked():
            raise ForkedError("this process was forked from one that uses cairn, which it can't do itself")
        raise NotInitializedError("call cairn.init() first")
    if context._pid != os.getpid():
        raise ForkedError(
            "this process was forked from one that had called cairn.init(), and has none of its "
            "connections: the workers of a DataLoader must not call cairn. Do it in the process that called "
            "cairn.init()")
    return context


def initialised() -> bool:
    """True in a process that has called init() and is a worker."""
    context = _context
    return context is not None and context._client is not None and context._pid == os.getpid()


def shutdown() -> None:
    """Leaves the job in good order: what was pushed is acknowledged, the others are told. Called at
    exit by itself, unless an exception ends the process. Without cairn.init() it does nothing."""
    global _context
    with _lock:
        context = _context
        if context is None or context._pid != os.getpid():
            return
        if context._client is None:
            _context = None
            return
        context._leave()
        _context = None
        context._drop()
        os.environ.pop(_OWNER, None)
        if _exit_watch is not None:
            _exit_watch.remove()


def _watch_exit() -> None:
    global _exit_watch
    if _exit_watch is None:
        atexit.register(_at_exit)
    _exit_watch = ExitWatch()
    _exit_watch.install()


def _at_exit() -> None:
    context = _context
    if context is None or context._client is None or context._pid != os.getpid() or _core.forked():
        return
    failure = _exit_watch.failure() if _exit_watch is not None else None
    if failure is not None:
        context._abandon(failure)
        if _exit_watch is not None and _exit_watch.retired:
            _exit(_START_AGAIN)
        if _in_a_meeting():
            _exit(1)
        return
    try:
        shutdown()
        if _in_a_meeting():
            _exit(0)
    except BaseException:
        # The launcher looks at the exit code, and an exit handler has no other way to set it.
        traceback.print_exc()
        _exit(1)


def _in_a_meeting() -> bool:
    """A thread that makes a process group (_allreduce/group.py) waits inside torch for a worker that has
    died: it can't be ended, and if it came back while the interpreter is taken down, torch would abort."""
    return any(thread.name == "cairn-meeting" for thread in threading.enumerate())


def _exit(code: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def rank() -> int:
    """This worker's number, from 0."""
    return current().rank


def local_rank() -> int:
    """This worker's number among those of its machine, from 0."""
    return current().local_rank


def world_size() -> int:
    """Workers expected at the start of the job."""
    return current().world_size


def size() -> int:
    """The same as world_size(), as Horovod calls it."""
    return world_size()


def _role() -> str | None:
    role: str | None = variables.read()["role"]
    return role


def is_worker() -> bool:
    """True in a process that trains. Before init() the environment decides."""
    if _context is not None:
        return initialised()
    return not _is_child_of_a_worker() and _role() in (None, "worker")


def is_server() -> bool:
    """True in a process that the environment calls a server, where init() does not return."""
    return _context is None and _role() == "server"


def barrier() -> None:
    """Returns when every live worker has called it. After a Ctrl-C the next call waits for the same one."""
    context = current()
    for source in list(context.settled_by_barriers):
        source.settle()
    context.client.barrier()
