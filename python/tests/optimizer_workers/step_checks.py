"""Two workers, Sync(): a step is what one process does on the data of both."""
import copy

import torch
from torch import nn

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
    net,
    norm_net,
    train,
    whole,
)

CHECKS = Checks()


def sgd(params, **options):
    return torch.optim.SGD(params, **{"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, **options})


def adam(params, **options):
    return torch.optim.Adam(params, **{"lr": 0.01, "eps": 1e-4, **options})


def pair(make, seed=0, model=net, **options):
    """A model of this worker with its optimizer, and what one process has."""
    mine, alone = model(seed), model(seed)
    optimizer = cairn.DistributedOptimizer(make(mine.parameters()), mine, **options)
    return mine, optimizer, alone, make(alone.parameters())


@CHECKS
def all_start_with_the_roots_weights(rank):
    for root in (0, 1):
        model = norm_net(seed=10 + rank)
        model[1].running_mean.fill_(rank)
        model[1].num_batches_tracked.fill_(-(2**40) * rank - 7)
        # The first layer is not the optimizer's: it and the buffers are given all the same.
        optimizer = cairn.DistributedOptimizer(sgd(model[2].parameters()), model, root_rank=root)
        expected = norm_net(seed=10 + root)
        expected[1].running_mean.fill_(root)
        expected[1].num_batches_tracked.fill_(-(2**40) * root - 7)
        assert_same(model, expected)
        train(model, optimizer, [batch(rank, 0)])
    return model


@CHECKS
def weights_are_given_without_a_model(rank):
    model = net(seed=10 + rank)
    cairn.DistributedOptimizer(adam(model.parameters()))
    assert_same(model, net(seed=10))
    return model


@CHECKS
def sgd_and_adam_equal_one_process(rank):
    for make in (sgd, adam):
        model, optimizer, alone, plain = pair(make)
        for step in range(4):
            train(model, optimizer, [batch(rank, step)])
            train(alone, plain, [whole(step)])
        assert_close(model, alone)
    return model


@CHECKS
def samples_weigh_unequal_batches(rank):
    sizes = (3, 9)
    model, optimizer, alone, plain = pair(sgd)
    for step in range(4):
        optimizer.zero_grad()
        backward(model, batch(rank, step, sizes[rank]))
        optimizer.step(samples=sizes[rank])
        train(alone, plain, [whole(step, sizes)])
    assert_close(model, alone)
    return model


@CHECKS
def reduce_sum(rank):
    model, optimizer, alone, plain = pair(sgd, reduce="sum")
    for step in range(3):
        train(model, optimizer, [batch(rank, step)])
        plain.zero_grad()
        for other in (0, 1):
            backward(alone, batch(other, step))  # accumulates
        plain.step()
    assert_close(model, alone)
    return model


@CHECKS
def accumulated_gradients(rank):
    model, optimizer, alone, plain = pair(sgd)
    for step in range(0, 6, 2):
        for one, other, data in ((model, optimizer, batch), (alone, plain, lambda _, s: whole(s))):
            other.zero_grad()
            backward(one, data(rank, step))
            backward(one, data(rank, step + 1))
            other.step()
    assert_close(model, alone)
    return model


@CHECKS
def closures(rank):
    model, optimizer, alone, plain = pair(sgd)

    def closure():
        optimizer.zero_grad()
        return backward(model, batch(rank, 0))

    before = loss_of(model, batch(rank, 0)).item()
    assert abs(optimizer.step(closure).item() - before) < 1e-6
    train(alone, plain, [whole(0)])
    assert_close(model, alone)
    return model


@CHECKS
def buffers_are_rank_0s(rank):
    model, optimizer, _, _ = pair(sgd, model=norm_net)
    for step in range(3):
        first = copy.deepcopy(model)
        first(batch(0, step)[0])  # what rank 0's statistics are after its forward
        optimizer.zero_grad()
        backward(model, batch(rank, step))
        own = model[1].running_mean.clone()
        assert (rank == 0) == torch.allclose(own, first[1].running_mean, atol=1e-6)
        optimizer.step()
        assert torch.allclose(model[1].running_mean, first[1].running_mean, atol=1e-6)
        assert torch.allclose(model[1].running_var, first[1].running_var, atol=1e-6)
        assert int(model[1].num_batches_tracked) == step + 1
    return model


@CHECKS
def unused_parameters(rank):
    """Without a gradient anywhere: untouched. On some workers: zero, with their weight."""
    weights = (3.0, 1.0)
    for make in (sgd, lambda p: adam(p, weight_decay=0.1),
                 lambda p: torch.optim.RMSprop(p, weight_decay=0.1)):
        mine = [nn.Parameter(torch.full((5,), float(i + 1))) for i in range(3)]
        alone = [nn.Parameter(p.detach().clone()) for p in mine]
        optimizer, plain = cairn.DistributedOptimizer(make(mine)), make(alone)
        both, some, none = mine
        for step in range(4):
            gradient = [torch.full((5,), 1.0 + step), torch.full((5,), 3.0 - step)]
            both.grad = gradient[rank].clone()
            some.grad = gradient[0].clone() if rank == 0 else None
            optimizer.step(samples=weights[rank])
            alone[0].grad = (weights[0] * gradient[0] + weights[1] * gradient[1]) / 4
            alone[1].grad = weights[0] * gradient[0] / 4
            plain.step()
        assert_close(mine, alone)
        assert torch.equal(none, torch.full((5,), 3.0))
        state = optimizer.state_dict()["state"]
        assert 1 in state and 2 not in state, state
    return mine


@CHECKS
def frozen_half_way(rank):
    """A layer that is frozen and let go again, as one process would do it."""
    model, optimizer, alone, plain = pair(lambda p: adam(p, weight_decay=0.1))
    for step in range(6):
        for one in (model, alone):
            one[0].requires_grad_(step < 2 or step >= 4)
        before = copied(model[0])
        train(model, optimizer, [batch(rank, step)])
        train(alone, plain, [whole(step)])
        assert differs(model[0], before) == (step < 2 or step >= 4)
    assert_close(model, alone)
    return model


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.first, self.last = nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False)
        self.last.weight = self.first.weight
        self.frozen = nn.Linear(6, 3)
        self.frozen.requires_grad_(False)

    def forward(self, x):
        return self.frozen(torch.tanh(self.last(torch.tanh(self.first(x)))))


@CHECKS
def tied_and_frozen_parameters(rank):
    model, optimizer, alone, plain = pair(sgd, model=lambda _: Tied())
    frozen = copied(model.frozen)
    for step in range(3):
        train(model, optimizer, [batch(rank, step)])
        train(alone, plain, [whole(step)])
    assert model.last.weight is model.first.weight
    assert_same(model.frozen, frozen)
    assert_close(model, alone)
    return model


def gan_steps(generator, critic, generator_optimizer, critic_optimizer, data):
    """Five steps of the critic for one of the generator."""
    for round_ in range(3):
        for inner in range(5):
            x, _ = data(10 * round_ + inner)
            critic_optimizer.zero_grad()
            (critic(x).square().mean() - critic(generator(x).detach()).mean()).backward()
            critic_optimizer.step()
        x, _ = data(10 * round_ + 9)
        generator_optimizer.zero_grad()
        critic(generator(x)).mean().backward()
        generator_optimizer.step()


@CHECKS
def two_optimizers_at_different_rates(rank):
    torch.manual_seed(3)
    # Both have a parameter "0.weight", of different shapes.
    generator = nn.Sequential(nn.Linear(6, 6), nn.Tanh())
    critic = nn.Sequential(nn.Linear(6, 1))
    alone = copy.deepcopy((generator, critic))
    generator_optimizer = cairn.DistributedOptimizer(adam(generator.parameters()), generator)
    critic_optimizer = cairn.DistributedOptimizer(sgd(critic.parameters(), lr=0.02), critic)
    gan_steps(generator, critic, generator_optimizer, critic_optimizer, lambda s: batch(rank, s))
    gan_steps(*alone, adam(alone[0].parameters()), sgd(alone[1].parameters(), lr=0.02), whole)
    assert_close(generator, alone[0])
    assert_close(critic, alone[1])
    return nn.ModuleList([generator, critic])


@CHECKS
def two_models_with_the_same_names(rank):
    one = pair(sgd, seed=1)
    other = pair(adam, seed=2)
    for step in range(3):
        for model, optimizer, alone, plain in (one, other):
            train(model, optimizer, [batch(rank, step)])
            train(alone, plain, [whole(step)])
    assert_close(one[0], one[2])
    assert_close(other[0], other[2])
    return nn.ModuleList([one[0], other[0]])


@CHECKS
def groups_with_rates_of_their_own(rank):
    def make(model):
        return sgd([{"params": model[0].parameters(), "lr": 0.01, "weight_decay": 0.5},
                    {"params": [model[2].weight], "momentum": 0.0}])

    model, alone = net(), net()
    optimizer, plain = cairn.DistributedOptimizer(make(model), model), make(alone)
    for step in range(6):
        if step == 3:  # a further group, after the wrap
            optimizer.add_param_group({"params": [model[2].bias], "lr": 0.3})
            plain.add_param_group({"params": [alone[2].bias], "lr": 0.3})
        train(model, optimizer, [batch(rank, step)])
        train(alone, plain, [whole(step)])
    assert len(optimizer.param_groups) == 3
    assert_close(model, alone)
    return model


@CHECKS
def added_group_starts_with_the_roots_values(rank):
    """Fine-tuning: the head first, later more, which was only given to all until then."""
    model = net(seed=rank)
    optimizer = cairn.DistributedOptimizer(sgd(model[2].parameters()), model)
    assert_same(model, net(seed=0))
    with torch.no_grad():
        model[0].weight.add_(rank)  # not the optimizer's yet: nobody minds
    train(model, optimizer, [batch(rank, 0)])
    optimizer.add_param_group({"params": [model[0].weight]})  # its bias stays out
    assert torch.equal(model[0].weight, net(seed=0)[0].weight)
    train(model, optimizer, [batch(rank, 1)])
    return model


@CHECKS
def rates_that_differ_raise(rank):
    model, optimizer, alone, plain = pair(sgd)
    optimizer.param_groups[0]["lr"] = 0.1 * (1 + rank)
    before = copied(model)
    backward(model, batch(rank, 0))
    try:
        optimizer.step()
    except cairn.HyperMismatchError as error:
        assert "rank" in str(error) and "0" in str(error) and "1" in str(error), error
    else:
        raise AssertionError("ranks 0 and 1 have different learning rates, and nobody said so")
    assert_same(model, before)
    optimizer.param_groups[0]["lr"] = 0.1
    train(model, optimizer, [batch(rank, 1)])
    train(alone, plain, [whole(1)])
    assert_close(model, alone)
    return model


@CHECKS
def written_from_outside(rank):
    model, optimizer, alone, plain = pair(sgd, model=norm_net)
    train(model, optimizer, [batch(rank, 0)])
    with torch.no_grad():
        model[2].weight.fill_(0.5 + rank)
        model[0].bias.clamp_(min=0)
    before = copied(model)
    optimizer.zero_grad()
    backward(model, batch(rank, 1))
    for attempt in (optimizer.step, lambda: optimizer.clip_grad_norm_(1.0)):
        try:
            attempt()
        except cairn.ParametersChangedError as error:
            assert "0.bias" in str(error) and "push_parameters()" in str(error), error
        else:
            raise AssertionError("a parameter was written to, and nobody said so")
    optimizer.push_parameters()
    assert torch.equal(model[2].weight, torch.full_like(model[2].weight, 0.5))  # the root's
    assert torch.equal(model[0].bias, before["0.bias"])
    alone.load_state_dict(model.state_dict())
    plain = sgd(alone.parameters(), momentum=0.0)
    optimizer.param_groups[0]["momentum"] = 0.0  # its buffer has seen the first step
    train(model, optimizer, [batch(rank, 1)])
    first = copy.deepcopy(alone)
    first(batch(0, 1)[0])
    plain.zero_grad()
    for other in (0, 1):  # one after the other: statistics are each worker's own
        backward(alone, batch(other, 1))
    for param in alone.parameters():
        param.grad /= 2
    plain.step()
    assert_close(list(model.parameters()), list(alone.parameters()))
    assert torch.allclose(model[1].running_mean, first[1].running_mean, atol=1e-6)
    return model


@CHECKS
def not_a_number_in_a_step(rank):
    """The worker that has it is told which parameter; nothing was sent, it can try again."""
    model, optimizer, alone, plain = pair(sgd)
    backward(model, batch(rank, 0))
    if rank == 1:
        good = model[2].weight.grad.clone()
        model[2].weight.grad[1, 2] = float("nan")
        try:
            optimizer.step()
        except cairn.NotFiniteError as error:
            assert "2.weight" in str(error) and "NaN" in str(error), error
        else:
            raise AssertionError("NaN was sent")
        model[2].weight.grad.copy_(good)
    optimizer.step()
    train(alone, plain, [whole(0)])
    assert_close(model, alone)
    return model


@CHECKS
def state_dict_is_not_collective(rank):
    model, optimizer, alone, plain = pair(sgd)
    for step in range(4):
        train(model, optimizer, [batch(rank, step)])
        train(alone, plain, [whole(step)])
        if rank == step % 2:
            got = optimizer.state_dict()["state"]
            want = plain.state_dict()["state"]
            assert_close([entry["momentum_buffer"] for entry in got.values()],
                         [entry["momentum_buffer"] for entry in want.values()])
    return model


def trained_alone(make, seed, steps):
    model = net(seed)
    optimizer = make(model.parameters())
    train(model, optimizer, [whole(step) for step in range(steps)])
    return model, optimizer


@CHECKS
def loading_a_state_the_root_wins(rank):
    for make in (sgd, adam):
        alone, plain = trained_alone(make, seed=0, steps=3)
        wrong, other = trained_alone(make, seed=7, steps=2)  # what rank 1 loads
        model, optimizer, _, _ = pair(make, seed=3)
        train(model, optimizer, [batch(rank, 20)])
        model.load_state_dict((wrong if rank == 1 else alone).state_dict())
        optimizer.push_parameters()
        optimizer.load_state_dict((other if rank == 1 else plain).state_dict())
        for step in range(3, 6):
            train(model, optimizer, [batch(rank, step)])
            train(alone, plain, [whole(step)])
        assert_close(model, alone)
    return model


@CHECKS
def a_state_from_before_the_wrap(rank):
    for make in (sgd, adam, torch.optim.Adagrad, torch.optim.RMSprop):
        alone, plain = trained_alone(make, seed=0, steps=3)
        if rank == 0:
            model, inner = trained_alone(make, seed=0, steps=3)
        else:  # has none: the root's counts
            model = net(seed=9)
            inner = make(model.parameters())
        optimizer = cairn.DistributedOptimizer(inner, model)
        for step in range(3, 6):
            train(model, optimizer, [batch(rank, step)])
            train(alone, plain, [whole(step)])
        assert_close(model, alone)
    return model


@CHECKS
def a_worker_without_any_gradient_counts_with_its_weight(rank):
    param = torch.nn.Parameter(torch.zeros(3))
    optimizer = cairn.DistributedOptimizer(torch.optim.SGD([param], lr=1.0))
    for samples in (None, 3.0):
        if rank == 0:
            param.grad = torch.full((3,), 4.0)
        optimizer.step(samples=samples)
        param.grad = None
    assert param.tolist() == [-4.0] * 3, param  # twice the half of 4
    return torch.nn.ParameterList([param])
