"""Workers that wait for each other: the scheduler finds out and ends it (docs/internals/consistency.md, rule 54)."""
import pytest

from optimizer_workers.job import Job


@pytest.mark.parametrize("what, words", [
    ("barrier", ["rank 0 is in a barrier, rank 1 waits for round "]),
    ("exchange", ["rank 0 is in a barrier, rank 1 waits for round "]),
    ("allreduced step", ["rank 0 is in a barrier, rank 1 waits for round "]),
    ("wraps", ['rank 0 waits for round ', 'of table "optimizer-0/0"', 'rank 1 waits for round ', 'of table "optimizer-1/0"']),
])
def test_workers_that_wait_for_each_other_are_told(cairn_bin, monkeypatch, what, words):
    monkeypatch.setenv("CAIRN_DEADLOCK_AFTER_MS", "5000")
    job = Job(cairn_bin, "deadlocked.py", what)
    # Whoever is told first does here what the other one missed, so that one may simply go on.
    told = [match for rank in (0, 1) for match in job.of_worker(rank, "^told: (.*)$")]
    assert told, job.output
    for match in told:
        assert all(word in match.group(1) for word in [*words, "they wait for each other"]), job.output
    for rank in (0, 1):
        assert len(job.of_worker(rank, "^told: ")) + len(job.of_worker(rank, "^went on$")) == 1, job.output
        assert job.of_worker(rank, "^ended$"), job.output
    assert job.code == 0 and job.left_behind() == [], job.output


def test_a_worker_that_leaves_with_a_round_open_is_told(cairn_bin, monkeypatch):
    monkeypatch.setenv("CAIRN_DEADLOCK_AFTER_MS", "5000")
    job = Job(cairn_bin, "deadlocked_leaving.py")
    words = r"""rank 0 is in a barrier, rank 1 waits for round 0 of table "w" before it leaves: they wait for each other"""
    assert any(job.of_worker(rank, f"DeadlineExceededError: {words}") for rank in (0, 1)), job.output
    assert job.code == 1 and job.left_behind() == [], job.output
