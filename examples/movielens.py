"""MovieLens-100k by matrix factorisation: a model of nothing but tables on the servers, whose rows
are found by the ids of users and films as they are. What makes it distributed:  # cairn.

    script/fetch-movielens                                      gets the data, once
    python examples/movielens.py                                one process, the cluster inside it
    cairn run -s 2 -w 2 examples/movielens.py --mode async      2 servers and 2 workers
    python examples/movielens.py --mode local                   plain torch, for comparison
"""
import argparse
import contextlib
import os
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

import cairn

DIM = 32
FILE, HEADER = "ml-100k.inter", "user_id:token\titem_id:token\trating:float\ttimestamp:float"


def folder(given=None):
    """Where it is: what was given, $CAIRN_MOVIELENS, or where script/fetch-movielens puts it."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given or os.environ.get("CAIRN_MOVIELENS") or Path(cache) / "cairn" / "movielens")


def ratings(where):
    """→ users, films (int64), stars (float32) of all ratings."""
    path = Path(where) / FILE
    try:
        header, *lines = path.read_text().splitlines()
        if header != HEADER:
            raise ValueError(header)
        rows = [[int(word) for word in line.split("\t")[:3]] for line in lines]
        users, films, stars = torch.tensor(rows).unbind(1)
    except FileNotFoundError:
        advice = "fetch the data with script/fetch-movielens, or give --data"
        raise SystemExit(f"{path} is not there: {advice}") from None
    except (ValueError, RuntimeError):
        advice = "fetch it again with script/fetch-movielens"
        raise SystemExit(f"{path} is not MovieLens-100k's: {advice}") from None
    return users.contiguous(), films.contiguous(), stars.float()


def table(dim, spread, rows, local):
    if not local:
        return cairn.nn.Embedding(None, dim, init=("normal", 0, spread))  # any key      # cairn
    torch.sparse.check_sparse_tensor_invariants.disable()  # as it is, but without a warning
    plain = nn.Embedding(rows, dim, sparse=True)
    nn.init.normal_(plain.weight, 0, spread)
    return plain


class Factors(nn.Module):
    def __init__(self, users, films, mean, local):
        super().__init__()
        self.user, self.film = table(DIM, 0.1, users, local), table(DIM, 0.1, films, local)
        self.user_bias, self.film_bias = table(1, 0, users, local), table(1, 0, films, local)
        self.mean = mean

    def forward(self, users, films):
        """→ stars, and the rows that they were made of."""
        rows = self.user(users), self.film(films), self.user_bias(users), self.film_bias(films)
        user, film, user_bias, film_bias = rows
        return self.mean + (user * film).sum(1) + (user_bias + film_bias).squeeze(1), rows


def rmse(model, users, films, stars):
    model.eval()
    with torch.no_grad():
        found, _ = model(users, films)
    model.train()
    return (found.clamp(1, 5) - stars).square().mean().sqrt().item()


def arguments():
    parser = argparse.ArgumentParser(description="matrix factorisation of MovieLens-100k")
    parser.add_argument("--data", help=f"folder of {FILE} (script/fetch-movielens's)")
    parser.add_argument("--mode", choices=["sync", "async", "local"], default="sync")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=256,
                        help="of one update: in sync each worker takes its share of it")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--decay", type=float, default=0.1, help="weight of the rows' squares")
    parser.add_argument("--seed", type=int, default=1, help="of the split and the order")
    return parser.parse_args()


def main():
    options = arguments()
    local, asynchronous = options.mode == "local", options.mode == "async"
    torch.manual_seed(options.seed)
    everything = ratings(folder(options.data))
    shuffled = torch.randperm(len(everything[0]))
    cut = len(shuffled) // 5  # a fifth is to test on
    test = [column[shuffled[:cut]] for column in everything]
    train = TensorDataset(*(column[shuffled[cut:]] for column in everything))
    users, films = int(everything[0].max()) + 1, int(everything[1].max()) + 1
    rank, workers = 0, 1
    if not local:
        cairn.init()                                                                     # cairn
        rank, workers = cairn.rank(), cairn.world_size()                                 # cairn

    model = Factors(users, films, train.tensors[2].mean().item(), local)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=options.lr)
    sampler, joined = RandomSampler(train), contextlib.nullcontext
    if not local:
        mode = cairn.Async() if asynchronous else cairn.Sync()                           # cairn
        optimizer = cairn.DistributedOptimizer(optimizer, model, mode=mode)              # cairn
        sampler = cairn.data.Sampler(train, seed=options.seed)                           # cairn
        joined = optimizer.join                                                          # cairn
    batch_size = options.batch_size if asynchronous else max(1, options.batch_size // workers)
    batches = DataLoader(train, batch_size=None, sampler=BatchSampler(sampler, batch_size, False))
    if not local:
        batches = cairn.prefetch(batches, lambda batch: {                                # cairn
            model.user: batch[0], model.user_bias: batch[0],
            model.film: batch[1], model.film_bias: batch[1]})

    for epoch in range(options.epochs):
        if not local:
            sampler.set_epoch(epoch)                                                     # cairn
        errors, seen = 0.0, 0
        with joined():
            for users, films, stars in batches:
                optimizer.zero_grad()
                found, rows = model(users, films)
                error = (found - stars).square().mean()
                size = sum(part.square().sum() for part in rows) / len(stars)
                (error + options.decay * size).backward()
                optimizer.step()
                errors, seen = errors + error.item() * len(stars), seen + len(stars)
        if seen:
            found = (errors / seen) ** 0.5
            print(f"epoch: {epoch + 1}, RMSE of {seen} ratings in training is {found:.4f}")

    if not local:
        cairn.barrier()                                                                  # cairn
    if rank == 0:
        print(f"test RMSE: {rmse(model, *test):.4f}")


if __name__ == "__main__":
    main()
