"""The buckets in which gradients are all-reduced: what they hold, and when they leave."""
import torch
from torch import nn

from cairn._allreduce.buckets import Buckets, plan

MB = 1 << 20


def test_buckets_are_planned_in_reverse_and_by_type():
    params = [nn.Parameter(torch.zeros(MB // 8, dtype=t)) for t in
              [torch.float32] * 60 + [torch.float64, torch.bfloat16, torch.float32]]
    found = plan(params)
    assert sorted(i for b in found for i in b.indices) == list(range(63))
    assert [b.dtype for b in found] == [torch.float32, torch.float32, torch.float64, torch.float32]
    assert found[0].indices == [62, 61] and found[0].bytes() == MB, "the first one is small"
    assert found[1].indices == list(range(59, 9, -1)) and found[1].bytes() == 25 * MB
    assert found[2].indices == [60]
    assert found[3].indices == list(range(9, -1, -1))


def test_buckets_leave_in_order_only():
    params = [nn.Parameter(torch.ones(4)) for _ in range(3)]
    plan.__defaults__, before = (1, 1), plan.__defaults__
    try:
        buckets = Buckets(params)
    finally:
        plan.__defaults__ = before
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
