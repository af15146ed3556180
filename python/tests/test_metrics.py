"""cairn.metrics.auc against the definition, pair by pair: in one process, and over workers."""
import math
import os
import pathlib
import re
import sys

import numpy as np
import pytest
import torch

import cairn
import scripts
from cairn import metrics
from cairn._data.epoch_claims import FirstWins
from cairn._runtime import context

HERE = pathlib.Path(__file__).parent
CAIRN = pathlib.Path(os.environ["CAIRN_BIN"]) / "cairn"


def by_pairs(scores, labels):
    """The definition: of all pairs of a one and a zero, how many are in the right order."""
    scores, labels = np.asarray(scores, np.float64), np.asarray(labels)
    ones, zeros = scores[labels == 1][:, None], scores[labels == 0][None, :]
    return ((ones > zeros).sum() + 0.5 * (ones == zeros).sum()) / (ones.size * zeros.size)


def samples(seed, count, distinct):
    """Scores of which many are equal where `distinct` is small, labels that go with them."""
    chance = np.random.default_rng(seed)
    scores = chance.integers(distinct, size=count) / distinct - 0.5
    labels = (chance.random(count) < 1 / (1 + np.exp(-3 * scores))).astype(np.int64)
    labels[:2] = 0, 1
    return torch.from_numpy(scores), torch.from_numpy(labels)


@pytest.mark.parametrize("count, distinct", [(2, 2), (50, 1), (300, 7), (999, 100), (2000, 1 << 40)])
@pytest.mark.parametrize("seed", range(3))
def test_one_process_without_a_cluster(seed, count, distinct):
    scores, labels = samples(seed, count, distinct)
    assert metrics.auc(scores, labels) == pytest.approx(by_pairs(scores, labels), abs=1e-15)


def test_order_of_extreme_numbers():
    numbers = [-math.inf, -1e308, -1.0, -5e-324, -0.0, 0.0, 5e-324, 1.0, 1e308, math.inf]
    scores = torch.tensor(numbers, dtype=torch.float64)
    for ones in range(1, 1023):
        labels = torch.tensor([ones >> place & 1 for place in range(10)])
        assert metrics.auc(scores, labels) == pytest.approx(by_pairs(scores, labels), abs=1e-15)


@pytest.mark.parametrize("scores, labels", [
    (torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0, 0, 1, 1])),
    (torch.tensor([[0.1], [0.4], [0.35], [0.8]], requires_grad=True), torch.tensor([0.0, 0, 1, 1])),
    (torch.tensor([0.1, 0.4, 0.35, 0.8]).bfloat16(), torch.tensor([False, False, True, True])),
    (torch.tensor([1, 4, 3, 8]), torch.tensor([0, 0, 1, 1], dtype=torch.uint8)),
    ([0.1, 0.4, 0.35, 0.8], np.array([0, 0, 1, 1])),
])
def test_what_scores_and_labels_may_be(scores, labels):
    assert metrics.auc(scores, labels) == 0.75


@pytest.mark.parametrize("labels", [[0, 0, 0], [1, 1, 1], []])
def test_one_kind_of_label_has_no_area(labels):
    assert math.isnan(metrics.auc(torch.rand(len(labels)), torch.tensor(labels)))


@pytest.mark.parametrize("scores, labels, words", [
    ([0.5, 0.2], [1], "2 scores and 1 labels"),
    ([0.5, math.nan], [1, 0], "1 of 2 scores are NaN"),
    ([0.5, 0.2], [1, 2], "a label is 2"),
    ([0.5, 0.2], [1, math.nan], "a label is nan"),
    ([0.5, 0.2j], [1, 0], "complex"),
])
def test_what_is_refused(scores, labels, words):
    with pytest.raises(cairn.InvalidArgumentError, match=words):
        metrics.auc(torch.tensor(scores), torch.tensor(labels))


def test_on_an_embedded_cluster_again_and_again(worker):
    for seed in range(4):
        scores, labels = samples(seed, 500, 50)
        assert metrics.auc(scores, labels) == pytest.approx(by_pairs(scores, labels), abs=1e-15)


def test_scores_travel_in_calls_of_bounded_size(worker, monkeypatch):
    monkeypatch.setattr(metrics, "_ROWS_AT_ONCE", 7)
    table = metrics._Scores(context.current().client, "pieces")
    assert [(keys.tolist(), piece) for keys, piece in table._pieces(0, 15)] == [
        (list(range(7)), slice(0, 7)), (list(range(7, 14)), slice(7, 14)), ([14], slice(14, 15))]
    assert [len(keys) for keys, _ in table._pieces(3, 14)] == [7, 7] and not list(table._pieces(3, 0))
    rows = {place: torch.arange(3 * count).reshape(count, 3) + place for place, count in ((0, 15), (1, 14), (5, 1))}
    for place, mine in rows.items():
        table.push(place, mine)
    assert all(torch.equal(table.pull(place, len(mine)), mine) for place, mine in rows.items())
    scores, labels = samples(1, 100, 50)
    assert metrics.auc(scores, labels) == pytest.approx(by_pairs(scores, labels), abs=1e-15)


def test_calls_and_workers_beyond_one_look(worker, monkeypatch):
    monkeypatch.setattr(metrics, "_AT_ONCE", 4)
    client = context.current().client
    calls = FirstWins(client, "many calls")
    for call in range(9):
        assert metrics._current_call(calls) == call
        calls.push([call], [[1, 0]]).wait()
    monkeypatch.setattr(metrics, "_MOST", 8)
    with pytest.raises(cairn.InvalidArgumentError, match="8 calls of auc"):
        metrics._current_call(calls)


def test_places_of_workers(worker, monkeypatch):
    """Those of ranks far from 0, of one that was started again, and of one that has brought nothing."""
    monkeypatch.setattr(metrics, "_AT_ONCE", 4)
    monkeypatch.setattr(metrics, "_MOST_RANKS", 16)
    monkeypatch.setattr(metrics, "_MOST", 48)
    places = FirstWins(context.current().client, "places")
    made = [metrics._Place(places, rank, incarnation) for rank, incarnation in ((0, 10), (5, 11), (3, 12))]
    assert [place.key for place in made] == [0, 5, 3]
    for place, count in zip(made, (2, 0, 7)):
        place.fill(count)
    again = metrics._Place(places, 5, 99)
    assert again.key == 21 and metrics._Place(places, 5, 11).key == 5  # the same worker: the same place
    assert sorted(made[0].all_filled()) == [(0, 2), (3, 7), (5, 0)], "what it brings now is not there yet"
    again.fill(3)
    assert sorted(made[0].all_filled()) == [(0, 2), (3, 7), (21, 3)]
    metrics._Place(places, 5, 100)
    with pytest.raises(cairn.InvalidArgumentError, match="rank 5 was started too often"):
        metrics._Place(places, 5, 101)


WORKER = """
import sys
import torch
import cairn
from cairn import metrics
from test_metrics import samples

cairn.init()
shares = [[int(n) for n in call.split(",")] for call in sys.argv[1:]]
for call, share in enumerate(shares):
    scores, labels = samples(call, sum(share), 40)
    first = sum(share[:cairn.rank()])
    mine = slice(first, first + share[cairn.rank()])
    # To the last bit, and in one piece, so that the lines of two processes never mix.
    sys.stdout.write(f"call {call}: {metrics.auc(scores[mine], labels[mine]).hex()}\\n")
    sys.stdout.flush()
"""


def run(job, servers, workers, code, *arguments):
    """What such a job says."""
    path = os.pathsep.join([os.environ["PYTHONPATH"], str(HERE)])
    child = job.start([CAIRN, "run", "--no-logs", "--no-progress", "-s", servers, "-w", workers,
                       scripts.write(job.folder, code), *arguments],
                      CAIRN_PYTHON=sys.executable, PYTHONPATH=path)
    code, text = job.wait(child, 120)
    assert code == 0, text
    return text


@pytest.mark.parametrize("calls", [
    ["300,500", "1,999", "700,0", "0,700"],  # two workers, one of which may have nothing
    ["100,0,300", "200,200,200"],
], ids=["two", "three"])
def test_workers_are_ranked_together(job, calls):
    """All get the same number: the one of all samples together, not the mean of their own ones."""
    shares = [[int(n) for n in call.split(",")] for call in calls]
    text = run(job, 2, len(shares[0]), WORKER, *calls)
    for call, share in enumerate(shares):
        found = [float.fromhex(x) for x in re.findall(rf"call {call}: (\S+)$", text, re.M)]
        scores, labels = samples(call, sum(share), 40)
        assert len(found) == len(share) and len(set(found)) == 1, text
        assert found[0] == pytest.approx(by_pairs(scores, labels), abs=1e-15)


LEAVES = """
import time
import torch
import cairn
from cairn import metrics
from cairn._runtime import context

cairn.init()
client = context.current().client
assert metrics.auc(torch.tensor([0.1, 0.9]), torch.tensor([0, 1])) == 1.0
if cairn.rank() > 0:
    while 0 in client.live_ranks():
        time.sleep(0.01)
    assert metrics.auc(torch.tensor([0.9, 0.1]), torch.tensor([0, 1])) == 0.0
    for call in range(2):
        for name in (f"metrics/auc-{call}", f"metrics/auc-{call}/scores"):
            try:
                client.create_sparse(name, 7)
            except cairn.AlreadyExistsError:
                print(f"left behind: {name}", flush=True)
    print("looked", flush=True)
"""


def test_a_call_leaves_no_tables_also_where_the_first_worker_has_left(job):
    text = run(job, 1, 2, LEAVES)
    assert "looked" in text and "left behind" not in text, text


DIES = """
import os, pathlib, signal, sys
import torch
import cairn
from cairn import metrics
from test_metrics import samples

def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)

cairn.init()
mark = pathlib.Path(sys.argv[1])
again = cairn.dense_table("again", 1, mode=cairn.Async())
if cairn.rank() == 0:
    again.pull(when_assigned=True).wait()  # ends when the other one is here for the second time
elif mark.exists():
    again.assign(torch.ones(1)).wait()
else:
    mark.touch()
    filled = metrics._Place.fill
    metrics._Place.fill = kill if sys.argv[2] == "half-way" else lambda *a: (filled(*a), kill())
scores, labels = samples(0, 400, 40)
mine = slice(cairn.rank(), None, 2)
sys.stdout.write(f"found {metrics.auc(scores[mine], labels[mine]).hex()}\\n")
"""


@pytest.mark.parametrize("when", ["half-way", "when all is brought"])
def test_a_worker_that_dies_in_it_and_comes_back_counts_once(job, when):
    text = run(job, 1, 2, DIES, job.folder / "mark", when)
    assert "starting it again" in text, text
    scores, labels = samples(0, 400, 40)
    assert [float.fromhex(x) for x in re.findall(r"found (\S+)$", text, re.M)] == \
        [pytest.approx(by_pairs(scores, labels), abs=1e-15)] * 2, text
