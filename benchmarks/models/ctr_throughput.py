"""Samples per second of the click model of examples/ctr.py: plain torch, Cairn, and
DistributedDataParallel with sparse gradients, side by side in one run.

    python benchmarks/models/ctr_throughput.py [--steps 150] [--repetitions 5] [--hidden 32]

13 floats and 26 ids, a table of a million rows of 16, an MLP 400-400-400-1 (--hidden 32: 32-1),
batch 512 a process, Adagrad, synthetic data in memory (no loader), real processes with one thread
each. A figure is the samples of all processes together. The ways take turns, so that a noisy machine
is noisy for all of them; shown are the median over the repetitions and the range. Needs `cairn` and
the package: installed, or a build's with PYTHONPATH=build/release/python CAIRN_BIN=build/release/bin.
"""
import argparse
import os
import pathlib
import statistics
import sys
import time

import taking_turns

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
BATCH = 512
WAYS = {
    # name: what it is, how it is run, against which one it is held, at least how many times it
    "plain": ("plain torch, 1 process", ["plain"], None, None),
    "cairn1": ("cairn Sync, 1 server, 1 worker", "cairn -s 1 -w 1 sync", "plain", 0.8),
    "async1": ("cairn Async, 1 server, 1 worker", "cairn -s 1 -w 1 async", "plain", None),
    "ddp2": ("DDP gloo, 2 processes", ["ddp", "ddp"], None, None),
    "sync2": ("cairn Sync, 2 servers, 2 workers", "cairn -s 2 -w 2 sync", "ddp2", None),
    "async2": ("cairn Async, 2 servers, 2 workers", "cairn -s 2 -w 2 async", "ddp2", None),
    "single2": ("the same, --replicas 1", "cairn -s 2 -w 2 --replicas 1 async", "ddp2", None),
    "hybrid2": ("cairn hybrid, 2 servers, 2 workers", "cairn -s 2 -w 2 hybrid", "ddp2", None),
}


# What is measured: one process of it.
def work(way, steps, warm_up, hidden):
    import torch
    import torch.nn.functional as F
    from torch import nn

    sys.path.insert(0, str(EXAMPLES))
    import ctr
    import synthetic_clicks

    torch.set_num_threads(1)
    torch.manual_seed(1)
    rank, workers, all_are_there = 0, 1, lambda: None
    if way == "ddp":
        import torch.distributed as dist

        dist.init_process_group("gloo")
        rank, workers, all_are_there = dist.get_rank(), dist.get_world_size(), dist.barrier
    elif way != "plain":
        import cairn

        cairn.init()
        rank, workers, all_are_there = cairn.rank(), cairn.world_size(), cairn.barrier

    model = ctr.ClickModel(ctr.click_table(way in ("plain", "ddp")))
    widths = [model.mlp[0].in_features, *hidden]
    layers = [part for a, b in zip(widths, hidden) for part in (nn.Linear(a, b), nn.ReLU())]
    model.mlp = nn.Sequential(*layers, nn.Linear(hidden[-1], 1))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.02)
    table = model.table
    if way == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    elif way != "plain":
        if way == "hybrid":
            cairn.assign(model, "auto")
        mode = cairn.Async() if way == "async" else cairn.Sync()
        optimizer = cairn.DistributedOptimizer(optimizer, model, mode=mode)
    clicks = synthetic_clicks.make(BATCH * workers * 128)
    parts = [part[rank::workers].contiguous() for part in clicks[:3]]
    made = list(zip(*(part.split(BATCH) for part in parts)))
    loader = (made[i % len(made)] for i in range(warm_up + steps))
    if way not in ("plain", "ddp"):
        loader = cairn.prefetch(loader, lambda batch: {table: batch[1]})

    started = time.perf_counter()
    for i, (floats, ids, labels) in enumerate(loader):
        if i == warm_up:
            all_are_there()
            started = time.perf_counter()
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(model(floats, ids), labels).backward()
        optimizer.step()
    seconds = time.perf_counter() - started
    # In one piece, so that the lines of two processes never mix.
    sys.stdout.write(f"samples per second: {steps * BATCH / seconds:.1f}\n")
    sys.stdout.flush()
    all_are_there()
    if way == "ddp":
        dist.destroy_process_group()


# The ways in turn.
def measure(run, options):
    """The samples per second of one start of one way, all processes together."""
    hidden = ["--hidden", *map(str, options.hidden)]
    return sum(taking_turns.figures(__file__, run, options, r"samples per second: (\S+)", hidden))


def report(rates, options):
    mlp = "-".join(map(str, options.hidden))
    print(f"click model, MLP {mlp}, batch {BATCH}, one thread a process: thousand samples/s, median "
          f"(least–most) of {options.repetitions} × {options.steps} steps, {os.cpu_count()} cores")
    medians = {way: statistics.median(found) for way, found in rates.items()}
    for way, found in rates.items():
        what, _, against, goal = WAYS[way]
        line = f"{what:36} {medians[way] / 1e3:6.2f}  "
        line += f"({min(found) / 1e3:.2f}–{max(found) / 1e3:.2f})"
        if against in medians:
            line += f"   {medians[way] / medians[against]:.2f} × {WAYS[against][0].split(',')[0]}"
            line += f" (goal ≥ {goal:.1f})" if goal else ""
        print(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--hidden", type=int, nargs="+", default=[400, 400, 400],
                        help="widths of the MLP's hidden layers")
    parser.add_argument("--json", help="write the figures to this file too")
    parser.add_argument("--warm-up", type=int, default=20, help="steps before the clock starts")
    parser.add_argument("--only", nargs="+", choices=WAYS, default=list(WAYS), help="some ways")
    parser.add_argument("--timeout", type=float, default=300, help="seconds that a start may take")
    parser.add_argument("--work", choices=["plain", "ddp", "sync", "async", "hybrid"],
                        help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work, options.steps, options.warm_up, options.hidden)
        return
    rates = taking_turns.take_turns(WAYS, options, lambda run: measure(run, options), "samples/s")
    taking_turns.write_json(options.json, rates, "samples/s", {"hidden": options.hidden})
    report(rates, options)


if __name__ == "__main__":
    main()
