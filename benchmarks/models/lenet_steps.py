"""Step times of LeNet-5: plain torch, Cairn, and DistributedDataParallel, side by side in one run.

    python benchmarks/models/lenet_steps.py [--steps 500] [--repetitions 5]

Each figure is of real processes with one thread each, on made-up images in memory (no loader),
batch 32 a worker, SGD with momentum. The ways take turns, so that a noisy machine is noisy for all
of them; shown are the median over the repetitions and the range. Needs `cairn` and the package:
installed, or a build's with PYTHONPATH=build/release/python CAIRN_BIN=build/release/bin.
"""
import argparse
import os
import statistics
import time

import taking_turns

BATCH = 32
WAYS = {
    # name: what it is, how it is run, against which other one it is held, at most how many times it
    "plain": ("plain torch, 1 process", ["plain"], None, None),
    "plain2": ("plain torch, 2 processes apart", ["plain", "plain"], "plain", None),
    "cairn1": ("cairn Sync, 1 worker, 1 server", "cairn -s 1 -w 1 sync", "plain", 1.15),
    "ddp2": ("DDP gloo, 2 processes", ["ddp", "ddp"], None, None),
    "cairn2": ("cairn Sync, 2 workers, 2 servers", "cairn -s 2 -w 2 sync", "ddp2", 1.0),
    "single2": ("the same, --replicas 1", "cairn -s 2 -w 2 --replicas 1 sync", "ddp2", None),
    "async2": ("cairn Async, 2 workers, 2 servers", "cairn -s 2 -w 2 async", "ddp2", None),
}


# What is measured: one process of it.
def work(way, steps, warm_up):
    import torch
    import torch.nn.functional as F
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images, labels = torch.randn(64, BATCH, 1, 28, 28), torch.randint(10, (64, BATCH))
    rank, all_are_there = 0, lambda: None
    if way == "ddp":
        import torch.distributed as dist

        dist.init_process_group("gloo")
        rank, all_are_there = dist.get_rank(), dist.barrier
        model = nn.parallel.DistributedDataParallel(model)
    elif way in ("sync", "async"):
        import cairn

        cairn.init()
        rank, all_are_there = cairn.rank(), cairn.barrier
        mode = cairn.Sync() if way == "sync" else cairn.Async()
        optimizer = cairn.DistributedOptimizer(optimizer, model, mode=mode)

    def step(i):
        optimizer.zero_grad()
        F.cross_entropy(model(images[i % 64]), labels[i % 64]).backward()
        optimizer.step()

    for i in range(warm_up):
        step(i)
    all_are_there()
    start = time.perf_counter()
    for i in range(steps):
        step(i)
    seconds = time.perf_counter() - start
    if rank == 0:
        print(f"ms per step: {seconds * 1000 / steps:.4f}", flush=True)
    all_are_there()
    if way == "ddp":
        dist.destroy_process_group()


# The ways in turn.
def measure(run, options):
    """The ms per step of one start of one way."""
    return statistics.mean(taking_turns.figures(__file__, run, options, r"ms per step: (\S+)"))


def report(times, options):
    print(f"LeNet-5, batch {BATCH}, one thread a process: ms per step, median (least–most) of "
          f"{options.repetitions} × {options.steps} steps, {os.cpu_count()} cores")
    medians = {way: statistics.median(found) for way, found in times.items()}
    for way, found in times.items():
        what, _, against, goal = WAYS[way]
        line = f"{what:36} {medians[way]:7.3f}  ({min(found):.3f}–{max(found):.3f})"
        if against in medians:
            line += f"   {medians[way] / medians[against]:.2f} × {WAYS[against][0].split(',')[0]}"
            line += f" (goal ≤ {goal:.2f})" if goal else ""
        print(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--json", help="write the figures to this file too")
    parser.add_argument("--warm-up", type=int, default=50, help="steps before the clock starts")
    parser.add_argument("--only", nargs="+", choices=WAYS, default=list(WAYS), help="some ways")
    parser.add_argument("--timeout", type=float, default=300, help="seconds that a start may take")
    parser.add_argument("--work", choices=["plain", "ddp", "sync", "async"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work, options.steps, options.warm_up)
        return
    times = taking_turns.take_turns(WAYS, options, lambda run: measure(run, options), "ms")
    taking_turns.write_json(options.json, times, "ms", {"batch": BATCH})
    report(times, options)


if __name__ == "__main__":
    main()
