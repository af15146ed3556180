"""Rank 1 writes rows that count up and tells what was acknowledged; rank 0 reads them through a cache
and holds them to its bound. In the middle rank 0 kills a server.

What rank 0 knows before its step s to be acknowledged, it must see in step s + BOUND + 1, and it never
sees a row go back. It goes on until it has read enough that was older than the newest: on a busy machine
rank 1 may begin late.
"""
import os
import signal
import time

import torch

import cairn
from cairn import _core
from cairn._tables.optimizer_settings import NO_HYPER
from optimizer_workers.job_processes import process_of

BOUND, ROWS, KILLED_AT, STEPS, OLD, SECONDS = 3, 8, 60, 200, 11, 60
torch.set_num_threads(1)
cairn.init()
rank = cairn.rank()
counters = cairn.nn.Embedding(None, 2, init="zeros", cache_rows=64, cache_steps=BOUND)
other = torch.nn.Linear(1, 1)
model = torch.nn.ModuleList([counters, other])
optimizer = cairn.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model,
                                       mode=cairn.Async())
told = cairn.sparse_table("told", 1, mode=cairn.Async(), optimizer="sum")
keys = torch.arange(ROWS)
ENOUGH = 100_000.0  # told by rank 0, under key 1: rank 1 may stop
cairn.barrier()
end = time.monotonic() + SECONDS

if rank == 1:
    count = 0
    while told.pull([1]).result().item() != ENOUGH:
        assert time.monotonic() < end, "rank 0 does not end"
        count += 1
        rows = torch.full((ROWS, 2), float(count))
        counters._rows.table.push(keys.data_ptr(), ROWS, rows.data_ptr(), NO_HYPER,
                                  op=_core.OP_ASSIGN, keep=(keys, rows)).wait()
        told.assign([0], torch.tensor([[float(count)]])).wait()
else:
    acknowledged, seen, old = [], torch.zeros(ROWS), 0
    step, lost = 0, None
    while step < STEPS or old < OLD:
        assert time.monotonic() < end, f"only {step} steps, {old} old reads"
        acknowledged.append(told.pull([0]).result().item())
        with torch.no_grad():
            read = counters(keys)[:, 0].clone()
        if step > BOUND:
            wanted = acknowledged[step - BOUND - 1]
            assert bool((read >= wanted).all()), f"step {step}: {read.tolist()}, {wanted} was known"
        assert bool((read >= seen).all()), f"step {step}: {read.tolist()} after {seen.tolist()}"
        seen, old = read, old + int((read < acknowledged[-1]).sum())
        optimizer.zero_grad()
        other(torch.ones(1, 1)).sum().backward()
        if step == KILLED_AT:
            os.kill(process_of("server --rank 1"), signal.SIGKILL)
            print("killed server", flush=True)
        optimizer.step()
        step += 1
    assert counters.cache_stats().hit_rate > 0.5, counters.cache_stats()
    print(f"{step * ROWS} reads within the bound, {old} of them older than the newest", flush=True)
    told.assign([1], torch.tensor([[ENOUGH]])).wait()
