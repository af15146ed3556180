"""Tables on two and on four workers: each worker is a process, and all checks of a number of
workers run in one job. (One worker: test_embedding_training.py.)"""
import pathlib

import pytest

from embedding_workers.every_check import EQUALITY_OF_FOUR, EVERY_CHECK
from optimizer_workers.job import CheckedJob

SCRIPT = pathlib.Path(__file__).resolve().parent / "embedding_workers" / "run_checks.py"


@pytest.fixture(scope="module")
def two(cairn_bin):
    return CheckedJob(cairn_bin, SCRIPT, EVERY_CHECK)


@pytest.fixture(scope="module")
def four(cairn_bin):
    return CheckedJob(cairn_bin, SCRIPT, EQUALITY_OF_FOUR, workers=4)


@pytest.mark.parametrize("name", EVERY_CHECK)
def test_on_two_workers(two, name):
    two.assert_passed(name)


@pytest.mark.parametrize("name", EQUALITY_OF_FOUR)
def test_on_four_workers(four, name):
    four.assert_passed(name)


def test_the_jobs_end_well(two, four):
    two.assert_ended_well()
    four.assert_ended_well()
