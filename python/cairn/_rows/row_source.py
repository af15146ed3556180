"""Where the rows of a table come from: the servers, or, as long as nobody trains it, this process.

For the thread that trains.
"""
from __future__ import annotations

import weakref

import torch

from .. import _core
from .._runtime import context
from .._runtime.user_warnings import warn_user
from .._tables.optimizer_settings import GroupSettings
from ..errors import Error
from ..modes import Mode, Sync, settings_of_table
from .loaded_rows import LoadedRows
from .row_caching import CachedReading, Caching
from .unique_keys import Keys, keys_to

Init = tuple[str, float, float, int, int]  # kind, a, b, seed, stream

# Of what was read between two steps and may be read again: recomputed checkpoints, a second
# forward.
_KEPT_READS = 4
_KEPT_BYTES = 64 << 20
CALL_BYTES = 16 << 20  # of rows in one call, where a whole table is read or given


def empty_rows(count: int, dim: int, pinned: bool = False) -> torch.Tensor:
    """Memory that the core writes to, whatever torch's default dtype and device are."""
    return torch.empty((count, dim), dtype=torch.float32, device="cpu", pin_memory=pinned)


class RowSource:
    def __init__(self, name: str, dim: int, init: Init, wire: str = "plain",
                 storage: str = "float32", caching: Caching = Caching()) -> None:
        self.name, self.dim, self.init = name, dim, init
        self.wire, self.storage = wire, storage
        self.caching, self.cache = caching, caching.make(dim)
        self.table: _core.SparseTable | None = None
        self.client: _core.Client | None = None
        self.loaded = LoadedRows()
        self.version = 0  # of the rows: what was read at another one is stale
        self._unacknowledged: list[_core.Pending] = []  # pushes that a step has not waited for
        self._made: tuple[object, ...] = ()  # what it was made with
        self._sync = True
        self._kept: list[tuple[Keys, torch.Tensor]] = []
        self._copies = 0
        self._bounds: list[int | None] = []  # of the modules that use it
        self._said: set[str] = set()

    @property
    def num_rows(self) -> int | None:
        """Keys are below this; None: any."""
        known = [bound for bound in self._bounds if bound is not None]
        return max(known, default=None) if len(known) == len(self._bounds) else None

    def bound(self, num_embeddings: int | None) -> None:
        """Of a module that uses it; the largest counts."""
        if num_embeddings not in self._bounds:
            self._bounds.append(num_embeddings)

    def warn_once(self, place: str, message: str) -> None:
        """Once for this table and place."""
        if place not in self._said:
            self._said.add(place)
            warn_user(message)

    def snapshot(self) -> RowSource:
        """A table of its own, in this process, with the rows as they are now."""
        self._copies += 1
        copy = RowSource(f"{self.name}~copy-{self._copies}", self.dim, self.init, self.wire, self.storage,
                         self.caching)
        copy._bounds = list(self._bounds)
        keys = self.existing_keys()
        if keys.numel():
            copy.load(keys, self.read_all(keys))
        return copy

    def spec(self, settings: GroupSettings, mode: Mode, reduce: str) -> _core.TableSpec:
        """Of the table that it needs."""
        flags = settings.flags
        if reduce == "sum" and isinstance(mode, Sync):
            flags |= _core.FLAG_REDUCE_SUM
        return _core.TableSpec.sparse(
            self.name, self.dim, optimizer=settings.kind, flags=flags, **settings_of_table(mode),
            initial_state=settings.initial_state, init=self.init, wire=self.wire,
            storage=self.storage)

    def check(self, client: _core.Client, settings: GroupSettings, mode: Mode, reduce: str) -> bool:
        """True if the table is there already; raises if it can't be made, or was made with other
        settings."""
        made = (settings.kind, settings.flags, settings.initial_state, mode, reduce)
        if self.table is not None and self.client is client:
            if made != self._made:
                raise Error(
                    f'table "{self.name}" is trained already, by {_describe(self._made)}, and not '
                    f'by {_describe(made)} too: wrap an optimizer with the same settings, or make '
                    'the model anew')
            return True
        self.caching.check_mode(self.name, mode)
        return False

    def attach(self, client: _core.Client, settings: GroupSettings, mode: Mode, reduce: str,
               table: _core.SparseTable) -> None:
        """The table has been made."""
        self.table = table
        self.client, self._sync = client, isinstance(mode, Sync)
        self._made = (settings.kind, settings.flags, settings.initial_state, mode, reduce)
        self._unacknowledged = []
        self.changed()
        if self.cache is not None and context.initialised():
            context.current().settled_by_barriers.add(self)
        if context.initialised() and context.current().embedded:
            # Nobody else can use it: a notebook's cell that is run again leaves none.
            ours = weakref.ref(context.current())
            weakref.finalize(self, _drop, ours, client, self.name).atexit = False

    def changed(self) -> None:
        """What was read before is stale, and must not be used any more."""
        self.stepped()
        if self.cache is not None:
            self.cache.clear()

    def stepped(self) -> None:
        """The same, but what a cache has may be used as long as its bound allows."""
        self.version += 1
        self._kept = []

    def count_step(self) -> None:
        """This worker has ended a step, with or without a gradient for these rows: a cache ages."""
        if self.cache is not None:
            self.cache.step()

    @property
    def reads_ahead_at_once(self) -> bool:
        """The next batch's rows may be read before this one's step."""
        return self.cache is not None and self.table is not None

    def leave_under_way(self, push: _core.Pending) -> None:
        """A step need not wait for it: the rows may be stale, and the next step will."""
        self._unacknowledged.append(push)

    def settle(self) -> None:
        """Waits for what was left under way; raises what became of it. After a Ctrl-C again."""
        while self._unacknowledged:
            push = self._unacknowledged[0]
            try:
                push.wait()
            except Exception:
                self._unacknowledged.pop(0)
                raise
            self._unacknowledged.pop(0)

    def load(self, keys: Keys, rows: torch.Tensor) -> None:
        self.loaded.add(keys, rows)
        self.changed()

    # Reading.
    def begin(self, keys: Keys, pinned: bool = False, ahead: int = 0) -> Reading | CachedReading:
        """Rows of unique keys. Waits for nothing: several may be begun in one _core.Trip. `ahead`: they will
        be used after so many more steps."""
        if self.cache is not None and self.table is not None:
            return CachedReading(self._ask, self.loaded, self.cache, keys,
                                 empty_rows(keys.numel(), self.dim, pinned), ahead)
        for kept_keys, rows in reversed(self._kept):
            if kept_keys.numel() == keys.numel() and torch.equal(kept_keys, keys):
                return Reading(self, keys, rows)
        rows, pending = self._ask(keys, pinned)
        return Reading(self, keys, rows, pending, fresh=True, keep=self._sync)

    def _ask(self, keys: Keys, pinned: bool = False) -> tuple[torch.Tensor, _core.Pending | None]:
        rows = empty_rows(keys.numel(), self.dim, pinned)
        if not keys.numel():
            return rows, None
        if self.table is None:
            _core.initial_rows(*self.init, keys.data_ptr(), keys.numel(), self.dim, rows.data_ptr(),
                               self.storage)
            return rows, None
        return rows, self.table.pull(keys.data_ptr(), keys.numel(),
                                     rows.data_ptr(), keep=(keys, rows))

    def keep(self, keys: Keys, rows: torch.Tensor) -> None:
        self._kept = [*self._kept[1 - _KEPT_READS:], (keys, rows)]
        while sum(rows.nbytes for _, rows in self._kept) > _KEPT_BYTES:
            self._kept.pop(0)

    def read_all(self, keys: Keys) -> torch.Tensor:
        """Rows of many keys, in calls of bounded size."""
        self.settle()
        out = empty_rows(keys.numel(), self.dim)
        step = max(1, CALL_BYTES // (4 * self.dim))
        for start in range(0, keys.numel(), step):
            part = keys[start:start + step]
            rows, pending = self._ask(part)
            out[start:start + step] = Reading(self, part, rows, pending, fresh=True).finish()
        return out

    def existing_keys(self) -> Keys:
        """Of the rows that have been trained or loaded, ascending."""
        self.settle()
        parts = []
        if self.table is not None:
            held = self.table.keys()
            if held:
                parts.append(torch.frombuffer(bytearray(held), dtype=torch.int64))
        loaded = self.loaded.all()
        if loaded is not None:
            parts.append(loaded[0])
        return torch.cat(parts).unique() if parts else keys_to(0)


class Reading:
    """Rows on their way."""

    def __init__(self, source: RowSource, keys: Keys, rows: torch.Tensor,
                 pending: _core.Pending | None = None, *, fresh: bool = False,
                 keep: bool = False) -> None:
        self._source, self._keys, self._rows, self._pending = source, keys, rows, pending
        self._fresh, self._keep = fresh, keep

    def finish(self) -> torch.Tensor:
        """The rows; they may be read by others too, and must not be written to."""
        if self._pending is not None:
            self._pending.wait()
            self._pending = None
        if self._fresh:
            self._fresh = False
            self._source.loaded.write_over(self._keys, self._rows)
            if self._keep:
                self._source.keep(self._keys, self._rows)
        return self._rows


def _describe(made: tuple[object, ...]) -> str:
    kind, flags, initial, mode, reduce = made
    return f"{kind} (flags {flags}, initial state {initial}, {mode}, reduce={reduce!r})"


def _drop(ctx: weakref.ref[context.Context], client: _core.Client, name: str) -> None:
    if context.initialised() and context.current() is ctx() and context.current().client is client:
        try:
            client.drop_table(name)
        except Error:
            pass  # it is going away with its cluster
