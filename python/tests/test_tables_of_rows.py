"""cairn.sparse_table with optimizers that keep state, and the extension's calls for rows: assigns, keys,
columns, rounds in two phases, trips, initial rows, de-duplication."""
import threading

import numpy as np
import pytest
import torch

import cairn
from cairn import _core
from cairn._runtime import context

KEYS = torch.arange(12)


def addresses(keys, rows):
    return keys.data_ptr(), keys.numel(), rows.data_ptr()


def steps_of(optimizer, weight, gradients):
    """Rows of an nn.Embedding(sparse=True) under torch.optim."""
    for keys, rows in gradients:
        weight.grad = torch.sparse_coo_tensor(keys.unsqueeze(0), rows, weight.shape, check_invariants=True)
        optimizer.step()


def gradients_of(dim, seed=3, steps=8):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        keys = torch.randint(0, len(KEYS), (7,), generator=generator)  # with repetitions
        yield keys, torch.randn(7, dim, generator=generator)


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("name, kind, settings, states", [
    ("sgd", torch.optim.SGD, {"lr": 0.1}, {}),
    ("sgd", torch.optim.SGD, {"lr": 0.1, "maximize": True}, {}),
    ("adagrad", torch.optim.Adagrad, {"lr": 0.2, "lr_decay": 0.1, "initial_accumulator_value": 0.3},
     {"sum": "sum"}),
    ("sparse_adam", torch.optim.SparseAdam, {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-6},
     {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"}),
    ("rowwise_adagrad", cairn.optim.RowwiseAdagrad, {"lr": 0.2, "initial_accumulator_value": 0.1},
     {"sum": "sum"}),
    ("ftrl", cairn.optim.FTRL, {"lr": 0.3, "beta": 0.5, "l1": 0.2, "l2": 0.1, "initial_accumulator_value": 0.1},
     {"z": "z", "n": "n"}),
])
def test_row_optimizers_are_torchs(worker, mode, name, kind, settings, states):
    table = worker.sparse_table("rows", 5, mode=mode, optimizer=name, init=("normal", 0, 1, 11), **settings)
    weight = torch.nn.Parameter(table.pull(KEYS).result())
    optimizer = kind([weight], **settings)
    steps_of(optimizer, weight, gradients_of(5))
    for keys, rows in gradients_of(5):
        table.push(keys, rows).wait()
    torch.testing.assert_close(table.pull(KEYS).result(), weight.detach(), rtol=1e-5, atol=1e-6)
    touched = table.keys().sort().values
    assert touched.tolist() == sorted({int(k) for keys, _ in gradients_of(5) for k in keys})
    for column, of_torch in states.items():
        expected = optimizer.state[weight][of_torch][touched]
        expected = expected if expected.dim() == 2 else expected.unsqueeze(1).expand(-1, 5)
        torch.testing.assert_close(table.pull(touched, state=column).result(), expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(cairn.InvalidArgumentError, match="keeps no 'momentum'"):
        table.pull(KEYS, state="momentum")


def test_the_step_is_counted_or_given(worker):
    table = worker.sparse_table("rows", 2, optimizer="sparse_adam")
    assert table.pull([1], state="step").result().tolist() == [[0, 0]]
    table.push([1], torch.ones(1, 2)).wait()
    table.done().wait()
    table.push_pull([1], torch.ones(1, 2)).wait()
    assert table.pull([1], state="step").result().tolist() == [[3, 3]]
    table.push([1], torch.ones(1, 2), step=40).wait()
    assert table.pull([1], state="step").result().tolist() == [[40, 40]]
    with pytest.raises(cairn.InvalidArgumentError, match="step 0"):
        table.push([1], torch.ones(1, 2), step=0)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_assigns(worker, mode):
    table = worker.sparse_table("rows", 2, mode=mode, optimizer="adagrad")
    assert table.keys().tolist() == [] and table.keys().dtype == torch.int64
    table.assign([3, -1, 3], torch.tensor([[1.0, 1], [2, 2], [3, 3]])).wait()
    assert table.pull([3, -1]).result().tolist() == [[3, 3], [2, 2]]  # the last one of a key
    table.assign([3, 4], torch.tensor([[9.0, 9], [4, 4]]), once=True).wait()
    assert table.pull([3, 4]).result().tolist() == [[3, 3], [4, 4]]
    assert sorted(table.keys().tolist()) == [-1, 3, 4]
    with pytest.raises(cairn.NotFiniteError):
        table.assign([5], torch.full((1, 2), float("nan")))
    if mode == "sync":
        assert table.round() == 0
    with pytest.raises(cairn.InvalidArgumentError, match="int64"):
        worker.sparse_table("n", 1, dtype="int64", mode=mode, optimizer="sum").assign(
            [1], torch.ones(1, 1, dtype=torch.int64))


def test_settings_that_are_refused(worker):
    for wrong in ({"optimizer": "sparse_adam", "weight_decay": 0.1}, {"optimizer": "rowwise_adagrad", "betas": (0, 0)},
                  {"optimizer": "ftrl", "eps": 1e-8}, {"optimizer": "adam"}):
        with pytest.raises(cairn.InvalidArgumentError):
            worker.sparse_table("x", 3, **wrong)
    with pytest.raises(cairn.InvalidArgumentError, match="works on rows"):
        worker.dense_table("x", 3, optimizer="sparse_adam")
    table = worker.sparse_table("f", 2, mode="async", optimizer="ftrl")
    for wrong in ({"lr": 0.0}, {"l1": -1.0}, {"beta": -1.0}):
        with pytest.raises(cairn.InvalidArgumentError, match="FTRL"):
            table.push([1], torch.ones(1, 2), **wrong)
    table.push([1], torch.ones(1, 2)).wait()  # and the client goes on


def test_dense_ftrl(worker):
    table = worker.dense_table("w", 6, optimizer="ftrl", lr=0.3, l1=0.1, init=0.5)
    param = torch.nn.Parameter(torch.full((6,), 0.5))
    optimizer = cairn.optim.FTRL([param], lr=0.3, l1=0.1)
    for step in range(5):
        param.grad = torch.randn(6, generator=torch.Generator().manual_seed(step))
        optimizer.step()
        got = table.push_pull(param.grad).result()
    torch.testing.assert_close(got, param.detach(), rtol=1e-5, atol=1e-6)


# --- the extension -----------------------------------------------------------------------------------------


def test_initial_rows_are_those_of_the_stream(worker):
    client = context.current().client
    keys = torch.tensor([5, -1, 0])
    for init in (("normal", 0.5, 2.0, 7, 3), ("uniform", -1.0, 1.0, 7, 4), ("constant", 2.0, 0.0, 0, 0),
                 ("zeros", 0.0, 0.0, 0, 9)):
        table = client.create_sparse(f"t-{init[0]}", 4, mode="async", init=init)
        there, here = torch.empty(3, 4), torch.empty(3, 4)
        table.pull(keys.data_ptr(), 3, there.data_ptr()).wait()
        _core.initial_rows(*init, keys.data_ptr(), 3, 4, here.data_ptr())
        assert torch.equal(there, here)
    with pytest.raises(cairn.InvalidArgumentError, match="same stream above 0"):
        _core.initial_rows("normal", 0, 1, 7, 0, keys.data_ptr(), 3, 4, here.data_ptr())
    with pytest.raises(cairn.InvalidArgumentError, match="unknown"):
        _core.initial_rows("cauchy", 0, 1, 7, 1, keys.data_ptr(), 3, 4, here.data_ptr())


@pytest.mark.parametrize("count, most", [(0, 1), (1, 5), (1000, 7), (20_000, 2**62)])
def test_unique(count, most):
    keys = torch.randint(-most, most, (count,), generator=torch.Generator().manual_seed(count))
    unique, inverse = torch.full((count,), -7), torch.full((count,), -7)
    n = _core.unique(keys.data_ptr(), count, unique.data_ptr(), inverse.data_ptr())
    _, first = np.unique(keys.numpy(), return_index=True)
    assert unique[:n].tolist() == keys[np.sort(first)].tolist()
    assert torch.equal(unique[:n][inverse], keys)


def test_two_phases_of_rows(worker):
    table = context.current().client.create_sparse("rows", 2, optimizer="sgd")
    keys, rows, out = torch.tensor([1, 2, 1]), torch.tensor([[3.0, 0], [4, 0], [0, 0]]), torch.empty(3, 2)
    hyper = (1.0, 0, 0, 0, 0, 0)
    first = table.contribute(*addresses(keys, rows), hyper, value_scale=2.0, keep=(keys, rows))
    first.wait()
    assert first.sum_squares == 100.0 and first.finite and not first.all_joined
    table.decide(hyper, scale=0.5).wait()
    table.pull(keys.data_ptr(), 3, out.data_ptr()).wait()
    assert out.tolist() == [[-3, 0], [-4, 0], [-3, 0]]
    second = table.contribute(0, 0, 0, hyper, not_finite=True)
    second.wait()
    assert not second.finite
    table.decide(hyper, skip=True).wait()
    assert table.round() == 2
    third = table.contribute(0, 0, 0, hyper, joined=True)
    third.wait()
    assert third.all_joined
    table.decide(hyper, joined=True).wait()
    table.done(hyper, joined=True).wait()


def test_a_trip_is_sent_at_its_end(worker):
    client = context.current().client
    tables = [client.create_sparse(f"t{i}", 2, mode="async", optimizer="sum") for i in range(5)]
    keys, rows = torch.arange(50), torch.ones(50, 2)
    outs = [torch.zeros(50, 2) for _ in tables]
    with _core.Trip(client) as trip:
        pushes = [t.push(*addresses(keys, rows)) for t in tables]
        pulls = [t.pull(keys.data_ptr(), 50, out.data_ptr(), keep=out) for t, out in zip(tables, outs)]
        assert not any(p.ready() for p in pushes + pulls)
        with pytest.raises(cairn.InvalidArgumentError, match="under way already"):
            trip.__enter__()
    for pending in pushes + pulls:
        pending.wait()
    assert all(torch.equal(out, rows) for out in outs)


def test_a_trip_that_ends_in_an_exception(worker):
    client = context.current().client
    table = client.create_sparse("t", 2, mode="async", optimizer="sum")
    keys, rows, out = torch.arange(5), torch.ones(5, 2), torch.zeros(5, 2)
    with pytest.raises(ZeroDivisionError):
        with _core.Trip(client):
            pushed = table.push(*addresses(keys, rows))
            1 / 0
    pushed.wait()
    with _core.Trip(client):  # who waits in it sends it
        table.pull(keys.data_ptr(), 5, out.data_ptr()).wait()
        assert torch.equal(out, rows)
        assert len(table.keys()) == 5 * 8
        other = threading.Thread(target=lambda: table.pull(keys.data_ptr(), 5, out.data_ptr()).wait())
        other.start()
        other.join(30)
        assert not other.is_alive()
        client.barrier()
    with pytest.raises(TypeError):
        _core.Trip(table)
