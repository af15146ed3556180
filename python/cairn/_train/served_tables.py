"""What served_parts.py names, with its tables on the servers: who gives values, who takes them, what travels
together. The parts of served_model.py (catching_up.py, optimizer_state.py, ...) work on this; how it starts
and how it is set and read as a whole is in served_model.py.
"""
from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from .. import _core
from .._runtime.calls_under_way import Awaited, CallsUnderWay
from .._runtime.context import Context
from .._tables.cpu_memory import FLOATS
from .._tables.optimizer_settings import NO_HYPER
from ..errors import NotFiniteError, UnavailableError
from ..modes import Async, BoundedStaleness, Mode, Sync
from .served_buffers import ServedTensors
from .served_group import ServedGroup
from .served_parts import ServedParts

_wraps = 0  # in this process


class ServedTables(ServedParts):
    def __init__(self, optimizer: torch.optim.Optimizer, model: torch.nn.Module | None, mode: Mode, *,
                 reduces_only: bool, reduce: str, root_rank: int, wire: dict[str, Any],
                 in_buckets: bool = False) -> None:
        global _wraps
        super().__init__(optimizer, model, reduces_only=reduces_only, reduce=reduce, root_rank=root_rank,
                         in_buckets=in_buckets)
        self.mode = mode
        self._wire = wire  # of the groups; tables of rows have their own
        self.calls = CallsUnderWay(self.wait_for)
        self.buffers: list[ServedTensors] = []  # at most one
        self.updates_here = False  # in the inner optimizer's own step
        self.context: Context | None = None
        self.number, self.name = _wraps, f"optimizer-{_wraps}"
        _wraps += 1
        self._tables: list[str] = []

    def wait_for(self, pending: Awaited) -> None:
        """What a wait for a call of a step begins with. Here: nothing."""

    @property
    def settings(self) -> str:
        """What was said at the wrap and must be the same on all workers."""
        wire = ", ".join(f"{name}={value}" for name, value in self._wire.items() if value != "plain")
        return (f"{self.mode!r}, update={'worker' if self.reduces_only else 'server'}, "
                f"reduce={self._reduce}, root_rank={self._root}, "
                f"overlap={self._in_buckets}{', ' + wire if wire else ''}")

    @property
    def sync(self) -> bool:
        return isinstance(self.mode, Sync)

    @property
    def bounded(self) -> bool:
        return isinstance(self.mode, BoundedStaleness)

    def end_steps(self) -> None:
        """Bounded: nobody waits for this worker until its next step."""
        for table in self.on_servers:
            if self.bounded and table.table is not None:
                table.table.end_step(last=True)

    @property
    def in_step(self) -> bool:
        """The workers step together: none can leave out a step, the others would wait for it."""
        return self.sync or bool(self.reduced)

    @property
    def under_way(self) -> bool:
        """Something was begun and has not been waited for to its end."""
        return self.calls.under_way() or any(reduced.under_way for reduced in self.reduced)

    def update_here(self) -> None:
        """update="worker": the gradients are the workers' mean now. A round that nobody gave a
        gradient to, or that was skipped, is no step."""
        if all(group.applied for group in self.groups):
            self.updates_here = True
            try:
                self.optimizer.step()
            finally:
                self.updates_here = False

    def trip(self) -> contextlib.AbstractContextManager[Any]:
        """Calls that are begun in the block travel together."""
        assert self.context is not None
        return _core.Trip(self.context.client)

    def gives(self) -> bool:
        """This worker is the one whose values count: the root, or the first one while that is dead."""
        assert self.context is not None
        live = self.context.client.live_ranks()
        return self.context.rank == (self._root if self._root in live or not live else live[0])

    def _give_once(self, give: Callable[[], None], take: Callable[[], _core.Pending],
                   store: Callable[[], None]) -> None:
        """Waits until somebody has given the values of an async table: the root, normally."""
        given = self.gives()
        if given:
            give()
        pending = take()
        while not pending.wait_for(500):
            if not given and self.gives():  # the root has died
                given = True
                give()
        self.calls.wait(pending, store)

    def roots(self, name: str, value: int) -> int:
        """A small number as the root has it. Every worker calls it."""
        assert self.context is not None
        if self.context.embedded:
            return value
        number = torch.tensor([float(value)], **FLOATS)
        self.share_once(ServedTensors([number]), name)
        return int(number)

    def share_once(self, tensors: ServedTensors, name: str) -> None:
        """The root's become everybody's, a late joiner's too. Every worker calls it.

        The table is an async one in either mode: a sync table that nobody steps would keep a worker
        waiting that joins.
        """
        self.make_table(tensors, name, Async())
        self._take_once(tensors)

    def _take_once(self, tensors: ServedTensors) -> None:
        self._give_once(lambda: tensors.give(once=True).wait(),
                        lambda: tensors.take(when_assigned=True), tensors.store)

    def make_table(self, tensors: ServedTensors, name: str, mode: Mode) -> None:
        assert self.context is not None
        self._tables.append(f"{self.name}/{name}")
        tensors.attach(self.context.client, self._tables[-1], mode)

    def assign(self, group: ServedGroup, column: int, addresses: Any, *, keep: Any,
               receives: bool = False, before: Callable[[], None] | None = None) -> None:
        """The root's values of a column become everybody's. Every worker calls it; the root does
        `before` first."""
        table, sizes, op = group.table, group.sizes, _core.OP_ASSIGN
        assert table is not None
        if not self.sync:
            if self.gives():
                table.push(addresses(), sizes, op=op, column=column, keep=keep).wait()
            return
        then = group.store if receives else (lambda: None)
        while True:
            targets = group.targets() if receives else [0]
            target_sizes = sizes if receives else [sum(sizes)]  # not wanted
            if self.gives():
                if before is not None:
                    before()
                pending = table.push_pull(addresses(), sizes, targets, target_sizes, NO_HYPER, op=op,
                                          column=column, keep=keep)
            else:
                pending = table.done_pull(targets, target_sizes, NO_HYPER, weight=0.0, op=op, column=column,
                                          keep=keep)
            try:
                return self.calls.wait(pending, then)
            except NotFiniteError:
                raise NotFiniteError(
                    f"the {'parameters' if column == 0 else 'state'} that this worker gives to {self.name} "
                    "have NaN or Inf in them: look for the cause before the wrap"
                ) from None
            except UnavailableError:
                pass  # the one who should have given its values died; another one does now
