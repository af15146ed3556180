"""wire=: two workers over TCP, each a process, all checks in one job; and what is refused."""
import pytest
import torch

import cairn
from optimizer_workers.job import CheckedJob
from optimizer_workers.wire_checks import CHECKS


@pytest.fixture(scope="module")
def job(cairn_bin):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAIRN_TRANSPORT", "tcp")
        return CheckedJob(cairn_bin, "wire_checks.py", CHECKS)


@pytest.mark.parametrize("name", CHECKS)
def test_on_two_workers(job, name):
    job.assert_passed(name)


def test_the_job_ends_well(job):
    job.assert_ended_well()


def test_rounding_does_not_depend_on_the_transport(worker):
    """Here everything goes through shared memory, or within the process."""
    table = cairn.dense_table("wire-here", 1000, mode=cairn.Async(), optimizer="sum", wire="bf16")
    table.push(torch.full((1000,), 0.1)).wait()
    assert torch.equal(table.pull().result(), torch.full((1000,), 0.1).bfloat16().float())


def test_assigned_values_and_state_are_exact(worker):
    table = cairn.sparse_table("wire-exact", 2, mode=cairn.Async(), optimizer="adagrad", lr=0.0, wire="f16")
    table.push([3], torch.tensor([[1000.0, 0.5]])).wait()
    assert table.pull([3], state="sum").result().tolist() == [[1e6, 0.25]]
    rows = cairn.sparse_table("wire-exact-rows", 2, mode=cairn.Async(), optimizer="sum", wire="f16")
    rows.assign([1], torch.tensor([[1e6, 0.1]])).wait()
    # Only what is read is rounded, and what is too large becomes the largest.
    assert rows.pull([1]).result().tolist() == [[65504.0, torch.tensor(0.1).half().item()]]


@pytest.mark.parametrize("make, text", [
    (lambda: cairn.dense_table("x", 3, wire="int8"), "one of f16, bf16, lz4, topk"),
    (lambda: cairn.dense_table("x", 3, wire="topk"), "wire_topk=None"),
    (lambda: cairn.dense_table("x", 3, wire="topk", wire_topk=1.5), "wire_topk=1.5"),
    (lambda: cairn.dense_table("x", 3, wire="topk", wire_topk=0), "wire_topk=0:"),
    (lambda: cairn.dense_table("x", 3, wire="topk", wire_topk="0.1"), "wire_topk='0.1'"),
    (lambda: cairn.dense_table("x", 3, wire_topk=0), "wire_topk=0 goes with"),
    (lambda: cairn.dense_table("x", 3, wire="bf16", wire_topk=0.1), 'goes with wire="topk"'),
    (lambda: cairn.dense_table("x", 3, storage="bfloat16"), "a dense table is float32"),
    (lambda: cairn.sparse_table("x", 3, wire="topk"), "for tensors"),
    (lambda: cairn.sparse_table("x", 3, dtype="int64", optimizer="sum", wire="bf16"), "float32"),
    (lambda: cairn.nn.Embedding(None, 4, wire="topk"), "for tensors"),
    (lambda: cairn.nn.Embedding(None, 4, wire="half"), "unknown"),
])
def test_what_cannot_be_is_refused(worker, make, text):
    with pytest.raises(cairn.InvalidArgumentError, match=text):
        make()


def test_any_kind_of_number_will_do(worker):
    numpy = pytest.importorskip("numpy")
    for at, part in enumerate((numpy.float32(0.5), numpy.float64(0.5), 1)):
        cairn.dense_table(f"topk-{at}", 8, wire="topk", wire_topk=part)


def test_modules_that_share_a_table_agree(worker):
    first = cairn.nn.Embedding(None, 4, name="wire-shared", wire="bf16")
    with pytest.raises(cairn.InvalidArgumentError, match="bf16"):
        cairn.nn.Embedding(None, 4, name="wire-shared")
    assert first.name == "wire-shared"


def test_update_on_the_worker_is_exact(worker):
    model = torch.nn.Linear(3, 2)
    with pytest.raises(ValueError, match='update="worker"'):
        cairn.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, update="worker", wire="bf16")
