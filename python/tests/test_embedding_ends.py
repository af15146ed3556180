"""Tables and the cluster they are on: dropped with their module, gone with a shutdown, wrapped before
init()."""
import gc

import pytest
import torch

import cairn

pytestmark = pytest.mark.usefixtures("worker")

ROWS, DIM = 30, 5
IDS = torch.arange(0, ROWS, 3)


def wrapped(table):
    return cairn.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=0.1), table)


def step_on(table, optimizer, ids):
    optimizer.zero_grad()
    table(ids).sin().sum().backward()
    optimizer.step()


def test_a_table_that_is_gone_is_dropped_from_the_embedded_cluster():
    def train():
        table = cairn.nn.Embedding(None, DIM, name="gone")
        optimizer = wrapped(table)
        step_on(table, optimizer, torch.tensor([1]))
        return table.export()[0].tolist()

    for _ in range(2):
        assert train() == [1]
        gc.collect()
    cairn.sparse_table("gone", DIM + 1)  # would raise if that table were still there


def test_after_a_shutdown_tables_start_again():
    table = cairn.nn.Embedding(ROWS, DIM)
    before = table.state_dict()["weight"]
    step_on(table, wrapped(table), IDS)
    cairn.shutdown()
    with pytest.raises(cairn.Error):
        table(torch.arange(ROWS))
    cairn.init()
    wrapped(table)
    assert torch.equal(table.state_dict()["weight"], before)


def test_wrapping_before_init():
    cairn.shutdown()
    table = cairn.nn.Embedding(None, DIM)
    optimizer = wrapped(table)
    table(torch.tensor([1])).sum().backward()
    before = table(torch.tensor([1])).detach()
    cairn.init()
    optimizer.step()
    assert torch.allclose(table(torch.tensor([1])), before - 0.1)
