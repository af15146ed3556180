"""torch's own ways to do what a parameter server does, one process of it: RANK, WORLD_SIZE,
MASTER_ADDR and MASTER_PORT say who it is. Rank 0 prints one line of JSON.

    torch_parts.py allreduce --seconds 1      gloo, 2 processes: all-reduces of 4 KB, 4 MB, 16 MB
    torch_parts.py rpc --seconds 1 --rows N --keys N
        a parameter server over torch.distributed.rpc, rank 1, and its worker, rank 0, as in torch's
        tutorial: the server has a tensor and a table, applies SGD and sends back what is asked for

One thread a process.
"""
import argparse
import json
import statistics
import time

import torch
import torch.distributed as dist
from torch.distributed import rpc

DIM = 16
SIZES = {"4kb": 4 << 10, "4096kb": 4 << 20, "16384kb": 16 << 20}


def median_us(seconds, work):
    """The median of runs for about so long. Not for collectives: everybody must run as often."""
    work(), work()
    taken, end = [], time.perf_counter() + seconds
    while len(taken) < 5 or time.perf_counter() < end:
        started = time.perf_counter()
        work()
        taken.append((time.perf_counter() - started) * 1e6)
    return statistics.median(taken)


def allreduce(options):
    dist.init_process_group("gloo")
    found = {}
    for name, size in SIZES.items():
        tensor = torch.full((size // 4,), 1e-3)
        runs = 2000 if size < 1 << 20 else max(10, int(60 * options.seconds))
        taken = []
        for i in range(runs + 5):
            started = time.perf_counter()
            dist.all_reduce(tensor)
            if i >= 5:
                taken.append((time.perf_counter() - started) * 1e6)
            tensor.mul_(0.5)
        found[f"allreduce_{name}_us"] = statistics.median(taken)
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.barrier()
    dist.destroy_process_group()


# What the server has. Plain functions: rpc calls them there by name.
_dense, _table = {}, None


def make_dense(size):
    _dense[size] = torch.zeros(size)


def make_table(rows):
    global _table
    _table = torch.zeros(rows, DIM)


def push(gradient):
    _dense[len(gradient)].sub_(gradient, alpha=1e-3)


def pull(size):
    return _dense[size]


def push_pull(gradient):
    push(gradient)
    return _dense[len(gradient)]


def push_rows(ids, gradient):
    _table.index_add_(0, ids, gradient, alpha=-1e-3)


def pull_rows(ids):
    return _table[ids]


def parameter_server(options, rank):
    rpc.init_rpc(f"node{rank}", rank=rank, world_size=2)
    if rank == 0:
        print(json.dumps(worker(options)), flush=True)
    rpc.shutdown()


def worker(options):
    def call(function, *arguments):
        return rpc.rpc_sync("node1", function, args=arguments)

    found = {}
    for name, size in SIZES.items():
        gradient = torch.full((size // 4,), 1e-3)
        call(make_dense, len(gradient))
        found[f"push_{name}_us"] = median_us(options.seconds, lambda: call(push, gradient))
        both = median_us(options.seconds, lambda: call(push_pull, gradient))
        found[f"push_pull_{name}_us"] = both
    call(make_table, options.rows)
    batches = [torch.randint(options.rows, (options.keys,)) for _ in range(8)]
    rows, turn = torch.full((options.keys, DIM), 1e-3), iter(range(1 << 30))
    million = options.keys / 1e6

    def batch():
        return batches[next(turn) % len(batches)]

    pushed = median_us(options.seconds, lambda: call(push_rows, batch(), rows))
    pulled = median_us(options.seconds, lambda: call(pull_rows, batch()))
    found["sparse_push_m_keys_per_s"] = million / (pushed * 1e-6)
    found["sparse_pull_m_keys_per_s"] = million / (pulled * 1e-6)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["allreduce", "rpc"])
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.what == "allreduce":
        allreduce(options)
    else:
        parameter_server(options, options.rank)


if __name__ == "__main__":
    main()
