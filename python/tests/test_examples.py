"""Each example in small, as a user starts it, on data made up here in MNIST's format."""
import os
import pathlib
import re
import sys

import nbclient
import nbformat
import pytest

import mnist_patterns
from long_tests import cases

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
CAIRN = pathlib.Path(os.environ["CAIRN_BIN"]) / "cairn"
SECONDS = 120
LEAST = {"sync": 0.9, "async": 0.5}  # async is another run every time; who learns nothing has 0.1


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mnist")
    mnist_patterns.write(folder, train=1200, test=300)
    return folder


def finish(job, child):
    code, text = job.wait(child, SECONDS)
    assert code == 0, text
    return text


def accuracy(text):
    return float(re.findall(r"test accuracy: (\S+)$", text, re.M)[-1])


@pytest.mark.parametrize("mode", cases(["sync"], ["async"]))
def test_lenet_with_two_servers_and_two_workers(job, data, mode):
    text = finish(job, job.start([CAIRN, "run", "--no-logs", "-s", 2, "-w", 2, EXAMPLES / "mnist_lenet.py", "--data",
                                  data, "--mode", mode, "--epochs", 1, "--batch-size", 10, "--every", 10, "--lr", 0.01],
                                 CAIRN_PYTHON=sys.executable))
    for worker in (0, 1):
        losses = re.findall(rf"^\[worker {worker}\] epoch: 1 step: (\d+), loss is (\S+)$", text, re.M)
        assert [int(step) for step, _ in losses] == [1, 11, 21, 31, 41, 51], text
        assert 2.2 < float(losses[0][1]) < 2.4 or mode == "async", text
    assert re.findall(r"^\[worker (\d)\] test accuracy", text, re.M) == ["0"]
    assert accuracy(text) > LEAST[mode], text


def test_lenet_in_one_process_draws_its_loss(job, data):
    picture = job.folder / "loss.png"
    text = finish(job, job.python(EXAMPLES / "mnist_lenet.py", "--data", data, "--epochs", 1, "--limit", 1000,
                                  "--batch-size", 10, "--plot", picture))
    assert re.findall(r"step: (\d+)", text) == ["1"]  # of 100
    assert text.splitlines()[-1].startswith("test accuracy: "), text
    assert accuracy(text) > 0.9
    if "matplotlib is missing" not in text:
        assert picture.read_bytes().startswith(b"\x89PNG")


def test_lenet_goes_on_without_matplotlib(job, data):
    (job.folder / "matplotlib.py").write_text("raise ImportError('none here')")
    path = os.pathsep.join([str(job.folder), os.environ["PYTHONPATH"]])
    text = finish(job, job.python(EXAMPLES / "mnist_lenet.py", "--data", data, "--epochs", 1, "--limit", 100, "--plot",
                                  job.folder / "loss.png", PYTHONPATH=path))
    assert "no loss curve: matplotlib is missing" in text and "test accuracy: " in text


@pytest.mark.parametrize("mode, more", cases([("sync", [])], [("sync", ["--one-trip"]), ("async", [])]))
def test_from_scratch_with_three_servers(job, data, mode, more):
    text = finish(job, job.start([CAIRN, "run", "--no-logs", "-s", 3, "-w", 2, EXAMPLES / "ps_from_scratch.py",
                                  "--data", data, "--batch-size", 10, "--lr", 0.01, "--mode", mode, *more],
                                 CAIRN_PYTHON=sys.executable))
    assert "10 tables of 45278 numbers in all are on" in text
    there = [[int(n) for n in found] for found in re.findall(
        r"server \d at \S+: (\d+) numbers in (\d+) partitions, (\d+) of them copies of the others'$", text, re.M)]
    numbers, partitions, copies = (sum(column) for column in zip(*there))
    # Each partition is on two of the three.
    assert len(there) == 3 and (numbers, partitions, copies) == (2 * 45278, 512, 256), text
    assert min(found[0] for found in there) > 20_000, text
    assert accuracy(text) > LEAST[mode], text


def test_from_scratch_trains_the_same_in_one_trip_and_in_two(job, data):
    """In sync mode the two loops are the same arithmetic, to the last digit."""
    losses = []
    for more in ([], ["--one-trip"]):
        text = finish(job, job.python(EXAMPLES / "ps_from_scratch.py", "--data", data, "--batch-size", 10, *more))
        losses.append(re.findall(r"loss is \S+", text))
    assert len(losses[0]) == 3 and losses[0] == losses[1]


@pytest.mark.parametrize("damage, words", [("missing", "script/fetch-mnist"), ("short", "is cut short"),
                                           ("wrong", "is not the IDX file")])
def test_wrong_data_is_told(job, data, damage, words):
    for path in data.iterdir():
        (job.folder / path.name).write_bytes(path.read_bytes())
    images = job.folder / "train-images-idx3-ubyte"
    if damage == "missing":
        images.unlink()
    else:
        images.write_bytes(images.read_bytes()[:-1] if damage == "short" else b"something else")
    code, text = job.wait(job.python(EXAMPLES / "mnist_lenet.py", "--data", job.folder))
    assert code == 1 and words in text and "Traceback" not in text


@pytest.mark.parametrize("with_data", cases([True], [False]))
def test_the_notebook_runs_and_each_cell_may_be_run_again(data, tmp_path, monkeypatch, with_data):
    notebook = nbformat.read(EXAMPLES / "notebook_quickstart.ipynb", 4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "saved with outputs: clear them"
    monkeypatch.setenv("CAIRN_MNIST", str(data if with_data else tmp_path))
    notebook.cells = [cell.copy() for cell in notebook.cells if cell.cell_type == "code" for _ in range(2)]
    nbclient.NotebookClient(notebook, timeout=SECONDS, kernel_name="python3",
                            resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    text = "".join(output.get("text", "") for cell in notebook.cells for output in cell.outputs)
    assert text.count("MNIST" if with_data else "made-up patterns") == 2
    found = [float(a) for a in re.findall(r"test accuracy: (\S+)", text)]
    assert len(found) == 2 and min(found) > 0.9, text
    assert not [output for cell in notebook.cells for output in cell.outputs if output.get("name") == "stderr"]
    table = [output["data"]["text/plain"] for cell in notebook.cells for output in cell.outputs if "data" in output]
    assert table[-1] == table[-2] == "tensor([3., 1., 1.])"
