"""A worker of a hybrid job that dies again and again: hybrid_dying.py FOLDER VICTIM plain|clip|async.

Tables and a dense layer are on the servers, with buffers, and the rest is all-reduced. In each of its
lives but the last the victim makes 3 steps and dies: in the middle of an all-reduce, before it, after
its vote, between two steps. All models are equal at the end, bit by bit.
"""
import hashlib
import os
import pathlib
import signal
import sys
import time

import torch

import cairn
from allreduce_workers.driver import small_buckets
from allreduce_workers.hybrid_problem import all_rows, batch, dense_bits, loss_of, served_net
from cairn._allreduce import allreduced, attempt as allreduce_attempt

WAYS = ["launched", "before", "voted", "between", "launched"]
folder, victim, way = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
end = time.monotonic() + 110
torch.set_num_threads(1)
small_buckets()
is_victim = int(os.environ["RANK"]) == victim
life = len(list(folder.glob("life-*"))) if is_victim else 0
if is_victim:
    (folder / f"life-{life}").touch()
cairn.init()
rank = cairn.rank()
net = served_net(40 + rank, norm=True)
cairn.assign(net, "auto", server=[net.head])
mode = cairn.Async() if way == "async" else cairn.Sync()
optimizer = cairn.DistributedOptimizer(torch.optim.Adagrad(net.parameters(), lr=0.05), net, mode=mode)
[reduced] = optimizer._served.reduced
if is_victim and life > 0:
    assert reduced.steps > 3 and all("sum" in optimizer.state[p] for p in reduced.params)
    print(f"joined {life} {reduced.steps}", flush=True)
launch, settle = allreduce_attempt.Attempt._launch, allreduced.AllReduced.settle


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def launch_and_die(attempt, group):
    launch(attempt, group)
    die()


steps_here = returns = 0
last = None
ended_at = None
while ended_at is None or reduced.steps < ended_at:
    assert time.monotonic() < end, f"no end: life {life}, {returns} returns, step {reduced.steps}"
    if is_victim and life < len(WAYS) and steps_here == 3:
        how = WAYS[life]
        if how == "between":
            die()
        elif how == "voted":
            allreduced.AllReduced.settle = die
        else:
            allreduce_attempt.Attempt._launch = launch_and_die if how == "launched" else die
    number = reduced.steps
    optimizer.zero_grad()
    loss_of(net, *batch(number, rank)).backward()
    if way == "clip":
        optimizer.clip_grad_norm_(0.3)
    optimizer.step()
    assert reduced.steps == number + 1
    active = list(reduced.info.sums.active)
    if last is not None and victim in active and victim not in last:
        returns += 1
    steps_here += 1
    last = active
    final = life == len(WAYS) and steps_here == 1 if is_victim else returns == len(WAYS)
    if final and ended_at is None:
        ended_at = reduced.steps + 5

if way == "async":
    cairn.barrier()  # all pushes are there
else:
    tables = [part.table for part in (*optimizer._served.on_servers, *optimizer._served.buffers)]
    rounds = [table.round() for table in tables]
    print("rounds " + " ".join(str(r - reduced.steps) for r in rounds), flush=True)
digest = hashlib.sha256()
served = [b for n, b in net.named_buffers() if b.is_floating_point()] if way != "async" else []
if way == "async":
    optimizer.pull()
for tensor in (all_rows(net), *served):
    digest.update(tensor.numpy().tobytes())
digest.update(dense_bits(net))
for param in reduced.params:
    digest.update(optimizer.state[param]["sum"].numpy().tobytes())
print(f"ended {reduced.steps} {digest.hexdigest()[:16]}", flush=True)
cairn.barrier()
