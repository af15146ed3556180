"""The classic loop of a parameter server, by hand: pull, compute, push; aggregate and update.

    cairn run -s 3 -w 2 examples/ps_from_scratch.py

A CNN of two convolutions and three linear layers, each of its ten tensors a table that is split
over all servers. Workers pull the weights, compute gradients on their share of MNIST and push them;
the servers take the mean of all workers' gradients (aggregate) and apply SGD to it (update).
For training as such cairn.DistributedOptimizer does all this in one message: see mnist_lenet.py.
"""
import argparse
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import mnist_idx
import torch
import torch.nn.functional as F
from torch import nn

import cairn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 5), nn.Conv2d(8, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(256, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


def make_table(name, parameter, layer, options):
    # Initial values are computed on the servers from a seed, so nobody has to send any: the same
    # uniform ones that torch takes, of ±1/√(inputs of the layer).
    bound = 1 / math.sqrt(layer.weight[0].numel())
    mode = cairn.Sync() if options.mode == "sync" else cairn.Async()
    return cairn.dense_table(name, parameter.shape, mode=mode, optimizer="sgd", lr=options.lr,
                             momentum=0.9, init=("uniform", -bound, bound, 1))


def pull(tables, parameters):
    calls = [table.pull(out=p.detach()) for table, p in zip(tables, parameters)]
    for call in calls:  # all are under way at once
        call.wait()


def push(tables, parameters):
    calls = [table.push(p.grad) for table, p in zip(tables, parameters)]
    for call in calls:
        call.wait()  # sync: the round is closed, all workers' gradients are in


def push_pull(tables, parameters):
    """Both in one round trip: what the next pull would bring comes with the push's answer."""
    calls = [table.push_pull(p.grad, out=p.detach()) for table, p in zip(tables, parameters)]
    for call in calls:
        call.wait()


def show_where_the_parameters_lie(tables):
    """Asks the scheduler, as `cairn status` does on the command line."""
    port = os.environ.get("CAIRN_SCHED_PORT")
    if not port:
        print("all parameters lie in this process")
        return
    beside = str(Path(sys.executable).parent)
    folders = [os.environ.get("CAIRN_BIN"), beside, os.environ.get("PATH")]
    program = shutil.which("cairn", path=os.pathsep.join(filter(None, folders)))
    if program is None:
        print("no `cairn` on the path to ask where the parameters lie")
        return
    address = f"{os.environ.get('CAIRN_SCHED_HOST', '127.0.0.1')}:{port}"
    done = subprocess.run([program, "status", "--json", address], capture_output=True, text=True,
                          timeout=30)
    if done.returncode != 0:
        print(f"no status: {done.stderr.strip()}")
        return
    numbers = sum(math.prod(table.shape) for table in tables)
    print(f"{len(tables)} tables of {numbers} numbers in all are on")
    for server in json.loads(done.stdout)["servers"]:
        where = f"server {server['index']} at {server['endpoint']}"
        copies = f", {server['backups']} of them copies of the others'" if server["backups"] else ""
        partitions = server["primaries"] + server["backups"]
        print(f"  {where}: {server['stats']['rows']} numbers in {partitions} partitions{copies}")


def main():
    parser = argparse.ArgumentParser(description="pull, compute, push by hand: a CNN on MNIST")
    parser.add_argument("--data", help="folder of the IDX files (script/fetch-mnist's)")
    parser.add_argument("--limit", type=int, default=20_000, help="train on so many samples")
    parser.add_argument("--batch-size", type=int, default=32, help="of each worker")
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--mode", choices=["sync", "async"], default="sync")
    parser.add_argument("--one-trip", action="store_true", help="push and pull in one round trip")
    options = parser.parse_args()

    cairn.init()
    rank, workers = cairn.rank(), cairn.world_size()
    where = mnist_idx.folder(options.data)
    x, y = mnist_idx.load(where, "train", options.limit)
    steps = len(x) // workers // options.batch_size  # the same on every worker
    x, y = x[rank::workers], y[rank::workers]  # this worker's share

    model = Net()
    names, parameters = zip(*model.named_parameters())
    tables = [make_table(name, p, model.get_submodule(name.rsplit(".", 1)[0]), options)
              for name, p in zip(names, parameters)]
    if rank == 0:
        show_where_the_parameters_lie(tables)

    pull(tables, parameters)
    for step in range(steps):
        batch = slice(step * options.batch_size, (step + 1) * options.batch_size)
        if step > 0 and not options.one_trip:
            pull(tables, parameters)
        model.zero_grad()
        loss = F.cross_entropy(model(x[batch]), y[batch])
        loss.backward()
        (push_pull if options.one_trip else push)(tables, parameters)
        if step % 50 == 0:
            print(f"step: {step + 1}, loss is {loss.item():.4f}")

    cairn.barrier()  # async: the others may still be pushing
    if rank == 0:
        pull(tables, parameters)
        x, y = mnist_idx.load(where, "t10k")
        with torch.no_grad():
            right = (model(x).argmax(1) == y).float().mean().item()
        print(f"test accuracy: {right:.4f}")


if __name__ == "__main__":
    main()
