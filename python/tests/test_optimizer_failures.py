"""Workers of DistributedOptimizer that are killed, or fail with an exception."""
import pytest

from long_tests import cases
from optimizer_workers.job import Job


@pytest.mark.parametrize("when", ["at-once", "late"])
def test_a_killed_worker_is_started_again_and_goes_on(cairn_bin, tmp_path, when):
    job = Job(cairn_bin, "killed.py", tmp_path, when, options=["--max-restarts", "1"])
    assert job.code == 0, job.output
    assert job.of_worker(1, "^attached$"), job.output
    ended = [job.of_worker(rank, r"^ended (\w+)$") for rank in (0, 1)]
    assert [len(lines) for lines in ended] == [1, 1], job.output
    assert ended[0][0].group(1) == ended[1][0].group(1), f"models differ at the end\n{job.output}"
    assert job.left_behind() == []


@pytest.mark.parametrize("arguments", cases([["late"], ["between", "dense"]], [["at-once"], ["late", "dense", "thirds"]]))
def test_a_worker_is_killed_while_tables_train(cairn_bin, tmp_path, arguments):
    job = Job(cairn_bin, "killed_rows.py", tmp_path, *arguments, options=["--max-restarts", "1"])
    assert job.code == 0, job.output
    assert job.of_worker(1, "^attached$"), job.output
    ended = [job.of_worker(rank, r"^ended (.+)$") for rank in (0, 1)]
    assert [len(lines) for lines in ended] == [1, 1], job.output
    assert ended[0][0].group(1) == ended[1][0].group(1), f"tables differ at the end\n{job.output}"
    assert job.left_behind() == []


def test_an_exception_in_one_worker_ends_the_job(cairn_bin):
    job = Job(cairn_bin, "failing.py")
    assert job.code not in (0, None), job.output
    # Rank 0 waits in a step: it is ended, and what it says does not hide the cause.
    last = [i for i, line in enumerate(job.lines) if "Traceback" in line][-1]
    assert "[worker 1]" in job.lines[last]
    tail = "\n".join(job.lines[last:])
    assert "ValueError: this batch is spoilt" in tail and "[worker 0]" not in tail, job.output
    assert len(job.lines) - last < 20, job.output
    assert job.left_behind() == []


@pytest.mark.parametrize("what, words", cases(
    [["assign", ["0.weight of shape (", ", on the servers", ", all-reduced"]],
     ["order", ["0.weight of shape (5, 3)"]],
     ["tables", ['user, the table "embedding-0"', 'user, the table "embedding-1"']],
     ["added", ["of shape (2,)", "of shape (3,)"]]],
    [["assign-all", [", on the servers", ", all-reduced"]],
     ["shape", ["of shape (7,"]],
     ["mode", ["Sync(", "Async()"]]]))
def test_a_worker_that_wraps_something_else_is_told_what_differs(cairn_bin, what, words):
    """Whoever comes second is told: the job ends with that, and nobody waits for a deadline."""
    job = Job(cairn_bin, "wrapped_differently.py", what)
    assert job.code not in (0, None), job.output
    told = [line for line in job.lines if "is not the same on all workers: " in line]
    assert told and all(f"rank {rank} has " in told[0] for rank in (0, 1)), job.output
    assert all(word in told[0] for word in ["optimizer-0", "cairn.assign()", *words]), told
    assert "already there" not in job.output and "was not finished in time" not in job.output, job.output
    assert job.left_behind() == []


def test_a_worker_that_wraps_equal_models_in_another_order_is_told(cairn_bin):
    job = Job(cairn_bin, "wrapped_differently.py", "places")
    assert job.code not in (0, None), job.output
    assert "optimizer-0 and optimizer-1 have changed places: rank " in job.output, job.output
    assert job.left_behind() == []


def test_a_clip_past_its_deadline_can_be_followed_by_steps(cairn_bin, tmp_path):
    job = Job(cairn_bin, "late.py", tmp_path)
    assert job.code == 0, job.output
    assert job.of_worker(0, "^late: ") and job.of_worker(1, "^told: .* rank 0 skips it"), job.output
    ended = [job.of_worker(rank, r"^ended (.+)$") for rank in (0, 1)]
    assert [len(lines) for lines in ended] == [1, 1], job.output
    assert ended[0][0].group(1) == ended[1][0].group(1), job.output
