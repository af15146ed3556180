"""The optimizer state of a table of rows (cairn.nn.Embedding), between the servers and torch's
state_dict format.

A bounded table has the state that torch's optimizer would have for a weight of all its rows: arrays
of shape (num_embeddings, dim). What an unbounded one has is in no state_dict: that is said, once a
table, or raised where nothing else could be saved.
"""
from __future__ import annotations

from typing import Any

import torch

from .._rows.unique_keys import Keys
from .._tables.cpu_memory import FLOATS
from ..errors import InvalidArgumentError
from .served_rows import ServedRows

Entry = dict[str, Any]  # of one parameter in an optimizer's state


class RowState:
    """Of one table under one optimizer."""

    def __init__(self, table: ServedRows) -> None:
        self._table = table
        self._source = table.rows.source
        self._settings = table.settings

    @property
    def bounded(self) -> bool:
        return self._source.num_rows is not None

    @property
    def kept(self) -> bool:
        """Its optimizer keeps something of the rows."""
        return bool(self._settings.state_names)

    def may_be_lost(self) -> bool:
        """A state_dict has nothing of it, and there is something, as far as this worker knows."""
        if self.bounded or not self.kept or self._table.table is None:
            return False
        return self._table.has_stepped() or self._source.existing_keys().numel() > 0

    def advice(self) -> str:
        return (f'table "{self._source.name}" is unbounded, and {", ".join(self._settings.state_names)} of '
                "its rows stay on the servers: they are in no state_dict, and a job that is started again "
                "begins without them. export() of its module gives the rows themselves, and load_rows(keys, "
                "rows) takes them back; a table with num_embeddings= is saved whole")

    def warn_once(self, place: str, message: str) -> None:
        self._source.warn_once(place, message)

    def is_whole(self, held: Entry) -> bool:
        """It has state for every row of a bounded table."""
        if not self.kept or not self.bounded:
            return False
        return all(n in held and tuple(held[n].shape) == self._shape() for n in self._settings.state_names)

    # Out of the servers.
    def entry(self, held: Entry) -> Entry:
        """What torch would have in the optimizer's state for a weight of all rows. held: what the
        inner optimizer has, which counts until there is a table. Empty if torch would have nothing."""
        if not self.kept or not self.bounded:
            return {}
        if self._table.table is None:
            return held if self.is_whole(held) else self._fresh()
        keys, steps = self._existing(), self._table.known_steps()
        # Only SparseAdam's steps are always known: those that don't need them may have made some.
        if steps == 0 and (not keys.numel() or self._settings.kind == "sparse_adam"):
            return self._fresh()
        entry = self._entry(steps)
        for column, name in enumerate(self._settings.state_names, start=1):
            entry[name] = self._narrow(self._read(column, keys))
        return entry

    def _fresh(self) -> Entry:
        if self._settings.kind != "adagrad":
            return {}  # torch's others have none before the first step
        whole = torch.full((self._rows(), self._source.dim), self._settings.initial(1), **FLOATS)
        return {**self._entry(0), "sum": self._narrow(whole)}

    def _entry(self, steps: int) -> Entry:
        number = steps if self._settings.kind == "sparse_adam" else torch.tensor(float(steps))
        return {"step": number}

    def _read(self, column: int, keys: Keys) -> torch.Tensor:
        whole = torch.full((self._rows(), self._source.dim), self._settings.initial(column), **FLOATS)
        for part in keys.split(self._table.keys_a_call):
            whole[part] = self._table.pull_column(part, column)
        return whole

    def _narrow(self, whole: torch.Tensor) -> torch.Tensor:
        shown = whole[:, 0].clone() if self._one_a_row else whole
        return shown.to(self._table.rows.handle.device)

    # Onto the servers.
    def check(self, entry: Entry) -> None:
        """Of a state_dict that is to be loaded; raises if it can't be this table's."""
        table = f'table "{self._source.name}" ({self._table.names[0]})'
        if not entry or not self.kept:
            return
        if not self.bounded:
            if any(isinstance(value, torch.Tensor) and value.dim() and len(value)
                   for value in entry.values()):
                raise InvalidArgumentError(
                    f"the state_dict has state for the rows of {table}, which is unbounded: give its module "
                    "num_embeddings=, or leave that entry out of the state_dict")
            return
        for name in self._settings.state_names:
            value = entry.get(name)
            found = None if value is None else tuple(value.shape)
            if found != self._shape():
                raise InvalidArgumentError(
                    f"the state_dict has {'no ' if found is None else ''}{name}"
                    f"{'' if found is None else f' of shape {found}'} for {table}, {self._shape()} is "
                    "expected: load what the same kind of optimizer saved for as many rows")

    def give(self, entry: Entry) -> None:
        """The servers' becomes this, which check() has passed; empty: that before the first step. One
        worker calls it, while nobody is in a step."""
        columns = [self._given(entry, c, n) for c, n in enumerate(self._settings.state_names, start=1)]
        changed = torch.zeros(self._rows(), dtype=torch.bool, device="cpu")
        changed[self._existing()] = True
        for column, values in enumerate(columns, start=1):
            changed |= (values != self._settings.initial(column)).any(1)  # other rows need not be made
        keys = changed.nonzero().reshape(-1)
        for part in keys.split(self._table.keys_a_call):
            for column, values in enumerate(columns, start=1):
                self._table.assign_column(part, column, values[part])
        self._table.assign_steps(keys, int(entry.get("step", 0)))

    def _given(self, entry: Entry, column: int, name: str) -> torch.Tensor:
        shape = (self._rows(), self._source.dim)
        if name not in entry:
            return torch.full(shape, self._settings.initial(column), **FLOATS)
        given: torch.Tensor = entry[name].detach().to("cpu", torch.float32)
        return (given.unsqueeze(1).expand(shape) if self._one_a_row else given).contiguous()

    # Sizes.
    @property
    def _one_a_row(self) -> bool:
        return self._settings.kind == "rowwise_adagrad"

    def _rows(self) -> int:
        assert self._source.num_rows is not None
        return self._source.num_rows

    def _shape(self) -> tuple[int, ...]:
        return (self._rows(),) if self._one_a_row else (self._rows(), self._source.dim)

    def _existing(self) -> Keys:
        keys = self._source.existing_keys()
        return keys[(keys >= 0) & (keys < self._rows())]
