"""Two workers, Sync(): join(), for those that run out of data at different times; and
update="worker", where the servers only reduce."""
import copy

import torch

import cairn
from optimizer_workers.checks import Checks
from optimizer_workers.clip_checks import amp_steps, assert_raises, clipped
from optimizer_workers.problems import (
    assert_close,
    assert_same,
    backward,
    batch,
    copied,
    differs,
    net,
    norm_net,
    train,
    whole,
)
from optimizer_workers.step_checks import adam, pair, sgd

CHECKS = Checks()
EPOCHS = ((7, 12), (5, 3), (4, 4), (0, 2))  # batches that each rank has


def nadam(params):
    return torch.optim.NAdam(params, lr=0.02, weight_decay=0.01)


def uneven(count, epoch, step):
    """What one process would train on in this step: the batches of those who still have one."""
    data = [batch(rank, 100 * epoch + step) for rank in (0, 1) if step < count[rank]]
    return torch.cat([x for x, _ in data]), torch.cat([y for _, y in data])


def uneven_epochs(rank, make, model=net, one_step=clipped, **options):
    mine, optimizer, alone, plain = pair(make, model=model, **options)
    for epoch, count in enumerate(EPOCHS):
        with optimizer.join():
            for step in range(count[rank]):
                one_step(mine, optimizer, batch(rank, 100 * epoch + step))
        for step in range(max(count)):
            one_step(alone, plain, uneven(count, epoch, step))
    return mine, alone


@CHECKS
def join_with_uneven_data(rank):
    for make in (sgd, adam):
        model, alone = uneven_epochs(rank, make)
        assert_close(model, alone)
    return model


@CHECKS
def join_with_clipping(rank):
    model, alone = uneven_epochs(rank, adam, one_step=lambda m, o, data: clipped(m, o, data, 0.1))
    assert_close(model, alone)
    return model


@CHECKS
def join_with_two_groups(rank):
    def make(params):
        params = list(params)
        return sgd([{"params": params[:2], "lr": 0.02}, {"params": params[2:]}])

    model, alone = uneven_epochs(rank, make)
    assert_close(model, alone)
    return model


@CHECKS
def join_and_buffers(rank):
    """The first worker runs out first: its statistics are the truth at the end all the same."""
    model, _ = uneven_epochs(rank, sgd, model=norm_net)
    return model


@CHECKS
def join_drops_what_was_clipped_and_not_used(rank):
    model, optimizer, alone, plain = pair(sgd)
    with optimizer.join():
        train(model, optimizer, [batch(rank, 0)])
        optimizer.zero_grad()
        backward(model, batch(rank, 1))
        optimizer.clip_grad_norm_(0.1)
    train(alone, plain, [whole(0)])
    assert_close(model, alone)
    return model


@CHECKS
def an_exception_leaves_join_at_once(rank):
    """It is not for the others to wait for: DistributedDataParallel does the same."""
    model, optimizer, _, _ = pair(sgd)

    def raise_inside():
        with optimizer.join():
            raise KeyError("x")

    assert_raises(KeyError, raise_inside)
    train(model, optimizer, [batch(rank, 0)])
    return model


# update="worker".
@CHECKS
def worker_updates_equal_one_process(rank):
    for make in (nadam, sgd, lambda p: torch.optim.Adamax(p, lr=0.01)):
        model, optimizer, alone, plain = pair(make, update="worker")
        for step in range(4):
            train(model, optimizer, [batch(rank, step)])
            train(alone, plain, [whole(step)])
        assert_close(model, alone)
    return model


@CHECKS
def worker_updates_start_with_the_roots_weights_and_state(rank):
    alone = net(0)
    plain = nadam(alone.parameters())
    train(alone, plain, [whole(0), whole(1)])
    model = net(rank)
    inner = nadam(model.parameters())
    train(model, inner, [whole(0), whole(1)])  # rank 1 from other weights, so with other state
    optimizer = cairn.DistributedOptimizer(inner, model, update="worker", root_rank=0)
    assert_same(model, alone)
    for step in range(2, 5):
        train(model, optimizer, [batch(rank, step)])
        train(alone, plain, [whole(step)])
    assert_close(model, alone)
    return model


@CHECKS
def worker_updates_load_a_state_the_root_wins(rank):
    alone, other = net(0), net(7)
    plain, wrong = nadam(alone.parameters()), nadam(other.parameters())
    train(alone, plain, [whole(0), whole(1)])
    train(other, wrong, [whole(0), whole(1)])
    model, optimizer, _, _ = pair(nadam, update="worker")
    train(model, optimizer, [batch(rank, 20)])
    model.load_state_dict((other if rank == 1 else alone).state_dict())
    optimizer.push_parameters()
    assert_same(model, alone)
    # A copy: torch's load_state_dict goes on using the tensors that it is given.
    optimizer.load_state_dict(copy.deepcopy((wrong if rank == 1 else plain).state_dict()))
    for step in range(2, 5):
        train(model, optimizer, [batch(rank, step)])
        train(alone, plain, [whole(step)])
    assert_close(model, alone)
    return model


@CHECKS
def worker_updates_with_clipping(rank):
    model, optimizer, alone, plain = pair(nadam, update="worker")
    for step in range(5):
        limits = (0.5, 0.1) if step == 2 else (100.0,) if step == 3 else (0.1,)
        got = clipped(model, optimizer, batch(rank, step), *limits)
        want = clipped(alone, plain, whole(step), *limits)
        for a, b in zip(got, want):
            assert abs(a - b) <= 1e-5 * b, (got, want)
    assert_close(model, alone)
    return model


@CHECKS
def worker_updates_weigh_samples_and_sum(rank):
    sizes = (3, 9)
    model, optimizer, alone, plain = pair(nadam, update="worker")
    for step in range(3):
        optimizer.zero_grad()
        backward(model, batch(rank, step, sizes[rank]))
        optimizer.step(samples=sizes[rank])
        train(alone, plain, [whole(step, sizes)])
    assert_close(model, alone)
    model, optimizer, alone, plain = pair(sgd, update="worker", reduce="sum")
    for step in range(3):
        train(model, optimizer, [batch(rank, step)])
        plain.zero_grad()
        for other in (0, 1):
            backward(alone, batch(other, step))
        plain.step()
    assert_close(model, alone)
    return model


@CHECKS
def worker_updates_and_unused_parameters(rank):
    mine = [torch.nn.Parameter(torch.full((5,), float(i + 1))) for i in range(3)]
    alone = [torch.nn.Parameter(p.detach().clone()) for p in mine]
    optimizer, plain = cairn.DistributedOptimizer(nadam(mine), update="worker"), nadam(alone)
    for step in range(3):
        gradient = [torch.full((5,), 1.0 + step), torch.full((5,), 3.0 - step)]
        mine[0].grad = gradient[rank].clone()
        mine[1].grad = gradient[0].clone() if rank == 0 else None
        mine[2].grad = None
        optimizer.step()
        assert mine[2].grad is None
        alone[0].grad = (gradient[0] + gradient[1]) / 2
        alone[1].grad = gradient[0] / 2
        plain.step()
    assert_close(mine, alone)
    assert torch.equal(mine[2], torch.full((5,), 3.0))  # weight decay too
    return mine


@CHECKS
def worker_updates_under_amp(rank):
    for clips in (False, True):
        model, optimizer, alone, plain = pair(nadam, update="worker")
        amp_steps(rank, optimizer, model, clips=clips, unscales=clips)
        for step in (0, 1, 3, 4, 5):
            clipped(alone, plain, whole(step), *((0.1,) if clips else ()))
        assert_close(model, alone)
    return model


@CHECKS
def worker_updates_and_nan(rank):
    model, optimizer, _, _ = pair(nadam, update="worker")
    train(model, optimizer, [batch(rank, 0)])
    before = copied(model)
    optimizer.zero_grad()
    backward(model, batch(rank, 1))
    if rank == 0:
        model[0].weight.grad[0, 0] = float("nan")
    optimizer.clip_grad_norm_(1.0)
    assert_raises(cairn.NotFiniteError, optimizer.step, "skipped on all workers")
    assert_same(model, before)
    train(model, optimizer, [batch(rank, 2)])
    assert differs(model, before)
    return model


@CHECKS
def worker_updates_and_join(rank):
    for clips in (False, True):
        limits = (0.1,) if clips else ()
        model, alone = uneven_epochs(rank, nadam, update="worker",
                                     one_step=lambda m, o, data: clipped(m, o, data, *limits))
        assert_close(model, alone)
    return model


@CHECKS
def worker_updates_skipped_while_one_has_joined(rank):
    """Who has run out of data must not repeat the last update when the others skip one."""
    model, optimizer, alone, plain = pair(nadam, update="worker")
    with optimizer.join():
        train(model, optimizer, [batch(rank, 0)])
        if rank == 1:
            amp_steps(1, optimizer, model)
    train(alone, plain, [whole(0)])
    train(alone, plain, [batch(1, step) for step in (0, 1, 3, 4, 5)])
    assert_close(model, alone)
    return model


@CHECKS
def worker_updates_with_rates_that_differ_raise(rank):
    model, optimizer, _, _ = pair(nadam, update="worker")
    before = copied(model)
    optimizer.param_groups[0]["lr"] = 0.1 * (1 + rank)
    backward(model, batch(rank, 0))
    assert_raises(cairn.HyperMismatchError, optimizer.step, "rank")
    assert_same(model, before)
    return model


@CHECKS
def join_two_optimizers_at_different_rates(rank):
    """A GAN's loop: the second optimizer steps once for three steps of the first."""
    (one, first, _, _), (other, second, _, _) = pair(sgd), pair(adam)
    with cairn.join(first, second):
        for step in range((5, 9)[rank]):
            train(one, first, [batch(rank, step)])
            if step % 3 == 2:
                train(other, second, [batch(rank, step)])
    both = torch.nn.ModuleList([one, other])
    assert first._served.groups[0].table.round() == 1 + 9 + 1  # initial values, steps, all have left
    for step in range(2):  # and it goes on
        train(one, first, [batch(rank, step)])
        train(other, second, [batch(rank, step)])
    return both
