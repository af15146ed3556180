"""A parameter server as an actor of Ray, as in its documentation, and a worker that talks to it.

    ray_server.py --rows N --keys N --seconds S [--folder F]

The actor is a process of its own; arrays go through Ray's object store in shared memory. SGD in
numpy; an id that comes twice in a batch counts once, which is in its favour. Prints one line of JSON.
"""
import argparse
import json
import os
import statistics
import time

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_AUTH_MODE"] = "disabled"  # else it leaves a token in the home folder
os.environ["OMP_NUM_THREADS"] = "1"
import numpy as np  # noqa: E402
import ray  # noqa: E402

DIM = 16
SIZES = {"4kb": 4 << 10, "4096kb": 4 << 20, "16384kb": 16 << 20}
RATE = np.float32(1e-3)


@ray.remote(num_cpus=1)
class Server:
    def __init__(self, rows):
        self.dense = {size // 4: np.zeros(size // 4, np.float32) for size in SIZES.values()}
        self.table = np.zeros((rows, DIM), np.float32)

    def push(self, gradient):
        values = self.dense[len(gradient)]
        values -= RATE * gradient

    def push_pull(self, gradient):
        self.push(gradient)
        return self.dense[len(gradient)]

    def push_rows(self, ids, gradient):
        self.table[ids] -= RATE * gradient

    def pull_rows(self, ids):
        return self.table[ids]


def median_us(seconds, work):
    work(), work()
    taken, end = [], time.perf_counter() + seconds
    while len(taken) < 5 or time.perf_counter() < end:
        started = time.perf_counter()
        work()
        taken.append((time.perf_counter() - started) * 1e6)
    return statistics.median(taken)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--folder", default="/tmp/ray", help="for its sockets and logs")
    options = parser.parse_args()
    ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False,
             object_store_memory=1 << 30, _temp_dir=options.folder)
    server = Server.remote(options.rows)
    found = {}
    for name, size in SIZES.items():
        gradient = np.full(size // 4, 1e-3, np.float32)
        for what in ("push", "push_pull"):
            call = getattr(server, what)
            found[f"{what}_{name}_us"] = median_us(options.seconds,
                                                   lambda: ray.get(call.remote(gradient)))
    random = np.random.default_rng(1)
    batches = [random.integers(options.rows, size=options.keys) for _ in range(8)]
    rows, turn = np.full((options.keys, DIM), 1e-3, np.float32), iter(range(1 << 30))

    def batch():
        return batches[next(turn) % len(batches)]

    pushed = median_us(options.seconds, lambda: ray.get(server.push_rows.remote(batch(), rows)))
    pulled = median_us(options.seconds, lambda: ray.get(server.pull_rows.remote(batch())))
    found["sparse_push_m_keys_per_s"] = options.keys / pushed
    found["sparse_pull_m_keys_per_s"] = options.keys / pulled
    print(json.dumps(found), flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main()
