"""overlap=True: gradients leave while backward still runs.

The parameters of a group lie in several tables (buckets), those that backward reaches first in the
first. A hook on each parameter counts; when a bucket's gradients are all there, its part of the step
begins, and step() only begins what is left and waits. New values wait in memory of their own until
step(): backward may still need the old ones. Tables of rows leave when every forward pass that is
still alive has had its backward pass.

What is sent is what would be sent by step() without it, so in Sync() the results are the same bit for
bit. What can't be known in backward is refused: docs/guide/pytorch.md, "While backward runs".
"""
from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from .. import _core
from .._runtime.calls_under_way import interrupts_later
from .._tables.finite_gradients import is_refused, not_finite
from .._tables.optimizer_settings import Hyper
from .._tables.weight import Weight
from ..errors import Error, NotFiniteError
from .served_group import ServedGroup
from .served_parts import OnServers
from .served_rows import Gradients, ServedRows
from .served_tables import ServedTables


class _Sent:
    """The part of a step that has begun."""

    def __init__(self, pending: _core.Pending | None, gradients: Gradients, hyper: Hyper) -> None:
        self.pending, self.hyper = pending, hyper
        self.refused = False  # its gradient is not finite, and was not sent
        self._gradients = [(gradient, 0 if gradient is None else gradient._version) for gradient in gradients]

    def is_of(self, gradients: Gradients) -> bool:
        return len(gradients) == len(self._gradients) and all(
            now is then and (now is None or now._version == version)
            for now, (then, version) in zip(gradients, self._gradients))


class _Hook:
    """position: of the parameter in its group; -1: a table of rows."""

    def __init__(self, overlap: weakref.ref[Overlap], part: weakref.ref[OnServers], position: int) -> None:
        self._overlap, self._part, self._position = overlap, part, position

    def __call__(self, *ready: torch.Tensor) -> None:
        overlap, part = self._overlap(), self._part()
        if overlap is None or part is None:
            return
        with torch.no_grad():
            if isinstance(part, ServedRows):
                overlap.filed(part)
            else:
                overlap.accumulated(part, self._position)


class Overlap:
    """One of each DistributedOptimizer with overlap=True. For the thread that trains."""

    def __init__(self, served: ServedTables, before_first: Callable[[], None]) -> None:
        """`before_first` is called before the first part of a step is sent, and may raise."""
        self._served, self._before_first = served, before_first
        self._sent: dict[OnServers, _Sent] = {}
        self._awaited: dict[OnServers, set[int]] = {}  # positions of parameters without a gradient yet
        self._hooked: set[int] = set()
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        weakref.finalize(self, _remove, self._handles).atexit = False
        self._paused = False

    def watch(self) -> None:
        """Parameters of parts that are new. The hooks don't keep this object: they end with it."""
        for group in self._served.groups:
            for position, param in enumerate(group.params):
                if id(param) not in self._hooked and param.requires_grad:
                    self._hooked.add(id(param))
                    hook = _Hook(weakref.ref(self), weakref.ref(group), position)
                    self._handles.append(param.register_post_accumulate_grad_hook(hook))
        for table in self._served.tables:
            table.rows.all_filed = _Hook(weakref.ref(self), weakref.ref(table), -1)

    def accumulated(self, group: ServedGroup, position: int) -> None:
        """The gradient of this parameter is there."""
        if not self._may_send(group):
            return
        if group not in self._awaited:
            self._awaited[group] = {i for i, param in enumerate(group.params) if param.requires_grad}
        awaited = self._awaited[group]
        if position not in awaited:
            raise Error(_SECOND)
        awaited.discard(position)
        if not awaited:
            self._begin(group)

    def filed(self, table: ServedRows) -> None:
        """The gradient of these rows is there, as far as is known."""
        if not self._may_send(table):
            return
        if table in self._sent:
            raise Error(_SECOND)
        self._begin(table)

    def _may_send(self, part: OnServers) -> bool:
        """Not before the first contact, and not while a step that a Ctrl-C interrupted is to be ended:
        step() does that first."""
        return not self._paused and part.table is not None and not self._served.calls.under_way()

    def _begin(self, part: OnServers) -> None:
        if not self._sent:
            self._before_first()
        served = self._served
        gradients, hyper = part.gradients(), part.hyper(served.optimizer)
        part.prepare(gradients, hyper)
        with interrupts_later():  # what has begun must be known to have
            pending = part.step(gradients, hyper, Weight(), served.sync)
            self._sent[part] = sent = _Sent(pending, gradients, hyper)
            if pending is not None and is_refused(pending):
                # The others have this step in other buckets already: they get it without a gradient here.
                sent.refused = True
                sent.pending = part.done(hyper, Weight()) if served.sync else None

    # For step().
    @property
    def under_way(self) -> bool:
        return bool(self._sent)

    def start(self, part: OnServers) -> _core.Pending | None:
        """This part of the step that is being made: as it was begun in backward, or begun now."""
        if part not in self._sent:
            self._begin(part)
        return self._sent[part].pending

    def end(self) -> Error | None:
        """All parts have begun. Says what was wrong with the step, if anything was."""
        sent, self._sent, self._awaited = self._sent, {}, {}
        for part, one in sent.items():
            gradients = part.gradients()
            if one.refused:
                return NotFiniteError(
                    not_finite(part.names, gradients) + ". Other parameters' parts of this step have left "
                    "before it was found (overlap=True)")
            if not one.is_of(gradients):
                return Error(
                    f"the gradient of {part.names[0]}, or of one that travels with it, was changed after "
                    "backward, and had left by then (overlap=True): the step was made with what backward "
                    "gave. Change gradients in hooks of the parameters, or leave overlap=True out")
            if one.hyper != part.hyper(self._served.optimizer):
                return Error(
                    "the settings of the optimizer were changed between backward and step(), and gradients "
                    "had left by then (overlap=True): the step was made with those before. Change them "
                    "before backward, or leave overlap=True out")
        return None

    def refuse_other_calls(self, what: str) -> None:
        if self._sent:
            raise Error(
                f"{what} between backward and step(): gradients have left already (overlap=True), and only "
                "step() can follow. Call it before backward or after step()")

    @contextmanager
    def paused(self) -> Iterator[None]:
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before


_SECOND = (
    "a second backward before step(), and gradients of the first have left already (overlap=True): call "
    "step() after each backward, or have all but the last backward in `with optimizer.no_sync():` to "
    "accumulate gradients, or leave overlap=True out")


def _remove(handles: list[torch.utils.hooks.RemovableHandle]) -> None:
    for handle in handles:
        handle.remove()
