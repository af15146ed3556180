"""Two workers of which only one gives samples=: all are told, nothing is applied."""
import torch

import cairn
from optimizer_workers.checks import Checks
from optimizer_workers.clip_checks import assert_raises
from optimizer_workers.problems import assert_close, assert_same, backward, batch, copied, train, whole
from optimizer_workers.step_checks import pair, sgd

CHECKS = Checks()


@CHECKS
def samples_on_one_worker_only_raise(rank):
    """With weights 8 and 1 the mean would be nearly one worker's alone, and nothing would show it."""
    words = "rank 1 gives samples= in this round, rank 0 does not"
    for options in ({}, {"update": "worker"}):
        model, optimizer, alone, plain = pair(sgd, **options)
        before = copied(model)
        backward(model, batch(rank, 0))
        assert_raises(cairn.HyperMismatchError, lambda: optimizer.step(samples=8 if rank == 1 else None), words)
        assert_same(model, before)
        optimizer.zero_grad()
        backward(model, batch(rank, 0))
        clip = {"samples": 8} if rank == 1 else {}
        assert_raises(cairn.HyperMismatchError, lambda: optimizer.clip_grad_norm_(1.0, **clip), words)
        assert_same(model, before)
        optimizer.zero_grad()
        backward(model, batch(rank, 1))
        optimizer.step(samples=8)
        train(alone, plain, [whole(1)])
        assert_close(model, alone)
    return model


@CHECKS
def samples_of_a_worker_without_a_gradient_are_asked_for_too(rank):
    param = torch.nn.Parameter(torch.zeros(3))
    optimizer = cairn.DistributedOptimizer(torch.optim.SGD([param], lr=1.0))
    param.grad = torch.ones(3) if rank == 0 else None
    assert_raises(cairn.HyperMismatchError, lambda: optimizer.step(samples=4 if rank == 0 else None),
                  "rank 0 gives samples= in this round, rank 1 does not")
    return torch.nn.ParameterList([param])
