"""Fleet: what this process is in a job of Paddle's kind, and its way through it."""
from __future__ import annotations

import time
import weakref
from typing import Any

import torch

from ..._runtime import context as worker, serving, variables
from ...errors import Error, InvalidArgumentError
from ...optimizer import DistributedOptimizer
from .. import starting
from . import readiness
from .role_maker import NO_COLLECTIVE, PaddleCloudRoleMaker, RoleMaker
from .strategy import DistributedStrategy


class Fleet:
    """cairn.compat.fleet's functions are the methods of one of these."""

    def __init__(self) -> None:
        self._role: RoleMaker | None = None
        self._strategy: DistributedStrategy | None = None
        # Wrapped before the worker was initialised, which is fleet's order of calls.
        self._waiting: list[weakref.ref[DistributedOptimizer]] = []

    def init(self, role_maker: RoleMaker | None = None, is_collective: bool = False,
             strategy: DistributedStrategy | None = None) -> None:
        """Says who this process is; contacts nobody. Without a role maker the variables do."""
        if is_collective:
            raise InvalidArgumentError(NO_COLLECTIVE)
        if worker.initialised():
            raise Error("fleet.init() comes first: this process is a worker of a job already")
        role = PaddleCloudRoleMaker() if role_maker is None else role_maker
        if not isinstance(role, RoleMaker):
            raise TypeError(f"give a role maker of cairn.compat.fleet, not {type(role).__name__}")
        _check_strategy(strategy)
        variables.say(role.variables)
        self._role, self._strategy = role, strategy
        if role.role == "scheduler":  # of the other families; Paddle has none
            serving.serve("scheduler")

    def _said(self) -> RoleMaker:
        if self._role is None:
            raise Error("call fleet.init() first")
        return self._role

    def is_server(self) -> bool:
        return self._said().role == "server"

    def is_worker(self) -> bool:
        return self._said().role == "worker"

    def is_first_worker(self) -> bool:
        return self.is_worker() and self.worker_index() == 0

    def worker_index(self) -> int:
        """This trainer's number, from 0; -1 in a server."""
        if not self.is_worker():
            return -1
        return worker.rank() if worker.initialised() else self._said().index

    def worker_num(self) -> int:
        return self._said().worker_num

    def server_index(self) -> int:
        """This server's place in the list, from 0; -1 in a trainer."""
        return self._said().index if self.is_server() else -1

    def server_num(self) -> int:
        return self._said().server_num

    def server_endpoints(self, to_string: bool = False) -> list[str] | str:
        endpoints = list(self._said().server_endpoints)
        return ",".join(endpoints) if to_string else endpoints

    # A server's way.
    def init_server(self, model_dir: str | None = None) -> None:
        """Nothing is to be done: the parameters come from the first trainer."""
        self._require("server", "init_server")
        if model_dir is not None:
            raise InvalidArgumentError(
                f"init_server({model_dir!r}): servers load nothing by themselves. Load the model "
                "in every trainer before fleet.init_worker(); the first one's parameters are "
                "everybody's")

    def run_server(self) -> None:
        """Serves, and returns when the trainers have stopped."""
        self._require("server", "run_server")
        serving.serve_and_return()

    # A trainer's way.
    def init_worker(self) -> None:
        """Waits for the servers, joins the job, and takes the first trainer's parameters."""
        role = self._require("worker", "init_worker")
        if worker.initialised():
            return
        until = time.monotonic() + starting.patience_s()
        readiness.wait(role.server_endpoints, until)
        starting.connect(until - time.monotonic())
        if not worker.initialised():
            return  # a child of a trainer, which multiprocessing has started
        starting.say("Communicator start")
        starting.say(f"init rpc client with trainer_id {worker.rank()}")
        for waiting in self._waiting:
            optimizer = waiting()
            if optimizer is not None:
                optimizer.push_parameters()  # the first one's, to all
        self._waiting.clear()

    def stop_worker(self) -> None:
        """Leaves the job in good order. The servers end when every trainer has."""
        self._require("worker", "stop_worker")
        worker.shutdown()

    def barrier_worker(self) -> None:
        """Returns when every live trainer has called it."""
        self._require("worker", "barrier_worker")
        worker.barrier()

    def _require(self, role: str, call: str) -> RoleMaker:
        said = self._said()
        if said.role != role:
            name = "trainer" if said.role == "worker" else said.role
            raise Error(f"fleet.{call}() in a {name}: ask fleet.is_{role}() first")
        return said

    def distributed_optimizer(self, optimizer: torch.optim.Optimizer,
                              strategy: DistributedStrategy | None = None,
                              model: torch.nn.Module | None = None,
                              **options: Any) -> DistributedOptimizer:
        """The optimizer with which all trainers train one model. Contacts nobody before
        init_worker().

        strategy: StrategyFactory's or a DistributedStrategy; else that of fleet.init(); else
            DistributedStrategy(), which is asynchronous, as Paddle's.
        model: for names in messages and for buffers such as BatchNorm's; Paddle has none.
        options: further ones of cairn.DistributedOptimizer.
        """
        self._said()
        _check_strategy(strategy)
        chosen = strategy or self._strategy or DistributedStrategy()
        wrapped = DistributedOptimizer(optimizer, model, mode=chosen.mode(), **options)
        if not worker.initialised():
            self._waiting.append(weakref.ref(wrapped))
        return wrapped


def _check_strategy(strategy: object) -> None:
    if strategy is not None and not isinstance(strategy, DistributedStrategy):
        raise TypeError("a strategy is one of StrategyFactory's or a DistributedStrategy, not "
                        f"{type(strategy).__name__}")
