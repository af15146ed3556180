"""A model with a table and dense layers, and the same in plain torch."""
import torch
from torch import nn

import cairn

ROWS, DIM = 50, 4


class Net(nn.Module):
    def __init__(self, seed, table, norm=False):
        super().__init__()
        torch.manual_seed(seed)
        self.table = table
        self.tower = nn.Sequential(nn.Linear(2 * DIM, 8), nn.BatchNorm1d(8) if norm else nn.Tanh(),
                                   nn.Linear(8, 8), nn.Tanh())
        self.head = nn.Linear(8, 1)

    def forward(self, ids):
        return self.head(self.tower(self.table(ids).flatten(1))).squeeze(1)


def served_net(seed, **options):
    return Net(seed, cairn.nn.Embedding(ROWS, DIM, seed=3), **options)


def plain_net(seed, rows):
    net = Net(seed, nn.Embedding(ROWS, DIM, sparse=True))
    with torch.no_grad():
        net.table.weight.copy_(rows)
    return net


def all_rows(net):
    with torch.no_grad():
        return net.table(torch.arange(ROWS)).clone()


def batch(step, rank, size=6):
    generator = torch.Generator().manual_seed(1000 * step + rank + 7)
    return torch.randint(ROWS, (size, 2), generator=generator), torch.randn(size, generator=generator)


def loss_of(net, ids, y):
    return nn.functional.mse_loss(net(ids), y)


def dense_bits(net):
    return b"".join(p.detach().numpy().tobytes() for n, p in net.named_parameters() if not n.startswith("table"))
