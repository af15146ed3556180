"""The process group of an all-reduce: torch.distributed's, but never its default group.

A group is made for a set of workers and never changes: when one of them dies it is abandoned, and
the living make another one. Collectives are begun at once and waited for in small steps, in which
deaths and Ctrl-C are noticed: gloo by itself would wait for a paused worker for ever.
"""
from __future__ import annotations

import ctypes
import datetime
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from .._runtime.calls_under_way import interrupts_later
from ..errors import DeadlineExceededError, Error
from .control import Control, Member

TURN_S = 0.1  # how long is waited before somebody looks who lives
_FLAG_TURNS = 10  # so many turns, before somebody asks whether another one has given up
_POLL_S = 0.01
_MAKE_TIMEOUT_S = 60.0  # to connect all of them, when each is there
_REMIND_S = 10.0


class AttemptFailed(Exception):
    """What was begun with the other members can't end. Never seen by users."""


def check_members(control: Control, members: tuple[Member, ...]) -> None:
    missing = control.missing(members)
    if missing:
        raise AttemptFailed(f"rank {missing[0]} is no longer there")


class Patience:
    """The waiting of one attempt: who has died, who has given up, how long it has been.

    alone: the others may not have come yet, and some may never: after control.alone_s the attempt is given
    up, for a vote. What waits for a vote the scheduler knows, so it can tell that workers wait for each other
    (docs/internals/consistency.md, rule 54). The next one has twice the time: it may have been slow, and no
    more.
    """

    def __init__(self, control: Control, members: tuple[Member, ...], attempt: int,
                 what: str, alone: bool = False) -> None:
        self._control, self._members, self._attempt, self._what = control, members, attempt, what
        self._since = self._reminded = self._turned = time.monotonic()
        self._alone_until = self._since + control.alone_s if alone else float("inf")
        self._turns = 0

    def turn_if_due(self) -> None:
        """For those who look more often than somebody can die."""
        if time.monotonic() - self._turned >= TURN_S / 2:
            self.turn()

    def turn(self) -> None:
        """Raises if there is nothing to wait for any more."""
        self._turned = time.monotonic()
        check_members(self._control, self._members)
        self._turns += 1
        if self._turns % _FLAG_TURNS == 0:
            rank = self._control.failed_at(self._attempt)
            if rank is not None:
                raise AttemptFailed(f"rank {rank} has given up")
        now = time.monotonic()
        others = ", ".join(str(m.rank) for m in self._members if m != self._control.me)
        ranks = f"rank{'s' * (',' in others)} {others}"
        who = f"rank {self._control.me.rank} waits for {ranks} in {self._what} of {self._control.name}"
        if now > self._alone_until:
            self._control.alone_s *= 2
            raise AttemptFailed(f"{who}: not all of them were there in time")
        if now - self._since > self._control.deadline_s:
            self._since = now  # whoever calls again waits again
            raise DeadlineExceededError(
                f"{who}: not there after {self._control.deadline_s:.0f} s")
        if now - self._reminded > _REMIND_S:
            self._reminded = now
            print(f"cairn: {who} ({now - self._since:.0f} s)", file=sys.stderr, flush=True)


class Group:
    """Of at least two members. `device`: where tensors of no parameter must lie."""

    def __init__(self, members: tuple[Member, ...], me: Member, backend: Any, device: torch.device,
                 store: Any) -> None:
        self.members, self.device = members, device
        self.index = members.index(me)
        self._backend: Any | None = backend
        self._store = store  # of the one who hosts it: it stays as long as the group
        self._blocks = device.type != "cuda"  # Work.wait() does, in gloo
        self._works: list[Any] = []

    @property
    def size(self) -> int:
        return len(self.members)

    def _begin(self, begin: Callable[[Any], Any]) -> Any:
        if self._backend is None:
            raise AttemptFailed("the group was given up")
        try:
            work = begin(self._backend)
        except RuntimeError as error:
            raise AttemptFailed(str(error)) from None
        self._works = [w for w in self._works if not w.is_completed()] + [work]
        return work

    def all_reduce(self, flat: torch.Tensor) -> Any:
        return self._begin(lambda backend: backend.allreduce([flat], dist.AllreduceOptions()))

    def all_gather(self, record: torch.Tensor) -> tuple[Any, list[torch.Tensor]]:
        """The records are on the CPU when the work has ended and `to_cpu` has been called."""
        record = record.to(self.device)
        outs = [torch.empty_like(record) for _ in self.members]
        return self._begin(lambda backend: backend.allgather([outs], [record])), outs

    def broadcast(self, tensor: torch.Tensor, source: Member) -> Any:
        options = dist.BroadcastOptions()
        options.rootRank = self.members.index(source)
        return self._begin(lambda backend: backend.broadcast([tensor], options))

    def is_over(self, work: Any, wait_s: float) -> bool:
        """Waits so long at most. Raises AttemptFailed if it has ended badly."""
        if wait_s > 0 and not work.is_completed():
            if self._blocks:
                try:
                    work.wait(datetime.timedelta(seconds=wait_s))
                except RuntimeError:
                    pass  # its time is over, or it has failed: seen below
            else:
                until = time.monotonic() + wait_s
                while not work.is_completed() and time.monotonic() < until:
                    time.sleep(0.0002)
        if not work.is_completed():
            return False
        try:
            work.wait()
        except RuntimeError as error:
            raise AttemptFailed(str(error)) from None
        return True

    def wait(self, work: Any, patience: Patience) -> None:
        while not self.is_over(work, TURN_S):
            patience.turn()

    def abandon(self) -> bool:
        """Closes it, so that the others notice too. False if something of it is still under way: it
        can't be stopped, and what it works on must be left to it."""
        backend, self._backend = self._backend, None
        if backend is None:
            return not self._works
        if self.device.type == "cuda":
            backend.abort()
            self._works = []
            return True
        self._works = [work for work in self._works if not work.is_completed()]
        if self._works:
            # Its destructor would wait for a worker that is paused. At exit too: so it has none.
            for left in (backend, *self._works):
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(left))
        return not self._works


class Meeting:
    """The making of a group, on a thread: it waits inside torch."""

    def __init__(self, control: Control, members: tuple[Member, ...], host: Member, attempt: int,
                 device: torch.device) -> None:
        self._control, self._members, self._host = control, members, host
        self._attempt, self._device = attempt, device
        self._patience = Patience(control, members, attempt, "making a process group")
        self._thread: threading.Thread | None = None
        self._made: Group | None = None
        self._error: BaseException | None = None

    def wait(self) -> Group:
        """The group. May be called again after a Ctrl-C."""
        if self._thread is None:
            if self._control.me == self._host:
                with interrupts_later():
                    self._start(*self._open())
            else:
                self._start(*self._find())
        assert self._thread is not None
        while self._thread.is_alive():
            self._thread.join(TURN_S)
            if self._thread.is_alive():
                self._patience.turn()
        if self._made is None:
            raise AttemptFailed(str(self._error))
        return self._made

    def _start(self, address: str, port: int, listener: int | None) -> None:
        self._thread = threading.Thread(target=self._make, args=(address, port, listener),
                                        daemon=True, name="cairn-meeting")
        self._thread.start()

    def _open(self) -> tuple[str, int, int | None]:
        address = self._control.own_address()
        listener = socket.create_server((address, 0), backlog=len(self._members) + 64)
        port = listener.getsockname()[1]
        self._control.publish(self._attempt, address, port)
        return address, port, listener.detach()

    def _find(self) -> tuple[str, int, int | None]:
        while (found := self._control.meeting(self._attempt)) is None:
            self._patience.turn()
            time.sleep(_POLL_S)
        return (*found, None)

    def _make(self, address: str, port: int, listener: int | None) -> None:
        try:
            timeout = datetime.timedelta(seconds=_MAKE_TIMEOUT_S)
            store = dist.TCPStore(  # type: ignore[attr-defined]  # torch exports it at run time alone
                address, port, None, listener is not None, timeout,
                wait_for_workers=False, master_listen_fd=listener)
            prefixed = dist.PrefixStore(  # type: ignore[attr-defined]  # the same
                f"{self._control.name}/{self._attempt}", store)
            index = self._members.index(self._control.me)
            backend, device = _make_backend(prefixed, index, len(self._members), self._device,
                                            self._control)
            self._made = Group(self._members, self._control.me, backend, device, store)
        except BaseException as error:  # whoever waits hears of it
            self._error = error


def _make_backend(store: Any, index: int, size: int, device: torch.device,
                  control: Control) -> tuple[Any, torch.device]:
    timeout = datetime.timedelta(seconds=control.deadline_s)
    store.set(f"device/{index}", _name_of(device))
    devices = [store.get(f"device/{i}").decode() for i in range(size)]
    # NCCL refuses two ranks on one GPU.
    if "cpu" not in devices and len(set(devices)) == size and dist.is_nccl_available():
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timeout
        return dist.ProcessGroupNCCL(store, index, size, options), device
    options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]  # torch's stub lacks it
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=control.own_address())]
    options._timeout = timeout
    return dist.ProcessGroupGloo(store, index, size, options), torch.device("cpu")


def _name_of(device: torch.device) -> str:
    if device.type != "cuda":
        return "cpu"
    return str(torch.cuda.get_device_properties(device).uuid)


def device_for(params: Sequence[torch.Tensor]) -> torch.device:
    """The CUDA device of all parameters, or the CPU."""
    devices = {param.device for param in params}
    only = next(iter(devices)) if len(devices) == 1 else torch.device("cpu")
    if only.type not in ("cpu", "cuda"):
        raise Error(f"parameters on {only} can't be all-reduced: assign them to the servers")
    return only
