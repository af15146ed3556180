"""Sparse tables whose values the servers keep as bfloat16 or float16: sparse_table(storage=…) and
nn.Embedding(storage=…)."""
import pytest
import torch

import cairn
from cairn import _core

KEYS = torch.arange(40)
NARROW = [torch.bfloat16, torch.float16]


def rounded(rows, dtype):
    return rows.to(dtype).to(torch.float32)


@pytest.mark.parametrize("dtype", NARROW)
def test_what_is_read_is_the_nearest_float32(worker, dtype):
    init = ("normal", 0, 1, 11, 5)
    table = worker.sparse_table("narrow", 5, mode="async", optimizer="sum", storage=dtype, init=("normal", 0, 1, 3))
    full = worker.sparse_table("full", 5, mode="async", optimizer="sum")
    full.assign(KEYS, rows := torch.randn(40, 5, generator=torch.Generator().manual_seed(1))).wait()
    table.assign(KEYS, rows).wait()
    read = table.pull(KEYS).result()
    assert read.dtype == torch.float32
    torch.testing.assert_close(read, rounded(rows, dtype), rtol=0, atol=0)
    torch.testing.assert_close(full.pull(KEYS).result(), rows, rtol=0, atol=0)
    # Rows that nobody has made are as they would be stored; alone and on the servers alike.
    here, plain = torch.empty(40, 5), torch.empty(40, 5)
    _core.initial_rows(*init, KEYS.data_ptr(), 40, 5, plain.data_ptr())
    _core.initial_rows(*init, KEYS.data_ptr(), 40, 5, here.data_ptr(), str(dtype).replace("torch.", ""))
    torch.testing.assert_close(here, rounded(plain, dtype), rtol=0, atol=0)
    initial = table.pull(KEYS + 1000).result()
    torch.testing.assert_close(initial, rounded(initial, dtype), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_small_steps_are_not_lost(worker, dtype, mode):
    grain = torch.finfo(dtype).eps
    table = worker.sparse_table("steps", 16, mode=mode, optimizer="sgd", lr=grain / 16, init=1.0, storage=dtype)
    assert rounded(torch.tensor([1 + grain / 16]), dtype) == 1  # to the nearest, nothing would move
    for _ in range(160):
        table.push(KEYS, torch.full((40, 16), -1.0)).wait()
    moved = (table.pull(KEYS).result() - 1) / grain
    # 10 each are expected, with a variance of 160/16 · 15/16; of the mean of 640 that is 0.12.
    assert moved.mean().item() == pytest.approx(10, abs=0.6)
    assert 4 < moved.var().item() < 16


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adagrad, torch.optim.SparseAdam,
                                  cairn.optim.RowwiseAdagrad, cairn.optim.FTRL])
def test_an_embedding_trains_as_a_full_one(worker, kind):
    """A regression on 40 rows: the loss falls as with float32."""
    losses = {}
    target = torch.randn(40, 8, generator=torch.Generator().manual_seed(2))
    for storage in ("float32", "bfloat16", torch.float16):
        model = cairn.nn.Embedding(40, 8, storage=storage, init=("normal", 0, 0.01))
        optimizer = cairn.DistributedOptimizer(kind(model.parameters(), lr=0.1), model)
        for _ in range(60):
            optimizer.zero_grad()
            loss = (model(KEYS) - target).square().sum() / 8
            loss.backward()
            optimizer.step()
        losses[storage] = loss.item()
        if storage != "float32":
            rows = model.state_dict()["weight"]
            dtype = storage if isinstance(storage, torch.dtype) else torch.bfloat16
            torch.testing.assert_close(rows, rounded(rows, dtype), rtol=0, atol=0)
            assert f"storage='{str(dtype).replace('torch.', '')}'" in repr(model)
    start = target.square().sum().item() / 8
    assert losses["float32"] < start / 2
    assert losses["bfloat16"] == pytest.approx(losses["float32"], rel=0.1, abs=0.02 * start)
    assert losses[torch.float16] == pytest.approx(losses["float32"], rel=0.1, abs=0.02 * start)


def test_each_table_draws_its_own_bits(worker):
    def run(name):
        table = worker.sparse_table(name, 7, mode="async", optimizer="adagrad", lr=0.1, storage="bfloat16")
        for step in range(5):
            table.push(KEYS, torch.randn(40, 7, generator=torch.Generator().manual_seed(step))).wait()
        return table.pull(KEYS).result()
    first, second = run("first"), run("second")
    assert not torch.equal(first, second)
    torch.testing.assert_close(first, second, rtol=0.05, atol=0.05)


def test_refusals(worker):
    with pytest.raises(cairn.InvalidArgumentError, match="float32, bfloat16 or float16"):
        worker.sparse_table("no", 4, storage="float8")
    with pytest.raises(cairn.InvalidArgumentError, match="float32, bfloat16 or float16"):
        cairn.nn.Embedding(None, 4, storage="half")
    with pytest.raises(cairn.InvalidArgumentError, match="is for tables of float32"):
        worker.sparse_table("no", 4, dtype="int64", optimizer="sum", storage="bfloat16")
    with pytest.raises(cairn.InvalidArgumentError, match="beyond float16's largest"):
        worker.sparse_table("no", 4, init=1e5, storage="float16")
    table = worker.sparse_table("half", 1, mode="async", storage="float16")
    with pytest.raises(cairn.InvalidArgumentError, match="65504"):
        table.assign([1], torch.tensor([[1e5]])).wait()
    kept = cairn.nn.Embedding(None, 4, name="kept", storage="bfloat16")
    with pytest.raises(cairn.InvalidArgumentError, match="storage bfloat16"):
        cairn.nn.Embedding(None, 4, name="kept")
    assert cairn.nn.Embedding(None, 4, name="kept", storage=torch.bfloat16).table is kept.table
    with pytest.raises((TypeError, cairn.InvalidArgumentError), match="storage"):
        worker.dense_table("dense", 4, storage="bfloat16")
    worker.sparse_table("there", 4, storage="bfloat16")
    with pytest.raises(cairn.Error, match=r"storage \(bfloat16 there, full asked for\)"):
        worker.sparse_table("there", 4)
