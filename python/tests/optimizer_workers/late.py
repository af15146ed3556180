"""A worker that comes too late for the other one's deadline, in a round of two phases: late.py FOLDER.

Rank 0 gets a DeadlineExceededError out of clip_grad_norm_() and gives the step up; rank 1 hears of it,
and both go on."""
import pathlib
import sys
import time

import torch

import cairn

folder = pathlib.Path(sys.argv[1])
end = time.monotonic() + 60
cairn.init(timeout=2.0)
param = torch.nn.Parameter(torch.zeros(3))
optimizer = cairn.DistributedOptimizer(torch.optim.SGD([param], lr=1.0))


def step():
    optimizer.zero_grad()
    param.sum().backward()
    optimizer.clip_grad_norm_(100.0)
    optimizer.step()


step()
if cairn.rank() == 0:
    try:
        step()
        raise AssertionError("rank 1 was awaited, and did not come")
    except cairn.DeadlineExceededError as error:
        print("late:", error, flush=True)
    (folder / "late").touch()
else:
    while not (folder / "late").exists():
        assert time.monotonic() < end, "rank 0 does not give up"
        time.sleep(0.01)
    try:
        step()
        raise AssertionError("rank 0 has given this step up")
    except cairn.HyperMismatchError as error:
        print("told:", error, flush=True)
while True:  # with such a deadline the next ones may be late too
    try:
        with optimizer.join():
            step()
        break
    except cairn.DeadlineExceededError:
        assert time.monotonic() < end
print("ended", param.tolist(), flush=True)
