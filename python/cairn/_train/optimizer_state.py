"""The optimizer's state between the servers and torch's state_dict format."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from .. import _core
from .._tables.cpu_memory import FLOATS
from ..errors import Error
from .catching_up import CatchingUp
from .row_state import RowState
from .served_buffers import ServedTensors
from .served_group import ServedGroup
from .served_rows import ServedRows
from .served_tables import ServedTables


class OptimizerState:
    """Moves columns of the tables of one model."""

    def __init__(self, served: ServedTables, catching_up: CatchingUp) -> None:
        self._served, self._catching_up = served, catching_up
        self._loads = 0  # in each worker's order, which is the same

    def state_dict(self) -> dict[str, Any]:
        served = self._served
        inner = served.optimizer
        if served.reduces_only:
            return inner.state_dict()
        self._tell_of_rows_not_saved()
        if served.context is not None:
            served.calls.finish()
        held = dict(inner.state)
        try:
            if served.context is not None:
                for group in served.groups:
                    self._fetch(group)
            for table in served.tables:
                self._fetch_rows(table)
            return inner.state_dict()
        finally:
            inner.state.clear()
            inner.state.update(held)

    def _tell_of_rows_not_saved(self) -> None:
        served = self._served
        lost = [state for state in map(RowState, served.tables) if state.may_be_lost()]
        saves = next(served.params(), None) is not None
        if lost and not saves and len(lost) == len(served.tables):
            raise Error(f"state_dict() would save nothing of this optimizer's state: {lost[0].advice()}")
        for state in lost:
            state.warn_once("optimizer.state_dict()", f"optimizer.state_dict(): {state.advice()}")

    def _fetch_rows(self, table: ServedRows) -> None:
        state, handle = self._served.optimizer.state, table.rows.handle
        entry = RowState(table).entry(state.pop(handle, {}))
        if entry:
            state[handle] = entry

    def _fetch(self, group: ServedGroup) -> None:
        """Fills the inner optimizer's state, so that torch itself writes the dict."""
        settings = group.settings
        if not settings.state_names and not settings.has_step:
            return
        steps = [float(column.reshape(-1)[0]) for column in group.pull_column(_core.STEP_COLUMN)]
        columns = [group.pull_column(1 + i) for i in range(len(settings.state_names))]
        for index, param in enumerate(group.params):
            if steps[index] == 0 and settings.kind != "adagrad":
                continue  # torch has no state either before a parameter's first step
            entry: dict[str, Any] = {}
            if settings.has_step:
                entry["step"] = torch.tensor(steps[index], dtype=torch.float32)
            for name, column in zip(settings.state_names, columns):
                entry[name] = column[index].to(param.device)
            self._served.optimizer.state[param] = entry

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        served = self._served
        served.optimizer.load_state_dict(state_dict)
        for table in served.tables:
            self.check_rows(table)
        if served.context is None:
            return  # what is loaded before the first contact goes to the servers with it
        if served.reduces_only:
            for group in served.groups:
                self.share_own(group)
            return
        for group in served.groups:
            self.assign_own(group)
            self.forget(group)
        self._give_rows()
        for reduced in served.reduced:
            reduced.give_from_root()
        self._catching_up.tell()
        if not served.sync:
            served.context.client.barrier()

    # Tables of rows.
    def check_rows(self, table: ServedRows) -> None:
        """What is to be loaded can be this table's; what can't be loaded is said."""
        state = RowState(table)
        state.check(self._held_rows(table))
        if state.kept and not state.bounded:
            state.warn_once("optimizer.load_state_dict()", f"optimizer.load_state_dict(): {state.advice()}")

    def _held_rows(self, table: ServedRows) -> dict[str, Any]:
        state, handle = self._served.optimizer.state, table.rows.handle
        held: dict[str, Any] = state.get(handle, {})
        return held

    def has_rows(self, table: ServedRows) -> bool:
        """The inner optimizer has state for all its rows, which was loaded."""
        return RowState(table).is_whole(self._held_rows(table))

    def give_rows(self, table: ServedRows) -> None:
        """This worker's becomes the servers'. One worker calls it, while nobody is in a step."""
        state = RowState(table)
        if state.kept and state.bounded:
            state.give(self._held_rows(table))

    def forget_rows(self, table: ServedRows) -> None:
        self._served.optimizer.state.pop(table.rows.handle, None)
        table.take_step_count()

    def _give_rows(self) -> None:
        """The root's becomes the servers'. Every worker calls it."""
        served = self._served
        if not served.tables or served.context is None:
            return
        served.context.client.barrier()  # nobody is still in a step
        for table in served.tables:
            if served.gives():
                self.give_rows(table)
        served.context.client.barrier()
        for table in served.tables:
            self.forget_rows(table)

    def has_any(self, group: ServedGroup) -> bool:
        return any(self._steps(param) > 0 for param in group.params)

    def assign_own(self, group: ServedGroup) -> None:
        """The root's state becomes the servers'. Every worker calls it."""
        for column, values in self._columns(group):
            self._served.assign(group, column, lambda v=values: [t.data_ptr() for t in v], keep=values)

    def push_own(self, group: ServedGroup) -> None:
        """This worker's state, if it has any, where no values have been assigned yet."""
        if not self.has_any(group):
            return
        assert group.table is not None
        for column, values in self._columns(group):
            group.table.push([t.data_ptr() for t in values], group.sizes, op=_core.OP_ASSIGN_ONCE,
                             column=column, keep=values).wait()

    def share_own(self, group: ServedGroup) -> None:
        """update="worker": the root's state becomes that of everybody's inner optimizer."""
        served, state = self._served, self._served.optimizer.state
        tensors = [value for param in group.params if param in state
                   for _, value in sorted(state[param].items())
                   if isinstance(value, torch.Tensor) and value.is_floating_point()]
        self._loads += 1
        name = f"{group.index}/state-{self._loads}"
        elements = sum(tensor.numel() for tensor in tensors) % (1 << 24)  # exact in float32
        if served.roots(f"{name}/size", elements) != elements:
            raise Error(
                "the root's optimizer has state of another size than this worker's: with "
                'update="worker" give every worker the same before cairn.DistributedOptimizer(...) '
                "and to load_state_dict()"
            )
        if elements > 0 and served.context is not None and not served.context.embedded:
            served.share_once(ServedTensors(tensors), name)

    def forget(self, group: ServedGroup) -> None:
        """It is the servers' now."""
        for param in group.params:
            self._served.optimizer.state.pop(param, None)

    def _steps(self, param: torch.Tensor) -> float:
        state = self._served.optimizer.state
        entry = state.get(param, {})
        # SGD's has no step; the servers count them all the same.
        return float(entry.get("step", 1.0 if entry.get("momentum_buffer") is not None else 0.0))

    def _columns(self, group: ServedGroup) -> Iterator[tuple[int, list[torch.Tensor]]]:
        """Every column that the group's table has, as the inner optimizer's state has it."""
        settings = group.settings
        state = self._served.optimizer.state
        if not settings.state_names and not settings.has_step:
            return
        for i, name in enumerate(settings.state_names):
            values = []
            for param in group.params:
                value = state[param].get(name) if param in state else None
                if value is None:
                    values.append(torch.full(param.shape, settings.initial(1 + i), **FLOATS))
                else:
                    values.append(value.detach().to("cpu", torch.float32).contiguous().reshape(param.shape))
            yield 1 + i, values
        yield _core.STEP_COLUMN, [torch.full(param.shape, self._steps(param), **FLOATS)
                                  for param in group.params]
