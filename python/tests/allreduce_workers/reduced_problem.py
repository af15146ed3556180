"""What the checks of AllReduced share: a job of three workers, and the same in one process."""
import torch
from torch import nn

import cairn
from allreduce_workers.driver import digest, make_model, make_optimizer, reduce_all
from cairn._allreduce import group as allreduce_group

WORLD = 3
names = iter(f"wrap-{i}" for i in range(1000))


def start(seed=0, model=None, optimizer=None, **options):
    """The same model on every worker from different seeds, what is all-reduced, and one process's."""
    rank = cairn.rank()
    make, give = model or make_model, optimizer or make_optimizer
    mine, expected = make(seed + rank), make(seed)
    inner = give(mine)
    reduced = reduce_all(mine, inner, next(names), **options)
    return mine, inner, reduced, expected, give(expected)


def one_process(expected, plain, parts):
    """parts: (batch, weight) of each worker."""
    plain.zero_grad()
    total = sum(weight for _, weight in parts)
    for (x, y), weight in parts:
        (nn.functional.mse_loss(expected(x), y) * (weight / total)).backward()
    plain.step()


class Counted:
    """How many all-reduces are begun, and how many of them before contribute()."""

    def __init__(self, reduced):
        self._before = allreduce_group.Group.all_reduce
        self.count = 0
        self.buckets = len(reduced._buckets.buckets)

    def __enter__(self):
        def count(group, flat):
            self.count += 1
            return self._before(group, flat)

        allreduce_group.Group.all_reduce = count
        return self

    def __exit__(self, *_):
        allreduce_group.Group.all_reduce = self._before

    def take(self):
        """In buckets' worth, since the last call."""
        found, self.count = self.count / self.buckets, 0
        return found


def same_bits(model, optimizer):
    """On every worker."""
    mine = torch.tensor([int(digest(model, optimizer), 16) % 2**62])
    table = cairn.dense_table(f"bits-{next(names)}", WORLD, mode=cairn.Async(), optimizer="first", dtype="int64")
    values = torch.zeros(WORLD, dtype=torch.int64)
    values[cairn.rank()] = mine
    table.push(values).wait()
    cairn.barrier()
    found = table.pull().result().tolist()
    assert len(set(found)) == 1, found
