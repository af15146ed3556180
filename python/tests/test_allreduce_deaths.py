"""Workers that die in the middle of an all-reduce: the others go on, and whoever is started again
comes back. What they train equals one process that is given the same batches."""
import pathlib

import pytest

from long_tests import cases
from optimizer_workers.job import Job

WORKERS = pathlib.Path(__file__).resolve().parent / "allreduce_workers"


@pytest.mark.parametrize(("victim", "how"), cases([(0, "killed"), (2, "stopped"), (2, "early")],
                                                  [(1, "killed"), (0, "stopped"), (0, "at-once")]))
def test_the_others_go_on_and_it_comes_back(cairn_bin, tmp_path, victim, how):
    job = Job(cairn_bin, WORKERS / "dying.py", tmp_path, victim, how, workers=3, servers=1,
              options=["--max-restarts", "1"])
    assert job.code == 0, job.output
    ended = [job.of_worker(rank, r"^ended (\w+)$") for rank in range(3)]
    assert [len(lines) for lines in ended] == [1, 1, 1], job.output
    assert len({lines[0].group(1) for lines in ended}) == 1, f"models differ at the end\n{job.output}"
    others = [rank for rank in range(3) if rank != victim]
    steps = {rank: {int(m.group(1)): m.group(2) for m in job.of_worker(rank, r"^step (\d+) (\w+)$")}
             for rank in range(3)}
    assert steps[others[0]] == steps[others[1]], f"bits differ in some step\n{job.output}"
    (joined,) = job.of_worker(victim, r"^joined (\d+) (\w+)$")
    at = int(joined.group(1))
    assert steps[others[0]][at] == joined.group(2), "the step in which it joined is a step of it too"
    assert steps[victim] == {s: d for s, d in steps[others[0]].items() if s > at}
    assert job.left_behind() == []


def test_whoever_has_left_is_not_waited_for(cairn_bin):
    job = Job(cairn_bin, WORKERS / "leaving.py", workers=3, servers=1)
    assert job.code == 0, job.output
    for rank, steps in enumerate([9, 6, 3]):
        assert job.of_worker(rank, rf"^ended {steps}$"), job.output
    assert job.left_behind() == []


def test_the_last_one_starts_from_its_own_values(cairn_bin, tmp_path):
    job = Job(cairn_bin, WORKERS / "last_one.py", tmp_path, workers=1, servers=1, options=["--max-restarts", "1"])
    assert job.code == 0, job.output
    assert len(job.of_worker(0, r"^ended$")) == 1, job.output
