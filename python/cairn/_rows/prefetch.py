"""cairn.prefetch: the rows of the next batch are fetched before it is needed.

While batch t is used, the keys of batch t+1 are what its tables want (RowTable.wanted): the
optimizer's step brings their rows along, as they are after the step. If no step came, one round
trip for all tables fetches them when the batch is handed out. Tables whose rows may be some steps
old (cache_steps=) don't wait for the step: their rows are read while batch t is computed."""
from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, runtime_checkable

import torch

from .. import _core
from .row_table import RowTable
from .rows_ahead import Lookup, RowsAhead


@runtime_checkable
class ReadsRows(Protocol):
    """A module whose rows can be read ahead."""

    def _ids_by_table(self, asked: Any) -> Iterator[tuple[RowTable, torch.Tensor]]:
        """What it will look up, by what ids_of says that it will be asked."""


IdsOf = Callable[[Any], Mapping[torch.nn.Module, Any]]


def prefetch(loader: Any, ids_of: IdsOf) -> Prefetched:
    """The batches of `loader`, with their rows read ahead:

        for batch in cairn.prefetch(loader, lambda b: {model.user: b.user, model.item: b.item}):

    ids_of: what a batch will ask of which module: ids, a tuple of which the first are ids (a bag's
        arguments), or a list of those for a module that is called several times; a dict for a
        cairn.nn.EmbeddingCollection. What it leaves out, or gets wrong, is read in the forward
        pass.

    The loader is one batch ahead of what is handed out.
    """
    return Prefetched(loader, ids_of)


class Prefetched:
    """Has the length and the attributes of the loader it reads."""

    def __init__(self, loader: Any, ids_of: IdsOf) -> None:
        self._loader, self._ids_of = loader, ids_of

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self._loader)
        current, following = _Batch(), self._take(batches)
        try:
            while True:
                current.leave()
                current = following
                if current.failure is not None:
                    raise current.failure
                if current.ended:
                    return
                current.enter()
                following = self._take(batches)
                following.announce()
                yield current.value
        finally:
            current.leave()
            following.leave()

    def _take(self, batches: Iterator[Any]) -> _Batch:
        """The next batch. What goes wrong is told in its turn, after the batch before it was
        used."""
        batch = _Batch()
        try:
            batch.value = next(batches)
            batch.ahead = _rows_ahead(self._ids_of(batch.value))
        except StopIteration:
            batch.ended = True
        except Exception as error:
            batch.failure = error
        return batch


class _Batch:
    def __init__(self) -> None:
        self.value: Any = None
        self.ahead: dict[RowTable, RowsAhead] = {}
        self.ended = False
        self.failure: Exception | None = None

    def announce(self) -> None:
        early = [ahead for ahead in self.ahead.values() if ahead.source.reads_ahead_at_once]
        with torch.inference_mode(False), torch.no_grad(), _trip_of(early):
            for ahead in early:
                ahead.begin_early()
        for table, ahead in self.ahead.items():
            table.ahead = None if ahead in early else ahead

    def enter(self) -> None:
        """Its rows are fetched, where no step has brought them, and used from now on."""
        with torch.inference_mode(False), torch.no_grad():
            missing = [ahead for ahead in self.ahead.values()
                       if not ahead.take_early() and ahead.rows is None]
            with _trip_of(missing):
                readings = [ahead.source.begin(ahead.keys) for ahead in missing]
            for ahead, reading in zip(missing, readings):
                ahead.receive(reading.finish())
        for table, ahead in self.ahead.items():
            if table.ahead is ahead:
                table.ahead = None
            table.now = ahead

    def leave(self) -> None:
        for table, ahead in self.ahead.items():
            table.now = None if table.now is ahead else table.now
            table.ahead = None if table.ahead is ahead else table.ahead


def _trip_of(aheads: Sequence[RowsAhead]) -> AbstractContextManager[Any]:
    client = next((a.source.client for a in aheads if a.source.client is not None), None)
    return nullcontext() if client is None else _core.Trip(client)


def _rows_ahead(asked: Mapping[torch.nn.Module, Any]) -> dict[RowTable, RowsAhead]:
    lookups: dict[RowTable, list[Lookup]] = {}
    known: list[Lookup] = []  # the same ids are often looked up in several tables
    with torch.inference_mode(False), torch.no_grad():
        for table, ids in _ids_by_table(asked):
            of_table = lookups.setdefault(table, [])
            if any(lookup.is_of(ids) for lookup in of_table):
                continue
            same = next((lookup for lookup in known if lookup.is_of(ids)), None)
            of_table.append(Lookup(ids) if same is None else copy.copy(same))
            known.append(of_table[-1])
        return {table: RowsAhead(table.source, found) for table, found in lookups.items()}


def _ids_by_table(asked: Mapping[torch.nn.Module, Any]) -> Iterator[tuple[RowTable, torch.Tensor]]:
    for module, value in asked.items():
        module = getattr(module, "_orig_mod", module)  # of torch.compile
        if not isinstance(module, ReadsRows):
            raise TypeError(
                f"prefetch is told of ids of a {type(module).__name__}: it reads "
                "cairn.nn.Embedding, EmbeddingBag and EmbeddingCollection ahead")
        yield from module._ids_by_table(value)
