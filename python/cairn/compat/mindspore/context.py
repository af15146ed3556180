"""set_ps_context, reset_ps_context, get_ps_context: the switch without which MS_* variables mean
nothing. Servers and the scheduler serve inside set_ps_context(enable_ps=True)."""
from __future__ import annotations

import os
from typing import Any

from ..._runtime import context as worker, launchers, serving, variables
from ...errors import Error, InvalidArgumentError
from .. import starting

VARIABLES = ("MS_ROLE", "MS_SCHED_HOST", "MS_SCHED_PORT", "MS_SERVER_NUM", "MS_WORKER_NUM")
_EXAMPLE = ("the tutorial's scripts export MS_ROLE (MS_SCHED, MS_PSERVER or MS_WORKER), "
            "MS_SCHED_HOST, MS_SCHED_PORT, MS_SERVER_NUM and MS_WORKER_NUM")
# Of MindSpore's, those that may be given if they ask for what is so anyway.
_ONLY = {"enable_ssl": False, "is_enable_ssl": False}
_enabled = False


def enabled() -> bool:
    return _enabled


def hold_variables_back() -> None:
    variables.hold_back(VARIABLES)


def set_ps_context(**kwargs: Any) -> None:
    """set_ps_context(enable_ps=True): from here on this is a parameter server job.

    A process that MS_ROLE calls a scheduler or a server serves in here until the job is over, and
    exits: nothing after this line runs there. A worker goes on, and joins the job in
    communication.init() or distributed_optimizer(), whichever comes first.
    """
    enable = _check(kwargs)
    if not enable:
        if _enabled:
            reset_ps_context()
        return
    if _enabled:
        return
    if worker.initialised():
        raise Error("set_ps_context(enable_ps=True) must come before communication.init() and "
                    "cairn.init()")
    _enable()


def _check(kwargs: dict[str, Any]) -> bool:
    if "enable_ps" not in kwargs:
        raise InvalidArgumentError("set_ps_context() needs enable_ps=True or enable_ps=False")
    for name, value in kwargs.items():
        if name == "enable_ps":
            continue
        if name not in _ONLY:
            raise InvalidArgumentError(
                f"set_ps_context({name}=…) has no counterpart in Cairn: leave it out")
        if value != _ONLY[name]:
            raise InvalidArgumentError(
                f"set_ps_context({name}={value!r}): Cairn has no encryption of its own yet; leave "
                "it out and keep the ports inside a private network")
    enable = kwargs["enable_ps"]
    if not isinstance(enable, bool):
        raise TypeError(f"enable_ps is True or False, not {enable!r}")
    return enable


def _enable() -> None:
    global _enabled
    some = len(starting.missing(VARIABLES)) < len(VARIABLES)
    if some:
        starting.require(VARIABLES, _EXAMPLE)
    variables.let_through(VARIABLES)
    try:
        said = variables.read()
        if some and not said["scheduler_port"]:
            raise InvalidArgumentError(
                "MS_SCHED_PORT=0: all processes must know the port; give a free one")
        if said["role"] in ("scheduler", "server"):
            serving.serve(said["role"])
    except BaseException:
        hold_variables_back()
        raise
    _enabled = True
    if said["role"] is None and not said["scheduler_port"] and launchers.find(os.environ) is None:
        starting.say(
            "cairn: no MS_* variable is set: this process trains alone, with the servers inside it")


def reset_ps_context() -> None:
    """Switches the parameter server off, and MS_* variables with it. A worker that has joined
    leaves the job, in good order."""
    global _enabled
    if _enabled:
        worker.shutdown()
    _enabled = False
    hold_variables_back()


def get_ps_context(attr_key: str) -> Any:
    """get_ps_context("enable_ps")."""
    if attr_key == "enable_ps":
        return _enabled
    if attr_key in _ONLY:
        return _ONLY[attr_key]
    raise InvalidArgumentError(f"get_ps_context({attr_key!r}): there is only \"enable_ps\"")
