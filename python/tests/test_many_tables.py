"""Tables that are made together, and what a wrap makes."""
import json
import subprocess

import pytest
import torch

import cairn
from cairn import _core


@pytest.fixture
def status(worker, cairn_bin):
    def ask():
        port = cairn._runtime.context.current()._cluster.scheduler_port
        said = subprocess.run([cairn_bin / "cairn", "status", f"127.0.0.1:{port}", "--json"],
                              capture_output=True, text=True, timeout=60, check=True)
        return json.loads(said.stdout)

    return ask


def dense(name, size=4, **options):
    return _core.TableSpec.dense(name, size, mode="async", optimizer="sum", **options)


def test_many_tables_are_made_at_once_and_work(status):
    client = cairn._runtime.context.current().client
    before = status()["version"]
    specs = [dense(f"many-{i}") for i in range(600)] + [
        _core.TableSpec.sparse("many-rows", 3, mode="async", optimizer="sum")]
    tables = client.create_tables(specs)
    assert [type(table) for table in tables] == [_core.DenseTable] * 600 + [_core.SparseTable]
    # One record for each message of 512, though a record of placement may come between.
    assert status()["version"] - before < 20
    values, out = torch.ones(4), torch.zeros(4)
    for table in (tables[0], tables[599]):
        table.push([values.data_ptr()], [4], (0.0,) * 6, keep=values).wait()
        table.pull([out.data_ptr()], [4], keep=out).wait()
        assert out.tolist() == [1.0] * 4
    again = client.create_tables(specs[:3])
    again[0].pull([out.data_ptr()], [4], keep=out).wait()
    assert out.tolist() == [1.0] * 4, "idempotent by name"


def test_one_that_is_wrong_lets_none_be_made(status):
    client = cairn._runtime.context.current().client
    client.create_dense("taken", 4, mode="async", optimizer="sum")
    with pytest.raises(cairn.AlreadyExistsError, match="taken.*size"):
        client.create_tables([dense("not-made"), dense("taken", 5)])
    with pytest.raises(cairn.InvalidArgumentError):
        client.create_tables([dense("not-made"), dense("", 5)])
    assert "not-made" not in [table["name"] for table in status()["tables"]]
    assert client.create_tables([]) == []


def test_a_wrap_makes_its_tables_in_one_record(status):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.rows = torch.nn.ModuleList(cairn.nn.Embedding(100, 4) for _ in range(30))
            self.out = torch.nn.Linear(4, 1)

        def forward(self, ids):
            return self.out(sum(rows(ids) for rows in self.rows)).sum()

    model = Model()
    before = status()["version"]
    optimizer = cairn.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model)
    model(torch.arange(5)).backward()
    optimizer.step()
    assert status()["version"] - before < 15, "not one record for each of 31 tables"
