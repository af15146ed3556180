"""Cairn: a parameter server for PyTorch.

    import torch, cairn
    cairn.init()
    optimizer = cairn.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), model)

`python train.py` trains in one process; `cairn run -s 2 -w 2 train.py` on two servers and two workers.
"""
from . import data, errors, metrics, nn, optim
from ._allreduce.collectives import allgather_object, allreduce, broadcast_object
from ._core import version as __version__  # noqa: F401 (read as cairn.__version__)
from ._rows.prefetch import prefetch
from ._runtime.context import (
    Context,
    barrier,
    init,
    is_server,
    is_worker,
    local_rank,
    rank,
    shutdown,
    size,
    world_size,
)
from ._train.join import join
from .assign import assign
from .errors import (
    AlreadyExistsError,
    CancelledError,
    DeadlineExceededError,
    Error,
    ForkedError,
    HyperMismatchError,
    InternalError,
    InvalidArgumentError,
    IoError,
    JobFailedError,
    NotFiniteError,
    NotFoundError,
    NotInitializedError,
    OutcomeUnknownError,
    ProtocolError,
    ResourceExhaustedError,
    RetiredError,
    UnavailableError,
)
from .modes import Async, BoundedStaleness, Sync
from .optimizer import DistributedOptimizer, ParametersChangedError
from .tables import DenseTable, Future, SparseTable, dense_table, sparse_table

__all__ = [
    "AlreadyExistsError",
    "Async",
    "BoundedStaleness",
    "CancelledError",
    "Context",
    "DeadlineExceededError",
    "DenseTable",
    "DistributedOptimizer",
    "Error",
    "ForkedError",
    "Future",
    "HyperMismatchError",
    "InternalError",
    "InvalidArgumentError",
    "IoError",
    "JobFailedError",
    "NotFiniteError",
    "NotFoundError",
    "NotInitializedError",
    "OutcomeUnknownError",
    "ParametersChangedError",
    "ProtocolError",
    "ResourceExhaustedError",
    "RetiredError",
    "SparseTable",
    "Sync",
    "UnavailableError",
    "allgather_object",
    "allreduce",
    "assign",
    "barrier",
    "broadcast_object",
    "data",
    "dense_table",
    "errors",
    "init",
    "is_server",
    "is_worker",
    "join",
    "local_rank",
    "metrics",
    "nn",
    "optim",
    "prefetch",
    "rank",
    "shutdown",
    "size",
    "sparse_table",
    "world_size",
]


def __dir__() -> list[str]:
    """What is public; the package's own modules are not."""
    return sorted([*__all__, "__all__", "__doc__", "__file__", "__name__", "__path__", "__version__"])
