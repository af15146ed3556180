"""Sync training on N workers gives what one process gives on the whole batch: per tensor
‖a−b‖ ≤ 1e-5·‖b‖ after 50 steps, with an lr schedule, weight decay and clipping by the global norm.
Each worker is a real process with its own part of the data."""
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import equality_problem as problem

HERE = Path(__file__).resolve().parent
TOLERANCE = 1e-5
ALL = ",".join(problem.OPTIMIZERS)


@pytest.fixture(scope="module")
def alone():
    torch.set_num_threads(1)
    return {name: problem.train_alone(name) for name in problem.OPTIMIZERS}


def train(cairn_bin, tmp_path, workers, split, names=ALL, **environment):
    out = tmp_path / f"{workers}-{split}"
    out.mkdir()
    command = [str(cairn_bin / "cairn"), "run", "-s", "2", "-w", str(workers), "--no-logs",
               str(HERE / "equality_worker.py"), str(out), split, names]
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1", "CAIRN_PYTHON": sys.executable,
                                        **environment},
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return [torch.load(out / f"{rank}.pt") for rank in range(workers)]


def worst(results, alone, name):
    """The largest relative distance of a tensor from the reference, over all workers."""
    expected, _ = alone[name]
    return max(float((a - b).norm() / b.norm())
               for result in results for a, b in zip(result[name]["params"], expected))


@pytest.mark.parametrize("workers, split", [(1, "equal"), (2, "equal"), (2, "unequal"), (4, "equal"), (4, "unequal")])
def test_sync_equals_one_process(cairn_bin, tmp_path, alone, workers, split):
    results = train(cairn_bin, tmp_path, workers, split)
    for name in problem.OPTIMIZERS:
        assert worst(results, alone, name) <= TOLERANCE, name
        _, norms = alone[name]
        for result in results:
            assert result[name]["norms"] == pytest.approx(norms, rel=1e-4)
            for mine, first in zip(result[name]["params"], results[0][name]["params"]):
                assert torch.equal(mine, first), f"{name}: workers differ"


@pytest.mark.parametrize("fault, split", [("drop", "equal"), ("divisor", "unequal")])
def test_the_comparison_notices(cairn_bin, tmp_path, alone, fault, split):
    """One missing contribution, or a mean that forgets that batches are unequal."""
    results = train(cairn_bin, tmp_path, 2, split, "sgd,adam", FAULT=fault)
    for name in ("sgd", "adam"):
        assert worst(results, alone, name) > TOLERANCE, name
