"""One parameter group of a DistributedOptimizer and its table on the servers."""
from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch

from .. import _core
from .._runtime.calls_under_way import CallsUnderWay
from .._tables.cpu_memory import FLOATS
from .._tables.optimizer_settings import GroupSettings, Hyper, check_unchanged, hyper_of
from .._tables.tensor_pieces import TensorPieces, check_type, mask_of
from .._tables.weight import Weight
from ..modes import Mode, Sync, settings_of_table


class ServedGroup:
    """The parameters of a group, in the order of the group, as segments of one dense table.

    With `reduces_only` (update="worker") the table holds the mean gradient instead of the values,
    and behind it marks: one a parameter that says whether anybody had a gradient for it, and two
    whose ratio says in which round the table was written.
    """

    _MARK = 2.0**-60  # too small to be seen in the norm of the gradient
    _ROUNDS = 1 << 12  # the number of a round, modulo this, fits in a ratio of float32

    def __init__(self, index: int, params: Sequence[torch.Tensor], names: Sequence[str],
                 settings: GroupSettings, reduces_only: bool = False) -> None:
        for param, name in zip(params, names):
            check_type(name, param)
        self.index = index  # of the group in param_groups
        self.label = str(index)  # in the name of its table
        self.params = list(params)
        self.names = list(names)
        self.settings = settings
        self.reduces_only = reduces_only
        self.table: _core.DenseTable | None = None
        shapes = [param.shape for param in params]
        if reduces_only:
            self._marks_out = torch.zeros(len(params) + 2, **FLOATS)
            self._marks_in = torch.zeros(len(params) + 2, **FLOATS)
            shapes.append(self._marks_out.shape)
            self._receiving: list[torch.Tensor] = []
            self._expected_mark = 0
            self.applied = False  # the last round that was received changed the table
        self._gradients = TensorPieces(shapes)
        self._values = TensorPieces(shapes)
        self.sizes = self._values.sizes

    def spec(self, name: str, mode: Mode, reduce: str, wire: dict[str, Any]) -> _core.TableSpec:
        """Of the table that it needs: `table` is set when it is made."""
        flags = self.settings.flags
        if reduce == "sum" and isinstance(mode, Sync):
            flags |= _core.FLAG_REDUCE_SUM
        segments = list(accumulate(self.sizes))
        return _core.TableSpec.dense(
            name,
            segments[-1],
            optimizer=self.settings.kind,
            flags=flags,
            **settings_of_table(mode),
            initial_state=self.settings.initial_state,
            segments=segments,
            **wire,
        )

    # Gradients out.
    def gradients(self) -> list[torch.Tensor | None]:
        found: list[torch.Tensor | None] = []
        for param, name in zip(self.params, self.names):
            grad = param.grad
            if grad is not None and grad.layout != torch.strided:
                raise TypeError(
                    f"the gradient of {name} is sparse ({grad.layout}): it would be sent as a dense one. Use "
                    "cairn.nn.Embedding.from_torch(module), which sends rows only, or sparse=False"
                )
            found.append(grad)
        return found

    def send(self, gradients: list[torch.Tensor | None]) -> tuple[list[int], bytes]:
        """Addresses and mask of what goes out."""
        present = [gradient is not None for gradient in gradients]
        if self.reduces_only:
            self.expect_round()
            marks = [*present, True, self._expected_mark]
            self._marks_out.copy_(torch.tensor([self._MARK * mark for mark in marks], **FLOATS))
            return self._gradients.read([*gradients, self._marks_out]), b""
        return self._gradients.read(gradients), mask_of(present)

    def expect_round(self) -> None:
        """The round that begins now is the one whose result is received next."""
        assert self.table is not None
        self._expected_mark = 1 + self.table.round() % self._ROUNDS

    # Calls on the table: a step in one or two phases. served_rows.py has the same for tables of rows.
    def hyper(self, optimizer: torch.optim.Optimizer) -> Hyper:
        """As the optimizer has it now."""
        settings = optimizer.param_groups[self.index]
        if not self.reduces_only:
            check_unchanged(self.settings, optimizer, settings)
        return hyper_of(self.settings.kind, settings)

    def prepare(self, gradients: list[torch.Tensor | None], hyper: Hyper) -> None:
        """Before the trip of a step. Ordinary tables count their steps themselves."""

    def step(self, gradients: list[torch.Tensor | None], hyper: Hyper, weight: Weight,
             sync: bool) -> _core.Pending:
        """A step in one phase; ends with the new values."""
        assert self.table is not None
        if all(gradient is None for gradient in gradients) and not self.reduces_only:
            if not sync:
                return self.table.pull(self.targets(), self.sizes, keep=self.keep())
            return self.done(hyper, weight)
        addresses, mask = self.send(gradients)
        targets = self.targets()
        return self.table.push_pull(addresses, self.sizes, targets, self.sizes, hyper, mask=mask,
                                    keep=self.keep(gradients), **weight.options)

    # Bounded: what a step gives, and, when it has been ended, the values.
    def give(self, gradients: list[torch.Tensor | None], hyper: Hyper) -> _core.Pending | None:
        assert self.table is not None
        if all(gradient is None for gradient in gradients):
            return None
        addresses, mask = self.send(gradients)
        return self.table.push(addresses, self.sizes, hyper, mask=mask, keep=self.keep(gradients))

    def read(self) -> _core.Pending:
        assert self.table is not None
        return self.table.pull(self.targets(), self.sizes, keep=self.keep())

    def done(self, hyper: Hyper, weight: Weight, joined: bool = False) -> _core.Pending:
        """Sync: a step to which this worker has no gradient."""
        assert self.table is not None
        if self.reduces_only:
            self.expect_round()
        targets = self.targets()
        return self.table.done_pull(targets, self.sizes, hyper, joined=joined, keep=self.keep(),
                                    **weight.options)

    def contribute(self, gradients: list[torch.Tensor | None], hyper: Hyper, weight: Weight,
                   value_scale: float) -> _core.Pending:
        assert self.table is not None
        addresses, mask = self.send(gradients)
        return self.table.contribute(addresses, self.sizes, hyper, mask=mask, value_scale=value_scale,
                                     keep=self.keep(gradients), **weight.options)

    def contribute_not_finite(self, hyper: Hyper, weight: Weight) -> _core.Pending:
        assert self.table is not None
        return self.table.contribute([], [], hyper, not_finite=True, **weight.options)

    def decide(self, hyper: Hyper, weight: Weight, scale: float, skip: bool,
               timeout_ms: int) -> _core.Pending:
        assert self.table is not None
        wanted = not (skip and self.reduces_only)  # nothing was reduced: gradients stay
        targets, sizes = (self.targets(), self.sizes) if wanted else ([0], [sum(self.sizes)])
        return self.table.decide(targets, sizes, hyper, weight=weight.value, scale=scale, skip=skip,
                                 timeout_ms=timeout_ms, keep=self.keep())

    def expect(self, calls: CallsUnderWay, pending: _core.Pending) -> None:
        """A step in one phase waits for it."""
        calls.expect(pending, self.store)

    # Values in.
    def targets(self) -> list[int]:
        """Where a round's result goes. Call it before `keep`, and `store` when the call has ended."""
        if not self.reduces_only:
            return self._values.targets(self.params)
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.params]
        self._receiving = [*gradients, self._marks_in]
        return self._values.targets(self._receiving)

    def store(self) -> None:
        if not self.reduces_only:
            return self._values.store(self.params)
        self._values.store(self._receiving)
        *somebody, one, round_mark = self._marks_in.tolist()
        self.applied = one > 0 and round(round_mark / one) == self._expected_mark
        if self.applied:
            for param, gradient, mark in zip(self.params, self._receiving, somebody):
                param.grad = gradient if mark > 0 else None

    # Columns, for the state_dict.
    def pull_column(self, column: int) -> list[torch.Tensor]:
        assert self.table is not None
        columns = [torch.empty(param.shape, **FLOATS) for param in self.params]
        self.table.pull([c.data_ptr() for c in columns], self.sizes, column=column, keep=columns).wait()
        return columns

    def parameter_addresses(self) -> list[int]:
        return self._gradients.read([param.detach() for param in self.params])

    def keep(self, *others: Any) -> tuple[Any, ...]:
        """What must outlive a call that uses addresses of this group."""
        received = self._receiving if self.reduces_only else ()
        return (self.params, self._gradients, self._values, received, others)
