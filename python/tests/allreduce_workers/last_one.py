"""The only worker of a job is killed and started again: last_one.py FOLDER. What was all-reduced is gone
with it: it starts from its own values, and says so."""
import os
import pathlib
import signal
import sys
import warnings

import torch

import cairn
from allreduce_workers.driver import backward, batch, make_model, make_optimizer, reduce_all, step

killed = pathlib.Path(sys.argv[1]) / "killed"
again = killed.exists()
torch.set_num_threads(1)
cairn.init()
model = make_model(1)
optimizer = make_optimizer(model)
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    reduced = reduce_all(model, optimizer)
assert reduced.steps == 0 and reduced.joined_step is None and reduced._group is None
assert again == any("the workers that had trained it are gone" in str(w.message) for w in told), told
for number in range(4):
    if number == 2 and not again:
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.zero_grad()
    backward(model, *batch(number, 0))
    step(reduced)
assert reduced.steps == 4
print("ended", flush=True)
