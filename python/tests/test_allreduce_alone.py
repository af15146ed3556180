"""AllReduced in a process that is alone, and its parts that need no other worker."""
import copy
import gc
import types

import pytest
import torch
from allreduce_workers.driver import assert_close, backward, batch, digest, make_model, make_optimizer, reduce_all
from torch import nn

from cairn import allreduce_buckets
from cairn.allreduced import AllReduced
from cairn.allreduce_control import Control, Member, Outcome
from cairn.allreduce_update import Update

MB = 1 << 20


def test_alone_it_is_plain_torch(worker):
    model, expected = make_model(3), make_model(3)
    inner, plain = make_optimizer(model), make_optimizer(expected)
    reduced = reduce_all(model, inner)
    assert reduced._control is None and reduced._group is None and reduced.joined_step is None
    for number in range(5):
        for net, optimizer in ((model, inner), (expected, plain)):
            optimizer.zero_grad()
            backward(net, *batch(number, 0))
        assert reduced.stage == "idle"
        reduced.contribute(7.0, True)  # the only one: its weight changes nothing
        assert reduced.stage == "reducing"
        pending = reduced.vote()
        assert pending.ready()
        reduced.settle(pending)
        assert reduced.stage == "settled" and reduced.info.finite
        reduced.apply()
        reduced.apply()  # once is enough
        plain.step()
    assert reduced.steps == 5
    assert digest(model, inner) == digest(expected, plain)


def test_alone_with_scales_and_without_a_gradient(worker):
    model, expected = make_model(3), make_model(3)
    inner, plain = (torch.optim.SGD(m.parameters(), lr=0.1, weight_decay=0.1) for m in (model, expected))
    reduced = reduce_all(model, inner)
    backward(model, *batch(0, 0))
    backward(expected, *batch(0, 0))
    model[0].bias.grad = expected[0].bias.grad = None
    for p in expected.parameters():
        if p.grad is not None:
            p.grad *= 0.5 * 0.25
    reduced.contribute(2.0, True, value_scale=0.5)
    reduced.settle(reduced.vote())
    reduced.apply(scale=0.25)
    plain.step()
    assert_close(model, expected)
    assert torch.equal(model[0].bias, make_model(3)[0].bias)


def test_sums(worker):
    model = make_model(3)
    inner = torch.optim.SGD(model.parameters(), lr=1.0)
    reduced = AllReduced(list(model.parameters()), ["p"] * 6, inner, 0, reduce="sum")
    from cairn import context

    reduced.attach(context.current(), "sums")
    backward(model, *batch(0, 0))
    before, grad = model[0].weight.detach().clone(), model[0].weight.grad.clone()
    reduced.contribute(1.0)
    reduced.settle(reduced.vote())
    reduced.apply()
    torch.testing.assert_close(model[0].weight, before - grad)


def test_only_these_parameters_are_stepped_and_hooks_are_left_alone(worker):
    model = make_model(3)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    hooks = []
    inner.register_step_pre_hook(lambda *_: hooks.append("pre"))
    torch.optim.lr_scheduler.StepLR(inner, 10)  # replaces inner.step
    reduced = AllReduced(list(model[0].parameters()), ["0.weight", "0.bias"], inner, 0)
    from cairn import context

    reduced.attach(context.current(), "some")
    backward(model, *batch(0, 0))
    listed = list(inner.param_groups[0]["params"])
    reduced.contribute(1.0)
    reduced.settle(reduced.vote())
    reduced.apply()
    fresh = make_model(3)
    assert not torch.equal(model[0].weight, fresh[0].weight)
    assert torch.equal(model[2].weight, fresh[2].weight)
    assert all(a is b for a, b in zip(inner.param_groups[0]["params"], listed)) and hooks == []


def test_sparse_gradients_are_refused(worker):
    table = nn.Embedding(5, 2, sparse=True)
    inner = torch.optim.SGD(table.parameters(), lr=0.1)
    reduced = AllReduced([table.weight], ["table.weight"], inner, 0)
    from cairn import context

    reduced.attach(context.current(), "sparse")
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(TypeError, match="the gradient of table.weight is sparse"):
        reduced.contribute(1.0)
    assert reduced.stage == "idle"


# Buckets.
def test_buckets_are_planned_in_reverse_and_by_type():
    params = [nn.Parameter(torch.zeros(MB // 8, dtype=t)) for t in
              [torch.float32] * 60 + [torch.float64, torch.bfloat16, torch.float32]]
    found = allreduce_buckets.plan(params)
    assert sorted(i for b in found for i in b.indices) == list(range(63))
    assert [b.dtype for b in found] == [torch.float32, torch.float32, torch.float64, torch.float32]
    assert found[0].indices == [62, 61] and found[0].bytes() == MB, "the first one is small"
    assert found[1].indices == list(range(59, 9, -1)) and found[1].bytes() == 25 * MB
    assert found[2].indices == [60]
    assert found[3].indices == list(range(9, -1, -1))


def test_buckets_leave_in_order_only():
    params = [nn.Parameter(torch.ones(4)) for _ in range(3)]
    allreduce_buckets.plan.__defaults__, before = (1, 1), allreduce_buckets.plan.__defaults__
    try:
        buckets = allreduce_buckets.Buckets(params)
    finally:
        allreduce_buckets.plan.__defaults__ = before
    left = []
    buckets.leave_by(lambda bucket: left.append(bucket.indices[0]) or "work")
    (params[0] * 2).sum().backward()
    (params[1] * 2).sum().backward()
    assert left == [], "the last parameter's comes first"
    (params[2] * 2).sum().backward()
    assert left == [2, 1, 0]
    assert all(bool((b.flat == 2).all()) for b in buckets.buckets)
    gradients = [p.grad for p in params]
    assert buckets.stale(gradients, 1.0) == [False] * 3
    assert buckets.stale(gradients, 2.0) == [True] * 3
    params[1].grad.mul_(2)
    assert buckets.stale(gradients, 1.0) == [False, True, False]
    params[2].grad = params[2].grad.clone()
    assert buckets.stale([p.grad for p in params], 1.0) == [True, True, False]


def test_hooks_end_with_their_wrap_and_are_not_copied(worker):
    model = make_model(1)
    reduced = reduce_all(model, make_optimizer(model))
    copied = copy.deepcopy(model)
    buckets = reduced._buckets
    backward(copied, *batch(0, 0))
    assert buckets._fired == [0] * 6
    backward(model, *batch(0, 0))
    assert buckets._fired == [1] * 6
    del reduced, buckets
    gc.collect()
    assert not any(p._post_accumulate_grad_hooks for p in model.parameters())


# Values and state for others, and whose they are.
def test_packed_state_is_taken_whole():
    models = [make_model(1), make_model(2)]
    inners = [make_optimizer(m) for m in models]
    backward(models[0], *batch(0, 0))
    inners[0].step()
    data = Update(list(models[0].parameters()), inners[0]).pack(12, True)
    assert Update(list(models[1].parameters()), inners[1]).unpack(data) == (12, True)
    assert digest(models[0], inners[0]) == digest(models[1], inners[1])
    fresh = make_model(3)
    data_of_fresh = Update(list(fresh.parameters()), make_optimizer(fresh)).pack(0, False)
    Update(list(models[1].parameters()), inners[1]).unpack(data_of_fresh)
    assert not inners[1].state, "as those of a worker that has made no step"
    small = list(models[1].parameters())[:2]
    with pytest.raises(RuntimeError, match="all-reduces 6 parameters, this one 2"):
        Update(small, inners[1]).unpack(data)


def test_whose_values_count():
    members = tuple(Member(rank, 10 + rank) for rank in (1, 2, 4))

    def source(new, root):
        new = frozenset(m for m in members if m.rank in new)
        return Outcome(5, members, new, False, None).source(root).rank

    assert source((), 4) == 1
    assert source((1, 2), 1) == 4, "one that has values, even if the root has none"
    assert source((1,), 1) == 2
    assert source((1, 2, 4), 2) == 2, "all are new: the root"
    assert source((1, 2, 4), 0) == 1, "the root is dead"


def test_a_worker_that_was_started_again_is_another_one():
    control = Control.__new__(Control)
    live = [7, 2**18 + 9]  # ranks 0 and 1
    client = types.SimpleNamespace(live_incarnations=lambda: live, live_ranks=lambda: [0, 1])
    control._ctx = types.SimpleNamespace(client=client)
    assert control.missing((Member(0, 7), Member(1, 9))) == []
    assert control.missing((Member(0, 5), Member(1, 9), Member(2, 8))) == [0, 2]
