"""What of a model lies on the servers: the groups of its optimizer, its buffers, and how they start.

A wrap has tables of its own (optimizer-0/0, …). The root gives the initial values, all others take
them; a worker that joins a running job takes what is there.
"""
from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch

from . import _core, context
from .calls_under_way import CallsUnderWay
from .errors import Error, InvalidArgumentError, NotFiniteError, UnavailableError
from .joining import Joining
from .modes import Async, Mode, Sync
from .optimizer_settings import NO_HYPER, GroupSettings, settings_of
from .optimizer_state import OptimizerState
from .served_buffers import ServedIntegers, ServedTensors, shared_tensors
from .served_group import ServedGroup

_REDUCED = GroupSettings(kind="mean", flags=0)
_wraps = 0  # in this process


def _plain_name(name: str) -> str:
    """Without what torch.compile and DistributedDataParallel put in front."""
    parts = [part for part in name.split(".") if part != "_orig_mod"]
    return ".".join(parts[1:] if len(parts) > 1 and parts[0] == "module" else parts)


class ServedModel:
    def __init__(self, optimizer: torch.optim.Optimizer, model: torch.nn.Module | None, mode: Mode, *,
                 reduces_only: bool, reduce: str, root_rank: int) -> None:
        global _wraps
        self.optimizer, self.mode, self.reduces_only = optimizer, mode, reduces_only
        self.calls = CallsUnderWay()
        self.groups: list[ServedGroup] = []
        self.buffers: ServedTensors | None = None
        self.context: context.Context | None = None
        self.state = OptimizerState(self)
        self.joining = Joining(self)
        self.name = f"optimizer-{_wraps}"
        _wraps += 1
        self._model, self._reduce, self._root = model, reduce, root_rank
        self._names = {}
        if model is not None:
            self._names = {id(p): _plain_name(n) for n, p in model.named_parameters()}
        self._known_groups = 0
        self._listed: list[list[torch.Tensor]] = []  # the optimizer's groups as they were served
        self._shared: list[ServedTensors] = []  # besides groups and buffers: given once
        self._integers: ServedIntegers | None = None  # buffers too, but not in every step
        self._buffers_begun = False
        self._tables: list[str] = []
        self.make_groups()

    @property
    def sync(self) -> bool:
        return isinstance(self.mode, Sync)

    def params(self) -> Iterator[torch.Tensor]:
        for group in self.groups:
            yield from group.params

    def parameter_names(self) -> Iterator[str]:
        for group in self.groups:
            yield from group.names

    def param_group(self, group: ServedGroup) -> dict[str, Any]:
        return self.optimizer.param_groups[group.index]

    def make_groups(self) -> None:
        """Those of the optimizer that are new. Contacts nobody."""
        for index in range(self._known_groups, len(self.optimizer.param_groups)):
            group = self.optimizer.param_groups[index]
            params = [p for p in group["params"] if p.numel() > 0]
            settings = _REDUCED if self.reduces_only else settings_of(self.optimizer, group)
            self._listed.append(list(group["params"]))
            if params:
                names = [self._names.get(id(p), f"{index}.{i}") for i, p in enumerate(params)]
                self.groups.append(ServedGroup(index, params, names, settings, self.reduces_only))
        self._known_groups = len(self.optimizer.param_groups)

    def take_new_groups(self) -> bool:
        """True if the optimizer was given more groups, behind our back. What else changes in its
        groups would never be trained, or with another group's rate."""
        groups = self.optimizer.param_groups
        for group, listed in zip(groups, self._listed):
            now = group["params"]
            if len(now) != len(listed) or any(a is not b for a, b in zip(now, listed)):
                raise Error(
                    "the parameters of a group were changed after the wrap, and the servers don't know: use "
                    "optimizer.add_param_group(), or make a new optimizer and wrap that"
                )
        if len(groups) < self._known_groups:
            raise Error("parameter groups were removed after the wrap: make a new optimizer and wrap that")
        if len(groups) == self._known_groups:
            return False
        self.make_groups()
        return True

    def attach(self) -> None:
        """Makes the tables that are not there yet, and starts from the root's values."""
        ctx = context.current()
        if self.context is None:
            if not 0 <= self._root < ctx.world_size:
                raise InvalidArgumentError(f"root_rank is {self._root}, there are ranks 0 to {ctx.world_size - 1}")
            self.context = ctx
            if ctx.embedded:
                # Nobody else can use these tables: a notebook's cell that is run again leaves none.
                weakref.finalize(self, _drop_tables, ctx, self._tables).atexit = False
        new = [group for group in self.groups if group.table is None]
        for group in new:
            self._tables.append(f"{self.name}/{group.index}")
            group.attach(ctx.client, self._tables[-1], self.mode, self._reduce)
        integers, others = self._make_buffers()
        if self._joins_all(new):
            self.joining.catch_up()
            for group in new:
                self.state.forget(group)
        else:
            for group in new:
                self._start(group)
            if self.buffers is not None and not self._buffers_begun:
                self._begin_buffers(self.buffers)
        self._buffers_begun = True
        if others:
            self._share(ServedTensors(others), "others")
        if integers:
            self._integers = ServedIntegers(integers)
            self._share(self._integers, "integers")
        self.joining.tell()

    def _make_buffers(self) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Once; returns what of the model is shared besides: (integers, others)."""
        if self._model is None or self._buffers_begun:
            return [], []
        buffers, integers, others = shared_tensors(self._model, self.params())
        if buffers:
            self.buffers = ServedTensors(buffers)
            self.make_table(self.buffers, "buffers", self.mode)
        return integers, others

    def _joins_all(self, new: list[ServedGroup]) -> bool:
        """The others have begun every table that this worker has just made. (If only some: they are
        about to begin the rest, and it does so with them.)"""
        if not self.sync or self.reduces_only:
            return False
        tables = [group.table for group in new]
        if self.buffers is not None and not self._buffers_begun:
            tables.append(self.buffers.table)
        return bool(tables) and all(table is not None and table.round() > 0 for table in tables)

    def gives(self) -> bool:
        """This worker is the one whose values count: the root, or the first one while that is dead."""
        assert self.context is not None
        live = self.context.client.live_ranks()
        return self.context.rank == (self._root if self._root in live or not live else live[0])

    def _start(self, group: ServedGroup) -> None:
        assert group.table is not None
        if not group.reduces_only:
            return self._start_sync(group) if self.sync else self._start_async(group)
        if group.table.round() > 0:
            raise Error(
                f"this worker joins a running job whose updates are made by the workers ({self.name}), and none "
                'of them can give it their state: start the job anew, or use update="server"'
            )
        self._share(ServedTensors(group.params), f"{group.index}/initial")
        self.state.share_own(group)

    def _start_sync(self, group: ServedGroup) -> None:
        assert group.table is not None
        if group.table.round() > 0:  # joins a running job
            self.calls.wait(group.table.pull(group.targets(), group.sizes, keep=group.keep()), group.store)
        else:
            self.assign(group, 0, group.parameter_addresses, keep=group.keep(), receives=True,
                        before=lambda: self.state.push_own(group))
        self.state.forget(group)

    def _start_async(self, group: ServedGroup) -> None:
        def give() -> None:
            assert group.table is not None
            self.state.push_own(group)
            group.table.push(group.parameter_addresses(), group.sizes, op=_core.OP_ASSIGN_ONCE,
                             keep=group.keep()).wait()

        def take() -> _core.Pending:
            assert group.table is not None
            return group.table.pull(group.targets(), group.sizes, when_assigned=True, keep=group.keep())

        self._give_once(give, take, group.store)
        self.state.forget(group)

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
        """A small number as the root has it. Sync; every worker calls it."""
        assert self.context is not None
        if self.context.embedded:
            return value
        number = torch.tensor([float(value)])
        self.share_once(ServedTensors([number]), name)
        return int(number)

    def share_once(self, tensors: ServedTensors, name: str) -> None:
        """The root's become everybody's, a later joining worker's too. Every worker calls it.

        The table is an async one in either mode: a sync table that nobody steps would keep a worker
        waiting that joins.
        """
        self.make_table(tensors, name, Async())
        self._take_once(tensors)

    def _take_once(self, tensors: ServedTensors) -> None:
        self._give_once(lambda: tensors.give(once=True).wait(),
                        lambda: tensors.take(when_assigned=True), tensors.store)

    def _share(self, tensors: ServedTensors, name: str) -> None:
        self.share_once(tensors, name)
        self._shared.append(tensors)

    def _share_again(self, shared: list[ServedTensors], *, waits: bool = False) -> None:
        assert self.context is not None
        if not shared and not waits:
            return
        if self.gives():
            for tensors in shared:
                tensors.give(once=False).wait()
        self.context.client.barrier()
        for tensors in shared:
            self.calls.expect(tensors.take(when_assigned=True), tensors.store)
        self.calls.finish()

    def make_table(self, tensors: ServedTensors, name: str, mode: Mode) -> None:
        assert self.context is not None
        self._tables.append(f"{self.name}/{name}")
        tensors.attach(self.context.client, self._tables[-1], mode)

    def _begin_buffers(self, buffers: ServedTensors) -> None:
        assert buffers.table is not None
        if not self.sync:
            self._take_once(buffers)
        elif buffers.table.round() > 0:  # joins a running job
            self.calls.wait(buffers.take(when_assigned=False), buffers.store)
        else:
            self._round_of_buffers()

    def _round_of_buffers(self) -> None:
        """Sync: the root's become everybody's. Every worker calls it."""
        if self.buffers is not None:
            while not self.buffers.finish(self.buffers.give_and_take(self.gives())):
                pass  # the one who should have given its values died; another one does now

    def share_buffers(self) -> None:
        self._round_of_buffers()
        self._share_again([] if self._integers is None else [self._integers])
        self.joining.tell()

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

    def push_parameters(self) -> None:
        """This model's parameters and buffers, as the root has them, become everybody's."""
        assert self.context is not None
        if not self.reduces_only:
            for group in self.groups:
                self.assign(group, 0, group.parameter_addresses, keep=group.keep(), receives=True)
        if self.sync:
            self._round_of_buffers()
            self._share_again(self._shared)
            return self.joining.tell()
        buffers = [] if self.buffers is None else [self.buffers]
        self._share_again([*self._shared, *buffers], waits=True)
        self.pull()

    def pull(self) -> None:
        if not self.reduces_only:
            for group in self.groups:
                assert group.table is not None
                self.calls.expect(group.table.pull(group.targets(), group.sizes, keep=group.keep()), group.store)
        if not self.sync and self.buffers is not None:
            self.calls.expect(self.buffers.take(when_assigned=True), self.buffers.store)
        self.calls.finish()


def _drop_tables(ctx: context.Context, names: list[str]) -> None:
    if not context.initialised() or context.current() is not ctx:
        return  # they went with their cluster
    for name in names:
        with contextlib.suppress(Error):
            ctx.client.drop_table(name)
