"""Two workers, Async(): nobody waits, each gradient is applied with its sender's learning rate."""
import math

import torch
from torch import nn
from torch.nn import functional as F

import cairn
from optimizer_workers.checks import Checks
from optimizer_workers.clip_checks import assert_raises
from optimizer_workers.problems import (
    assert_close,
    assert_same,
    backward,
    batch,
    copied,
    differs,
    loss_of,
    net,
    norm_net,
    train,
    whole,
)
from optimizer_workers.step_checks import adam, sgd

CHECKS = Checks()


def wrap(model, inner, **options):
    return cairn.DistributedOptimizer(inner, model, mode=cairn.Async(), **options)


@CHECKS
def both_train_one_model(rank):
    for make in (lambda p: sgd(p, lr=0.02, momentum=0.5), adam):
        model = net(seed=rank)
        optimizer = wrap(model, make(model.parameters()))
        before = loss_of(net(seed=0), whole(0)).item()
        for _ in range(12):  # side by side, however busy the machine is
            train(model, optimizer, [batch(rank, 0)] * 5)
            cairn.barrier()
        optimizer.pull()
        assert loss_of(model, whole(0)).item() < 0.7 * before
        # Both have trained it: neither would have got here alone in 60 steps of its own data.
        if make is adam:
            assert float(optimizer.state_dict()["state"][0]["step"]) == 120
        cairn.barrier()
    return model


@CHECKS
def all_start_with_the_roots_weights(rank):
    for root in (0, 1):
        model = norm_net(seed=10 + rank)
        model[1].running_mean.fill_(rank)
        wrap(model, sgd(model[2].parameters()), root_rank=root)
        expected = norm_net(seed=10 + root)
        expected[1].running_mean.fill_(root)
        assert_same(model, expected)
    return model


@CHECKS
def each_push_has_its_own_rate(rank):
    param = nn.Parameter(torch.zeros(7))
    optimizer = wrap(None, torch.optim.SGD([param], lr=(0.5, 0.125)[rank]))
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 if step < 4 else 0.5)
    for _ in range(8):
        param.grad = torch.ones(7)
        optimizer.step()
        scheduler.step()
    cairn.barrier()
    optimizer.pull()
    assert torch.equal(param, torch.full((7,), -(0.5 + 0.125) * (4 + 2.0))), param
    return [param]


@CHECKS
def a_step_gives_the_others_updates_too(rank):
    """Without pull(): a worker that steps has what the servers have."""
    param = nn.Parameter(torch.zeros(3))
    optimizer = wrap(None, torch.optim.SGD([param], lr=1.0))
    if rank == 0:
        param.grad = torch.ones(3)
        optimizer.step()
    cairn.barrier()
    if rank == 1:
        param.grad = torch.full((3,), 2.0)
        optimizer.step()
        assert torch.equal(param, torch.full((3,), -3.0)), param
    cairn.barrier()
    optimizer.pull()
    return [param]


@CHECKS
def unused_parameters_are_untouched(rank):
    params = [nn.Parameter(torch.ones(4)) for _ in range(3)]
    groups = [{"params": params[:2]}, {"params": params[2:]}]
    optimizer = wrap(None, torch.optim.SGD(groups, lr=0.5, weight_decay=0.5))
    for _ in range(2):
        params[0].grad, params[1].grad, params[2].grad = torch.ones(4), None, None
        optimizer.step()
    cairn.barrier()
    optimizer.pull()
    assert torch.equal(params[1], torch.ones(4)) and torch.equal(params[2], torch.ones(4))
    alone = nn.Parameter(torch.ones(4))
    plain = torch.optim.SGD([alone], lr=0.5, weight_decay=0.5)
    for _ in range(4):
        alone.grad = torch.ones(4)
        plain.step()
    assert torch.allclose(params[0], alone)
    return params


@CHECKS
def pull_brings_rank_0s_buffers(rank):
    model = norm_net()
    optimizer = wrap(model, sgd(model.parameters()))
    train(model, optimizer, [batch(rank, step) for step in range(3)])
    cairn.barrier()
    before = model[1].running_mean.clone()
    optimizer.pull()
    assert (rank == 0) == torch.equal(model[1].running_mean, before)
    assert int(model[1].num_batches_tracked) == 3  # pull() has not put it back
    return model


@CHECKS
def pull_leaves_what_the_optimizer_does_not_hold(rank):
    """A model in two parts, each with an optimizer that was given the whole."""
    model = net(seed=rank)
    first, last = wrap(model, sgd(model[0].parameters())), wrap(model, sgd(model[2].parameters()))
    backward(model, batch(rank, 0))
    last.step()
    cairn.barrier()
    last.pull()
    trained = copied(model[2])
    assert differs(model[2], net(seed=0)[2])
    first.pull()
    assert_same(model[2], trained)
    return model


@CHECKS
def an_inf_under_amp_skips_only_here(rank):
    param = nn.Parameter(torch.zeros(3))
    optimizer = wrap(None, torch.optim.SGD([param], lr=1.0))
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for step in range(2):
        optimizer.zero_grad()
        scaler.scale((param * (1.0 + rank)).sum()).backward()
        if step == 1 and rank == 1:
            param.grad[0] = math.inf
        scaler.step(optimizer)
        scaler.update()
    cairn.barrier()
    optimizer.pull()
    assert torch.equal(param, torch.full((3,), -(1.0 + 2.0 + 1.0))), param
    return [param]


@CHECKS
def clipping_is_of_the_own_gradient(rank):
    param = nn.Parameter(torch.zeros(4))
    optimizer = wrap(None, torch.optim.SGD([param], lr=1.0))
    param.grad = torch.full((4,), 2.0 + 2 * rank)
    norm = float(optimizer.clip_grad_norm_(2.0))
    assert abs(norm - (4.0 + 4 * rank)) < 1e-5
    optimizer.step()
    cairn.barrier()
    optimizer.pull()
    assert torch.allclose(param, torch.full((4,), -2.0), atol=1e-5), param
    return [param]


@CHECKS
def not_a_number_raises_here_and_names(rank):
    model = net()
    groups = [{"params": model[0].parameters()}, {"params": model[2].parameters()}]
    optimizer = wrap(model, sgd(groups))
    if rank == 1:
        backward(model, batch(rank, 0))
        model[2].bias.grad[0] = math.nan
        assert_raises(cairn.NotFiniteError, optimizer.step, "2.bias", "NaN")
        optimizer.zero_grad()
        train(model, optimizer, [batch(rank, 0)])
    cairn.barrier()
    optimizer.pull()
    assert all(torch.isfinite(p).all() for p in model.parameters())
    return model


@CHECKS
def written_from_outside(rank):
    model = norm_net()
    optimizer = wrap(model, sgd(model.parameters()))
    train(model, optimizer, [batch(rank, 0)])
    cairn.barrier()
    with torch.no_grad():
        model[2].weight.fill_(0.5 + rank)
    backward(model, batch(rank, 1))
    assert_raises(cairn.ParametersChangedError, optimizer.step, "2.weight", "push_parameters()")
    optimizer.push_parameters()
    assert torch.equal(model[2].weight, torch.full_like(model[2].weight, 0.5))
    cairn.barrier()
    train(model, optimizer, [batch(rank, 1)])
    cairn.barrier()
    optimizer.pull()
    return model


@CHECKS
def loading_a_state_the_root_wins(rank):
    alone = net()
    plain = sgd(alone.parameters())
    train(alone, plain, [whole(0), whole(1)])
    model = net()
    optimizer = wrap(model, sgd(model.parameters()))
    model.load_state_dict(alone.state_dict())
    optimizer.push_parameters()
    state = plain.state_dict()
    if rank == 1:
        state = sgd(net().parameters()).state_dict()
    optimizer.load_state_dict(state)
    if rank == 0:  # alone, so that there is one right answer
        train(model, optimizer, [whole(2)])
    cairn.barrier()
    train(alone, plain, [whole(2)])
    optimizer.pull()
    assert_close(model, alone)
    return model


@CHECKS
def join_waits_for_nobody(rank):
    model = net()
    optimizer = wrap(model, sgd(model.parameters(), lr=0.01))
    with optimizer.join():
        train(model, optimizer, [batch(rank, step) for step in range(2 + 3 * rank)])
    cairn.barrier()
    optimizer.pull()
    assert F.mse_loss(model[0].weight, net()[0].weight).item() > 0
    return model
