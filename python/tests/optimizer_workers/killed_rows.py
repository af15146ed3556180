"""A worker that is killed while tables train: killed_rows.py FOLDER at-once|late|between [dense [thirds]].

Rank 1 kills itself once, and is started again; `late`: not before rank 0 has gone on alone. It takes
up the tables' rounds and their count of steps (SparseAdam). With `dense` the model has an ordinary
part too, under an optimizer of its own; `between`: rank 1 joins while rank 0 is between the steps of
the two. `thirds`: the second one steps only every third time, and rank 1 begins to count anew.
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
from optimizer_workers.problems import digest

folder, when, dense = pathlib.Path(sys.argv[1]), sys.argv[2], "dense" in sys.argv
thirds = "thirds" in sys.argv
end = time.monotonic() + 60
torch.set_num_threads(1)
again = os.environ["RANK"] == "1" and (folder / "killed").exists()


def wait_for(name):
    while not (folder / name).exists():
        assert time.monotonic() < end, f"waited for {name!r}"
        time.sleep(0.01)


if again and when != "at-once":
    wait_for("alone")
cairn.init()
rank = cairn.rank()
if again:
    (folder / "joined").touch()
torch.manual_seed(rank)

tables = nn.ModuleList([cairn.nn.Embedding(None, 4), cairn.nn.EmbeddingBag(50, 4, mode="sum")])
top = nn.Linear(8, 1)
optimizers = [cairn.DistributedOptimizer(torch.optim.SparseAdam(tables.parameters(), lr=0.01), tables)]
if dense:
    optimizers.append(cairn.DistributedOptimizer(torch.optim.Adam(top.parameters(), lr=0.01), top))
served = optimizers[0]._served
if again:
    assert len({table.table.round() for table in served.tables}) == 1, "the tables are at different steps"
    assert len({table.steps for table in served.tables}) == 1 and served.tables[0].steps >= 5
    (folder / "back").touch()
    print("attached", flush=True)

ids = torch.arange(20).reshape(10, 2)
with cairn.join(*optimizers):
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
        mine = (ids + rank + step) % 50
        rows = torch.cat([tables[0](mine[:, 0]), tables[1](mine)], 1)
        for optimizer in optimizers:
            optimizer.zero_grad()
        (top(rows).square().mean()).backward()
        if served.tables[0].table.round() % 2 == 0:  # the same on all, also after a restart
            optimizers[0].clip_grad_norm_(1.0)
        for optimizer in optimizers:
            if not (thirds and step % 3 and optimizer is not optimizers[0]):
                optimizer.step()
            if rank == 0 and step == 15 and when == "between" and optimizer is optimizers[0]:
                wait_for("joined")
for table in served.tables:
    table.take_step_count()  # who has run out of data does not know which of the others' rounds were steps
steps = {table.steps for table in served.tables}
every = torch.arange(-5, 60)
with torch.no_grad():
    rows = torch.cat([tables[0](every), tables[1](every[5:55, None])])
left = nn.Module()
left.rows = nn.Parameter(rows)
print(f"ended {digest(left)} {sorted(steps)}", flush=True)
