"""A worker that is killed in the middle of training: killed.py FOLDER at-once|late.

Rank 1 kills itself once, and is started again. `late`: not before rank 0 has gone on alone, so that
it joins in the middle of a step. It begins where the servers are.
"""
import itertools
import os
import pathlib
import signal
import sys
import time

import torch
from torch import nn

import cairn
from optimizer_workers.problems import assert_same, backward, batch, copied, differs, digest, norm_net

folder, late = pathlib.Path(sys.argv[1]), sys.argv[2] == "late"
end = time.monotonic() + 60
torch.set_num_threads(1)
again = os.environ["RANK"] == "1" and (folder / "killed").exists()
while again and late and not (folder / "alone").exists():
    assert time.monotonic() < end, "rank 0 does not go on alone"
    time.sleep(0.01)
cairn.init()
rank = cairn.rank()


def make_model(seed):
    model = norm_net(seed)
    # In a group of its own, the last one: it takes a while, the other groups' rounds end before.
    model.large = nn.Parameter(torch.zeros(1_000_000))
    return model


model = make_model(20 + rank)
initial = copied(model)
large = model.large
small = [param for param in model.parameters() if param is not large]
groups = [{"params": [p for p in small if p.ndim > 1], "weight_decay": 0.01},
          {"params": [p for p in small if p.ndim == 1]},
          {"params": [large]}]
optimizer = cairn.DistributedOptimizer(torch.optim.SGD(groups, lr=0.01, momentum=0.9), model)
if again:
    # It has what rank 0 has trained.
    assert rank == 1 and differs(model, make_model(20)) and differs(model, initial)
    state = optimizer.state_dict()["state"]
    assert len(state) == 7 and all(bool(entry["momentum_buffer"].any()) for entry in state.values())
    served = optimizer._served
    rounds = {t.round() for t in [part.table for part in (*served.groups, *served.buffers)]}
    assert len(rounds) == 1, f"the tables are at different steps: {rounds}"
    (folder / "back").touch()
    print("attached", flush=True)
else:
    assert_same(model, make_model(20))

ones = torch.ones_like(large)
with optimizer.join():
    for step in itertools.count():
        assert time.monotonic() < end, "rank 1 does not come back"
        if rank == 1 and not again and step == 5:
            (folder / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if rank == 0 and step == 15:
            (folder / "alone").touch()
        if rank == 0 and step > 20 and (folder / "back").exists():
            break
        if again and step == 10:
            break
        optimizer.zero_grad()
        backward(model, batch(rank, step))
        large.grad = ones
        optimizer.clip_grad_norm_(0.5)
        optimizer.step()
print(f"ended {digest(model)}", flush=True)
