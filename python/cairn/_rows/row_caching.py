"""cache_rows= and cache_steps= of a table: what a worker may use again instead of reading it anew.

docs/internals/consistency.md, "Cached rows", says what that means; src/client/cache/row_cache.h does the
work.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch

from .. import _core
from .._tables.cpu_memory import INTEGERS
from ..errors import InvalidArgumentError
from ..modes import Async, Mode, Sync
from .loaded_rows import LoadedRows
from .unique_keys import Keys

# the rows of these keys, and when they are there
Ask = Callable[[Keys], tuple[torch.Tensor, _core.Pending | None]]


@dataclass(frozen=True)
class Caching:
    """rows: of the cache; steps: how long after it was read a row may be used. All 0: no cache."""

    rows: int = 0
    steps: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.rows < 1 << 40 or not 0 <= self.steps < 1 << 31:
            raise InvalidArgumentError(
                f"cache_rows={self.rows}, cache_steps={self.steps}: give numbers that are not negative")
        if self.rows and not self.steps:
            raise InvalidArgumentError(
                f"cache_rows={self.rows} without cache_steps: say for how many steps a row may be used "
                "after it was read, at least 1")

    def make(self, dim: int) -> _core.RowCache | None:
        return _core.RowCache(self.rows, dim, self.steps) if self.steps else None

    def check_mode(self, name: str, mode: Mode) -> None:
        if self.steps and not isinstance(mode, Async):
            promised = ("Sync() promises the rows as they are after the last step" if isinstance(mode, Sync)
                        else "BoundedStaleness() promises rows that are no older than its bound")
            raise InvalidArgumentError(
                f'table "{name}" has cache_steps={self.steps}, and {promised}: use Async(), or leave '
                "cache_rows and cache_steps out")


class CacheStats(NamedTuple):
    """Of a worker's cache of one table. Counted are rows, once for each read of a batch."""

    hits: int
    misses: int
    admitted: int
    evicted: int
    rows: int  # held now
    capacity: int
    bytes: int

    @property
    def hit_rate(self) -> float:
        return self.hits / max(1, self.hits + self.misses)


class CachedReading:
    """Rows from the cache, and those that it lacks on their way. `ahead`: they are used when so many more
    steps have ended."""

    def __init__(self, ask: Ask, loaded: LoadedRows, cache: _core.RowCache, keys: Keys, rows: torch.Tensor,
                 ahead: int = 0) -> None:
        self._loaded, self._cache, self._keys, self._rows = loaded, cache, keys, rows
        self._ticket = cache.ticket()
        missing = torch.empty(keys.numel(), **INTEGERS)
        left, self._oldest = cache.take(keys.data_ptr(), keys.numel(), rows.data_ptr(), missing.data_ptr(),
                                        ahead)
        self._missing = missing[:left]
        self._read_keys = keys if left == keys.numel() else keys[self._missing]
        self._read, self._pending = ask(self._read_keys)

    def fresh(self) -> bool:
        """It may still be used: not more steps than the bound allows have ended since the oldest of its rows
        was asked for."""
        return self._cache.fresh(self._oldest)

    def finish(self) -> torch.Tensor:
        """The rows; they may be read by others too, and must not be written to."""
        if self._pending is not None:
            self._pending.wait()
            self._pending = None
            self._loaded.write_over(self._read_keys, self._read)
            self._cache.give(self._ticket, self._keys.data_ptr(), self._keys.numel(),
                             self._missing.data_ptr(),
                             self._missing.numel(), self._read.data_ptr(), self._rows.data_ptr())
        return self._rows
