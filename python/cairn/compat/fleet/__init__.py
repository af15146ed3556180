"""Paddle's fleet, for torch models. docs/guide/migrating/paddle.md is its page.

    from cairn.compat import fleet
    from cairn.compat.fleet import StrategyFactory, role_maker

    fleet.init(role_maker.PaddleCloudRoleMaker())
    optimizer = fleet.distributed_optimizer(optimizer, StrategyFactory.create_sync_strategy())
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()          # returns when the trainers have stopped
    if fleet.is_worker():
        fleet.init_worker()
        ...                         # train, as ever in torch
        fleet.stop_worker()
"""
from . import role_maker
from .job import Fleet
from .role_maker import PaddleCloudRoleMaker, Role, UserDefinedRoleMaker
from .strategy import DistributedStrategy, StrategyFactory

__all__ = [
    "DistributedStrategy",
    "Fleet",
    "PaddleCloudRoleMaker",
    "Role",
    "StrategyFactory",
    "UserDefinedRoleMaker",
    "barrier_worker",
    "distributed_optimizer",
    "fleet",
    "init",
    "init_server",
    "init_worker",
    "is_first_worker",
    "is_server",
    "is_worker",
    "role_maker",
    "run_server",
    "server_endpoints",
    "server_index",
    "server_num",
    "stop_worker",
    "worker_index",
    "worker_num",
]

# A process has one role. The functions are the methods of one object, which is Paddle 1's fleet.
fleet = Fleet()
barrier_worker = fleet.barrier_worker
distributed_optimizer = fleet.distributed_optimizer
init = fleet.init
init_server = fleet.init_server
init_worker = fleet.init_worker
is_first_worker = fleet.is_first_worker
is_server = fleet.is_server
is_worker = fleet.is_worker
run_server = fleet.run_server
server_endpoints = fleet.server_endpoints
server_index = fleet.server_index
server_num = fleet.server_num
stop_worker = fleet.stop_worker
worker_index = fleet.worker_index
worker_num = fleet.worker_num
