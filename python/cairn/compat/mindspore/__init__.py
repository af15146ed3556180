"""MindSpore's parameter server, for torch models. docs/guide/migrating/mindspore.md is its page.

    from cairn.compat.mindspore import context, distributed_optimizer
    context.set_ps_context(enable_ps=True)      # servers and the scheduler serve in here, then exit
    network = LeNet5()                          # a torch.nn.Module
    network.set_param_ps()                      # on the servers; what is not marked is all-reduced
    optimizer = distributed_optimizer(torch.optim.SGD(network.parameters(), lr=0.01), network)

The import gives torch.nn.Module and torch.nn.Parameter their set_param_ps(), and puts the MS_*
variables out of effect until set_ps_context(enable_ps=True), as in MindSpore.
"""
from . import communication, context, train
from .context import get_ps_context, reset_ps_context, set_ps_context
from .placement import add_set_param_ps, distributed_optimizer

__all__ = [
    "communication",
    "context",
    "distributed_optimizer",
    "get_ps_context",
    "reset_ps_context",
    "set_ps_context",
    "train",
]

context.hold_variables_back()
add_set_param_ps()
