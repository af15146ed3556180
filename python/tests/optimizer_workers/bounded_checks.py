"""Two workers, BoundedStaleness(): each gradient is applied when it comes, and nobody reads what is too old."""
import time

import torch

import cairn
from optimizer_workers.checks import Checks
from optimizer_workers.clip_checks import assert_raises
from optimizer_workers.problems import batch, loss_of, net, train, whole
from optimizer_workers.step_checks import adam, sgd

CHECKS = Checks()


@CHECKS
def a_read_holds_all_steps_below_its_bound(rank):
    for staleness in (0, 1, 3):
        counts = cairn.dense_table(f"counts-{staleness}", 2, dtype="int64", optimizer="sum",
                                   mode=cairn.BoundedStaleness(staleness))
        rows = cairn.sparse_table(f"rows-{staleness}", 1, dtype="int64", optimizer="sum",
                                  mode=cairn.BoundedStaleness(staleness))
        one = torch.zeros(2, dtype=torch.int64)
        one[rank] = 1
        for step in range(30):
            dense, sparse = counts.pull().result(), rows.pull([0, 1]).result().flatten()
            for seen in (dense, sparse):
                assert seen.min() >= step - staleness and seen[rank] <= step, (staleness, step, seen)
            if rank == step % 2:
                time.sleep(0.002)
            counts.push(one)
            rows.push([rank], torch.ones(1, 1, dtype=torch.int64))
            counts.end_step()
            rows.end_step()
        cairn.barrier()
    return None


@CHECKS
def who_is_ahead_hears_whom_it_waits_for(rank):
    table = cairn.dense_table("ahead", 1, optimizer="sum", mode=cairn.BoundedStaleness(2))
    if rank == 0:
        for _ in range(3):
            table.pull(timeout=30).wait()
            table.end_step()
        assert_raises(cairn.DeadlineExceededError, lambda: table.pull(timeout=4).wait(),
                      'a pull of table "ahead" in step 3', "rank 1 is missing")
    cairn.barrier()
    if rank == 1:
        table.end_step()
    assert table.pull(timeout=30).result().item() == 0
    cairn.barrier()
    return None


@CHECKS
def both_train_one_model(rank):
    for staleness in (0, 2):
        for make in (lambda p: sgd(p, lr=0.02, momentum=0.5), adam):
            model = net(seed=rank)
            optimizer = cairn.DistributedOptimizer(make(model.parameters()), model,
                                                   mode=cairn.BoundedStaleness(staleness))
            before = loss_of(net(seed=0), whole(0)).item()
            train(model, optimizer, [batch(rank, 0)] * 40)
            cairn.barrier()
            optimizer.pull()
            assert loss_of(model, whole(0)).item() < 0.7 * before
            cairn.barrier()
    return model


@CHECKS
def who_has_less_data_holds_nobody_up(rank):
    model = net(seed=0)
    optimizer = cairn.DistributedOptimizer(sgd(model.parameters(), lr=0.01), model,
                                           mode=cairn.BoundedStaleness(1))
    for _ in range(2):  # an epoch each: who goes on takes part from where the other is
        with optimizer.join():
            train(model, optimizer, [batch(rank, 0)] * (3 + 9 * rank))
        cairn.barrier()
    optimizer.pull()
    cairn.barrier()
    return model


@CHECKS
def what_does_not_go_with_it_is_refused(rank):
    model = net(seed=0)
    mode = cairn.BoundedStaleness(1)
    for options, words in (({"update": "worker"}, "needs Sync"), ({"reduce": "sum"}, "is for Sync"),
                           ({"overlap": True}, "leave it out with BoundedStaleness")):
        assert_raises(ValueError, lambda options=options: cairn.DistributedOptimizer(
            sgd(model.parameters()), model, mode=mode, **options), words)
    assert_raises(ValueError, lambda: cairn.BoundedStaleness(-1))
    assert_raises(TypeError, lambda: cairn.BoundedStaleness(1.5))
    plain = cairn.dense_table("plain", 1, optimizer="sum", mode=cairn.Async())
    assert_raises(cairn.InvalidArgumentError, plain.end_step, "has no bound of staleness")
    cairn.barrier()
    return None
