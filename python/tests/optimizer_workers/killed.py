"""A worker that is killed in the middle of training: killed.py FOLDER.

Rank 1 kills itself once. Rank 0 goes on; when rank 1 is back it begins where the servers are.
"""
import itertools
import os
import pathlib
import signal
import sys
import time

import torch

import cairn
from optimizer_workers.problems import assert_same, backward, batch, copied, differs, digest, norm_net

folder = pathlib.Path(sys.argv[1])
torch.set_num_threads(1)
cairn.init()
rank = cairn.rank()
again = (folder / f"{rank}").exists()  # this rank's second life
(folder / f"{rank}").touch()

model = norm_net(seed=20 + rank)
initial = copied(model)
first = norm_net(seed=20)
groups = [{"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.01},
          {"params": [p for p in model.parameters() if p.ndim == 1]}]
optimizer = cairn.DistributedOptimizer(torch.optim.SGD(groups, lr=0.01, momentum=0.9), model)
if again:
    assert rank == 1 and differs(model, first) and differs(model, initial)  # what rank 0 has trained meanwhile
    state = optimizer.state_dict()["state"]
    assert len(state) == 6 and all(bool(entry["momentum_buffer"].any()) for entry in state.values())
    (folder / "back").touch()
    print("attached", flush=True)
else:
    assert_same(model, first)
end = time.monotonic() + 60
with optimizer.join():
    for step in itertools.count():
        assert time.monotonic() < end, "rank 1 did not come back"
        if rank == 1 and not again and step == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        if rank == 0 and step > 20 and (folder / "back").exists():
            break
        if again and step == 10:
            break
        optimizer.zero_grad()
        backward(model, batch(rank, step))
        optimizer.clip_grad_norm_(0.5)
        optimizer.step()
print(f"ended {digest(model)}", flush=True)
