"""cairn.allreduce, allgather_object and broadcast_object: what workers tell each other besides training.

All live workers call the same one. A call is one exchange in a process group (group.py), and
then a vote (control.py) on how it went: if it failed for anybody, or somebody has died or come,
those who voted make a new group and exchange again. So all of them have the same result.
"""
from __future__ import annotations

import numbers
import pickle
import time
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from .._runtime import context
from .._runtime.calls_under_way import interrupts_later
from .._runtime.context import Context
from ..errors import DeadlineExceededError, Error, InvalidArgumentError, UnavailableError
from .collective_records import Record, check_same
from .control import Ballot, Control, Outcome
from .exchange import Exchange
from .group import AttemptFailed, Group, Meeting, Patience

T = TypeVar("T")
_PAUSE_S = 0.05  # after an exchange that failed, before the next one
_SUMMED_AS = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.uint8, torch.int32,
          torch.int64)
_CPU = torch.device("cpu")


class Collectives:
    """Of one context. Not thread-safe."""

    def __init__(self, ctx: Context) -> None:
        self._rank = ctx.rank
        self._control = None if ctx.embedded else Control(ctx, "collectives")
        self._group: Group | None = None  # None: not made yet, given up, or this worker is alone
        self._members: tuple[Any, ...] = ()
        self._ballot: Ballot | None = None  # of a call that a Ctrl-C has ended
        ctx.on_shutdown(self._leave_group)

    def run(self, what: str, exchange: Callable[[Exchange], T]) -> T:
        """What exchange() gives when it went well for everybody. It may be called several times."""
        control = self._control
        if control is None:
            return exchange(Exchange(None, None, self._rank))
        if self._ballot is not None:
            self._take(self._finish_vote(), None)
        until = time.monotonic() + control.deadline_s
        while True:
            result, failure = self._try(control, what, exchange)
            with interrupts_later():
                self._ballot = control.vote(failed=failure is not None)
            outcome = self._finish_vote()
            if failure is None and not outcome.failed and outcome.members == self._members:
                assert result is not None
                return result[0]
            if time.monotonic() > until:
                raise DeadlineExceededError(
                    f"{what}: the workers could not exchange anything within {control.deadline_s:.0f} s; the "
                    f"last reason: {failure}")
            self._take(outcome, failure)

    def _try(self, control: Control, what: str,
             exchange: Callable[[Exchange], T]) -> tuple[tuple[T] | None, AttemptFailed | None]:
        if not self._members:
            return None, AttemptFailed("there is no process group yet")
        try:
            patience = Patience(control, self._members, control.attempt, what, alone=True)
            if self._group is None and self._members != (control.me,):
                raise AttemptFailed("the process group was given up")
            return (exchange(Exchange(self._group, patience, self._rank)),), None
        except AttemptFailed as failure:
            self._give_up(control)
            return None, failure
        except BaseException:
            self._give_up(control)  # the others must not wait for us
            raise

    def _give_up(self, control: Control) -> None:
        with interrupts_later():
            self._leave_group()
            control.tell_failed(control.attempt)

    def _finish_vote(self) -> Outcome:
        assert self._ballot is not None
        outcome = self._ballot.wait()
        self._ballot = None
        return outcome

    def _take(self, outcome: Outcome, failure: AttemptFailed | None) -> None:
        """A group of those who voted, unless there is one and all went well."""
        control = self._control
        assert control is not None
        if failure is None and not outcome.failed and outcome.members == self._members:
            return
        self._leave_group()  # the others do so too
        if self._members:
            time.sleep(_PAUSE_S)
        self._members = outcome.members
        if outcome.members == (control.me,):
            return
        try:
            self._group = Meeting(control, outcome.members, outcome.members[0], outcome.attempt, _CPU).wait()
        except AttemptFailed:
            pass  # the next exchange says so
        except BaseException:
            self._give_up(control)
            raise

    def _leave_group(self) -> None:
        if self._group is not None:
            self._group.abandon()
        self._group = None


def _run(what: str, exchange: Callable[[Exchange], T]) -> T:
    ctx = context.current()
    _ = ctx.client  # raises in a child
    if ctx.collectives is None:
        ctx.collectives = Collectives(ctx)
    found: T = ctx.collectives.run(what, exchange)
    return found


def _check(check: Callable[[], T], what: str) -> T:
    """What check() gives. A call that it refuses takes its place among this worker's calls all the
    same: without it the others would wait for the next one, and all later calls be one off."""
    context.current()  # without it there are no others
    try:
        return check()
    except (Error, TypeError) as error:
        record = Record(what, refusal=str(error))
        _run(what, lambda group: (check_same(record, group),))
        raise


class _Refused:
    """What all workers are told at the same time: raised when they have voted."""

    def __init__(self, error: Error) -> None:
        self.error = error


def _result(found: Any) -> Any:
    if isinstance(found, _Refused):
        raise found.error
    return found


def allreduce(tensor: torch.Tensor, reduce: str = "mean") -> torch.Tensor:
    """The mean (or "sum") of the tensors of all live workers: a new tensor, the same on all of them.

    Every worker gives one of the same shape and dtype. 16-bit types are summed in float32, integers have
    a sum only. Without a gradient."""
    _check(lambda: _check_reducible(tensor, reduce), "allreduce()")
    given = tensor.detach()
    record = Record("allreduce", (reduce, str(given.dtype).replace("torch.", ""), tuple(given.shape)))

    def exchange(group: Exchange) -> Any:
        differs = check_same(record, group)
        if differs is not None:
            return _Refused(differs)
        summed = given.to("cpu", _SUMMED_AS.get(given.dtype, given.dtype), copy=True).contiguous()
        if summed.numel():
            group.sum(summed)
        return summed if reduce == "sum" else summed.div_(len(group.ranks))

    with torch.no_grad(), torch.inference_mode(False):
        found: torch.Tensor = _result(_run("allreduce()", exchange))
        return found.to(device=given.device, dtype=given.dtype)


def allgather_object(obj: Any) -> list[Any]:
    """The objects of all live workers, in the order of their ranks. They travel by pickle."""
    mine = _check(lambda: _pickled(obj, "allgather_object()"), "allgather_object()")
    record = Record("allgather_object")

    def exchange(group: Exchange) -> Any:
        differs = check_same(record, group)
        return [_bytes(part) for part in _gather(group, mine)] if differs is None else _Refused(differs)

    return [pickle.loads(part) for part in _result(_run("allgather_object()", exchange))]


def broadcast_object(obj: Any = None, root_rank: int = 0) -> Any:
    """The object of worker root_rank, on all live workers; what the others give does not matter. It
    travels by pickle. Raises cairn.UnavailableError on all if that worker is not there."""
    ctx = context.current()
    _check(lambda: _check_root(ctx, root_rank), "broadcast_object()")
    gives = ctx.rank == root_rank
    mine = _check(lambda: _pickled(obj, "broadcast_object()"), "broadcast_object()") if gives else b""
    record = Record("broadcast_object", (root_rank,))

    def exchange(group: Exchange) -> Any:
        differs = check_same(record, group)
        if differs is not None:
            return _Refused(differs)
        if root_rank not in group.ranks:
            return _Refused(UnavailableError(
                f"broadcast_object(): rank {root_rank}, whose object it is, is not there (ranks "
                f"{', '.join(map(str, group.ranks))} are): give another root_rank"))
        size = torch.tensor([len(mine)])
        group.broadcast(size, root_rank)
        data = torch.frombuffer(bytearray(mine), dtype=torch.uint8) if mine else torch.empty(
            int(size), dtype=torch.uint8)
        group.broadcast(data, root_rank)
        return _bytes(data)

    found = _result(_run("broadcast_object()", exchange))
    return obj if gives else pickle.loads(found)


def _check_reducible(tensor: Any, reduce: Any) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"allreduce() of a {type(tensor).__name__}: torch.as_tensor makes a tensor of it")
    if reduce not in ("mean", "sum"):
        raise InvalidArgumentError(f'reduce is {reduce!r}: give "mean" or "sum"')
    if tensor.is_meta:
        raise InvalidArgumentError("allreduce() of a tensor on the meta device: it has no values")
    if tensor.dtype not in _TYPES or tensor.layout != torch.strided:
        kind = tensor.dtype if tensor.layout == torch.strided else tensor.layout
        raise InvalidArgumentError(f"allreduce() of {kind}: convert it to a dense tensor of float32 or int64 "
                                   "first")
    if reduce == "mean" and not tensor.is_floating_point():
        raise InvalidArgumentError(f'the mean of {tensor.dtype} is no integer: give reduce="sum", or '
                                   "tensor.float()")


def _check_root(ctx: Context, root_rank: Any) -> None:
    if not isinstance(root_rank, numbers.Integral) or not 0 <= int(root_rank) < ctx.world_size:
        raise InvalidArgumentError(f"root_rank is {root_rank!r}, there are ranks 0 to {ctx.world_size - 1}")


def _pickled(obj: Any, what: str) -> bytes:
    try:
        return pickle.dumps(obj)
    except Exception as error:  # the object's own code, in part
        raise InvalidArgumentError(f"{what} of a {type(obj).__name__}: it can't be pickled "
                                   f"({error})") from error


def _gather(group: Exchange, mine: bytes) -> list[torch.Tensor]:
    """Of each worker its bytes, which may differ in number."""
    sizes = [int(size) for size in group.all_gather(torch.tensor([len(mine)]))]
    padded = torch.zeros(max(sizes), dtype=torch.uint8)
    padded[:len(mine)] = torch.frombuffer(bytearray(mine), dtype=torch.uint8)
    return [part[:size] for part, size in zip(group.all_gather(padded), sizes)]


def _bytes(data: torch.Tensor) -> bytes:
    return data.numpy().tobytes()
