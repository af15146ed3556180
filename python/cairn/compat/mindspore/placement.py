"""set_param_ps: which parameters are on the servers; and the one line that a script of MindSpore's
needs in torch, distributed_optimizer().

Marks are kept by name in the modules that own the parameters, so that a copied model has them too;
the mark of a parameter that is asked by itself stays with the parameter.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ..._runtime import context as worker
from ...assign import assign, is_table, placement_of
from ...errors import Error
from ...optimizer import DistributedOptimizer
from .. import starting
from .context import enabled

_NAMES = "_param_ps_names"  # of a module
_MARK = "is_param_ps"  # of a parameter


def _require_enabled() -> None:
    if not enabled():
        raise Error("set_param_ps() needs context.set_ps_context(enable_ps=True) before it")


def _check_init_in_server(init_in_server: bool) -> None:
    if init_in_server:
        raise Error("set_param_ps(init_in_server=True): a torch parameter has its values already. "
                    "For tables that are too large for a worker use cairn.nn.Embedding, whose rows "
                    "are made on the servers")


def _set_module(self: torch.nn.Module, recurse: bool = True, init_in_server: bool = False) -> None:
    """The parameters of this module (recurse: and of those inside it) are kept and updated by the
    servers."""
    _require_enabled()
    _check_init_in_server(init_in_server)
    for module in self.modules() if recurse else [self]:
        module.__dict__.setdefault(_NAMES, set()).update(module._parameters)


def _set_parameter(self: torch.nn.Parameter, init_in_server: bool = False) -> None:
    """This parameter is kept and updated by the servers."""
    _require_enabled()
    _check_init_in_server(init_in_server)
    setattr(self, _MARK, True)


def add_set_param_ps() -> None:
    """Gives torch's modules and parameters the method, for the rest of the process."""
    torch.nn.Module.set_param_ps = _set_module  # type: ignore[attr-defined]  # it is new there
    torch.nn.Parameter.set_param_ps = _set_parameter  # type: ignore[attr-defined]  # the same


def on_servers(network: torch.nn.Module) -> Iterator[torch.nn.Parameter]:
    """Those that were marked, each once."""
    seen: set[int] = set()
    for module in network.modules():
        names = module.__dict__.get(_NAMES, set())
        for name, param in module._parameters.items():
            if param is not None and id(param) not in seen and (
                    name in names or getattr(param, _MARK, False)):
                seen.add(id(param))
                yield param


def _place(network: torch.nn.Module) -> None:
    served = list(on_servers(network))
    if not served and placement_of(network):
        return  # the script has said it in Cairn's own words
    known = {id(p) for p in served}
    # The rows of a table are never anywhere else.
    others = [p for p in network.parameters() if id(p) not in known and not is_table(p)]
    assign(network, server=served, allreduce=others)


def distributed_optimizer(optimizer: torch.optim.Optimizer, network: torch.nn.Module,
                          **options: Any) -> torch.optim.Optimizer:
    """The line that MindSpore does not need and torch does: all workers train one network with this
    optimizer. Joins the job first, unless communication.init() has.

    What set_param_ps() has marked is on the servers, the rest is all-reduced. `options` are those
    of cairn.DistributedOptimizer; the mode is Sync() unless they say otherwise. In a process that
    has neither enable_ps nor called communication.init() the optimizer comes back as it is.
    """
    if not enabled() and not worker.initialised():
        return optimizer
    starting.connect()
    _place(network)
    return DistributedOptimizer(optimizer, network, **options)
