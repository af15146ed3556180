"""The longer check of the starts of MindSpore and Paddle, on all of MNIST and in every order: at least
0.98, and within 0.003 of `cairn run`. Not part of script/test: script/check --only starts runs it."""
import itertools
import os
import pathlib
import sys

import pytest

from compat_jobs import EXAMPLES, MindSpore, Paddle, accuracy

LEAST, WITHIN = 0.98, 0.003
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
DATA = pathlib.Path(os.environ.get("CAIRN_MNIST") or CACHE / "cairn" / "mnist")  # as examples/mnist_idx.py
_baselines = {}


def baseline(job, cairn_bin, size):
    """The accuracy of the plain example with so many servers and workers; measured once."""
    if size not in _baselines:
        child = job.start([cairn_bin / "cairn", "run", "--no-logs", "-s", size, "-w", size,
                           EXAMPLES / "mnist_lenet.py", "--data", DATA], CAIRN_PYTHON=sys.executable)
        code, text = job.wait(child, 600)
        assert code == 0, text
        _baselines[size] = accuracy(text)
    return _baselines[size]


def check(job, cairn_bin, started, order, size, last):
    started.start_in_order(order)
    reached, expected = accuracy(started.finish(600)[last]), baseline(job, cairn_bin, size)
    print(f"{'-'.join(order)}: {reached:.4f}, cairn run: {expected:.4f}")
    assert reached >= LEAST and abs(reached - expected) <= WITHIN, (reached, expected)


@pytest.mark.parametrize("order", itertools.permutations(MindSpore.NAMES), ids="-".join)
def test_mindspores_three_scripts(job, cairn_bin, order):
    started = MindSpore(job, EXAMPLES / "mnist_lenet_mindspore.py", f"--data_path={DATA}", "--per_print_times=100")
    check(job, cairn_bin, started, order, 1, "worker")


@pytest.mark.parametrize("order", itertools.permutations(Paddle.NAMES), ids="-".join)
def test_paddles_two_servers_and_two_trainers(job, cairn_bin, order):
    started = Paddle(job, EXAMPLES / "mnist_lenet_fleet.py", "--is_cloud=1", f"--data={DATA}")
    check(job, cairn_bin, started, order, 2, "trainer0")
