"""N workers, Sync(): tables come to what one process gets from all batches."""
import torch

import cairn
from embedding_workers.problems import Model, all_batches, batch, pair, step, step_of_all
from optimizer_workers.checks import Checks
from optimizer_workers.problems import assert_close, assert_same

CHECKS = Checks()

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.5),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, lr_decay=0.01),
    "sparse_adam": lambda p: torch.optim.SparseAdam(p, lr=0.02),
    "rowwise_adagrad": lambda p: cairn.optim.RowwiseAdagrad(p, lr=0.1),
    "ftrl": lambda p: cairn.optim.FTRL(p, lr=0.1, l1=0.001, l2=0.01),
}


def equals_one_process(make, steps=50, **options):
    mine, alone = pair(sparse=True)
    dense = lambda model: torch.optim.SGD(model.top.parameters(), lr=0.1)
    optimizers = [cairn.DistributedOptimizer(make(mine.tables()), mine, **options),
                  cairn.DistributedOptimizer(dense(mine), mine, **options)]
    plain = [make(alone.tables()), dense(alone)]
    for number in range(steps):
        for o in (*optimizers, *plain):
            o.zero_grad()
        step(mine, _Both(optimizers), batch(cairn.rank(), number))
        step_of_all(alone, _Both(plain), all_batches(number))
    assert_close(mine, alone)
    return mine


class _Both:
    """Two optimizers of one model as one."""

    def __init__(self, optimizers):
        self._optimizers = optimizers

    def zero_grad(self):
        for optimizer in self._optimizers:
            optimizer.zero_grad()

    def step(self):
        for optimizer in self._optimizers:
            optimizer.step()


for name, make in OPTIMIZERS.items():
    CHECKS[f"{name}_equals_one_process"] = lambda rank, make=make: equals_one_process(make)


@CHECKS
def a_deterministic_run_repeats_bit_for_bit(rank):
    mode = cairn.Sync(deterministic=True)
    first = equals_one_process(OPTIMIZERS["adagrad"], 20, mode=mode).state_dict()
    # Tables of other names have other initial values: start from the first ones.
    runs = []
    for _ in range(2):
        model = Model(cairn.nn)
        model.load_state_dict(first)
        optimizer = cairn.DistributedOptimizer(OPTIMIZERS["adagrad"](model.parameters()), model,
                                               mode=mode)
        for number in range(20):
            step(model, optimizer, batch(rank, number))
        runs.append(model)
    assert_same(*runs)
    return runs[0]


@CHECKS
def weights_of_unequal_batches(rank):
    mine, alone = pair()
    make = OPTIMIZERS["sgd"]
    optimizer = cairn.DistributedOptimizer(make(mine.parameters()), mine)
    plain = make(alone.parameters())
    sizes = [2 + 3 * r for r in range(cairn.world_size())]
    for number in range(5):
        data = [batch(r, number, size) for r, size in enumerate(sizes)]
        step(mine, optimizer, data[rank], samples=sizes[rank])
        step_of_all(alone, plain, data, sizes)
    assert_close(mine, alone)
    return mine


@CHECKS
def prefetch_equals_one_process(rank):
    mine, alone = pair()
    make = OPTIMIZERS["adagrad"]
    optimizer = cairn.DistributedOptimizer(make(mine.parameters()), mine)
    plain = make(alone.parameters())
    for data in cairn.prefetch([batch(rank, number) for number in range(10)], mine.ids):
        step(mine, optimizer, data)
    for number in range(10):
        step_of_all(alone, plain, all_batches(number))
    assert_close(mine, alone)
    return mine
