"""Hybrid training on three workers: allreduce_workers/hybrid_checks.py, all of it in one job."""
import ast
import pathlib

import pytest

from long_tests import cases
from optimizer_workers.job import CheckedJob, Job

WORKERS = pathlib.Path(__file__).resolve().parent / "allreduce_workers"
CHECKS = [node.name for node in ast.parse((WORKERS / "hybrid_checks.py").read_text()).body
          if isinstance(node, ast.FunctionDef) and node.decorator_list]


@pytest.fixture(scope="module")
def ended(cairn_bin):
    return CheckedJob(cairn_bin, WORKERS / "hybrid_checks.py", CHECKS, workers=3)


@pytest.mark.parametrize("name", CHECKS)
def test_on_three_workers(ended, name):
    ended.assert_passed(name)


def test_ends_well(ended):
    assert len(CHECKS) >= 10
    ended.assert_ended_well()


@pytest.mark.parametrize(("victim", "way"), cases([(1, "clip")], [(0, "plain"), (2, "async")]))
def test_a_worker_that_dies_again_and_again(cairn_bin, tmp_path, victim, way):
    job = Job(cairn_bin, WORKERS / "hybrid_dying.py", tmp_path, victim, way, workers=3, servers=2,
              options=["--max-restarts", "5"])
    assert job.code == 0, job.output
    assert len(job.of_worker(victim, r"^joined \d \d+$")) == 5, job.output
    ended = [job.of_worker(rank, r"^ended (\d+ \w+)$") for rank in range(3)]
    assert [len(lines) for lines in ended] == [1, 1, 1], job.output
    assert len({lines[0].group(1) for lines in ended}) == 1, f"models differ at the end\n{job.output}"
    rounds = [[m.group(1) for m in job.of_worker(rank, r"^rounds (.+)$")] for rank in range(3)]
    assert rounds[0] == rounds[1] == rounds[2], f"tables are not in step\n{job.output}"
    assert job.left_behind() == []
