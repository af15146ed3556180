"""The first real job, on data made up here: ten patterns with noise, in MNIST's format."""
import os
import re
import signal

import pytest

from mnist_data import write_mnist
from processes import BIN, Run, children_of


@pytest.fixture
def data(tmp_path):
    return write_mnist(tmp_path)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_softmax_learns_with_two_servers_and_two_workers(data, mode):
    with Run("run", "-s", 2, "-w", 2, "--", BIN / "softmax_mnist", "--data", data, "--mode", mode, "--epochs", 2,
             "--batch", 20, "--lr", 0.02) as run:
        assert run.wait() == 0, run.text
        accuracy = re.search(r"^\[worker 0\] test accuracy: (\S+)$", run.text, re.M)
        assert accuracy and float(accuracy[1]) >= 0.9, run.text
        assert "the scheduler is connected to 2 workers and 2 servers" in run.text
        # Exact, though the job is shorter than the time between two reports: 2 epochs of 15 rounds.
        count = "30 rounds" if mode == "sync" else r"\d\d+ pushes"
        assert re.search(rf"finished in \S+ s: 2 workers done, 0 restarts, {count}, logs in /", run.lines[-1]), run.text


@pytest.mark.parametrize("mode,rate", [("sync", r"round \d+  \S+ rounds/s"), ("async", r"\S+ pushes/s")])
def test_progress_shows_what_moves(data, mode, rate):
    with Run("run", "-s", 2, "-w", 2, "--progress-every", 0.2, "--", BIN / "softmax_mnist", "--data", data, "--mode", mode,
             "--epochs", 1000, "--batch", 20, "--lr", 0.02) as run:
        run.wait_for(rf"^\[cairn\] \d:\d\d  2 servers 2 workers  {rate}  [1-9]\S* [kM]?B/s$")
        run.signal()
        assert run.wait() == 130, run.text


def test_a_killed_worker_comes_back_at_the_step_of_the_others(data):
    """In sync mode all workers must end at the same round, whoever was restarted in between."""
    with Run("run", "-s", 1, "-w", 2, "--", BIN / "softmax_mnist", "--data", data, "--epochs", 200, "--batch", 20,
             "--lr", 0.02) as run:
        run.wait_for(r"\[worker 1\] epoch: 5 ")
        workers = [pid for pid, command in children_of(run.process.pid).items() if "softmax_mnist" in command]
        os.kill(max(workers), signal.SIGKILL)
        run.wait_for("starting it again")
        assert run.wait() == 0, run.text
        assert re.search(r"test accuracy: ", run.text), run.text
