"""wrapped_differently.py WHAT: one of the workers wraps something else than the others."""
import sys

import torch
from torch import nn

import cairn
from optimizer_workers.problems import batch, net, train

WHAT = sys.argv[1]

torch.set_num_threads(1)
cairn.init()
odd = cairn.rank() == 1
models = [net(seed=0), nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5))]
tables = [cairn.nn.Embedding(None, 4), cairn.nn.Embedding(None, 4)]
options = {}
if WHAT == "assign" and odd:
    cairn.assign(models[0], allreduce=[models[0][0]])
if WHAT == "assign-all" and not odd:
    cairn.assign(models[0], "auto")
if WHAT == "order" and odd:
    models.reverse()
if WHAT == "places":
    models = [net(seed=seed) for seed in ((1, 0) if odd else (0, 1))]
if WHAT == "shape" and odd:
    models[0] = nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 3))
if WHAT == "mode" and odd:
    options = {"mode": cairn.Async()}
if WHAT == "tables":
    models[0].user, models[0].item = reversed(tables) if odd else tables
optimizers = [cairn.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, **options)
              for model in models]
if WHAT == "added":
    extra = [nn.Parameter(torch.zeros(2 + odd))]
    optimizers[0].add_param_group({"params": extra})
train(models[0], optimizers[0], [batch(cairn.rank(), 0)])
