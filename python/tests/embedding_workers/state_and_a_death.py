"""Rank 0 gives the table's state with its wrap, dies, is started again and gives it once more: it must not
undo what was trained meanwhile. Argument: a folder."""
import os
import pathlib
import signal
import sys
import time

import torch

import cairn

LOADED, SECONDS = 100.0, 100
folder = pathlib.Path(sys.argv[1])
died, back = folder / "died", folder / "back"
cairn.init()
rank = cairn.rank()
table = cairn.nn.Embedding(4, 2)
inner = torch.optim.Adagrad(table.parameters(), lr=0.1)
state = inner.state_dict()
state["state"][0] = {"step": torch.tensor(5.0), "sum": torch.full((4, 2), LOADED)}
inner.load_state_dict(state)
optimizer = cairn.DistributedOptimizer(inner, table)
if rank == 0 and died.exists():
    back.touch()


def step():
    optimizer.zero_grad()
    table(torch.tensor([1])).sum().backward()
    optimizer.step()


steps = 0
with optimizer.join():
    until = time.monotonic() + SECONDS
    while rank == 1 and not back.exists() and time.monotonic() < until:
        step()
        steps += 1
    for number in range(6):
        if rank == 0 and not died.exists() and number == 4:
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        step()
        steps += 1
if rank == 1:
    row = optimizer.state_dict()["state"][0]["sum"]
    assert row[0].tolist() == [LOADED, LOADED], row
    print(f"grown by {row[1, 0].item() - LOADED:.0f} in {steps} steps", flush=True)
