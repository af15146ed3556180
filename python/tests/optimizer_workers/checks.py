"""A list of named checks that N workers run in one job, because starting torch takes seconds.

A check gets the worker's rank and returns a model whose tensors must be equal on all workers (or
nothing). `ok NAME DIGEST` is printed for each; the first exception ends the worker and the job.
"""
import torch

import cairn
from optimizer_workers.problems import digest


class Checks(dict):
    """name → function, in the order in which they are written."""

    def __call__(self, function):
        self[function.__name__] = function
        return function


def run_all(checks):
    torch.set_num_threads(1)
    cairn.init()
    for name, check in checks.items():
        cairn.barrier()  # a worker that is behind would be blamed for the wrong check
        print(f"begin {name}", flush=True)
        result = check(cairn.rank())
        print(f"ok {name} {'-' if result is None else digest(result)}", flush=True)
    cairn.shutdown()
