"""RowTable and TableHandle: the seam between modules, optimizer and prefetch. And what they are
made of."""
import gc
import weakref

import pytest
import torch
from hypothesis import given, strategies as st

import cairn
from cairn._rows.filed_gradient import FiledGradient
from cairn._rows.loaded_rows import LoadedRows
from cairn._rows.row_table import read
from cairn._rows.rows_ahead import RowsAhead
from cairn._rows.table_handle import TableHandle
from cairn._rows.unique_keys import positions, sum_by_key, unique
from cairn._tables.optimizer_settings import GroupSettings
from embedding_problems import KEYS

SGD = GroupSettings("sgd", 0)
HYPER = (0.5, 0.0, 0.0, 0.0, 0.0, 0.0)
_made = 0


def keys_of(*values):
    return torch.tensor(values, dtype=torch.int64)


def make(dim=2, **options):
    global _made
    _made += 1
    return TableHandle.make(f"row-table-{_made}", dim, ("normal", 0, 1, 0), **options)


def attached(mode=cairn.Sync()):
    handle = make()
    assert handle.rows_of.attach(cairn._runtime.context.current().client, SGD, mode, "mean")
    return handle


def rows(table, *keys):
    return read([table], [table.lookup(keys_of(*keys))])[0]


def push(table, key, gradient):
    keys, grad = keys_of(key), torch.full((1, table.dim), gradient)
    table.table.push(keys.data_ptr(), 1, grad.data_ptr(), HYPER, step=1, keep=(keys, grad)).wait()


# Keys.
SMALL = st.lists(KEYS | st.integers(-4, 4), max_size=30)


@given(SMALL)
def test_unique_keys_are_in_order_of_appearance(values):
    ids = keys_of(*values)
    keys, inverse = unique(ids)
    assert keys.tolist() == list(dict.fromkeys(values)) and torch.equal(keys[inverse], ids)


@given(st.lists(KEYS | st.integers(-4, 4), max_size=30, unique=True), SMALL)
def test_positions_among_keys(among, values):
    at = positions(keys_of(*values), keys_of(*among)).tolist()
    for value, position in zip(values, at):
        assert among[position] == value if value in among else position >= len(among)


@given(st.lists(st.lists(st.integers(-4, 4), unique=True, max_size=6), min_size=1, max_size=5))
def test_sums_by_key(filings):
    parts = [(keys_of(*keys), torch.arange(float(2 * len(keys))).reshape(-1, 2))
              for keys in filings]
    expected = {}
    for keys, values in parts:
        for key, row in zip(keys.tolist(), values):
            expected[key] = expected.get(key, 0) + row
    keys, total = sum_by_key(parts)
    assert keys.numel() == len(expected)
    assert all(torch.equal(expected[key], row) for key, row in zip(keys.tolist(), total))


# Gradients.
def test_a_filed_gradient_of_nothing_is_none():
    filed = FiledGradient()
    filed.file(keys_of(), torch.empty(0, 2))
    assert not filed and filed.sum() is None
    assert filed.show(torch.device("cpu"), torch.float32) is None


def test_one_filing_is_not_copied():
    filed, values = FiledGradient(), torch.ones(2, 2)
    filed.file(keys_of(1, 2), values)
    assert filed.sum()[1] is values and filed.show(values.device, values.dtype) is values


def test_filings_of_other_types_are_added_up():
    filed = FiledGradient()
    filed.file(keys_of(1), torch.ones(1, 2, dtype=torch.float64))
    filed.file(keys_of(1), torch.ones(1, 2, dtype=torch.bfloat16))
    assert filed.sum()[1].tolist() == [[2.0, 2.0]]


def test_a_zero_gradient_that_nobody_wrote_counts():
    """Only zero_grad(set_to_none=False) makes keys disappear: rows with a zero gradient are
    stepped."""
    filed = FiledGradient()
    filed.file(keys_of(1), torch.zeros(1, 2))
    filed.file(keys_of(2), torch.ones(1, 2))
    assert filed.sum()[0].tolist() == [1, 2]


def test_the_handle():
    handle = make(dtype=torch.float64, requires_grad=False)
    assert isinstance(handle, torch.nn.Parameter)
    assert handle.shape == (0, 2) and handle.dtype == torch.float64
    assert not handle.requires_grad and handle.rows_of.handle is handle and handle.grad is None
    table = handle.rows_of
    table.gradient.file(keys_of(3), torch.ones(1, 2))
    assert handle.grad.dtype == torch.float64 and table.filed()[1].dtype == torch.float32
    table.clear()
    assert handle.grad is None and table.filed() is None


def test_a_handle_and_its_table_go_away_with_the_model():
    handle = make()
    gone = weakref.ref(handle.rows_of)
    gc.disable()
    try:
        del handle
        assert gone() is None  # no cycle keeps it until somebody collects garbage
    finally:
        gc.enable()


# Loaded rows.
@given(st.lists(st.lists(st.integers(-4, 4), max_size=6), max_size=4), SMALL)
def test_loaded_rows(loads, asked):
    loaded, expected = LoadedRows(), {}
    for n, keys in enumerate(loads):
        values = torch.arange(float(len(keys))).unsqueeze(1) + 100 * n
        loaded.add(keys_of(*keys), values)
        expected |= dict(zip(keys, values.reshape(-1).tolist()))
    assert bool(loaded) == bool(loads)
    out = torch.full((len(asked), 1), -1.0)
    loaded.write_over(keys_of(*asked), out)
    assert out.reshape(-1).tolist() == [expected.get(key, -1.0) for key in asked]
    if loads:
        keys, values = loaded.all()
        assert dict(zip(keys.tolist(), values.reshape(-1).tolist())
                    ) == expected and len(keys) == len(expected)
        assert keys.tolist() == sorted(keys.tolist())
    loaded.clear()
    assert loaded.all() is None


# Rows, with servers.
def test_attaching_twice(worker):
    handle, client = make(), cairn._runtime.context.current().client
    table = handle.rows_of
    assert table.table is None and table.attach(client, SGD, cairn.Sync(), "mean")
    made = table.table
    assert not table.attach(client, SGD, cairn.Sync(), "mean") and table.table is made
    for other in ((GroupSettings("adagrad", 0), cairn.Sync(), "mean"), (SGD, cairn.Async(), "mean"),
                  (SGD, cairn.Sync(), "sum")):
        with pytest.raises(cairn.Error, match="trained already, by sgd.*make the model anew"):
            table.attach(client, *other)


def test_what_was_read_is_kept_between_steps_in_sync_only(worker):
    for mode, kept in ((cairn.Sync(), True), (cairn.Async(), False)):
        table = (handle := attached(mode)).rows_of
        before = rows(table, 1, 2).clone()
        push(table, 1, 1.0)
        assert torch.equal(rows(table, 1, 2), before) == kept
        table.stepped()
        assert torch.allclose(rows(table, 1, 2), before - torch.tensor([[0.5], [0.0]]))
        del handle


def test_what_is_kept_is_bounded(worker, monkeypatch):
    from cairn._rows import row_source

    handle = attached()
    source = handle.rows_of.source
    for key in range(20):
        rows(handle.rows_of, key)
    assert len(source._kept) == row_source._KEPT_READS
    monkeypatch.setattr(row_source, "_KEPT_BYTES", 20)
    rows(handle.rows_of, 30)
    assert len(source._kept) == 2  # of 8 bytes each
    rows(handle.rows_of, *range(40, 60))
    assert source._kept == []


def ahead_of(table, *keys):
    """As cairn.prefetch announces it."""
    table.ahead = RowsAhead(table.source, [table.lookup(keys_of(*keys))])
    return table.ahead


@pytest.mark.parametrize("mode", [cairn.Sync(), cairn.Async()], ids=["sync", "async"])
def test_what_was_received_is_used_until_the_next_step(worker, mode):
    handle = attached(mode)
    table = handle.rows_of
    ahead = ahead_of(table, 1, 2)
    assert table.wanted().tolist() == [1, 2]
    table.stepped()
    table.receive(table.wanted(), torch.full((2, 2), 7.0))
    assert torch.equal(ahead.rows, torch.full((2, 2), 7.0))
    table.now, table.ahead = ahead, None
    assert table.wanted() is None
    assert torch.equal(rows(table, 1, 2), torch.full((2, 2), 7.0))
    mixed = rows(table, 9, 2)  # one of them is read now
    assert torch.equal(mixed[1], torch.full((2,), 7.0)) and not torch.equal(mixed[0], mixed[1])
    table.stepped()
    assert ahead.rows is None and not torch.equal(rows(table, 1, 2), torch.full((2, 2), 7.0))


def test_what_comes_in_the_wrong_order_is_not_used(worker):
    handle = attached()
    table = handle.rows_of
    ahead = ahead_of(table, 1)
    table.receive(table.wanted(), torch.full((1, 2), 7.0))
    table.stepped()
    assert ahead.rows is None


def test_what_nobody_wants_is_not_received(worker):
    handle = attached()
    ahead = ahead_of(handle.rows_of, 1)
    handle.rows_of.receive(keys_of(2), torch.full((1, 2), 7.0))
    assert ahead.rows is None
    assert ahead_of(handle.rows_of) and handle.rows_of.wanted() is None  # no ids at all


def test_loaded_rows_are_read_until_the_servers_have_them(worker):
    handle = attached()
    table = handle.rows_of
    before = rows(table, 1, 2).clone()
    version = handle._version
    table.load(keys_of(1), torch.full((1, 2), 7.0))
    assert handle._version > version
    assert torch.equal(rows(table, 1, 2), torch.stack((torch.full((2,), 7.0), before[1])))
    table.loaded_taken()  # somebody else's values won
    assert table.loaded() is None and torch.equal(rows(table, 1, 2), before)
