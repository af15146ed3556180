"""DistributedOptimizer on two workers: each worker is a process, and all checks run in one job.

Every check compares with what one process gets from the data of both, and the parameters that it
ends with must be equal on both, bit for bit.
"""
import pytest

from optimizer_workers.every_check import EVERY_CHECK
from optimizer_workers.job import CheckedJob


@pytest.fixture(scope="module")
def job(cairn_bin):
    return CheckedJob(cairn_bin, "run_checks.py", EVERY_CHECK)


@pytest.mark.parametrize("name", EVERY_CHECK)
def test_on_two_workers(job, name):
    job.assert_passed(name)


def test_the_job_ends_well(job):
    job.assert_ended_well()
