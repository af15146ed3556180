"""Who has which chunk of an epoch: kept in int64 tables whose rows the first writer wins.

Every claim is atomic on its server, so two workers never get the same chunk. docs/guide/data.md has the
protocol; epoch_cut.py says what a chunk is, cairn/data.py is the sampler. Not thread-safe.
"""
from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .. import _core
from .._runtime import context
from .._tables.cpu_memory import INTEGERS
from ..errors import NotFoundError
from .epoch_cut import hashed

GENERATION = 1 << 40  # keys of an epoch's table: generation * GENERATION + chunk
NEWS_SECONDS = 5.0  # within so long a live worker hears of one that has just joined
EPOCHS_AT_ONCE = 1024  # of a look for the newest one


class FirstWins:
    """An async table of rows of two int64; an element that is not 0 never changes again."""

    def __init__(self, client: _core.Client, name: str) -> None:
        self.name = name
        self._table = client.create_sparse(name, 2, dtype="int64", mode="async", optimizer="first")

    def pull(self, keys: Sequence[int] | torch.Tensor) -> torch.Tensor:
        at = torch.as_tensor(keys, dtype=torch.int64)
        out = torch.zeros(len(at), 2, **INTEGERS)
        if len(at):
            self._table.pull(at.data_ptr(), len(at), out.data_ptr(), keep=(at, out)).wait()
        return out

    def push(self, keys: Sequence[int], rows: Sequence[Sequence[int]]) -> _core.Pending:
        at, values = torch.tensor(keys, **INTEGERS), torch.tensor(rows, **INTEGERS)
        return self._table.push(at.data_ptr(), len(at), values.data_ptr(), keep=(at, values))

    def push_pull(self, key: int, row: Sequence[int]) -> tuple[_core.Pending, torch.Tensor]:
        at, values = torch.tensor([key], **INTEGERS), torch.tensor([row], **INTEGERS)
        out = torch.zeros(2, **INTEGERS)
        pending = self._table.push_pull(at.data_ptr(), 1, values.data_ptr(), out.data_ptr(),
                                        keep=(at, values, out))
        return pending, out


class EpochBook:
    """What the workers agree on about the epochs of a sampler: how each is cut, which are over.

    Row of an epoch: [hash of the cut, 1 when it is over]. The cut itself lies under its own hash
    and was written before the row that names it.
    """

    def __init__(self, client: _core.Client, name: str) -> None:
        self._rows = FirstWins(client, f"{name}/epochs")

    @staticmethod
    def _key(epoch: int, again: int) -> int:
        return hashed("epoch", epoch, again)

    def agree(self, epoch: int, again: int, wanted: list[int]) -> tuple[list[int], bool]:
        """The numbers of whoever came first, and whether the epoch is over."""
        key, cut = self._key(epoch, again), hashed("cut", *wanted)
        (agreed, over), = self._rows.pull([key]).tolist()
        if agreed == 0:
            numbers = [len(wanted), 1, *wanted, 0]
            rows = [numbers[i:i + 2] for i in range(0, len(wanted) + 2, 2)]
            self._rows.push([hashed("part", cut, i) for i in range(len(rows))], rows).wait()
            pending, row = self._rows.push_pull(key, [cut, 0])
            pending.wait()
            agreed, over = row.tolist()
        return (wanted if agreed == cut else self._read(agreed)), over != 0

    def _read(self, cut: int) -> list[int]:
        count = int(self._rows.pull([hashed("part", cut, 0)])[0, 0])
        keys = [hashed("part", cut, i) for i in range(1, (count + 1) // 2 + 1)]
        rows = self._rows.pull(keys)
        return rows.flatten().tolist()[:count]

    def close(self, epoch: int, again: int) -> None:
        self._rows.push([self._key(epoch, again)], [[0, 1]]).wait()

    def over(self, epochs: Sequence[tuple[int, int]]) -> list[bool]:
        return (self._rows.pull([self._key(*epoch) for epoch in epochs])[:, 1] != 0).tolist()

    def start_epoch(self) -> int:
        """The newest epoch that anybody has begun; the one after it where that is over."""
        newest = 0
        for first in range(0, 1 << 40, EPOCHS_AT_ONCE):
            rows = self._rows.pull([self._key(e, 0) for e in range(first, first + EPOCHS_AT_ONCE)])
            begun = rows[:, 0].nonzero().flatten().tolist()
            if not begun:
                return newest
            newest = first + begun[-1] + int(rows[begun[-1], 1] != 0)
        return newest


@dataclass
class Survey:
    """By chunk: its newest generation, and that one's owner and done mark. An owner of 0: free."""

    generation: torch.Tensor
    owner: torch.Tensor
    done: torch.Tensor


class Claim:
    """A chunk that was asked for."""

    def __init__(self, chunk: int, generation: int, pending: _core.Pending,
                 row: torch.Tensor) -> None:
        self.chunk, self.generation = chunk, generation
        self._pending, self._row = pending, row

    def owner(self) -> int:
        """Waits for the answer: 0 if the table is no longer there."""
        try:
            self._pending.wait()
        except NotFoundError:
            return 0
        return int(self._row[0])


class EpochClaims:
    """The chunks of one epoch. Row of (generation, chunk): [incarnation of the owner, 1 when done].

    A chunk whose owner died before it was done is claimed again in the next generation.
    """

    def __init__(self, ctx: context.Context, name: str, chunks: int) -> None:
        self._client, self._chunks = ctx.client, chunks
        self._rows = FirstWins(ctx.client, name)
        self.name = name
        self.me = int(ctx.client.incarnation)
        self._seen = {self.me}  # every worker that was ever alive, as far as we have heard
        self._marks: list[_core.Pending] = []

    def claim(self, chunk: int, generation: int) -> Claim:
        self._seen.update(self._client.live_incarnations())
        pending, row = self._rows.push_pull(generation * GENERATION + chunk, [self.me, 0])
        return Claim(chunk, generation, pending, row)

    def mark_done(self, chunk: int, generation: int) -> None:
        self._marks.append(self._rows.push([generation * GENERATION + chunk], [[0, 1]]))
        while len(self._marks) > 1 and self._marks[0].ready():
            self._wait_for(self._marks.pop(0))

    def flush(self) -> None:
        """Waits until the servers know what is done."""
        while self._marks:
            self._wait_for(self._marks[0])
            self._marks.pop(0)

    @staticmethod
    def _wait_for(mark: _core.Pending) -> None:
        try:
            mark.wait()
        except NotFoundError:
            pass  # everybody has gone on, and the epoch's table was dropped

    def survey(self) -> Survey:
        """Raises NotFoundError if the table was dropped."""
        self.flush()
        rows = self._rows.pull(torch.arange(self._chunks, **INTEGERS))
        generation = torch.zeros(self._chunks, **INTEGERS)
        survey = Survey(generation, rows[:, 0].clone(), rows[:, 1].clone())
        open_chunks = torch.arange(self._chunks, **INTEGERS)
        while True:
            owners, done = survey.owner[open_chunks], survey.done[open_chunks]
            dead = torch.tensor(self._dead(set(owners[done == 0].tolist())), **INTEGERS)
            open_chunks = open_chunks[torch.isin(owners, dead) & (done == 0)]
            if not len(open_chunks):
                return survey
            survey.generation[open_chunks] += 1
            rows = self._rows.pull(survey.generation[open_chunks] * GENERATION + open_chunks)
            survey.owner[open_chunks], survey.done[open_chunks] = rows[:, 0], rows[:, 1]

    def _dead(self, owners: set[int]) -> list[int]:
        """Those of `owners` that live no more. One that we never heard of has joined just now: news
        of it comes with the next heartbeats."""
        end = time.monotonic() + NEWS_SECONDS
        while True:
            live = set(self._client.live_incarnations())
            self._seen |= live
            gone = owners - live - {0, self.me}
            if gone <= self._seen or time.monotonic() >= end:
                self._seen |= gone
                return sorted(gone)
            time.sleep(0.02)  # between looks at what the client has heard
