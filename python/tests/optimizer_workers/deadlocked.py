"""deadlocked.py WHAT: two workers that wait for each other. Each says what its call ended with."""
import sys

import torch

import cairn
from optimizer_workers.problems import batch, net, train

WHAT = sys.argv[1]

torch.set_num_threads(1)
cairn.init()
rank = cairn.rank()
models = [net(0), net(1)]
optimizers = [cairn.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model) for model in models]
train(models[0], optimizers[0], [batch(rank, 0)])


def wait():
    if WHAT == "barrier" and rank == 0:
        cairn.barrier()
    elif WHAT == "wraps":
        train(models[rank], optimizers[rank], [batch(rank, 1)])
    else:
        train(models[0], optimizers[0], [batch(rank, 1)])


try:
    wait()
    print("went on", flush=True)
except cairn.DeadlineExceededError as error:
    print(f"told: {error}", flush=True)
# The part of the round that was given stays given, and the barrier entered: both do what the other missed.
if WHAT == "wraps":
    train(models[1 - rank], optimizers[1 - rank], [batch(rank, 1)])
elif rank == 1:
    cairn.barrier()
else:
    train(models[0], optimizers[0], [batch(rank, 1)])
print("ended", flush=True)
