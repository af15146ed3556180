"""What the worker's own options are worth: overlap=True, cache_steps= and cairn.prefetch, beside the same
training without them, plain torch and DistributedDataParallel, in one run.

    python benchmarks/models/worker_options.py [--repetitions 5] [--only lenet2 lenet2-overlap ddp2]

ms a step; LeNet-5 with batch 32 a worker, and the click model of examples/ctr.py with batch 512, with its
MLP of 400 and with a light one of 32. Real processes with one thread each; the ways take turns. Needs
`cairn` and the package as lenet_steps.py does.
"""
import argparse
import os
import pathlib
import statistics
import sys
import time

import taking_turns

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
WAYS = {
    # name: how it is run (the way says what is trained and how), and against which one it is held
    "ddp2": (["ddp", "ddp"], None),
    "lenet2": ("cairn -s 2 -w 2 lenet,sync", "ddp2"),
    "lenet2-overlap": ("cairn -s 2 -w 2 lenet,sync,overlap", "ddp2"),
    "large": (["ctr400,plain"], None),
    "large-async": ("cairn -s 1 -w 1 ctr400,async,prefetch", "large"),
    "large-overlap": ("cairn -s 1 -w 1 ctr400,async,prefetch,overlap", "large"),
    "large-stale": ("cairn -s 1 -w 1 ctr400,async,prefetch,overlap,stale", "large"),
    "light": (["ctr32,plain"], None),
    "light-unprefetched": ("cairn -s 1 -w 1 ctr32,async", "light"),
    "light-async": ("cairn -s 1 -w 1 ctr32,async,prefetch", "light"),
    "light-overlap": ("cairn -s 1 -w 1 ctr32,async,prefetch,overlap", "light"),
    "light-stale": ("cairn -s 1 -w 1 ctr32,async,prefetch,stale", "light"),
    "light-cache": ("cairn -s 1 -w 1 ctr32,async,prefetch,stale,cache", "light"),
}


# What is measured: one process of it.
def lenet(torch, nn, rank):
    model = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )
    batches = [(torch.randn(32, 1, 28, 28), torch.randint(10, (32,))) for _ in range(64)]
    loss = nn.functional.cross_entropy
    return model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), batches, \
        lambda model, batch: loss(model(batch[0]), batch[1])


def clicks(torch, nn, hidden, what):
    sys.path.insert(0, str(EXAMPLES))
    import ctr
    import synthetic_clicks

    if "stale" in what:
        import cairn

        table = cairn.nn.Embedding(
            synthetic_clicks.IDS, ctr.DIM, init=("normal", 0, ctr.SPREAD),
            cache_rows=20_000 if "cache" in what else 0, cache_steps=8 if "cache" in what else 1)
    else:
        table = ctr.click_table("plain" in what)
    model = ctr.ClickModel(table, hidden)
    made = synthetic_clicks.make(512 * 128)
    batches = list(zip(*(part.split(512) for part in made[:3])))
    loss = nn.functional.binary_cross_entropy_with_logits
    return model, torch.optim.Adagrad(model.parameters(), lr=0.02), batches, \
        lambda model, batch: loss(model(batch[0], batch[1]), batch[2])


def work(way, steps, warm_up):
    import torch
    from torch import nn

    trained, *what = ("lenet,ddp" if way == "ddp" else way).split(",")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    rank, all_are_there = 0, lambda: None
    if "ddp" in what:
        import torch.distributed as dist

        dist.init_process_group("gloo")
        rank, all_are_there = dist.get_rank(), dist.barrier
    elif "plain" not in what:
        import cairn

        cairn.init()
        rank, all_are_there = cairn.rank(), cairn.barrier
    if trained == "lenet":
        model, optimizer, batches, loss_of = lenet(torch, nn, rank)
    else:
        model, optimizer, batches, loss_of = clicks(torch, nn, int(trained[3:]), what)
    table = getattr(model, "table", None)
    if "ddp" in what:
        model = nn.parallel.DistributedDataParallel(model)
    elif "plain" not in what:
        optimizer = cairn.DistributedOptimizer(
            optimizer, model, mode=cairn.Async() if "async" in what else cairn.Sync(),
            overlap="overlap" in what)
    loader = (batches[i % len(batches)] for i in range(warm_up + steps))
    if "prefetch" in what:
        loader = cairn.prefetch(loader, lambda batch: {table: batch[1]})
    started = 0.0
    for i, batch in enumerate(loader):
        if i == warm_up:
            all_are_there()
            started = time.perf_counter()
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
    seconds = time.perf_counter() - started
    hits = f"hits: {table.cache_stats().hit_rate:.3f}\n" if "cache" in what else ""
    sys.stdout.write(f"ms per step: {seconds * 1000 / steps:.4f}\n{hits}")
    sys.stdout.flush()
    all_are_there()
    if "ddp" in what:
        dist.destroy_process_group()


# The ways in turn.
def report(times, options):
    print(f"one thread a process: ms per step, median (least–most) of {options.repetitions} × "
          f"{options.steps} steps, {os.cpu_count()} cores")
    medians = {way: statistics.median(found) for way, found in times.items()}
    for way, found in times.items():
        against = WAYS[way][1]
        line = f"{way:20} {medians[way]:7.3f}  ({min(found):.3f}–{max(found):.3f})"
        if against in medians:
            line += f"   {medians[way] / medians[against]:.2f} × its time, " \
                    f"{medians[against] / medians[way]:.2f} × its rate ({against})"
        print(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--warm-up", type=int, default=30, help="steps before the clock starts")
    parser.add_argument("--only", nargs="+", choices=WAYS, default=list(WAYS), help="some ways")
    parser.add_argument("--timeout", type=float, default=300, help="seconds that a start may take")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work, options.steps, options.warm_up)
        return
    times = taking_turns.take_turns(
        {way: (way, run) for way, (run, _) in WAYS.items()}, options,
        lambda run: statistics.mean(taking_turns.figures(__file__, run, options, r"ms per step: (\S+)")),
        "ms")
    report(times, options)


if __name__ == "__main__":
    main()
