"""Role makers: who this process is, from Paddle's variables or from the script's own words."""
from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ..._runtime import launchers, variables as own
from ...errors import InvalidArgumentError
from .. import starting
from . import readiness

_LIST = "PADDLE_PSERVERS_IP_PORT_LIST"
_ROLE, _TRAINERS, _ID = "TRAINING_ROLE", "PADDLE_TRAINERS_NUM", "PADDLE_TRAINER_ID"
_IP, _PORT = "POD_IP", "PADDLE_PORT"

NO_COLLECTIVE = ("is_collective=True is training without servers: use "
                 "torch.nn.parallel.DistributedDataParallel, or cairn.assign(model, allreduce=[…])")


class Role:
    """For UserDefinedRoleMaker."""

    WORKER = 1
    SERVER = 2


class RoleMaker:
    """Says who this process is. fleet.init() takes one."""

    variables: Mapping[str, str] = {}  # that the script says in place of the environment
    role: str  # "worker", "server"; "scheduler" only in other families than Paddle's
    index: int  # among the workers, or the servers
    worker_num: int
    server_num: int
    server_endpoints: Sequence[str] = ()  # empty where nobody has said them: not Paddle's variables


class PaddleCloudRoleMaker(RoleMaker):
    """From TRAINING_ROLE and the PADDLE_* variables, as the tutorial exports them.

    Without any of them it goes by what else cairn.init() would listen to (`cairn run`, torchrun,
    …); without anything this is the only trainer, and the servers are inside it.
    """

    def __init__(self, is_collective: bool = False, **kwargs: Any) -> None:
        _refuse(is_collective, kwargs)
        if len(starting.missing((_LIST, _ROLE, _TRAINERS, _ID))) < 4:
            self._read_paddle()
        else:
            self._read_others()

    def _read_paddle(self) -> None:
        starting.require((_ROLE, _LIST, _TRAINERS),
                         f"a server needs {_ROLE}=PSERVER, {_LIST}, {_IP}, {_PORT} and "
                         f"{_TRAINERS}, a trainer {_ROLE}=TRAINER, {_LIST}, {_TRAINERS} and {_ID}")
        if os.environ[_ROLE] == "PSERVER":
            starting.require((_IP, _PORT), f"this server finds itself in {_LIST} by them")
        if os.environ[_ROLE] == "TRAINER":
            starting.require((_ID,), f"each trainer has its own number, from 0, below {_TRAINERS}")
        said = own.read()
        self.role = said["role"]
        self._take(said, os.environ)

    def _take(self, said: Mapping[str, Any], variables: Mapping[str, str]) -> None:
        self.index = said["rank"]
        self.worker_num, self.server_num = said["workers"], said["servers"]
        self.server_endpoints = variables[_LIST].split(",")
        if self.role == "worker" and self.index >= self.worker_num:
            raise InvalidArgumentError(f"{_ID}={self.index}, but {_TRAINERS}={self.worker_num}: "
                                       "trainers are numbered from 0")

    def _read_others(self) -> None:
        said = own.read()
        launched = None if said["role"] else launchers.find(os.environ)
        self.role = said["role"] or "worker"
        self.index = launched.rank if launched else said["rank"] or 0
        self.worker_num = launched.size if launched else said["workers"] or 1
        self.server_num = said["servers"] or 1


class UserDefinedRoleMaker(PaddleCloudRoleMaker):
    """From the script's own words, in place of the variables:

        UserDefinedRoleMaker(current_id=0, role=Role.SERVER, worker_num=2,
                             server_endpoints=["10.0.0.1:36000", "10.0.0.2:36000"])

    current_id is the number among those of this role; a server listens on its own entry of
    server_endpoints. worker_endpoints counts trainers where worker_num is not given, and is not
    used otherwise: nobody connects to a trainer.
    """

    def __init__(self, is_collective: bool = False, *, current_id: int, role: int,
                 worker_num: int = 0, server_endpoints: Sequence[str],
                 worker_endpoints: Sequence[str] | None = None, **kwargs: Any) -> None:
        _refuse(is_collective, kwargs)
        if role not in (Role.WORKER, Role.SERVER):
            raise InvalidArgumentError(f"role is {role!r}, not Role.WORKER or Role.SERVER")
        if isinstance(server_endpoints, str) or not server_endpoints:
            raise InvalidArgumentError('server_endpoints is a list: ["10.0.0.1:36000", …]')
        worker_num = worker_num or len(worker_endpoints or ())
        places = len(server_endpoints) if role == Role.SERVER else worker_num
        if not 0 <= current_id < places:
            what = "servers" if role == Role.SERVER else "workers (worker_num)"
            raise InvalidArgumentError(f"current_id is {current_id}, and there are {places} {what}")
        given = {_LIST: ",".join(server_endpoints), _TRAINERS: str(worker_num)}
        if role == Role.WORKER:
            given |= {_ROLE: "TRAINER", _ID: str(current_id)}
        else:
            host, port = readiness.split(_checked(server_endpoints[current_id]))
            given |= {_ROLE: "PSERVER", _IP: host, _PORT: str(port)}
        self.variables = given
        said = own.read_with(given)
        self.role = said["role"]
        self._take(said, given)


def _checked(endpoint: str) -> str:
    host, _, port = endpoint.rpartition(":")
    if not host or not port.isdigit():
        raise InvalidArgumentError(f"{endpoint!r} in server_endpoints is not host:port")
    return endpoint


def _refuse(is_collective: bool, others: Mapping[str, Any]) -> None:
    if is_collective:
        raise InvalidArgumentError(NO_COLLECTIVE)
    for name, value in others.items():
        # Paddle's own side channel between trainers: there is nothing here that would need it.
        if name == "init_gloo" and not value:
            continue
        raise InvalidArgumentError(f"{name}={value!r} has no counterpart in Cairn: leave it out")
