"""AllReduced on three workers: allreduce_workers/step_checks.py, all of it in one job."""
import ast
import pathlib

import pytest

from optimizer_workers.job import CheckedJob

WORKERS = pathlib.Path(__file__).resolve().parent / "allreduce_workers"
CHECKS = [node.name for file in ("step_checks.py", "interrupt_checks.py")
          for node in ast.parse((WORKERS / file).read_text()).body
          if isinstance(node, ast.FunctionDef) and node.decorator_list]


@pytest.fixture(scope="module")
def ended(cairn_bin):
    return CheckedJob(cairn_bin, WORKERS / "step_checks.py", CHECKS, workers=3)


@pytest.mark.parametrize("name", CHECKS)
def test_on_three_workers(ended, name):
    ended.assert_passed(name)


def test_ends_well(ended):
    assert len(CHECKS) >= 17
    ended.assert_ended_well()
