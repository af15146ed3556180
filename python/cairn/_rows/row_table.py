"""A worker's side of a table of rows: its handle in a model, the gradient that waits for a step,
and what is read ahead of the next batch.

    forward   lookup(ids) ──> read() ──> unique rows (row_source.py: from the servers)
    backward  gradient.file(keys, rows)
    step      filed(), wanted() ──> the servers ──> stepped(), then receive()
"""
from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch

from .. import _core
from .._tables import tensors
from .._tables.optimizer_settings import GroupSettings
from ..modes import Mode
from .filed_gradient import FiledGradient
from .row_source import Init, RowSource
from .rows_ahead import Lookup, LookupReading, RowsAhead
from .unique_keys import Keys


class RowTable:
    """What a TableHandle stands for."""

    def __init__(self, source: RowSource) -> None:
        self.source = source
        self.gradient = FiledGradient()
        self.now: RowsAhead | None = None  # what was fetched ahead for the batch that is being used
        self.ahead: RowsAhead | None = None  # what the next batch will need
        # Forward passes that have had no backward pass yet; and what is called when the last of them
        # had (_train/overlap.py).
        self.awaited: weakref.WeakSet[Any] = weakref.WeakSet()
        self.all_filed: Callable[[], None] | None = None
        self._handle: weakref.ref[torch.nn.Parameter] | None = None

    def held_by(self, handle: torch.nn.Parameter) -> None:
        """Of the handle that was made for it."""
        self._handle = weakref.ref(handle)

    @property
    def handle(self) -> torch.nn.Parameter:
        """The parameter that holds this table: it lives as long as its model or optimizer."""
        handle = None if self._handle is None else self._handle()
        assert handle is not None, "the table's handle is gone"
        return handle

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def dim(self) -> int:
        return self.source.dim

    @property
    def init(self) -> Init:
        return self.source.init

    @property
    def table(self) -> _core.SparseTable | None:
        """None: nobody trains it, and its rows are the initial ones or those loaded."""
        return self.source.table

    # For the optimizer that holds the handle.
    def spec(self, client: _core.Client, settings: GroupSettings, mode: Mode,
             reduce: str) -> _core.TableSpec | None:
        """Of the table that it needs on the servers; None if it is there. Raises if it has been made with
        other settings."""
        if self.source.check(client, settings, mode, reduce):
            return None
        return self.source.spec(settings, mode, reduce)

    def attach(self, client: _core.Client, settings: GroupSettings, mode: Mode, reduce: str,
               made: _core.SparseTable | None = None) -> bool:
        """Takes the table that was made, or makes it. True if it is new in this process; raises if it has
        been made with other settings."""
        spec = self.spec(client, settings, mode, reduce)
        if spec is None:
            return False
        table: Any = client.create_tables([spec])[0] if made is None else made
        self.source.attach(client, settings, mode, reduce, table)
        return True

    def filed(self) -> tuple[Keys, torch.Tensor] | None:
        """The gradient: unique keys, and float32 rows in memory that the CPU reads."""
        summed = self.gradient.sum()
        if summed is None:
            return None
        keys, rows = summed
        return keys, tensors.on_cpu(rows.detach()).to(torch.float32)

    def clear(self) -> None:
        self.gradient.clear()

    def wanted(self) -> Keys | None:
        """What cairn.prefetch will need of the rows as they are after the next step."""
        ahead = self.ahead
        return None if ahead is None or not ahead.keys.numel() else ahead.keys

    def stepped(self) -> None:
        """The rows on the servers have changed: what was read before is stale. Before receive()."""
        self.source.stepped()

    def refresh(self) -> None:
        """What is read from now on is as new as the servers', whatever a cache may hold."""
        self.source.changed()

    def receive(self, keys: Keys, rows: torch.Tensor) -> None:
        """What wanted() asked for, as it is after the step that is ending: call stepped() first."""
        ahead = self.ahead
        if ahead is not None and (keys is ahead.keys or torch.equal(keys, ahead.keys)):
            ahead.receive(rows.view(keys.numel(), self.dim))

    def loaded(self) -> tuple[Keys, torch.Tensor] | None:
        """Values given by hand that the servers don't have yet: unique keys, float32 rows."""
        return self.source.loaded.all()

    def loaded_taken(self) -> None:
        """The servers have what loaded() gave (the root's, where workers differ)."""
        self.source.loaded.clear()
        self.source.changed()

    # For the modules.
    def load(self, keys: Keys, rows: torch.Tensor) -> None:
        self.source.load(keys, rows)
        torch.autograd.graph.increment_version(self.handle)  # as any write to a parameter would

    def lookup(self, ids: torch.Tensor) -> Lookup:
        """Ids of a forward pass, by key; what cairn.prefetch has done for them is used."""
        ahead = self.now
        known = None if ahead is None else ahead.find(ids)
        return Lookup(ids) if known is None else known


def read(tables: Sequence[RowTable], lookups: Sequence[Lookup]) -> list[torch.Tensor]:
    """The rows of lookups in their tables, float32 on the CPU, in one round trip."""
    sources = [table.source for table in tables]
    client = next((source.client for source in sources if source.client is not None), None)
    with nullcontext() if client is None or len(tables) == 1 else _core.Trip(client):
        readings = [LookupReading(table.source, table.now, lookup, table.handle.device.type == "cuda")
                    for table, lookup in zip(tables, lookups)]
    return [reading.finish() for reading in readings]
