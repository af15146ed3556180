"""Ids with their unique keys, and the rows that one batch needs of one table, fetched ahead of
it."""
from __future__ import annotations

from collections.abc import Sequence

import torch

from .row_caching import CachedReading
from .row_source import Reading, RowSource
from .unique_keys import Keys, positions, unique


def _flat_keys(ids: torch.Tensor) -> Keys:
    if ids.dtype == torch.uint64:
        ids = ids.view(torch.int64)
    return ids.detach().to(device="cpu", dtype=torch.int64).reshape(-1).contiguous()


class Lookup:
    """What a forward pass needs to know of its ids."""

    def __init__(self, ids: torch.Tensor) -> None:
        self._ids = ids  # kept: as long as it lives, its memory is nobody else's
        flat = _flat_keys(ids)
        self._flat = flat.clone()  # ids may be changed behind torch's back, by numpy
        self.keys, self.inverse = unique(flat)
        # Of its keys in those of its RowsAhead; None: they are the same.
        self.positions: torch.Tensor | None = None

    def is_of(self, ids: torch.Tensor) -> bool:
        """True for the same elements of the same memory, unchanged since."""
        mine = self._ids
        same = ids is mine or (
            ids.data_ptr() == mine.data_ptr() and ids.shape == mine.shape and ids.dtype == mine.dtype
            and ids.device == mine.device and ids.stride() == mine.stride())
        return same and torch.equal(_flat_keys(ids), self._flat)


class RowsAhead:
    """What a batch needs of a table: the keys of all its lookups, and once it is there, their
    rows."""

    def __init__(self, source: RowSource, lookups: Sequence[Lookup]) -> None:
        self.source, self.lookups = source, lookups
        self._rows: torch.Tensor | None = None
        self._version = -1
        self._early: Reading | CachedReading | None = None
        self.keys = lookups[0].keys
        if len(lookups) > 1:
            self.keys, inverse = unique(torch.cat([lookup.keys for lookup in lookups]))
            for lookup, at in zip(lookups, inverse.split(
                [lookup.keys.numel() for lookup in lookups])):
                lookup.positions = at

    @property
    def rows(self) -> torch.Tensor | None:
        """None if they are not there, or no longer of the newest version."""
        return self._rows if self._version == self.source.version else None

    def receive(self, rows: torch.Tensor) -> None:
        self._rows, self._version = rows, self.source.version

    def begin_early(self) -> None:
        """Before the step of the batch that is in use."""
        self._early = self.source.begin(self.keys, ahead=1)

    def take_early(self) -> bool:
        """False if nothing was begun early, or too many steps ago."""
        reading, self._early = self._early, None
        if not isinstance(reading, CachedReading):
            return False
        rows = reading.finish()
        if not reading.fresh():
            return False
        self.receive(rows)
        return True

    def find(self, ids: torch.Tensor) -> Lookup | None:
        return next((lookup for lookup in self.lookups if lookup.is_of(ids)), None)


class LookupReading:
    """The rows of a lookup on their way: those that were fetched ahead, the others by a call."""

    def __init__(self, source: RowSource, ahead: RowsAhead | None, lookup: Lookup, pinned: bool) -> None:
        self._reading: Reading | CachedReading | None = None
        self._rows: torch.Tensor | None = None
        self._missing: torch.Tensor | None = None  # those of the lookup's keys that are read here
        rows = None if ahead is None else ahead.rows
        if ahead is None or rows is None:
            self._reading = source.begin(lookup.keys, pinned)
            return
        if any(lookup is known for known in ahead.lookups):
            at = lookup.positions
        elif lookup.keys.numel() == ahead.keys.numel() and torch.equal(lookup.keys, ahead.keys):
            at = None
        else:
            at = positions(lookup.keys, ahead.keys)
            (missing,) = (at >= ahead.keys.numel()).nonzero(as_tuple=True)
            if missing.numel() == lookup.keys.numel():
                self._reading = source.begin(lookup.keys, pinned)
                return
            if missing.numel():
                self._reading = source.begin(lookup.keys[missing], pinned)
                self._missing = missing
                at[missing] = 0
        self._rows = rows if at is None else rows[at]

    def finish(self) -> torch.Tensor:
        if self._reading is None:
            assert self._rows is not None
            return self._rows
        read = self._reading.finish()
        if self._missing is None:
            return read
        assert self._rows is not None
        self._rows[self._missing] = read
        self._missing, self._reading = None, None
        return self._rows
