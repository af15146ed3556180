"""Incomes above 50,000 dollars from census data: 33 columns of words, each with a table of its own
on the servers, 7 columns of numbers, an MLP. What makes it distributed is marked with  # cairn.

    script/fetch-census                                         gets the data, once
    python examples/census.py                                   one process, the cluster inside it
    cairn run -s 2 -w 2 examples/census.py --mode hybrid        2 servers and 2 workers
    python examples/census.py --mode local                      plain torch, for comparison
"""
import argparse
import contextlib
import time

import census_income
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

import cairn

DIM = 8
SPREAD = 0.1  # of the rows' initial values


class PlainTables(nn.ModuleDict):
    """What cairn.nn.EmbeddingCollection is, in one process."""

    def forward(self, ids):
        return {name: self[name](of_it) for name, of_it in ids.items()}


def tables(sizes, local):
    if not local:
        each = {f"column_{column}":
                cairn.nn.Embedding(size, DIM, init=("normal", 0, SPREAD))                # cairn
                for column, size in zip(census_income.WORDS, sizes)}
        return cairn.nn.EmbeddingCollection(each)  # one round trip for all of them      # cairn
    torch.sparse.check_sparse_tensor_invariants.disable()  # as it is, but without a warning
    each = {f"column_{column}": nn.Embedding(size, DIM, sparse=True)
            for column, size in zip(census_income.WORDS, sizes)}
    for table in each.values():
        nn.init.normal_(table.weight, 0, SPREAD)
    return PlainTables(each)


class IncomeModel(nn.Module):
    def __init__(self, tables):
        super().__init__()
        self.tables = tables
        width = len(census_income.NUMBERS) + len(census_income.WORDS) * DIM
        self.mlp = nn.Sequential(
            nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1),
        )

    @staticmethod
    def by_column(ids):
        return {f"column_{column}": ids[:, i] for i, column in enumerate(census_income.WORDS)}

    def forward(self, floats, ids):
        rows = self.tables(self.by_column(ids))
        return self.mlp(torch.cat([floats, *rows.values()], 1)).squeeze(1)


def scores(model, data):
    model.eval()
    with torch.no_grad():
        in_order = BatchSampler(range(len(data)), 4096, False)
        batches = DataLoader(data, batch_size=None, sampler=in_order)
        found = [model(floats, ids) for floats, ids, _ in batches]
    model.train()
    return torch.cat([torch.empty(0), *found])


def arguments():
    parser = argparse.ArgumentParser(description="incomes from census data")
    parser.add_argument("--data", help="folder of the two files (script/fetch-census's)")
    parser.add_argument("--mode", choices=["sync", "async", "hybrid", "local"], default="sync")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=256,
                        help="of one update: in sync and hybrid each worker takes its share of it")
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=1, help="of the MLP and the order")
    parser.add_argument("--limit", type=int, help="use the first so many people of each file only")
    parser.add_argument("--every", type=int, default=200, help="steps between two lines of output")
    return parser.parse_args()


def main():
    options = arguments()
    local, asynchronous = options.mode == "local", options.mode == "async"
    torch.manual_seed(options.seed)
    people, test, sizes = census_income.load(census_income.folder(options.data), options.limit)
    train = TensorDataset(*people)
    rank, workers = 0, 1
    if not local:
        cairn.init()                                                                     # cairn
        rank, workers = cairn.rank(), cairn.world_size()                                 # cairn

    model = IncomeModel(tables(sizes, local))
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
        batches = cairn.prefetch(batches, lambda batch: {                                # cairn
            model.tables[name]: ids for name, ids in model.by_column(batch[1]).items()})

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

    if not local:
        cairn.barrier()                                                                  # cairn
        optimizer.pull()                                                                 # cairn
    mine = slice(rank, None, workers)  # each worker has its share of the test
    found = scores(model, TensorDataset(*(part[mine] for part in test)))
    reached = cairn.metrics.auc(found, test.labels[mine])  # exact, over all workers     # cairn
    if rank == 0:
        print(f"test AUC: {reached:.4f}")


if __name__ == "__main__":
    main()
