"""What the workers of an all-reduce agree on beside it, through the servers.

Two small tables a wrap. The *control table* is a sync one of one slot: a round of it is a vote,
which closes over the workers that live and has the same outcome for all of them
(docs/internals/consistency.md, rule 17). The *meeting table* is an async one in which the first word stays:
where a new process group meets, and that an attempt has failed.
"""
from __future__ import annotations

import ipaddress
import os
import socket
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from .. import _core
from .._runtime import hosting, launchers
from .._runtime.context import Context
from .._tables.optimizer_settings import NO_HYPER
from ..errors import DeadlineExceededError, Error, InvalidArgumentError

# A vote, as the votes' mean has it times their number.
_FAILED, _ON_DECISION, _DECIDES, _SCALE, _SKIPS, _FIRST_RANK = 0, 1, 2, 3, 4, 16
_SIZE = 1024  # elements of the smallest block: the table has one slot, so a round has one outcome
_ALONE_S = 30.0
_INCARNATIONS = 1 << 18  # exact in float32 also after a division by their number
_DECIDERS = 2 * _INCARNATIONS + 1  # a worker that decides says what in the place of its member, from here on
_SKIP, _APPLY, _APPLIES = 0, 1, 1 << 18


@dataclass(frozen=True)
class Member:
    """One start of one worker."""

    rank: int
    incarnation: int  # modulo _INCARNATIONS


@dataclass(frozen=True)
class Outcome:
    """Of a vote; the same on every worker that took part."""

    attempt: int  # the number of the next vote, and of what leads to it
    members: tuple[Member, ...]  # who took part, in the order of ranks
    new: frozenset[Member]  # those of them who have not got the others' values yet
    failed: bool
    decision: tuple[float, bool] | None  # (scale, skip) if the vote was on that
    decided: dict[int, int] = field(default_factory=dict)  # then: rank → what it wants, as a number

    def source(self, root_rank: int) -> Member:
        """Whose values count: the first of those who have any. If all are new, the root."""
        old = [member for member in self.members if member not in self.new]
        if old:
            return old[0]
        return next((m for m in self.members if m.rank == root_rank), self.members[0])

    def difference(self) -> str:
        """Names two of those who decided, if they want different things."""
        skips = [rank for rank, wants in self.decided.items() if wants == _SKIP]
        applies = [rank for rank, wants in self.decided.items() if wants != _SKIP]
        if skips and applies:
            return (f"rank {skips[0]} skips this step of the all-reduced parameters, rank {applies[0]} "
                    f"applies it. They were not changed on any worker; rank {skips[0]}'s own error says why")
        for rank in applies[1:]:
            if self.decided[rank] != self.decided[applies[0]]:
                return (f"ranks {applies[0]} and {rank} step the all-reduced parameters differently after "
                        "their gradients have left: another limit of clip_grad_norm_(), or another learning "
                        "rate or other setting. They were not changed on any worker; give every worker the "
                        "same")
        return ""


class Ballot:
    """A vote of this worker that is under way."""

    def __init__(self, table: _core.DenseTable, values: torch.Tensor) -> None:
        self._table, self._result = table, torch.zeros(_SIZE)
        self.pending = table.push_pull([values.data_ptr()], [_SIZE], [self._result.data_ptr()],
                                       [_SIZE], NO_HYPER, keep=(values, self._result))
        self._late = False

    def wait(self) -> Outcome:
        """May be called again after a Ctrl-C, and after the deadline."""
        if self._late:
            # Our vote stands; a pull gives the outcome of that round, when it has one.
            self.pending = self._table.pull([self._result.data_ptr()], [_SIZE], keep=self._result)
        try:
            self.pending.wait()
        except DeadlineExceededError:
            self._late = True
            raise
        return self._read()

    def _read(self) -> Outcome:
        means: list[float] = self._result.tolist()
        votes = sum(code > 0 for code in means[_FIRST_RANK:])
        decided = {}

        def total(index: int) -> float:
            return means[index] * votes

        members, new = [], set()
        for rank in range(_SIZE - _FIRST_RANK):
            code = round(total(_FIRST_RANK + rank))
            if code >= _DECIDERS:
                decided[rank] = code - _DECIDERS
            elif code > 0:
                members.append(Member(rank, (code - 1) // 2))
                if (code - 1) % 2:
                    new.add(members[-1])
        decision = None
        if total(_ON_DECISION) > 0.5:
            deciders = round(total(_DECIDES))
            # Whoever could decide may have died.
            decision = (total(_SCALE) / deciders, total(_SKIPS) > 0.5) if deciders else (1.0, True)
        return Outcome(self._table.round(), tuple(members), frozenset(new), total(_FAILED) > 0.5,
                       decision, decided)


class Control:
    def __init__(self, ctx: Context, name: str) -> None:
        self._ctx, self.name = ctx, name
        client = ctx.client
        if ctx.world_size > _SIZE - _FIRST_RANK:
            raise InvalidArgumentError(
                f"{ctx.world_size} workers: an all-reduce has at most {_SIZE - _FIRST_RANK}. Assign "
                'the parameters to the servers: cairn.assign(model, server=["*"])')
        self._table = client.create_dense(f"{name}/control", _SIZE, mode="sync", optimizer="mean")
        self._meetings = client.create_sparse(f"{name}/meetings", 3, dtype="int64", mode="async",
                                              optimizer="first")
        self.me = Member(ctx.rank, client.incarnation % _INCARNATIONS)
        self.deadline_s = ctx.call_timeout_s
        self.alone_s = _ALONE_S  # how long an exchange waits for others that may never come

    @property
    def attempt(self) -> int:
        """The number of the next vote."""
        return self._table.round()

    def vote(self, *, failed: bool = False, new: bool = False) -> Ballot:
        values = self._vote(new)
        values[_FAILED] = failed
        return Ballot(self._table, values)

    def decide(self, decision: tuple[float, bool] | None, hypers: Sequence[float] = ()) -> Ballot:
        """The second vote of a step that is decided after its sums are known: in which some workers
        can't know what is decided (None), or each might decide something else."""
        values = self._vote(new=False)
        values[_ON_DECISION] = 1.0
        if decision is not None:
            values[_DECIDES], values[_SCALE], values[_SKIPS] = 1.0, *decision
            values[_FIRST_RANK + self.me.rank] = _DECIDERS + _wanted(*decision, hypers)
        return Ballot(self._table, values)

    def _vote(self, new: bool) -> torch.Tensor:
        values = torch.zeros(_SIZE)
        if not self.me.rank < _SIZE - _FIRST_RANK:
            raise InvalidArgumentError(
                f"this worker is rank {self.me.rank}: an all-reduce has ranks below "
                f"{_SIZE - _FIRST_RANK}")
        values[_FIRST_RANK + self.me.rank] = 1 + 2 * self.me.incarnation + new
        return values

    # Who lives.
    def missing(self, members: tuple[Member, ...]) -> list[int]:
        """Ranks of those who are dead or have left."""
        live = {incarnation % _INCARNATIONS for incarnation in self._ctx.client.live_incarnations()}
        return [member.rank for member in members if member.incarnation not in live]

    # Where to meet.
    def publish(self, attempt: int, address: str, port: int) -> None:
        ip = int(ipaddress.ip_address(address))
        self._write(2 * attempt, [_signed(ip >> 64), _signed(ip & (2**64 - 1)), port])

    def meeting(self, attempt: int) -> tuple[str, int] | None:
        """Address and port, if they are known by now."""
        high, low, port = self._read(2 * attempt)
        if port == 0:
            return None
        ip = ((high % 2**64) << 64) | (low % 2**64)
        return str(ipaddress.IPv4Address(ip) if ip < 2**32 else ipaddress.IPv6Address(ip)), port

    def tell_failed(self, attempt: int) -> None:
        """The others may wait for us in it."""
        self._write(2 * attempt + 1, [0, 0, 1 + self.me.rank])

    def failed_at(self, attempt: int) -> int | None:
        """The rank that has given up this attempt, if any has."""
        rank = self._read(2 * attempt + 1)[2] - 1
        return rank if rank >= 0 else None

    def _write(self, key: int, row: list[int]) -> None:
        keys, rows = torch.tensor([key]), torch.tensor([row])
        try:
            self._meetings.push(keys.data_ptr(), 1, rows.data_ptr(), keep=(keys, rows)).wait()
        except DeadlineExceededError as error:
            raise Error(f"{self.name}: the servers could not be told in time: {error}") from None

    def _read(self, key: int) -> list[int]:
        keys, row = torch.tensor([key]), torch.zeros(3, dtype=torch.int64)
        self._meetings.pull(keys.data_ptr(), 1, row.data_ptr(), keep=(keys, row)).wait()
        return row.tolist()

    def own_address(self) -> str:
        """Under which the other workers reach this one: on the way to the scheduler. Where that is
        on this machine and workers are on others too, on the way to them."""
        scheduler = self._ctx._scheduler
        address = hosting._address_towards(scheduler[0] if scheduler else launchers.LOOPBACK)
        several = os.environ.get("LOCAL_WORLD_SIZE") != os.environ.get("WORLD_SIZE")
        if several and address.startswith("127."):
            return socket.gethostbyname(hosting.own_address(os.environ.get("MASTER_ADDR", "")))
        return address


def _wanted(scale: float, skip: bool, hypers: Sequence[float]) -> int:
    """Two that apply in different ways have different numbers, but for one pair in 2^18."""
    if skip:
        return _SKIP
    return _APPLY + zlib.crc32(struct.pack(f"<f{len(hypers)}d", scale, *hypers)) % _APPLIES


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number
