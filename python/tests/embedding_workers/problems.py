"""A model of two tables, a bag and a dense layer; batches of each rank; and the same in one
process."""
import torch
from torch import nn

import cairn

ROWS, DIM = 40, 4


class Model(nn.Module):
    """`kind` is cairn.nn or torch.nn: the same names, the same shapes."""

    def __init__(self, kind, **options):
        super().__init__()
        torch.manual_seed(7)
        self.user = kind.Embedding(ROWS, DIM, **options)
        self.item = kind.Embedding(ROWS, DIM, padding_idx=0, **options)
        self.tags = kind.EmbeddingBag(ROWS, DIM, mode="sum", **options)
        self.top = nn.Linear(DIM, 2)

    def tables(self):
        return [p for name, p in self.named_parameters() if not name.startswith("top.")]

    def forward(self, batch):
        user, item, tags, offsets = batch
        return self.top(self.user(user) + self.item(item) + self.tags(tags, offsets)).tanh()

    def ids(self, batch):
        user, item, tags, offsets = batch
        return {self.user: user, self.item: item, self.tags: (tags, offsets)}


def pair(**options):
    """A model on the servers and one of torch with the same values."""
    mine, alone = Model(cairn.nn), Model(nn, **options)
    alone.load_state_dict(mine.state_dict())
    return mine, alone


def batch(rank, step, samples=5):
    generator = torch.Generator().manual_seed(1 + 1000 * rank + step)

    def ids(*shape):
        return torch.randint(0, ROWS, shape, generator=generator)

    return ids(samples), ids(samples), ids(3 * samples), torch.arange(samples) * 3


def loss_of(model, data):
    return model(data).sin().mean()


def step(model, optimizer, data, **options):
    optimizer.zero_grad()
    loss_of(model, data).backward()
    optimizer.step(**options)


def step_of_all(model, optimizer, data, weights=None):
    """What one process does with the batches of all workers."""
    weights = weights or [1.0] * len(data)
    optimizer.zero_grad()
    sum(w / sum(weights) * loss_of(model, one) for w, one in zip(weights, data)).backward()
    optimizer.step()


def all_batches(number):
    return [batch(rank, number) for rank in range(cairn.world_size())]
