"""cairn.data: which worker trains on which samples.

docs/guide/data.md explains what the sampler promises and how it works.
"""
from __future__ import annotations

import weakref
from collections.abc import Iterator, Sized
from typing import Any

import torch.utils.data

from ._data.epoch_claims import EpochBook, EpochClaims
from ._data.epoch_cut import EpochCut, Range, epoch_order, left_over, merged, part_bounds
from ._data.epoch_pass import EpochPass
from ._runtime import context
from ._runtime.wrapped_by_others import refuse_a_second_split
from .errors import Error, NotFoundError

__all__ = ["Sampler"]

_KEPT = 16  # tables of epochs that were broken off: a worker may be so many epochs behind
_made: dict[str, int] = {}  # samplers of this process, by name: each has tables of its own


def _own_name(name: str | None) -> str:
    """A cell that is run again, or a second sampler of the same name, starts afresh; the n-th one
    of every worker is the same."""
    count = _made.get(name or "", 0)
    _made[name or ""] = count + 1
    if name is None:
        return f"sampler-{count}"
    return name if count == 0 else f"{name}-{count}"


class Sampler(torch.utils.data.Sampler[int]):
    """Deals the samples of a dataset out to the workers: each is used once an epoch, also when
    workers join, leave or die on the way.

    dataset: anything with a length, the same one on every worker.
    shuffle, seed: the order of an epoch is a permutation that depends on seed and epoch.
    chunk: samples are dealt out so many at a time. Normally chosen by the size of the dataset.
    name: of the tables on the servers. Normally by the order in which samplers are made.
    balance: a worker that is through with its part takes chunks from slower ones. For Async();
        the run is then no longer the same every time.

        loader = DataLoader(dataset, batch_size=32, sampler=cairn.data.Sampler(dataset))
        for epoch in range(10):
            loader.sampler.set_epoch(epoch)
            for batch in loader: ...
    """

    def __init__(self, dataset: Sized, *, shuffle: bool = True, seed: int = 0,
                 chunk: int | None = None, name: str | None = None, balance: bool = False) -> None:
        if not hasattr(dataset, "__len__"):
            raise TypeError(
                f"{type(dataset).__name__} has no length: a sampler needs a dataset with __len__. "
                "An IterableDataset can be split by cairn.rank() and cairn.world_size()"
            )
        if chunk is not None and chunk < 1:
            raise ValueError(f"chunk is {chunk}: give at least 1 sample, or None")
        if not 0 <= seed < 1 << 63:
            raise ValueError(f"seed is {seed}: give a number from 0 to 2^63 - 1")
        self.dataset, self.chunk, self.balance = dataset, chunk, balance
        self.shuffle, self.seed = bool(shuffle), seed
        self.name = _own_name(name)
        self.epoch = 0
        self._context: context.Context | None = None
        self._book: EpochBook | None = None
        self._begun: dict[int, int] = {}  # epoch → how often it was begun here
        self._past: list[tuple[int, int, str]] = []  # epoch, which time, name of its table
        self._tables: set[str] = set()
        self._pass: EpochPass | None = None
        self._pass_epoch = -1
        self._loaded: tuple[int, list[Range]] | None = None  # epoch, what of it is used

    def set_epoch(self, epoch: int) -> None:
        """Before each epoch, as with torch's DistributedSampler: it changes the order."""
        if epoch < 0:
            raise ValueError(f"the epoch is {epoch}: they count from 0")
        self.epoch = int(epoch)

    def __len__(self) -> int:
        """How many samples this worker has in an epoch if nobody joins, leaves or dies."""
        ctx = context.current()
        ranges = left_over(len(self.dataset), self._used_before())
        samples = sum(end - start for start, end in ranges)
        if ctx.rank >= ctx.world_size:  # has joined: about an equal share
            return samples // max(len(ctx.client.live_ranks()), 1)
        start, end = part_bounds(samples, ctx.world_size, ctx.rank)
        return end - start

    def __iter__(self) -> Iterator[int]:
        refuse_a_second_split()
        ctx, book = self._attach()
        epoch = self.epoch
        again = self._begun.get(epoch, 0)
        self._begun[epoch] = again + 1
        cut, over = self._agreed_cut(ctx, book, epoch, again)
        if self._loaded is not None and self._loaded[0] == epoch:
            self._loaded = None  # counts once; from now on the servers know
        self._pass, self._pass_epoch = None, epoch
        if over:  # a restarted worker comes through epochs that the others have finished
            return iter(())
        suffix = f".{again}" if again else ""
        claims = EpochClaims(ctx, f"{self.name}/epoch-{epoch}{suffix}", cut.chunks)
        self._drop_past(ctx, book)
        self._past.append((epoch, again, claims.name))
        self._tables.add(claims.name)
        order = epoch_order(len(self.dataset), self.shuffle, self.seed, epoch)
        self._pass = EpochPass(ctx, cut, order, claims, self.balance)
        return self._run(self._pass, book, epoch, again)

    @staticmethod
    def _run(run: EpochPass, book: EpochBook, epoch: int, again: int) -> Iterator[int]:
        yield from run
        if run.all_done:
            book.close(epoch, again)

    def start_epoch(self) -> int:
        """The epoch in which the job is: 0 at its beginning. A worker that joins or was restarted
        need not go through the ones before: `for epoch in range(sampler.start_epoch(), epochs):`.
        """
        _, book = self._attach()
        return max(book.start_epoch(), self._loaded[0] if self._loaded is not None else 0)

    # Tables.
    def _attach(self) -> tuple[context.Context, EpochBook]:
        ctx = context.current()
        if self._context is not ctx or self._book is None:
            self._book = EpochBook(ctx.client, self.name)
            self._context = ctx
            self._begun, self._past, self._pass = {}, [], None
            if ctx.embedded:
                # Nobody else can use these tables: a notebook's cell that is run again leaves none.
                self._tables = {f"{self.name}/epochs"}
                weakref.finalize(self, _drop_tables, ctx, self._tables).atexit = False
        return ctx, self._book

    def _agreed_cut(self, ctx: context.Context, book: EpochBook, epoch: int,
                    again: int) -> tuple[EpochCut, bool]:
        """How the job cuts this epoch: as the first worker that came to it would."""
        length = len(self.dataset)
        cut = EpochCut.make(length, self._used_before(), ctx.world_size, self.chunk)
        ours = [length, self.seed, int(self.shuffle)]
        agreed, over = book.agree(epoch, again, [*ours, *cut.numbers()])
        words = ("samples", "seed", "shuffle")
        different = [f"{word} {theirs} there, {here} here"
                     for word, theirs, here in zip(words, agreed, ours) if theirs != here]
        if different:
            raise Error(
                f'the samplers "{self.name}" of the workers do not fit together: '
                f'{"; ".join(different)}. Make the same samplers in the same order on every '
                "worker, over datasets of the same length, or give each its own name="
            )
        return EpochCut.from_numbers(agreed[3:]), over

    def _drop_past(self, ctx: context.Context, book: EpochBook) -> None:
        """Tables of epochs that nobody is in any more: two behind and over, or far behind."""
        candidates, kept = self._past[:-1], self._past[-1:]
        if not candidates:
            return
        over = book.over([(epoch, again) for epoch, again, _ in candidates])
        far = len(candidates) - _KEPT
        for place, (past, is_over) in enumerate(zip(candidates, over)):
            if not is_over and place >= far:
                kept.insert(-1, past)
                continue
            if ctx.first_rank() == ctx.rank:
                try:
                    ctx.client.drop_table(past[2])
                except NotFoundError:
                    pass  # another worker was the first rank then
            self._tables.discard(past[2])
        self._past = kept

    # States.
    def _used_before(self) -> list[Range]:
        """What of this epoch was used before the state was saved that we go on from."""
        return self._loaded[1] if self._loaded is not None and self._loaded[0] == self.epoch else []

    def state_dict(self) -> dict[str, Any]:
        """Where the epoch stands, for load_state_dict in another job, of any number of workers.

        Not collective: one worker saves it. It has the chunks that are done, by all workers, and
        what this worker has had of its current one; what others have had of theirs comes again.
        """
        length = len(self.dataset)
        used = self._used_before()
        resumes_here = self._loaded is not None and self._loaded[0] == self.epoch
        if not resumes_here and self._pass_epoch == self.epoch:
            used = [(0, length)] if self._pass is None else self._pass.used(length)
        return {
            "epoch": self.epoch, "seed": self.seed, "shuffle": self.shuffle, "length": length,
            "used": [list(bounds) for bounds in merged(used)],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Every worker loads the same state: the next iteration of its epoch has what is left."""
        ours = {"length": len(self.dataset), "seed": self.seed, "shuffle": self.shuffle}
        missing = [key for key in ("epoch", *ours, "used") if key not in state]
        if missing:
            raise ValueError(f"not a state of a cairn.data.Sampler: {', '.join(missing)} missing")
        for key, here in ours.items():
            if state[key] != here:
                raise ValueError(
                    f"the state is of a sampler with {key} {state[key]}, this one has {here}: make "
                    "it with the same dataset, seed and shuffle, or start an epoch with set_epoch()"
                )
        used = merged(state["used"])
        if used and (used[0][0] < 0 or used[-1][1] > state["length"]):
            raise ValueError(f"the state is damaged: {used[0]} to {used[-1]} are used")
        self.set_epoch(state["epoch"])
        self._loaded = (self.epoch, used)


def _drop_tables(ctx: context.Context, names: set[str]) -> None:
    for name in names:
        try:
            ctx.client.drop_table(name)
        except Error:
            return  # the cluster is gone, and the tables with it
