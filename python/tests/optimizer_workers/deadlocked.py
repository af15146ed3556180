"""deadlocked.py WHAT: two workers that wait for each other. Each says what its call ended with."""
import sys

import torch

import cairn
from cairn._allreduce import control as allreduce_control
from optimizer_workers.problems import batch, net, train

WHAT = sys.argv[1]

torch.set_num_threads(1)
allreduce_control._ALONE_S = 2.0  # 30 s are long for a test
cairn.init()
rank = cairn.rank()
models = [net(0), net(1)]
if WHAT == "allreduced step":
    cairn.assign(models[0], allreduce=["*"])
optimizers = [cairn.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model) for model in models]
train(models[0], optimizers[0], [batch(rank, 0)])


def exchange():
    assert cairn.allreduce(torch.tensor([1 + rank]), reduce="sum").item() == 3


def wait():
    if WHAT != "wraps" and rank == 0:
        cairn.barrier()
    elif WHAT == "exchange":
        exchange()
    elif WHAT == "wraps":
        train(models[rank], optimizers[rank], [batch(rank, 1)])
    else:
        train(models[0], optimizers[0], [batch(rank, 1)])


if WHAT == "exchange":
    exchange()  # from now on there is a process group
told = False
try:
    wait()
    print("went on", flush=True)
except cairn.DeadlineExceededError as error:
    told = True
    print(f"told: {error}", flush=True)
# The part of the round that was given stays given, and the barrier entered: both do what the other missed.
# What workers do among themselves is not given: it is done again. Rank 1 may be told first, and its barrier
# lets rank 0 go on before that is told too: then rank 0 has passed the barrier.
if WHAT in ("exchange", "allreduced step"):
    if rank == 1 or told:
        cairn.barrier()
    if WHAT == "exchange":
        exchange()
    elif rank == 1:
        optimizers[0].step()
    else:
        train(models[0], optimizers[0], [batch(rank, 1)])
elif WHAT == "wraps":
    train(models[1 - rank], optimizers[1 - rank], [batch(rank, 1)])
elif rank == 1:
    cairn.barrier()
else:
    train(models[0], optimizers[0], [batch(rank, 1)])
print("ended", flush=True)
