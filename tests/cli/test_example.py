"""The first real job, on data made up here: ten patterns with noise, in MNIST's format."""
import os
import random
import re
import signal
import struct

import pytest

from processes import BIN, Run, children_of

SIDE = 28


def write_set(folder, name, count, patterns, chance):
    labels = bytes(chance.randrange(10) for _ in range(count))
    images = b"".join(bytes(p if chance.random() < 0.8 else chance.randrange(256) for p in patterns[label])
                      for label in labels)
    (folder / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 0x803, count, SIDE, SIDE) + images)
    (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, count) + labels)


@pytest.fixture
def data(tmp_path):
    chance = random.Random(7)
    patterns = [[chance.choice((0, 0, 255)) for _ in range(SIDE * SIDE)] for _ in range(10)]
    write_set(tmp_path, "train", 600, patterns, chance)
    write_set(tmp_path, "t10k", 200, patterns, chance)
    return tmp_path


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_softmax_learns_with_two_servers_and_two_workers(data, mode):
    with Run("run", "-s", 2, "-w", 2, "--", BIN / "softmax_mnist", "--data", data, "--mode", mode, "--epochs", 2,
             "--batch", 20, "--lr", 0.02) as run:
        assert run.wait() == 0, run.text
        accuracy = re.search(r"^\[worker 0\] test accuracy: (\S+)$", run.text, re.M)
        assert accuracy and float(accuracy[1]) >= 0.9, run.text
        assert "the scheduler is connected to 2 workers and 2 servers" in run.text


def test_a_killed_worker_comes_back_at_the_step_of_the_others(data):
    """In sync mode all workers must end at the same round, whoever was restarted in between."""
    with Run("run", "-s", 1, "-w", 2, "--", BIN / "softmax_mnist", "--data", data, "--epochs", 400, "--batch", 20,
             "--lr", 0.02) as run:
        run.wait_for(r"\[worker 1\] epoch: 5 ")
        workers = [pid for pid, command in children_of(run.process.pid).items() if "softmax_mnist" in command]
        os.kill(max(workers), signal.SIGKILL)
        run.wait_for("starting it again")
        assert run.wait() == 0, run.text
        assert re.search(r"test accuracy: ", run.text), run.text
