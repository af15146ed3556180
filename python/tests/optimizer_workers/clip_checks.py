"""Two workers, Sync(): rounds in two phases, for clipping by the global norm and AMP's skip."""
import math

import torch

import cairn
from optimizer_workers.checks import Checks
from optimizer_workers.problems import (
    assert_close,
    assert_same,
    backward,
    batch,
    copied,
    differs,
    loss_of,
    norm_net,
    train,
    whole,
)
from optimizer_workers.step_checks import adam, pair, sgd

CHECKS = Checks()


def clipped(model, optimizer, data, *limits):
    optimizer.zero_grad()
    backward(model, data)
    if isinstance(optimizer, cairn.DistributedOptimizer):
        norms = [float(optimizer.clip_grad_norm_(limit)) for limit in limits]
    else:
        clip = torch.nn.utils.clip_grad_norm_
        norms = [float(clip(model.parameters(), limit)) for limit in limits]
    optimizer.step()
    return norms


def assert_raises(kind, call, *words):
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(f"no {kind.__name__}")


@CHECKS
def clipping_is_by_the_norm_of_the_mean(rank):
    def make(params):
        params = list(params)
        # One norm over both groups.
        return adam([{"params": params[:1], "lr": 0.02}, {"params": params[1:]}])

    for make_one in (make, sgd):
        model, optimizer, alone, plain = pair(make_one)
        for step in range(5):
            limit = 100.0 if step == 3 else 0.1
            got = clipped(model, optimizer, batch(rank, step), limit)
            want = clipped(alone, plain, whole(step), limit)
            assert abs(got[0] - want[0]) <= 1e-5 * want[0], (got, want)
        assert_close(model, alone)
    return model


@CHECKS
def clipping_weighs_by_samples(rank):
    sizes = (3, 9)
    model, optimizer, alone, plain = pair(sgd)
    for step in range(3):
        optimizer.zero_grad()
        backward(model, batch(rank, step, sizes[rank]))
        norm = float(optimizer.clip_grad_norm_(0.1, samples=sizes[rank]))
        optimizer.step(samples=sizes[rank])
        want = clipped(alone, plain, whole(step, sizes), 0.1)[0]
        assert abs(norm - want) <= 1e-5 * want
    assert_close(model, alone)
    backward(model, batch(rank, 9))
    optimizer.clip_grad_norm_(0.1)
    before = copied(model)
    assert_raises(cairn.Error, lambda: optimizer.step(samples=sizes[rank]), "samples=")
    assert_same(model, before)
    return model


@CHECKS
def clipping_twice(rank):
    model, optimizer, alone, plain = pair(sgd)
    for step, limits in enumerate([(0.5, 0.1), (0.1, 0.5), (0.05, 0.05)]):
        got = clipped(model, optimizer, batch(rank, step), *limits)
        want = clipped(alone, plain, whole(step), *limits)
        for a, b in zip(got, want):
            assert abs(a - b) <= 1e-5 * b, (got, want)
    assert_close(model, alone)
    return model


@CHECKS
def clipping_without_a_step(rank):
    """Gradients that were clipped and then thrown away count for nothing."""
    model, optimizer, alone, plain = pair(adam)
    for step in range(4):
        optimizer.zero_grad()
        backward(model, batch(rank, 100 + step))
        optimizer.clip_grad_norm_(0.1)
        clipped(model, optimizer, batch(rank, step), 0.1)
        clipped(alone, plain, whole(step), 0.1)
    backward(model, batch(rank, 200))
    optimizer.clip_grad_norm_(0.1)
    optimizer.push_parameters()  # needs a round of its own
    train(model, optimizer, [batch(rank, 4)])
    train(alone, plain, [whole(4)])
    assert_close(model, alone)
    return model


@CHECKS
def gradients_that_change_after_clipping_raise(rank):
    model, optimizer, alone, plain = pair(sgd)
    before = copied(model)

    def in_place():
        model[0].weight.grad.mul_(2)

    def another():
        model[0].weight.grad = model[0].weight.grad * 2

    def gone():
        optimizer.zero_grad()

    for change in (in_place, another, gone):
        optimizer.zero_grad()
        backward(model, batch(rank, 0))
        optimizer.clip_grad_norm_(0.1)
        change()
        assert_raises(cairn.Error, optimizer.step, "gradients changed", "clip_grad_norm_()")
        assert_same(model, before)
    clipped(model, optimizer, batch(rank, 1), 0.1)
    clipped(alone, plain, whole(1), 0.1)
    assert_close(model, alone)
    return model


@CHECKS
def a_wrong_call_after_clipping_is_told_why_and_the_others_by_whom(rank):
    model, optimizer, alone, plain = pair(sgd)
    before = copied(model)
    backward(model, batch(rank, 0))
    optimizer.clip_grad_norm_(0.1)
    if rank == 0:
        assert_raises(cairn.Error, lambda: optimizer.step(samples=5), "give samples= to clip_grad_norm_()")
    else:
        assert_raises(cairn.HyperMismatchError, optimizer.step, "rank 0 skips it")
    assert_same(model, before)
    clipped(model, optimizer, batch(rank, 1), 0.1)
    clipped(alone, plain, whole(1), 0.1)
    assert_close(model, alone)
    return model


@CHECKS
def not_a_number_with_clipping_raises_everywhere(rank):
    model, optimizer, alone, plain = pair(adam)
    for bad in (math.nan, math.inf):
        before = copied(model)
        optimizer.zero_grad()
        backward(model, batch(rank, 0))
        if rank == 1:
            model[2].bias.grad[0] = bad
        norm = float(optimizer.clip_grad_norm_(0.1))
        assert not math.isfinite(norm)
        assert_raises(cairn.NotFiniteError, optimizer.step, "skipped on all workers")
        assert_same(model, before)
    for step in range(2):
        clipped(model, optimizer, batch(rank, step), 0.1)
        clipped(alone, plain, whole(step), 0.1)
    assert_close(model, alone)
    return model


@CHECKS
def rates_that_differ_raise_when_clipping(rank):
    def make(params):
        params = list(params)
        return sgd([{"params": params[:1]}, {"params": params[1:]}])

    model, optimizer, alone, plain = pair(make)
    before = copied(model)
    backward(model, batch(rank, 0))
    optimizer.param_groups[1]["lr"] = 0.1 * (1 + rank)
    assert_raises(cairn.HyperMismatchError, lambda: optimizer.clip_grad_norm_(0.1), "rank")
    assert_same(model, before)
    optimizer.param_groups[1]["lr"] = 0.1
    clipped(model, optimizer, batch(rank, 1), 0.1)
    clipped(alone, plain, whole(1), 0.1)
    assert_close(model, alone)
    return model


def amp_steps(rank, optimizer, model, clips=False, unscales=False, poison=True):
    """Six steps under a GradScaler; rank 1 meets an inf in the third one."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
    for step in range(6):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, batch(rank, step))).backward()
        if poison and step == 2 and rank == 1:
            model[0].weight.grad[0, 0] = math.inf
        before = copied(model)
        if unscales:
            scaler.unscale_(optimizer)
        if clips:
            optimizer.clip_grad_norm_(0.1)
        scaler.step(optimizer)
        scaler.update()
        assert differs(model, before) == (step != 2)
    return scaler.get_scale()


@CHECKS
def an_inf_under_amp_skips_on_all(rank):
    for make in (sgd, adam):
        model, optimizer, alone, plain = pair(make)
        scale = amp_steps(rank, optimizer, model)
        assert scale == (2.0**11 if rank == 0 else 2.0**10) or scale == 2.0**12, scale
        train(alone, plain, [whole(step) for step in (0, 1, 3, 4, 5)])
        assert_close(model, alone)
        if make is adam:
            assert float(optimizer.state_dict()["state"][0]["step"]) == 5
    return model


@CHECKS
def amp_with_unscale_and_clip(rank):
    model, optimizer, alone, plain = pair(sgd)
    amp_steps(rank, optimizer, model, clips=True, unscales=True)
    for step in (0, 1, 3, 4, 5):
        clipped(alone, plain, whole(step), 0.1)
    assert_close(model, alone)
    model, optimizer, alone, plain = pair(sgd)
    amp_steps(rank, optimizer, model, unscales=True)  # unscaled by hand, not clipped
    train(alone, plain, [whole(step) for step in (0, 1, 3, 4, 5)])
    assert_close(model, alone)
    return model


@CHECKS
def clipping_scaled_gradients_raises(rank):
    """As in torch, unscale_() comes first; it must not be forgotten in silence."""
    model, optimizer, alone, plain = pair(sgd)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    before = copied(model)
    scaler.scale(loss_of(model, batch(rank, 0))).backward()
    optimizer.clip_grad_norm_(0.1)
    assert_raises(cairn.Error, lambda: scaler.step(optimizer), "scaler.unscale_(optimizer)")
    assert_same(model, before)
    train(model, optimizer, [batch(rank, 1)])  # a plain step: the scaler's marks are gone
    train(alone, plain, [whole(1)])
    assert_close(model, alone)
    return model


@CHECKS
def a_step_that_is_given_up_keeps_the_buffers_in_step(rank):
    """Rates that differ end a clipped step on both workers; each step is one round of every table."""
    model, optimizer, _, _ = pair(sgd, model=norm_net)
    served = optimizer._served

    def distance():
        return served.groups[0].table.round() - served.buffers[0].table.round()

    train(model, optimizer, [batch(rank, 0)])
    before = distance()
    rate = optimizer.param_groups[0]["lr"]
    optimizer.param_groups[0]["lr"] = rate * (1 + rank)
    backward(model, batch(rank, 1))
    assert_raises(cairn.HyperMismatchError, lambda: (optimizer.clip_grad_norm_(1.0), optimizer.step()))
    optimizer.param_groups[0]["lr"] = rate
    train(model, optimizer, [batch(rank, 2)])
    assert distance() == before, (before, distance())
    return model

