"""cairn.allreduce, allgather_object and broadcast_object: on one, two and three workers, and when a worker
dies or leaves."""
import pathlib

import pytest
import torch

import cairn
from collective_workers.run_checks import CHECKS
from long_tests import cases
from optimizer_workers.job import CheckedJob, Job

WORKERS = pathlib.Path(__file__).resolve().parent / "collective_workers"


@pytest.mark.parametrize("name", CHECKS)
def test_embedded(worker, name):
    CHECKS[name](0)


@pytest.fixture(scope="module", params=[2, 3])
def several(cairn_bin, request):
    return CheckedJob(cairn_bin, WORKERS / "run_checks.py", CHECKS, workers=request.param)


@pytest.mark.parametrize("name", CHECKS)
def test_on_several_workers(several, name):
    several.assert_passed(name)


def test_the_job_ends_well(several):
    several.assert_ended_well()


@pytest.mark.parametrize(("victim", "when"), cases([(2, "before"), (0, "within")], [(0, "before"), (1, "within")]))
def test_a_worker_that_dies_is_left_out_until_it_is_back(cairn_bin, tmp_path, victim, when):
    job = Job(cairn_bin, WORKERS / "dying.py", tmp_path, victim, when, workers=3, servers=1,
              options=["--max-restarts", "1"])
    assert job.code == 0, job.output
    totals = {rank: [int(m.group(1)) for m in job.of_worker(rank, r"^total (\d)$")] for rank in range(3)}
    others = [rank for rank in range(3) if rank != victim]
    assert totals[others[0]] == totals[others[1]], job.output
    assert totals[others[0]][:3] == [3, 3, 3] and totals[others[0]][-1] == 3 and 1 not in totals[others[0]]
    assert totals[victim] == [3, 3, 3, 3], "before its death, and the one with which it came back"
    for rank in range(3):
        assert job.of_worker(rank, r"^ranks \[0, 1, 2\]$"), job.output
        assert job.of_worker(rank, rf"^heard {{'from': {victim}}}$"), job.output
    assert job.left_behind() == []


@pytest.mark.parametrize("leaves", [0, 2])  # 0: then ranks are not places in the group
def test_a_worker_that_has_left_is_not_waited_for(cairn_bin, leaves):
    job = Job(cairn_bin, WORKERS / "leaving.py", leaves, workers=3, servers=1)
    assert job.code == 0, job.output
    a, b = others = [rank for rank in range(3) if rank != leaves]
    for rank in others:
        words = rf"^told: .*rank {leaves}, whose object it is, is not there \(ranks {a}, {b} are\)"
        assert job.of_worker(rank, words), job.output
        assert job.of_worker(rank, rf"^ranks \[{a}, {b}\]$"), job.output
        assert job.of_worker(rank, r"^mean 3\.0$"), job.output
        assert [m.group(1) for m in job.of_worker(rank, r"^heard from (\d)$")] == [str(a), str(b)], job.output


def test_without_init():
    for call in (cairn.size, lambda: cairn.allreduce(torch.zeros(1)), lambda: cairn.allgather_object(1),
                 lambda: cairn.broadcast_object(1)):
        with pytest.raises(cairn.NotInitializedError, match="init"):
            call()
