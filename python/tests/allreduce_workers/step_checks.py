"""Checks of AllReduced that three workers run in one job: step_checks.py [NAME …]."""
import signal
import sys
import time

import pytest
import torch
import torch.distributed as dist
from torch import nn

import cairn
from allreduce_workers import interrupt_checks
from allreduce_workers.driver import (
    assert_close,
    backward,
    batch,
    digest,
    make_model,
    make_optimizer,
    reduce_all,
    small_buckets,
    step,
)
from allreduce_workers.reduced_problem import WORLD, Counted, names, one_process, same_bits, start
from cairn._allreduce import allreduced, attempt as allreduce_attempt, group as allreduce_group
from optimizer_workers.checks import Checks, run_all

check = Checks()


@check
def buckets_leave_during_the_backward_pass(rank):
    model, inner, reduced, expected, plain = start()
    with Counted(reduced) as counted:
        assert counted.buckets == 3
        for number in range(8):
            inner.zero_grad()
            backward(model, *batch(number, rank))
            assert counted.take() == 1, "all have left"
            before = [p.grad.clone() for p in model.parameters()]
            reduced.contribute(1.0)
            reduced.settle(reduced.vote())
            assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), before)), "not yet"
            assert reduced.info.finite and not reduced.info.all_joined
            reduced.apply()
            assert counted.take() == 0
            one_process(expected, plain, [(batch(number, r), 1.0) for r in range(WORLD)])
            squares = sum(float(p.grad.double().square().sum()) for p in expected.parameters())
            assert abs(reduced.info.sum_squares - squares) < 1e-6 * max(1.0, squares)
            for mine, theirs in zip(model.parameters(), expected.parameters()):
                torch.testing.assert_close(mine.grad, theirs.grad, rtol=0, atol=1e-6)
            assert_close(model, expected)
    same_bits(model, inner)
    return model


@check
def accumulation_costs_one_redo(rank):
    model, inner, reduced, expected, plain = start()
    passes = [1, 3, 3, 3, 1, 1, 1, 1]
    taken = []
    early = []
    with Counted(reduced) as counted:
        for number, count in enumerate(passes):
            inner.zero_grad()
            plain.zero_grad()
            for i in range(count):
                backward(model, *batch(10 * number + i, rank))
                for r in range(WORLD):
                    x, y = batch(10 * number + i, r)
                    (nn.functional.mse_loss(expected(x), y) / WORLD).backward()
            early.append(counted.count > 0)
            step(reduced)
            plain.step()
            taken.append(counted.take())
            assert_close(model, expected)
    assert taken == [1, 2, 1, 1, 1, 1, 1, 1], taken
    assert early == [True, True, True, True, False, False, True, True], early
    same_bits(model, inner)
    return model


@check
def unequal_samples(rank):
    model, inner, reduced, expected, plain = start()
    taken = []
    with Counted(reduced) as counted:
        for number in range(6):
            sizes = [1 + r + (number == 5) * r for r in range(WORLD)]
            inner.zero_grad()
            backward(model, *batch(number, rank, sizes[rank]))
            step(reduced, float(sizes[rank]))
            taken.append(counted.take())
            one_process(expected, plain, [(batch(number, r, sizes[r]), sizes[r]) for r in range(WORLD)])
            assert_close(model, expected)
    # Others guess wrongly in the first step and when sizes change; whoever is right takes part.
    assert taken == [2, 1, 1, 1, 1, 2], taken
    same_bits(model, inner)
    return model


class Branches(nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.trunk = nn.Linear(6, 3)
        self.first = nn.Linear(6, 3)
        self.never = nn.Linear(6, 3)
        self.frozen = nn.Linear(6, 3).requires_grad_(False)

    def forward(self, x, with_first):
        return self.trunk(x) + self.frozen(x) + (self.first(x) if with_first else 0)


@check
def gradients_that_are_missing(rank):
    def momentum(model):
        return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)

    model, inner, reduced, expected, plain = start(model=Branches, optimizer=momentum)
    never = expected.never.weight.clone()
    for number in range(5):
        inner.zero_grad()
        plain.zero_grad()
        x, y = batch(number, rank)
        nn.functional.mse_loss(model(x, rank == 0), y).backward()
        step(reduced)
        for r in range(WORLD):
            x, y = batch(number, r)
            (nn.functional.mse_loss(expected(x, r == 0), y) / WORLD).backward()
        plain.step()
        assert_close(model, expected)
        assert model.never.weight.grad is None and model.first.weight.grad is not None
    assert torch.equal(model.never.weight, never), "no weight decay either"
    same_bits(model, inner)
    return model


@check
def gradients_that_are_changed_after_the_backward_pass(rank):
    model, inner, reduced, expected, plain = start()
    taken = []
    with Counted(reduced) as counted:
        for number in range(6):
            inner.zero_grad()
            backward(model, *batch(number, rank))
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            step(reduced)
            taken.append(counted.take())
            total = [torch.zeros_like(p) for p in expected.parameters()]
            for r in range(WORLD):
                plain.zero_grad()
                backward(expected, *batch(number, r))
                torch.nn.utils.clip_grad_norm_(expected.parameters(), 0.1)
                for sum_, p in zip(total, expected.parameters()):
                    sum_ += p.grad / WORLD
            for sum_, p in zip(total, expected.parameters()):
                p.grad = sum_
            plain.step()
            assert_close(model, expected)
    assert taken == [2, 2, 1, 1, 1, 1], taken  # it stops guessing
    same_bits(model, inner)
    return model


@check
def scaled_gradients_and_a_scaled_mean(rank):
    model, inner, reduced, expected, plain = start()
    for number in range(4):
        inner.zero_grad()
        scale = 2.0 ** (rank + 1)
        x, y = batch(number, rank)
        (nn.functional.mse_loss(model(x), y) * scale).backward()
        reduced.contribute(1.0, value_scale=1 / scale)
        reduced.settle(reduced.vote())
        reduced.apply(scale=0.25)
        plain.zero_grad()
        for r in range(WORLD):
            x, y = batch(number, r)
            (nn.functional.mse_loss(expected(x), y) / WORLD * 0.25).backward()
        plain.step()
        assert_close(model, expected)
    same_bits(model, inner)
    return model


@check
def what_is_not_finite(rank):
    model, inner, reduced, _, _ = start()
    for number, said in enumerate([True, False]):
        before = digest(model, inner)
        inner.zero_grad()
        backward(model, *batch(number, rank))
        if rank == 1:
            model[0].weight.grad[0, 0] = float("inf")
        reduced.contribute(1.0, not_finite=said and rank == 1)
        reduced.settle(reduced.vote())
        assert not reduced.info.finite
        reduced.apply(skip=True)
        assert digest(model, inner) == before
    inner.zero_grad()
    backward(model, *batch(9, rank))
    reduced.contribute(1.0)
    reduced.settle(reduced.vote())
    assert reduced.info.finite
    reduced.apply()
    assert digest(model, inner) != before and reduced.steps == 3
    same_bits(model, inner)
    return model


@check
def workers_that_run_out_of_data(rank):
    """Whoever has none any more takes part, with the others' rate and scale."""
    model, inner, reduced, expected, plain = start()
    counts = [2, 4, 7]
    for number in range(counts[rank]):
        inner.param_groups[0]["lr"] = 0.01 / (1 + number)
        inner.zero_grad()
        backward(model, *batch(number, rank))
        reduced.contribute(1.0)
        reduced.settle(reduced.vote())
        reduced.apply(scale=0.5, skip=number == 5)
    ended = time.monotonic() + 60
    while True:
        reduced.contribute(0.0, joined=True, wait=False)
        while not reduced.poll():
            assert time.monotonic() < ended
            time.sleep(0.001)
        reduced.settle(reduced.vote())
        reduced.apply(scale=3.0)  # does not count
        if reduced.info.all_joined:
            break
    assert inner.param_groups[0]["lr"] == 0.01 / counts[rank], "its own rate is untouched"
    for number in range(max(counts)):
        if number == 5:
            continue
        plain.param_groups[0]["lr"] = 0.01 / (1 + number)
        plain.zero_grad()
        active = [r for r in range(WORLD) if number < counts[r]]
        for r in active:
            x, y = batch(number, r)
            (nn.functional.mse_loss(expected(x), y) / len(active) * 0.5).backward()
        plain.step()
    assert_close(model, expected)
    assert reduced.steps == max(counts) + 1
    same_bits(model, inner)
    return model


@check
def rates_that_differ(rank):
    model, inner, reduced, _, _ = start()
    before = digest(model, inner)
    inner.param_groups[0]["lr"] = 0.5 if rank == 1 else 0.25
    backward(model, *batch(0, rank))
    with pytest.raises(cairn.HyperMismatchError, match="ranks 0 and 1 .*: lr is 0.25 on one and 0.5 on the other"):
        step(reduced)
    assert digest(model, inner) == before
    inner.param_groups[0]["lr"] = 0.5
    step(reduced)
    assert digest(model, inner) != before
    same_bits(model, inner)
    return model


@check
def samples_on_one_worker_only(rank):
    model, inner, reduced, _, _ = start()
    before = digest(model, inner)
    backward(model, *batch(0, rank))
    words = "rank 1 gives samples= in this step of the all-reduced parameters, rank 0 does not"
    with pytest.raises(cairn.HyperMismatchError, match=words):
        step(reduced, 8.0 if rank == 1 else None)
    assert digest(model, inner) == before
    step(reduced, 8.0)
    assert digest(model, inner) != before
    same_bits(model, inner)
    return model


@check
def other_types(rank):
    class Mixed(nn.Module):
        def __init__(self, seed):
            super().__init__()
            torch.manual_seed(seed)
            self.a = nn.Linear(6, 3)
            self.b = nn.Linear(6, 3, dtype=torch.bfloat16)
            self.c = nn.Linear(6, 3, dtype=torch.float64)

        def forward(self, x):
            return self.a(x) + self.b(x.bfloat16()).float() + self.c(x.double()).float()

    def sgd(model):
        return torch.optim.SGD(model.parameters(), lr=0.1)

    model, inner, reduced, expected, plain = start(model=Mixed, optimizer=sgd)
    assert {b.dtype for b in reduced._buckets.buckets} == {torch.float32, torch.float64}
    for number in range(3):
        inner.zero_grad()
        backward(model, *batch(number, rank))
        step(reduced)
        one_process(expected, plain, [(batch(number, r), 1.0) for r in range(WORLD)])
        for name in ("a", "c"):
            torch.testing.assert_close(getattr(model, name).weight, getattr(expected, name).weight, rtol=0, atol=1e-2)
        torch.testing.assert_close(model.b.weight, expected.b.weight, rtol=2e-2, atol=2e-2)
    bits = [p.detach().double() for p in model.parameters()]
    table = cairn.dense_table("other-types", sum(b.numel() for b in bits), mode=cairn.Sync(), optimizer="mean")
    mean = table.push_pull(torch.cat([b.reshape(-1) for b in bits]).float()).result()
    torch.testing.assert_close(mean, torch.cat([b.reshape(-1) for b in bits]).float(), rtol=0, atol=1e-6)
    with pytest.raises(TypeError, match="only real floating point"):
        allreduced.AllReduced([nn.Parameter(torch.zeros(2, dtype=torch.complex64))], ["z"], inner, 0)
    return None


@check
def the_root_gives_values_and_state(rank):
    model, other = make_model(50 + rank), make_model(51)
    inner, plain = make_optimizer(model), make_optimizer(other)
    for net, optimizer in ((model, inner), (other, plain)):  # state before the wrap
        backward(net, *batch(0, 1))
        optimizer.step()
    reduced = reduce_all(model, inner, next(names), root_rank=1)
    assert digest(model, inner) == digest(other, plain)
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(float(rank))
    if rank == 0:
        inner.state.clear()
    reduced.give_from_root()
    assert all(bool((p == 1.0).all()) for p in model.parameters())
    assert inner.state[model[0].weight]["step"] == 1
    assert reduced.stage == "idle" and reduced.steps == 0
    inner.zero_grad()
    backward(model, *batch(3, rank))
    step(reduced)
    same_bits(model, inner)
    return model


@check
def one_that_fails_though_all_live(rank):
    model, inner, reduced, expected, plain = start()
    launch, failing = allreduce_attempt.Attempt._launch, []
    groups = []
    for number in range(6):
        if number == 2 and rank == 1 or number == 4 and rank == 0:
            def fail(attempt, group, number=number):
                if number not in failing:
                    failing.append(number)
                    if number == 2:
                        launch(attempt, group)
                    raise allreduce_group.AttemptFailed("a glitch")
                return launch(attempt, group)

            allreduce_attempt.Attempt._launch = fail
        inner.zero_grad()
        backward(model, *batch(number, rank))
        step(reduced)
        groups.append(reduced._group)
        one_process(expected, plain, [(batch(number, r), 1.0) for r in range(WORLD)])
        assert_close(model, expected)
    allreduce_attempt.Attempt._launch = launch
    assert [groups[i] is groups[i - 1] for i in range(1, 6)] == [True, False, True, False, True]
    same_bits(model, inner)
    return model


@check
def torch_distributed_is_left_alone(rank):
    assert not dist.is_initialized(), "our groups are no default group"
    model, inner, reduced, _, _ = start()
    dist.init_process_group("gloo")
    ours = torch.ones(3)
    dist.all_reduce(ours)
    backward(model, *batch(0, rank))
    step(reduced)
    dist.all_reduce(ours)
    assert ours.tolist() == [9.0] * 3 and dist.get_world_size() == WORLD
    dist.destroy_process_group()
    backward(model, *batch(1, rank))
    step(reduced)
    same_bits(model, inner)
    return model


@check
def two_wraps_do_not_know_of_each_other(rank):
    first, inner_1, reduced_1, _, _ = start(seed=7)
    second, inner_2, reduced_2, expected, plain = start(seed=17)
    for number in range(6):
        if number % 3 == 0:
            inner_1.zero_grad()
            backward(first, *batch(number, rank))
            step(reduced_1)
        inner_2.zero_grad()
        backward(second, *batch(number, rank))
        step(reduced_2)
        one_process(expected, plain, [(batch(number, r), 1.0) for r in range(WORLD)])
    assert_close(second, expected)
    assert (reduced_1.steps, reduced_2.steps) == (2, 6)
    same_bits(first, inner_1)
    return second


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, interrupt_checks.on_alarm)
    small_buckets()
    wanted = sys.argv[1:]
    every = {**check, **interrupt_checks.check}
    run_all({name: function for name, function in every.items() if not wanted or name in wanted})
