"""Redis as a store of embeddings: rows of 16 floats as values of 64 bytes, keys of 8 bytes.

    redis_rows.py SOCKET --rows N --keys N --seconds S

Pull: MGET of all keys, in commands of 1,000 that travel in one pipeline. Push: Redis can't add
floats to a row, so it is what people do: MGET, the update in numpy, MSET. Both through a Unix
socket, with redis-py and its C parser. Prints one line of JSON.
"""
import argparse
import json
import statistics
import time

import numpy as np
import redis

DIM = 16
A_COMMAND = 1_000


def pieces(keys):
    return [keys[i:i + A_COMMAND] for i in range(0, len(keys), A_COMMAND)]


def mget(store, keys):
    pipe = store.pipeline(transaction=False)
    for piece in pieces(keys):
        pipe.mget(piece)
    rows = b"".join(b"".join(part) for part in pipe.execute())
    return np.frombuffer(rows, np.float32).reshape(len(keys), DIM)


def mset(store, keys, rows):
    raw = rows.tobytes()
    pipe = store.pipeline(transaction=False)
    size = 4 * DIM
    for first in range(0, len(keys), A_COMMAND):
        some = keys[first:first + A_COMMAND]
        starts = range(first * size, (first + len(some)) * size, size)
        pipe.mset({key: raw[start:start + size] for key, start in zip(some, starts)})
    pipe.execute()


def median(seconds, work):
    work()
    taken, end = [], time.perf_counter() + seconds
    while len(taken) < 3 or time.perf_counter() < end:
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("socket")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    store = redis.Redis(unix_socket_path=options.socket)
    for first in range(0, options.rows, options.keys):
        keys = np.arange(first, first + options.keys, dtype=np.uint64)
        mset(store, [key.tobytes() for key in keys], np.zeros((options.keys, DIM), np.float32))
    random = np.random.default_rng(1)
    chosen = random.integers(options.rows, size=(4, options.keys), dtype=np.uint64)
    batches = [[key.tobytes() for key in batch] for batch in chosen]
    turn = iter(range(1 << 30))
    gradient = np.full((options.keys, DIM), 1e-3, np.float32)

    def batch():
        return batches[next(turn) % len(batches)]

    def push():
        keys = batch()
        mset(store, keys, mget(store, keys) - np.float32(1e-3) * gradient)

    million = options.keys / 1e6
    print(json.dumps({
        "sparse_pull_m_keys_per_s": million / median(options.seconds, lambda: mget(store, batch())),
        "sparse_push_m_keys_per_s": million / median(options.seconds, push),
        "parser": "hiredis" if redis.utils.HIREDIS_AVAILABLE else "python",
    }))


if __name__ == "__main__":
    main()
