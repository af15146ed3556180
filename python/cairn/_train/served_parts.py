"""What of a model a DistributedOptimizer has to do with, and where each part of it is updated: ordinary
parameters in groups on the servers, tables of rows there too, the others all-reduced.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from .._allreduce.allreduced import AllReduced
from .._rows.table_handle import TableHandle
from .._tables.optimizer_settings import GroupSettings, settings_of, table_settings_of
from ..assign import placement_of
from ..errors import Error
from .bucket import buckets
from .served_group import ServedGroup
from .served_rows import ServedRows, check_no_tables

OnServers = ServedGroup | ServedRows  # each with a table of its own

_REDUCED = GroupSettings(kind="mean", flags=0)


def plain_name(name: str) -> str:
    """Without what torch.compile and DistributedDataParallel put in front."""
    parts = [part for part in name.split(".") if part != "_orig_mod"]
    return ".".join(parts[1:] if len(parts) > 1 and parts[0] == "module" else parts)


def _placement(model: torch.nn.Module) -> dict[int, str]:
    placed = placement_of(model)
    return {id(p): placed[n] for n, p in model.named_parameters() if n in placed}


class ServedParts:
    """Contacts nobody."""

    def __init__(self, optimizer: torch.optim.Optimizer, model: torch.nn.Module | None, *,
                 reduces_only: bool, reduce: str, root_rank: int, in_buckets: bool = False) -> None:
        self.optimizer, self.reduces_only, self._in_buckets = optimizer, reduces_only, in_buckets
        self.groups: list[ServedGroup] = []
        self.tables: list[ServedRows] = []
        self.reduced: list[AllReduced] = []  # at most one: what is all-reduced among the workers instead
        self._reduce, self._root = reduce, root_rank
        named = [] if model is None else list(model.named_parameters())
        self._names = {id(p): plain_name(n) for n, p in named}
        self._placed = {} if model is None else _placement(model)
        self._known_groups = 0
        self._listed: list[list[torch.Tensor]] = []  # the optimizer's groups as they were served
        self._complete = False
        self.make_groups()
        self._complete = True

    def name_of(self, param: torch.Tensor) -> str | None:
        """In the model, if it was given."""
        return self._names.get(id(param))

    @property
    def on_servers(self) -> list[OnServers]:
        return [*self.groups, *self.tables]

    @property
    def parts(self) -> list[OnServers | AllReduced]:
        return [*self.on_servers, *self.reduced]

    def params(self) -> Iterator[torch.Tensor]:
        """Ordinary ones, wherever they are updated; not the handles of tables."""
        for part in self._ordinary():
            yield from part.params

    def parameter_names(self) -> Iterator[str]:
        for part in self._ordinary():
            yield from part.names

    def _ordinary(self) -> list[ServedGroup | AllReduced]:
        return [*self.groups, *self.reduced]

    def make_groups(self) -> None:
        """Those of the optimizer that are new."""
        reduced: list[torch.nn.Parameter] = []
        for index in range(self._known_groups, len(self.optimizer.param_groups)):
            group = self.optimizer.param_groups[index]
            self._listed.append(list(group["params"]))
            params = [p for p in group["params"] if p.numel() > 0]
            reduced += [p for p in params if self._placed.get(id(p)) == "allreduce"]
            self._serve(index, group, [p for p in params if self._placed.get(id(p)) != "allreduce"])
        self._known_groups = len(self.optimizer.param_groups)
        if not reduced:
            return
        if self._complete:
            raise Error("parameters that are all-reduced can't be added after the wrap: make a new optimizer")
        if self.reduces_only:
            raise ValueError('update="worker" is for parameters on the servers: leave it out, parameters '
                             "that are all-reduced are updated by the workers anyway")
        names = [self._names[id(p)] for p in reduced]
        self.reduced.append(AllReduced(reduced, names, self.optimizer, self._root, reduce=self._reduce))
        if self._in_buckets:
            raise ValueError("overlap=True is for parameters on the servers, and some are all-reduced here: "
                             "leave it out, or place all on the servers (cairn.assign)")

    def _serve(self, index: int, group: dict[str, Any], params: list[torch.Tensor]) -> None:
        if self.reduces_only:
            check_no_tables(group["params"])
        if params:
            settings = _REDUCED if self.reduces_only else settings_of(self.optimizer, group)
            names = [self._names.get(id(p), f"{index}.{i}") for i, p in enumerate(params)]
            if self._in_buckets:
                self.groups += buckets(index, params, names, settings)
            else:
                self.groups.append(ServedGroup(index, params, names, settings, self.reduces_only))
        for handle in group["params"]:
            if isinstance(handle, TableHandle):
                rows = handle.rows_of
                name = self._names.get(id(handle), rows.name).removesuffix(".table")
                self.tables.append(ServedRows(index, rows, name, table_settings_of(self.optimizer, group)))

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
