"""How what served_tables.py has starts on the servers, with the model's buffers, and how it is set
and read as a whole.

A wrap has tables of its own (optimizer-0/0, …). The root gives the initial values, all others take
them; a worker that joins a running job takes what is there.
"""
from __future__ import annotations

import contextlib
import weakref
from typing import Any

import torch

from .. import _core
from .._runtime import context
from .._runtime.calls_under_way import Awaited
from .._tables.cpu_memory import FLOATS
from ..errors import Error, InvalidArgumentError
from ..modes import Async, Mode
from . import late_joiner
from .catching_up import CatchingUp
from .optimizer_state import OptimizerState
from .served_buffers import ServedIntegers, ServedTensors, shared_tensors
from .served_group import ServedGroup
from .served_rows import ServedRows
from .served_tables import ServedTables
from .wrap_plan import agree, check_order, lines_of


class ServedModel(ServedTables):
    def __init__(self, optimizer: torch.optim.Optimizer, model: torch.nn.Module | None, mode: Mode, *,
                 reduces_only: bool, reduce: str, root_rank: int, wire: dict[str, Any],
                 in_buckets: bool = False) -> None:
        super().__init__(optimizer, model, mode, reduces_only=reduces_only, reduce=reduce,
                         root_rank=root_rank,
                         wire=wire, in_buckets=in_buckets)
        self.catching_up = CatchingUp(self)
        self.state = OptimizerState(self, self.catching_up)
        self._model = model
        self._shared: list[ServedTensors] = []  # besides groups and buffers: given once
        self._integers: ServedIntegers | None = None  # buffers too, but not in every step
        self._buffers_begun = self._reduced_begun = False
        self._agreed_groups = 0  # of the optimizer, that all workers have alike

    def wait_for(self, pending: Awaited) -> None:
        """What a wait for a call of a step begins with."""
        late_joiner.wait_for(self, pending)

    def _make_tables(self, client: _core.Client, groups: list[ServedGroup], tables: list[ServedRows]) -> None:
        """All of them together: one after the other they would take a record of the scheduler each."""
        of_groups = [group.spec(f"{self.name}/{group.label}", self.mode, self._reduce, self._wire)
                     for group in groups]
        of_rows = [table.spec(client, self.mode, self._reduce) for table in tables]
        specs = of_groups + [spec for spec in of_rows if spec is not None]
        made: Any = dict(zip([spec.name for spec in specs], client.create_tables(specs)))
        for group, spec in zip(groups, of_groups):
            self._tables.append(spec.name)
            group.table = made[spec.name]
        for table, rows in zip(tables, of_rows):
            table.attach(client, self.mode, self._reduce, None if rows is None else made[rows.name])

    def attach(self) -> bool:
        """Makes the tables that are not there yet, and starts from the root's values; or, in a running
        job, from what is there: then it returns true."""
        ctx = context.current()
        if self.context is None:
            if not 0 <= self._root < ctx.world_size:
                raise InvalidArgumentError(f"root_rank is {self._root}, there are ranks 0 to "
                                           f"{ctx.world_size - 1}")
            self.context = ctx
            if ctx.embedded:
                # Nobody else can use these tables: a notebook's cell that is run again leaves none.
                weakref.finalize(self, _drop_tables, ctx, self._tables).atexit = False
        self._agree(ctx)
        new = [group for group in self.groups if group.table is None]
        tables = [table for table in self.tables if table.table is None]
        self._make_tables(ctx.client, new, tables)
        # What is given once comes first: a root that is started again while the others wait for it here
        # must not take part in their steps before.
        integers, others = self._make_buffers()
        if others:
            self._share(ServedTensors(others), "others")
        if integers:
            self._integers = ServedIntegers(integers)
            self._share(self._integers, "integers")
        new_reduced = [] if self._reduced_begun else self.reduced
        joined = [reduced for reduced in new_reduced if reduced.joins(ctx, self.name)]
        joins = self._joins(new, tables) or bool(joined)
        if joins:
            self.catching_up.catch_up(joined)
            for group in new:
                self.state.forget(group)
        else:
            for group in new:
                self._start(group)
            for buffers in self._new_buffers():
                self._begin_buffers(buffers)
        self._buffers_begun = self._reduced_begun = True
        for reduced in new_reduced:
            if reduced not in joined:
                self.catching_up.tell()  # a worker that joins now reads it before it votes with us
                reduced.attach(ctx, self.name)
        if tables:
            self._start_tables(tables)
        self.catching_up.tell()
        return joins

    def _make_buffers(self) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Once; returns what of the model is shared besides: (integers, others)."""
        if self._model is None or self._buffers_begun:
            return [], []
        buffers, integers, others = shared_tensors(self._model, self.params())
        if buffers:
            served = ServedTensors(buffers)
            self.buffers = [served]
            self.make_table(served, "buffers", self.mode if self.sync else Async())
        return integers, others

    def _new_buffers(self) -> list[ServedTensors]:
        return [] if self._buffers_begun else self.buffers

    def _joins(self, new: list[ServedGroup], tables: list[ServedRows]) -> bool:
        """The others have begun what this worker has just made. (If only some of the ordinary tables:
        they are about to begin the rest, and it does so with them.) Tables of rows have no round
        before the first step."""
        if not self.sync or self.reduces_only:
            return False
        made: list[ServedGroup | ServedTensors] = [*new, *self._new_buffers()]
        if made:
            return all(one.table is not None and one.table.round() > 0 for one in made)
        return any(table.table is not None and table.table.round() > 0 for table in tables)

    def _agree(self, ctx: context.Context) -> None:
        """Raises where another worker's wrap is another one; once, and again when groups are added."""
        if ctx.embedded or self._agreed_groups == self._known_groups:
            return
        name = self.name if self._agreed_groups == 0 else f"{self.name} with {self._known_groups} groups"
        lines = lines_of(self, self._model)
        if self._agreed_groups > 0:
            agree(ctx.client, ctx.rank, name, lines)
        else:
            check_order(ctx.client, ctx.rank, self.number, list(self.params()),
                        lambda: agree(ctx.client, ctx.rank, name, lines))
        self._agreed_groups = self._known_groups

    def _start_tables(self, tables: list[ServedRows]) -> None:
        """What was loaded into the root's modules is given, once; what others have loaded is dropped."""
        assert self.context is not None
        number = len(self.tables)  # those of a group that was added later are others
        with_state = [table for table in tables if self.state.has_rows(table)]
        loaded = bool(with_state) or any(table.rows.loaded() is not None for table in tables)
        if self.roots(f"loaded-{number}", int(loaded)):
            given = ServedTensors([torch.ones(1, **FLOATS)])
            self.make_table(given, f"rows-{number}", Async())

            def give() -> None:
                if given.are_there():
                    return  # this worker was started again: the rows have been trained since
                for table in tables:
                    table.give_loaded(once=True)
                for table in with_state:
                    self.state.give_rows(table)
                given.give(once=True).wait()

            self._give_once(give, lambda: given.take(when_assigned=True), given.store)
        for table in tables:
            table.rows.loaded_taken()
            self.state.forget_rows(table)

    def _start(self, group: ServedGroup) -> None:
        assert group.table is not None
        if not group.reduces_only:
            return self._start_sync(group) if self.sync else self._start_async(group)
        if group.table.round() > 0:
            raise Error(
                f"this worker joins a running job whose updates are made by the workers ({self.name}), and "
                'none of them can give it their state: start the job anew, or use update="server"'
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
        for buffers in self.buffers:
            while not buffers.finish(buffers.give_and_take(self.gives())):
                pass  # the one who should have given its values died; another one does now

    def share_buffers(self) -> None:
        self._round_of_buffers()
        self._share_again([] if self._integers is None else [self._integers])
        self.catching_up.tell()

    def push_parameters(self) -> None:
        """This model's parameters and buffers, as the root has them, become everybody's."""
        assert self.context is not None
        if not self.reduces_only:
            for group in self.groups:
                self.assign(group, 0, group.parameter_addresses, keep=group.keep(), receives=True)
        if self.tables:
            self._push_loaded()
        for reduced in self.reduced:
            reduced.give_from_root()
        if self.sync:
            self._round_of_buffers()
            self._share_again(self._shared)
            return self.catching_up.tell()
        self._share_again([*self._shared, *self.buffers], waits=True)
        self.pull()

    def _push_loaded(self) -> None:
        assert self.context is not None
        self.context.client.barrier()  # nobody is still in a step
        for table in self.tables:
            if self.gives():
                table.give_loaded(once=False)
            table.rows.loaded_taken()
            table.rows.stepped()
        self.context.client.barrier()

    def pull(self) -> None:
        for table in self.tables:
            table.rows.refresh()
        if not self.reduces_only:
            for group in self.groups:
                assert group.table is not None
                self.calls.expect(group.table.pull(group.targets(), group.sizes, keep=group.keep()),
                                  group.store)
        if not self.sync:
            for buffers in self.buffers:
                self.calls.expect(buffers.take(when_assigned=True), buffers.store)
        self.calls.finish()


def _drop_tables(ctx: context.Context, names: list[str]) -> None:
    if not context.initialised() or context.current() is not ctx:
        return  # they went with their cluster
    for name in names:
        with contextlib.suppress(Error):
            ctx.client.drop_table(name)
