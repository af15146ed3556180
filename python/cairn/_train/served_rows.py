"""One table of rows (cairn.nn.Embedding) under a DistributedOptimizer: what a step does with it.

The same calls as ServedGroup has for ordinary parameters. A step sends the rows that have a
gradient and fetches none but those that cairn.prefetch has asked for: the next forward pass does.
"""
from __future__ import annotations

import torch

from .. import _core
from .._rows.row_source import CALL_BYTES
from .._rows.row_table import RowTable
from .._rows.unique_keys import Keys, keys_to
from .._runtime.calls_under_way import CallsUnderWay
from .._tables.cpu_memory import FLOATS, INTEGERS
from .._tables.optimizer_settings import NO_HYPER, GroupSettings, Hyper, hyper_of, table_settings_of
from .._tables.weight import Weight
from ..errors import Error
from ..modes import Mode

Gradients = list[torch.Tensor | None]
_ASKED_FOR_STEPS = 64  # keys, so that most likely one of them lies in a slot that has been stepped


class ServedRows:
    reduces_only = False

    def __init__(self, index: int, rows: RowTable, name: str, settings: GroupSettings) -> None:
        self.index = index  # of the group in param_groups
        self.rows = rows
        self.params: list[torch.Tensor] = [rows.handle]
        self.names = [name]
        self.settings = settings
        self.steps = 0  # of this table; the servers' slots see only those that touch them
        self._knows_steps = True  # else the servers do: a round without a gradient of ours may be one
        self._steps_after: int | None = None  # the call under way; None: it will not be known
        self._next = 0  # the number of the step that is being made; 0: not given

    @property
    def table(self) -> _core.SparseTable | None:
        return self.rows.table if self._attached else None

    _attached = False

    def spec(self, client: _core.Client, mode: Mode, reduce: str) -> _core.TableSpec | None:
        return self.rows.spec(client, self.settings, mode, reduce)

    def attach(self, client: _core.Client, mode: Mode, reduce: str, made: _core.SparseTable | None) -> None:
        self.rows.attach(client, self.settings, mode, reduce, made)
        self._attached = True

    def known_steps(self) -> int:
        """As this worker has counted them, or else as the servers know them: some kinds of optimizer
        don't ask for a step's number, and are told 0."""
        if not self._knows_steps:
            self.take_step_count()
        return self.steps

    def has_stepped(self) -> bool:
        """As far as this worker knows."""
        return self.steps > 0 or not self._knows_steps

    # What the optimizer keeps of rows: row_state.py.
    @property
    def keys_a_call(self) -> int:
        return max(1, CALL_BYTES // (4 * self.rows.dim))

    def pull_column(self, keys: Keys, column: int) -> torch.Tensor:
        assert self.table is not None
        out = torch.empty(keys.numel(), self.rows.dim, **FLOATS)
        self.table.pull(keys.data_ptr(), keys.numel(), out.data_ptr(), column=column, keep=(keys, out)).wait()
        return out

    def assign_column(self, keys: Keys, column: int, values: torch.Tensor) -> None:
        assert self.table is not None
        self.table.push(keys.data_ptr(), keys.numel(), values.data_ptr(), NO_HYPER, op=_core.OP_ASSIGN,
                        column=column, keep=(keys, values)).wait()

    def assign_steps(self, keys: Keys, steps: int) -> None:
        """In the partitions of these keys, and in those that take_step_count asks."""
        for part in torch.cat((keys, keys_to(_ASKED_FOR_STEPS))).split(self.keys_a_call):
            values = torch.full((part.numel(), self.rows.dim), float(steps), **FLOATS)
            self.assign_column(part, _core.STEP_COLUMN, values)

    def take_step_count(self) -> None:
        """From the servers: others may have trained the table."""
        assert self.table is not None
        out = self.pull_column(keys_to(_ASKED_FOR_STEPS), _core.STEP_COLUMN)
        self.steps, self._knows_steps = int(out.max()), True

    def hyper(self, optimizer: torch.optim.Optimizer) -> Hyper:
        settings = optimizer.param_groups[self.index]
        if table_settings_of(optimizer, settings) != self.settings:
            raise ValueError(
                f"the optimizer of table {self.names[0]} was changed after the wrap, and the servers keep "
                "other state: set maximize and initial_accumulator_value before "
                "cairn.DistributedOptimizer(...)"
            )
        return hyper_of(self.settings.kind, settings)

    # Gradients out.
    def gradients(self) -> Gradients:
        return [self.rows.handle.grad]

    def _keys_and_rows(self, gradients: Gradients) -> tuple[torch.Tensor, torch.Tensor] | None:
        return None if gradients[0] is None else self.rows.filed()

    def _expect(self, steps: int | None) -> None:
        self._steps_after, self._knows_steps = steps, False  # if it fails, nothing is known

    def prepare(self, gradients: Gradients, hyper: Hyper) -> None:
        """Before the trip of a step: finds out its number, which is 0 where it does not matter, or where
        this worker gives nothing to it."""
        counts = self.settings.kind == "sparse_adam" or (self.settings.kind == "adagrad" and hyper[-1] != 0.0)
        gives = gradients[0] is not None
        if counts and gives and not self._knows_steps:
            self.take_step_count()
        self._next = self.steps + 1 if counts and gives else 0

    def step(self, gradients: Gradients, hyper: Hyper, weight: Weight, sync: bool) -> _core.Pending | None:
        filed = self._keys_and_rows(gradients)
        if filed is None:
            return self.done(hyper, weight) if sync else None
        assert self.table is not None
        keys, rows = filed
        self._expect(self.steps + 1 if weight.value > 0 else None)  # of no weight at all: no step
        options = (weight if sync else Weight()).options
        return self.table.push(keys.data_ptr(), keys.numel(), rows.data_ptr(), hyper, step=self._next,
                               keep=filed, **options)

    # Bounded, as ServedGroup has it; rows are read by the next forward pass.
    def give(self, gradients: Gradients, hyper: Hyper) -> _core.Pending | None:
        return self.step(gradients, hyper, Weight(), False)

    def read(self) -> None:
        return None

    def done(self, hyper: Hyper, weight: Weight, joined: bool = False) -> _core.Pending:
        assert self.table is not None
        self._expect(None)
        return self.table.done(hyper, joined=joined, **weight.options)

    def contribute(self, gradients: Gradients, hyper: Hyper, weight: Weight,
                   value_scale: float) -> _core.Pending:
        assert self.table is not None
        filed = self._keys_and_rows(gradients)
        if filed is None:
            filed = (torch.empty(0, **INTEGERS), torch.empty(0, self.rows.dim, **FLOATS))
        keys, rows = filed
        return self.table.contribute(keys.data_ptr(), keys.numel(), rows.data_ptr(), hyper, step=self._next,
                                     value_scale=value_scale, keep=filed, **weight.options)

    def contribute_not_finite(self, hyper: Hyper, weight: Weight) -> _core.Pending:
        assert self.table is not None
        self._next = 0
        return self.table.contribute(0, 0, 0, hyper, not_finite=True, **weight.options)

    def decide(self, hyper: Hyper, weight: Weight, scale: float, skip: bool,
               timeout_ms: int) -> _core.Pending:
        assert self.table is not None
        counted = self.steps + 1 if self._next > 0 and weight.value > 0 else None
        self._expect(counted if not skip else self.steps if self._knows_steps else None)
        return self.table.decide(hyper, weight=weight.value, step=self._next, scale=scale, skip=skip,
                                 timeout_ms=timeout_ms)

    def expect(self, calls: CallsUnderWay, pending: _core.Pending) -> None:
        """A step in one phase waits for it; with a cache the next step does."""
        if self.rows.source.cache is None:
            return calls.expect(pending, self.store)
        self.rows.source.leave_under_way(pending)
        calls.expect_call(self.store)

    def store(self) -> None:
        """The step has ended well."""
        if self._steps_after is not None:
            self.steps, self._knows_steps = self._steps_after, True
        self.rows.stepped()

    # Rows in.
    def fetch(self, calls: CallsUnderWay) -> None:
        """In the round trip of a step: the rows that the next batch needs, as they are after it."""
        keys = self.rows.wanted()
        if keys is None or self.table is None:
            return
        out = torch.empty(keys.numel(), self.rows.dim, **FLOATS)
        pending = self.table.pull(keys.data_ptr(), keys.numel(), out.data_ptr(), keep=(keys, out))
        calls.expect(pending, lambda: self.rows.receive(keys, out))

    # Values that were loaded in this process.
    def give_loaded(self, *, once: bool) -> None:
        """Those become the servers'. One worker calls it."""
        assert self.table is not None
        loaded = self.rows.loaded()
        if loaded is None:
            return
        op = _core.OP_ASSIGN_ONCE if once else _core.OP_ASSIGN
        for keys, rows in zip(loaded[0].split(self.keys_a_call), loaded[1].split(self.keys_a_call)):
            self.table.push(keys.data_ptr(), keys.numel(), rows.data_ptr(), NO_HYPER, op=op,
                            keep=(keys, rows)).wait()


def check_no_tables(params: list[torch.Tensor]) -> None:
    """update="worker": the workers have no rows to update."""
    if any(isinstance(getattr(param, "rows_of", None), RowTable) for param in params):
        raise Error(
            'update="worker" can\'t train a table (cairn.nn.Embedding): its rows are on the servers. Give '
            "the tables an optimizer of their own, wrapped without update="
        )
