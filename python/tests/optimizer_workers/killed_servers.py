"""Training in which rank 0 kills the servers and the scheduler: killed_servers.py CAIRN [kills].

Dense parameters with momentum and tables of rows with Adam, summed in the order of ranks, in one
and in two phases (a clip in every third step). Each loss is printed in full. Rank 0 kills right
before its step: what it sends then meets a dying or a dead server.
"""
import json
import os
import signal
import subprocess
import sys
import time

import torch
from torch import nn

import cairn
from optimizer_workers.job_processes import process_of
from optimizer_workers.problems import digest

STEPS, SECONDS = 100, 40
KILLS = {20: "server --rank 0", 45: "scheduler", 70: "server --rank 1"}
program, kills = sys.argv[1], "kills" in sys.argv
torch.set_num_threads(1)
cairn.init()
rank = cairn.rank()


def copies():
    """How many copies of partitions are missing; None while the scheduler does not say."""
    asked = subprocess.run([program, "status", "--json", os.environ["CAIRN_CLUSTER_ID"]],
                           capture_output=True, text=True, timeout=SECONDS)
    slots = json.loads(asked.stdout)["slots"] if asked.returncode == 0 else None
    return slots and slots["total"] - slots["in_sync"]


def kill(words):
    end = time.monotonic() + SECONDS
    while words != "scheduler" and copies() != 0:
        assert time.monotonic() < end, f"{copies()} copies are missing"
    os.kill(process_of(words), signal.SIGKILL)
    print(f"killed {words}", flush=True)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.words = cairn.nn.Embedding(None, 8)
        self.bags = cairn.nn.EmbeddingBag(500, 8, mode="sum")
        self.top = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, ids):
        return self.top(torch.cat([self.words(ids[:, 0] * 7_919), self.bags(ids)], 1))


model = Model()
tables = nn.ModuleList([model.words, model.bags])
sync = cairn.Sync(deterministic=True)
rows = torch.optim.SparseAdam(tables.parameters(), lr=0.01)
rows = cairn.DistributedOptimizer(rows, tables, mode=sync)
dense = torch.optim.SGD(model.top.parameters(), lr=0.05, momentum=0.9)
dense = cairn.DistributedOptimizer(dense, model.top, mode=sync)
generator = torch.Generator().manual_seed(rank)
for step in range(STEPS):
    ids = torch.randint(500, (16, 4), generator=generator)
    loss = (model(ids).squeeze(1) - (ids.sum(1) % 2).float()).square().mean()
    rows.zero_grad()
    dense.zero_grad()
    loss.backward()
    if kills and rank == 0 and step in KILLS:
        kill(KILLS[step])
    for optimizer in (rows, dense):
        if step % 3 == 0:
            optimizer.clip_grad_norm_(0.5)
        optimizer.step()
    print(f"step {step} loss {loss.item()!r}", flush=True)
every = torch.arange(500)
with torch.no_grad():
    left = nn.ParameterList([model.words(every * 7_919), model.bags(every[:, None]),
                             *model.top.parameters()])
print(f"ended {digest(left)}", flush=True)
