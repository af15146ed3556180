"""What the all-reduce tests' workers share: a model, its data, and a loop without DistributedOptimizer.

A step here is what the optimizer does: contribute, vote, settle, apply.
"""
import contextlib
import hashlib
import os
import pathlib
import shutil
import tempfile

import torch
from torch import nn

import cairn
from cairn._allreduce.allreduced import AllReduced
from cairn._runtime import context


def make_model(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3))


def make_optimizer(model):
    return torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=0.01)


def batch(step, rank, size=4):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(size, 6, generator=generator), torch.randn(size, 3, generator=generator)


def backward(model, x, y):
    nn.functional.mse_loss(model(x), y).backward()


def digest(model, optimizer):
    """Of the bits of parameters and state."""
    found = hashlib.sha256()
    for param in model.parameters():
        found.update(param.detach().numpy().tobytes())
        for _, value in sorted(optimizer.state.get(param, {}).items()):
            found.update(value.numpy().tobytes())
    return found.hexdigest()[:16]


def reduce_all(model, optimizer, name="test", root_rank=0):
    names = [n for n, _ in model.named_parameters()]
    reduced = AllReduced(list(model.parameters()), names, optimizer, root_rank)
    reduced.attach(context.current(), name)
    if reduced.joined_step is not None:
        reduced.apply()
    return reduced


def step(reduced, weight=None, **options):
    reduced.contribute(1.0 if weight is None else weight, weight is not None, **options)
    reduced.settle(reduced.vote())
    reduced.apply()


def small_buckets():
    """Several buckets also in a small model."""
    from cairn._allreduce import buckets as allreduce_buckets

    allreduce_buckets._FIRST_BYTES, allreduce_buckets._BYTES = 64, 512
    allreduce_buckets.plan.__defaults__ = (64, 512)


def assert_close(model, expected):
    for a, b in zip(model.parameters(), expected.parameters()):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


@contextlib.contextmanager
def common_folder(name):
    """One that all workers of this job see, until all have left the block."""
    token = os.environ["OPTIMIZER_TEST_TOKEN"]
    folder = pathlib.Path(tempfile.gettempdir()) / f"cairn-{name}-{token}"
    folder.mkdir(exist_ok=True)
    try:
        yield folder
        cairn.barrier()
    finally:
        if cairn.rank() == 0:
            shutil.rmtree(folder, ignore_errors=True)
