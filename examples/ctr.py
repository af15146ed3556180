"""Click-through rate from 13 floats and 26 ids: one table of a million rows on the servers, an MLP.
The data is synthetic (synthetic_clicks.py). What makes it distributed is marked with  # cairn.

    python examples/ctr.py                                      one process, the cluster inside it
    cairn run -s 2 -w 2 examples/ctr.py --mode sync             2 servers and 2 workers
    cairn run -s 2 -w 2 examples/ctr.py --mode hybrid           the MLP by all-reduce
    python examples/ctr.py --mode local                         plain torch, for comparison
"""
import argparse
import contextlib
import time

import synthetic_clicks
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

import cairn

DIM = 16
SPREAD = 0.05  # of the rows' initial values


def click_table(local):
    if not local:
        return cairn.nn.Embedding(synthetic_clicks.IDS, DIM, init=("normal", 0, SPREAD))  # cairn
    torch.sparse.check_sparse_tensor_invariants.disable()  # as it is, but without a warning
    table = nn.Embedding(synthetic_clicks.IDS, DIM, sparse=True)
    nn.init.normal_(table.weight, 0, SPREAD)
    return table


class ClickModel(nn.Module):
    def __init__(self, table, hidden=400):
        super().__init__()
        self.table = table
        width = synthetic_clicks.FLOATS + synthetic_clicks.FIELDS * DIM
        self.mlp = nn.Sequential(
            nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1),
        )

    def forward(self, floats, ids):
        return self.mlp(torch.cat([floats, self.table(ids).flatten(1)], 1)).squeeze(1)


def scores(model, data):
    model.eval()
    with torch.no_grad():
        in_order = BatchSampler(range(len(data)), 4096, False)
        batches = DataLoader(data, batch_size=None, sampler=in_order)
        found = [model(floats, ids) for floats, ids, _ in batches]
    model.train()
    return torch.cat([torch.empty(0), *found])


def arguments():
    parser = argparse.ArgumentParser(description="click-through rate on synthetic data")
    parser.add_argument("--mode", choices=["sync", "async", "hybrid", "local"], default="sync")
    parser.add_argument("--samples", type=int, default=500_000, help="to train on")
    parser.add_argument("--test-samples", type=int, default=100_000)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=512,
                        help="of one update: in sync and hybrid each worker takes its share of it")
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=1, help="of the MLP and the order")
    parser.add_argument("--every", type=int, default=100, help="steps between two lines of output")
    return parser.parse_args()


def main():
    options = arguments()
    local, asynchronous = options.mode == "local", options.mode == "async"
    torch.manual_seed(options.seed)
    train = TensorDataset(*synthetic_clicks.make(options.samples, "train")[:3])
    rank, workers = 0, 1
    if not local:
        cairn.init()                                                                     # cairn
        rank, workers = cairn.rank(), cairn.world_size()                                 # cairn

    model = ClickModel(click_table(local))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=options.lr)
    sampler, joined = RandomSampler(train), contextlib.nullcontext
    if not local:
        if options.mode == "hybrid":
            cairn.assign(model, "auto")  # rows to the servers, the MLP by all-reduce    # cairn
        mode = cairn.Async() if asynchronous else cairn.Sync()                           # cairn
        optimizer = cairn.DistributedOptimizer(optimizer, model, mode=mode)              # cairn
        sampler = cairn.data.Sampler(train, seed=options.seed)                           # cairn
        joined = optimizer.join                                                          # cairn
    batch_size = options.batch_size if asynchronous else max(1, options.batch_size // workers)
    batches = DataLoader(train, batch_size=None, sampler=BatchSampler(sampler, batch_size, False))
    if not local:
        batches = cairn.prefetch(batches, lambda batch: {model.table: batch[1]})         # cairn

    for epoch in range(options.epochs):
        if not local:
            sampler.set_epoch(epoch)                                                     # cairn
        seen, started = 0, time.perf_counter()
        with joined():
            for step, (floats, ids, labels) in enumerate(batches):
                optimizer.zero_grad()
                loss = F.binary_cross_entropy_with_logits(model(floats, ids), labels)
                loss.backward()
                optimizer.step()
                seen += len(labels)
                if step % options.every == 0:
                    print(f"epoch: {epoch + 1} step: {step + 1}, loss is {loss.item():.4f}")
        rate = seen / (time.perf_counter() - started)
        print(f"epoch: {epoch + 1} ends: {seen} samples, {rate:.0f} a second")

    test = synthetic_clicks.make(options.test_samples, "test")
    mine = slice(rank, None, workers)  # each worker has its share of the test
    if not local:
        cairn.barrier()                                                                  # cairn
        optimizer.pull()                                                                 # cairn
    found = scores(model, TensorDataset(*(part[mine] for part in test[:3])))
    reached = cairn.metrics.auc(found, test.labels[mine])  # exact, over all workers     # cairn
    if rank == 0:
        best = synthetic_clicks.area_of_truth(test)
        print(f"test AUC: {reached:.4f} (synthetic data; the truth behind it has {best:.4f})")


if __name__ == "__main__":
    main()
