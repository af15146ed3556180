"""A worker of test_sync_equals_one_process.py: trains every optimizer on its part of the batches and
saves what it ends with. FAULT makes it do something wrong, which the test must notice."""
import os
import sys

import torch

import cairn
import equality_problem as problem

out, equal = sys.argv[1], sys.argv[2] == "equal"
fault = os.environ.get("FAULT", "")
names = sys.argv[3].split(",")
cairn.init()
rank, workers = cairn.rank(), cairn.world_size()
begin, end = problem.parts(workers, equal)[rank]
results = {}
for name in names:
    model = problem.make_model(seed=100 + rank)  # rank 0 has the reference's, the others start elsewhere
    optimizer = cairn.DistributedOptimizer(problem.OPTIMIZERS[name](model.parameters()), model, mode=cairn.Sync())
    scheduler = problem.make_scheduler(optimizer)
    norms = []
    for step, (x, y) in enumerate(problem.batches()):
        optimizer.zero_grad()
        problem.loss_of(model, x[begin:end], y[begin:end]).backward()
        if fault == "drop" and rank == workers - 1 and step == 25:
            optimizer.zero_grad()  # its contribution is missing in one step
        samples = None if equal or fault == "divisor" else end - begin
        norms.append(float(optimizer.clip_grad_norm_(problem.MAX_NORM, samples=samples)))
        optimizer.step(samples=samples)
        scheduler.step()
    results[name] = {"params": [p.detach().clone() for p in model.parameters()], "norms": norms}
torch.save(results, os.path.join(out, f"{rank}.pt"))
cairn.shutdown()
