"""One parameter group of a DistributedOptimizer and its table on the servers."""
from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch

from . import _core
from .modes import Mode, Sync
from .optimizer_settings import GroupSettings
from .tensor_pieces import TensorPieces, check_type, mask_of


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
        self.params = list(params)
        self.names = list(names)
        self.settings = settings
        self.reduces_only = reduces_only
        self.table: _core.DenseTable | None = None
        shapes = [param.shape for param in params]
        if reduces_only:
            self._marks_out = torch.zeros(len(params) + 2)
            self._marks_in = torch.zeros(len(params) + 2)
            shapes.append(self._marks_out.shape)
            self._receiving: list[torch.Tensor] = []
            self._expected_mark = 0
            self.applied = False  # the last round that was received changed the table
        self._gradients = TensorPieces(shapes)
        self._values = TensorPieces(shapes)
        self.sizes = self._values.sizes

    def attach(self, client: _core.Client, name: str, mode: Mode, reduce: str) -> None:
        flags = self.settings.flags
        if reduce == "sum" and isinstance(mode, Sync):
            flags |= _core.FLAG_REDUCE_SUM
        segments = list(accumulate(self.sizes))
        self.table = client.create_dense(
            name,
            segments[-1],
            mode="sync" if isinstance(mode, Sync) else "async",
            optimizer=self.settings.kind,
            flags=flags,
            deterministic=isinstance(mode, Sync) and mode.deterministic,
            initial_state=self.settings.initial_state,
            segments=segments,
        )

    # Gradients out.
    def gradients(self) -> list[torch.Tensor | None]:
        found: list[torch.Tensor | None] = []
        for param, name in zip(self.params, self.names):
            grad = param.grad
            if grad is not None and grad.layout != torch.strided:
                raise TypeError(
                    f"the gradient of {name} is sparse ({grad.layout}): it would be sent as a dense one. "
                    "Make the nn.Embedding with sparse=False"
                )
            found.append(grad)
        return found

    def send(self, gradients: list[torch.Tensor | None]) -> tuple[list[int], bytes]:
        """Addresses and mask of what goes out."""
        present = [gradient is not None for gradient in gradients]
        if self.reduces_only:
            self.expect_round()
            marks = [*present, True, self._expected_mark]
            self._marks_out.copy_(torch.tensor([self._MARK * mark for mark in marks]))
            return self._gradients.read([*gradients, self._marks_out]), b""
        return self._gradients.read(gradients), mask_of(present)

    def expect_round(self) -> None:
        """The round that begins now is the one whose result is received next."""
        assert self.table is not None
        self._expected_mark = 1 + self.table.round() % self._ROUNDS

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
        columns = [torch.empty(param.shape) for param in self.params]
        self.table.pull([c.data_ptr() for c in columns], self.sizes, column=column, keep=columns).wait()
        return columns

    def parameter_addresses(self) -> list[int]:
        return self._gradients.read([param.detach() for param in self.params])

    def keep(self, *others: Any) -> tuple[Any, ...]:
        """What must outlive a call that uses addresses of this group."""
        received = self._receiving if self.reduces_only else ()
        return (self.params, self._gradients, self._values, received, others)
