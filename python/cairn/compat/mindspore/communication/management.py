"""mindspore.communication.management: joining the job, and who this worker is in it."""
from __future__ import annotations

import warnings

from ...._runtime import context as worker
from ....errors import InvalidArgumentError, NotInitializedError
from ... import starting
from ..context import VARIABLES, enabled

_BACKENDS = (None, "hccl", "nccl", "mccl")


def init(backend_name: str | None = None) -> None:
    """Joins the job and waits until it is complete. set_ps_context(enable_ps=True) comes before it.

    backend_name: taken and not used; how tensors travel does not depend on it.
    """
    if backend_name not in _BACKENDS:
        raise InvalidArgumentError(f"backend_name is {backend_name!r}, not one of hccl, nccl, mccl")
    if not enabled() and "MS_ROLE" not in starting.missing(VARIABLES) and not worker.initialised():
        warnings.warn("MS_ROLE is set, but has no effect without "
                      "context.set_ps_context(enable_ps=True) before communication.init()",
                      stacklevel=2)
    starting.connect()


def _current(group: str | None) -> worker.Context:
    if group is not None and not group.endswith("world_group"):
        raise InvalidArgumentError(f"group {group!r}: there is only the group of all workers")
    if not worker.initialised():
        raise NotInitializedError("call communication.init() first")
    return worker.current()


def get_rank(group: str | None = None) -> int:
    """This worker's number, from 0."""
    return _current(group).rank


def get_group_size(group: str | None = None) -> int:
    """Workers of the job."""
    return _current(group).world_size


def get_local_rank(group: str | None = None) -> int:
    """This worker's number among those of its machine, from 0."""
    return _current(group).local_rank


def release() -> None:
    """Leaves the job in good order; at exit that happens by itself."""
    worker.shutdown()
