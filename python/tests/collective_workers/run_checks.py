"""What `cairn run` starts as a worker: every check, on any number of workers."""
import pytest
import torch

import cairn
from optimizer_workers.checks import Checks, run_all

CHECKS = Checks()
TYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.uint8, torch.int32, torch.int64]


def everybody():
    return range(cairn.size())


def refused(call, *words):
    """By all workers, with the same message."""
    with pytest.raises(cairn.InvalidArgumentError, match="do not fit together") as raised:
        call()
    assert all(word in str(raised.value) for word in words), raised.value
    said = cairn.allgather_object(str(raised.value))  # and they go on
    assert len(set(said)) == 1


@CHECKS
def the_mean_and_the_sum_of_tensors(rank):
    given = torch.arange(6.0).reshape(2, 3) * (rank + 1)
    before = given.clone()
    parts = [torch.arange(6.0).reshape(2, 3) * (other + 1) for other in everybody()]
    mean = cairn.allreduce(given)
    torch.testing.assert_close(mean, torch.stack(parts).mean(0))
    torch.testing.assert_close(cairn.allreduce(given, reduce="sum"), torch.stack(parts).sum(0))
    assert torch.equal(given, before) and mean.shape == (2, 3)
    return torch.nn.ParameterList([torch.nn.Parameter(mean)])


@CHECKS
def every_type_and_shape(rank):
    for dtype in TYPES:
        total = cairn.allreduce(torch.full((3,), rank + 1, dtype=dtype), "sum")
        assert total.dtype == dtype and total.tolist() == [sum(other + 1 for other in everybody())] * 3
    for given in (torch.tensor(float(rank)), torch.empty(0, 4), torch.ones(4, 5).t(),
                  torch.ones(2, requires_grad=True) * 2):
        found = cairn.allreduce(given)
        assert found.shape == given.shape and not found.requires_grad
    assert cairn.allreduce(torch.tensor(float(rank))).item() == sum(everybody()) / cairn.size()
    # Summed in float32: 1 + 2048 + … is no float16.
    assert cairn.allreduce(torch.tensor([2048.0 if rank == 0 else 1.0], dtype=torch.float16)).item() == pytest.approx(
        (2048 + cairn.size() - 1) / cairn.size(), rel=1e-3)


@CHECKS
def objects_of_all(rank):
    mine = {"rank": rank, "text": "x" * (1000 * rank)}
    assert cairn.allgather_object(mine) == [{"rank": r, "text": "x" * (1000 * r)} for r in everybody()]
    assert cairn.allgather_object(None) == [None] * cairn.size()


@CHECKS
def the_object_of_one(rank):
    for root in everybody():
        mine = {"from": rank, "tensor": torch.arange(5) + rank}
        found = cairn.broadcast_object(mine if rank == root else "not this", root_rank=root)
        assert found["from"] == root and torch.equal(found["tensor"], torch.arange(5) + root)
        assert (found is mine) == (rank == root)
    with pytest.raises(cairn.InvalidArgumentError, match="root_rank is 99"):
        cairn.broadcast_object(1, root_rank=99)
    with pytest.raises(cairn.InvalidArgumentError, match="root_rank is '0'"):
        cairn.broadcast_object(1, root_rank="0")
    with pytest.raises(cairn.InvalidArgumentError, match=r"allgather_object\(\) of a function: it can't be pickled"):
        cairn.allgather_object(lambda: None)


@CHECKS
def calls_that_differ_name_the_ranks(rank):
    if cairn.size() == 1:
        return
    others = "ranks 1, 2 call" if cairn.size() == 3 else "rank 1 calls"
    refused(lambda: cairn.allreduce(torch.zeros(2 if rank == 0 else 3)),
            "rank 0 calls allreduce(mean, float32, (2,))", f"{others} allreduce(mean, float32, (3,))")
    refused(lambda: cairn.allreduce(torch.zeros(2, dtype=torch.float64 if rank == 0 else torch.float32)),
            "rank 0 calls allreduce(mean, float64, (2,))", others)
    refused(lambda: cairn.allreduce(torch.zeros(2), "sum" if rank == 0 else "mean"), "allreduce(sum", others)
    refused(lambda: cairn.broadcast_object(1, root_rank=0 if rank == 0 else 1), "rank 0 calls broadcast_object(0)")
    refused(lambda: cairn.allgather_object(1) if rank == 0 else cairn.allreduce(torch.zeros(2)),
            "rank 0 calls allgather_object()", f"{others} allreduce(mean, float32, (2,))")


@CHECKS
def what_can_not_be_reduced_is_refused_at_once(rank):
    for given, words in ((torch.zeros(2, dtype=torch.bool), "bool"), (torch.zeros(2, dtype=torch.complex64), "complex"),
                         (torch.eye(2).to_sparse(), "sparse"), (torch.zeros(2, device="meta"), "meta")):
        with pytest.raises(cairn.InvalidArgumentError, match=words):
            cairn.allreduce(given, "sum")
    with pytest.raises(cairn.InvalidArgumentError, match='reduce="sum"'):
        cairn.allreduce(torch.tensor([1]))
    with pytest.raises(cairn.InvalidArgumentError, match='reduce is "max"|reduce is .max.'):
        cairn.allreduce(torch.zeros(1), "max")
    with pytest.raises(TypeError, match="as_tensor"):
        cairn.allreduce(1.0)


class Unwilling:
    def __reduce__(self):
        raise RuntimeError("not this one")


@CHECKS
def a_call_refused_on_one_worker_is_refused_on_all(rank):
    if cairn.size() == 1:
        return
    wrong = cairn.size() - 1

    def on_one(bad, good):
        return bad if rank == wrong else good

    calls = [
        (lambda: cairn.allgather_object(on_one(lambda: None, 1)), "it can't be pickled"),
        (lambda: cairn.allgather_object(on_one(Unwilling(), 1)), "not this one"),
        (lambda: cairn.broadcast_object(on_one(lambda: None, 1), root_rank=wrong), "it can't be pickled"),
        (lambda: cairn.broadcast_object(1, root_rank=on_one(99, 0)), "root_rank is 99"),
        (lambda: cairn.allreduce(torch.ones(2, dtype=on_one(torch.bool, torch.float32))), "convert it"),
        (lambda: cairn.allreduce(on_one(None, torch.ones(2))), "as_tensor"),
        (lambda: cairn.allreduce(torch.ones(2), on_one("max", "sum")), 'reduce is \'max\''),
        (lambda: on_one(cairn.allgather_object, cairn.allreduce)(on_one(lambda: None, torch.ones(2))), "pickled"),
    ]
    for call, why in calls:
        with pytest.raises((TypeError, cairn.InvalidArgumentError), match=why) as raised:
            call()
        assert (f"rank {wrong}: " in str(raised.value)) == (rank != wrong), raised.value
        assert cairn.allreduce(torch.tensor([1.0]), "sum").item() == cairn.size()  # and they go on
    assert cairn.allgather_object(rank) == list(everybody())


@CHECKS
def beside_torch_distributed_and_barriers(rank):
    import torch.distributed as dist

    dist.init_process_group("gloo")
    for number in range(20):
        assert cairn.allreduce(torch.tensor([number + rank]), "sum").item() == sum(number + r for r in everybody())
        if number % 5 == 0:
            cairn.barrier()
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    run_all(CHECKS)
