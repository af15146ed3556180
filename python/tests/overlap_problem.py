"""A small model with all that overlap=True has to do with, and a loop that trains it."""
import torch
from torch import nn

import cairn

OPTIMIZERS = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.05, momentum=0.9, weight_decay=0.01),
    "adam": lambda params: torch.optim.Adam(params, lr=0.01),
}
ROWS = {"sgd": lambda params: torch.optim.SGD(params, lr=0.05),
        "adam": lambda params: torch.optim.SparseAdam(params, lr=0.01)}


class Model(nn.Module):
    """Several buckets, a table, buffers, a frozen parameter, and one that is not used in every step."""

    def __init__(self, table=None):
        super().__init__()
        torch.manual_seed(7)
        self.table = cairn.nn.Embedding(None, 8, init=0.1) if table is None else table
        self.first = nn.Linear(16, 128)
        self.norm = nn.BatchNorm1d(128)
        self.middle = nn.Sequential(nn.Linear(128, 192), nn.Tanh(), nn.Linear(192, 128))
        self.sometimes = nn.Linear(128, 128)
        self.frozen = nn.Linear(128, 128).requires_grad_(False)
        self.top = nn.Linear(128, 1)

    def forward(self, ids, step):
        x = self.norm(self.first(self.table(ids).flatten(1)))
        x = self.middle(x)
        if step % 3:
            x = x + self.sometimes(x)
        return self.top(self.frozen(x)).squeeze(1)

    def dense(self):
        return [p for n, p in self.named_parameters() if not n.startswith("table")]


def batches(count, rank=0, rows=12):
    generator = torch.Generator().manual_seed(100 + rank)
    return [torch.randint(40, (rows, 2), generator=generator) for _ in range(count)]


def loss_of(model, ids, step):
    return (model(ids, step) - (ids.sum(1) % 2).float()).square().mean()


def wrap(model, kind, mode, overlap):
    dense = cairn.DistributedOptimizer(OPTIMIZERS[kind](model.dense()), model, mode=mode,
                                       overlap=overlap)
    rows = cairn.DistributedOptimizer(ROWS[kind](model.table.parameters()), model.table, mode=mode,
                                      overlap=overlap)
    return [dense, rows]


def train(model, optimizers, steps=20, rank=0, accumulate=1):
    """Every number that training has left: losses, parameters, buffers, rows."""
    losses = []
    given = batches(steps * accumulate, rank)
    for step in range(steps):
        for optimizer in optimizers:
            optimizer.zero_grad()
        for part in range(accumulate):
            last = part == accumulate - 1
            loss = loss_of(model, given[step * accumulate + part], step)
            if last:
                loss.backward()
            else:
                with optimizers[0].no_sync(), optimizers[1].no_sync():
                    loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
    keys, rows = model.table.export()
    left = [p.detach().clone() for p in model.dense()] + [b.clone() for b in model.buffers()]
    return [torch.tensor(losses), keys, rows, *left]
