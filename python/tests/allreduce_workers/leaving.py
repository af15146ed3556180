"""Workers that end before the others, in good order: leaving.py. Rank 2 makes 3 steps, rank 1 makes 6,
rank 0 goes on alone to 9. The others go on without whoever has left."""
import torch

import cairn
from allreduce_workers.driver import (
    assert_close,
    backward,
    batch,
    make_model,
    make_optimizer,
    reduce_all,
    small_buckets,
    step,
)

COUNTS = [9, 6, 3]
torch.set_num_threads(1)
small_buckets()
cairn.init()
rank = cairn.rank()
model = make_model(20 + rank)
optimizer = make_optimizer(model)
reduced = reduce_all(model, optimizer)
expected = make_model(20)
plain = make_optimizer(expected)
for number in range(COUNTS[rank]):
    optimizer.zero_grad()
    backward(model, *batch(number, rank))
    if number == COUNTS[rank] - 1 and rank > 0:
        assert len(reduced._members) == 1 + rank
    step(reduced)
    active = reduced.info.sums.active
    # Whoever has made its last step is still there until the others have heard that it has left.
    assert active == [r for r in range(3) if number < COUNTS[r]], (number, active)
    plain.zero_grad()
    parts = [batch(number, r) for r in active]
    backward(expected, torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts]))
    plain.step()
    assert_close(model, expected)
assert rank > 0 or reduced._group is None
print(f"ended {reduced.steps}", flush=True)
