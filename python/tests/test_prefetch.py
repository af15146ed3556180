"""cairn.prefetch: the same batches, the same results, and one round trip a step."""
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import cairn
from cairn.nn import Embedding, EmbeddingBag, EmbeddingCollection
from round_trips import RoundTrips

MODES = {"sync": cairn.Sync(), "async": cairn.Async()}


class Model(nn.Module):
    """Ids shared by two tables, a table used by two modules, a bag, and a dense layer."""

    def __init__(self, name):
        super().__init__()
        torch.manual_seed(1)
        self.wide = Embedding(None, 1, name=f"{name}-wide", init="zeros")
        self.user = Embedding(None, 4, name=f"{name}-user", init=("normal", 0, 0.1))
        self.friends = EmbeddingBag(None, 4, name=f"{name}-user", init=("normal", 0, 0.1),
                                    mode="sum")
        self.item = Embedding(40, 4, padding_idx=0, name=f"{name}-item", init="zeros")
        self.top = nn.Linear(4, 1)

    def forward(self, batch):
        user, friends, item = batch
        rows = self.user(user) + self.friends(friends) + self.item(item)
        return (self.top(rows) + self.wide(user)).squeeze(1)

    def ids(self, batch):
        user, friends, item = batch
        return {self.wide: user, self.friends: (friends,), self.user: user, self.item: item}


def batches(count=8, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randint(-20, 20, (6,), generator=generator),
             torch.randint(-20, 20, (6, 3), generator=generator),
             torch.randint(0, 40, (6,), generator=generator)) for _ in range(count)]


def train(model, optimizer, loader, clip=False):
    losses = []
    for batch in loader:
        optimizer.zero_grad()
        loss = (model(batch) - 1).pow(2).mean()
        loss.backward()
        if clip:
            optimizer.clip_grad_norm_(0.1)
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


_made = 0


def fresh(mode=cairn.Sync(), make=lambda p: torch.optim.Adagrad(p, lr=0.1)):
    """Two of one name would share their tables; initial values hang on the name."""
    global _made
    _made += 1
    model = Model(f"prefetch-{_made}")
    return model, cairn.DistributedOptimizer(make(model.parameters()), model, mode=mode)


def rows_of(model):
    found = {}
    for name, module in model.named_modules():
        if hasattr(module, "table"):
            found[f"{name} keys"], found[f"{name} rows"] = module.export()
    return found


def twins(monkeypatch, mode=cairn.Sync()):
    """Two models with equal initial values in tables of their own."""
    from cairn._rows import table_handle

    monkeypatch.setattr(table_handle.hashlib, "blake2b",
                        lambda data, digest_size: _Same(b"".join(data.rsplit(b"-", 2)[-1:])))
    return fresh(mode), fresh(mode)


class _Same:
    """A digest of the part of a table's name that twins have in common."""

    def __init__(self, data):
        self._data = data

    def digest(self):
        return (self._data + bytes(8))[:8]


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("clip", [False, True])
def test_results_are_identical(worker, monkeypatch, mode, clip):
    (plain, one), (ahead, other) = twins(monkeypatch, mode)
    expected = train(plain, one, batches(), clip)
    assert train(ahead, other, cairn.prefetch(batches(), ahead.ids), clip) == expected
    for (name, a), b in zip(rows_of(plain).items(), rows_of(ahead).values()):
        assert torch.equal(a, b), name
    assert torch.equal(plain.top.weight, ahead.top.weight)


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_one_round_trip_a_step(worker, mode):
    model, optimizer = fresh(mode)
    train(model, optimizer, batches(1))
    trips = RoundTrips()
    train(model, optimizer, cairn.prefetch(batches(8), model.ids))
    assert trips.taken() == [8 + 1]  # and one for the first batch
    train(model, optimizer, batches(8))
    assert trips.taken()[0] > 3 * 8


def test_twenty_tables_in_one_round_trip_a_step(worker):
    rows = EmbeddingCollection({f"t{i}": Embedding(None, 4) for i in range(20)})
    optimizer = cairn.DistributedOptimizer(torch.optim.SGD(rows.parameters(), lr=0.1))
    loader = [{name: torch.arange(i, i + 5) for name in rows} for i in range(6)]
    trips = RoundTrips()
    for batch in cairn.prefetch(loader, lambda batch: {rows: batch}):
        optimizer.zero_grad()
        sum(out.sum() for out in rows(batch).values()).backward()
        optimizer.step()
    assert trips.taken() == [6 + 1]


def test_without_steps_a_batch_is_one_round_trip(worker):
    model, optimizer = fresh()
    train(model, optimizer, batches(1))
    trips = RoundTrips()
    with torch.inference_mode():
        for batch in cairn.prefetch(batches(5), model.ids):
            model(batch)
            model(batch)
    assert trips.taken() == [5]


def test_accumulating_over_batches(worker, monkeypatch):
    (plain, one), (ahead, other) = twins(monkeypatch)
    for model, optimizer in ((plain, one), (ahead, other)):
        loader = batches() if model is plain else cairn.prefetch(batches(), model.ids)
        for i, batch in enumerate(loader):
            model(batch).pow(2).mean().backward()
            if i % 3 == 2:
                optimizer.step()
                optimizer.zero_grad()
    assert all(torch.equal(a, b) for a, b in zip(rows_of(plain).values(), rows_of(ahead).values()))


def test_two_steps_on_one_batch(worker, monkeypatch):
    (plain, one), (ahead, other) = twins(monkeypatch)
    for model, optimizer in ((plain, one), (ahead, other)):
        for batch in batches() if model is plain else cairn.prefetch(batches(), model.ids):
            train(model, optimizer, [batch, batch])
    assert all(torch.equal(a, b) for a, b in zip(rows_of(plain).values(), rows_of(ahead).values()))


def test_evaluation_with_prefetch_inside_training_with_prefetch(worker, monkeypatch):
    (plain, one), (ahead, other) = twins(monkeypatch)
    seen = []
    for model, optimizer in ((plain, one), (ahead, other)):
        wrap = (lambda b: b) if model is plain else (lambda b: cairn.prefetch(b, ahead.ids))
        for i, batch in enumerate(wrap(batches())):
            train(model, optimizer, [batch])
            if i % 3 == 1:
                with torch.no_grad():
                    seen.append([float(model(other).sum()) for other in wrap(batches(3, seed=9))])
                train(model, optimizer, [batch])
    assert seen[:len(seen) // 2] == seen[len(seen) // 2:]
    assert all(torch.equal(a, b) for a, b in zip(rows_of(plain).values(), rows_of(ahead).values()))


def test_what_the_function_leaves_out_or_gets_wrong_is_read_in_the_forward_pass(
    worker, monkeypatch):
    (plain, one), (ahead, other) = twins(monkeypatch)

    def partly(batch):
        user, friends, item = batch
        return {ahead.user: user[:3], ahead.item: [item + 0, torch.tensor([1, 2])],
                ahead.friends: torch.empty(0, dtype=torch.int64)}

    assert train(ahead, other, cairn.prefetch(batches(), partly)) == train(plain, one, batches())


def test_ids_that_change_after_they_were_looked_at():
    table = Embedding(None, 4)
    for ids in cairn.prefetch([torch.arange(4), torch.arange(4)], lambda b: {table: b}):
        ids.add_(10)
        assert torch.equal(table(ids), table(torch.arange(10, 14)))


def test_a_row_and_a_column_of_a_batch_are_not_taken_for_each_other():
    table = Embedding(None, 4)
    for ids in cairn.prefetch([torch.arange(9).reshape(3, 3)], lambda b: {table: b[0]}):
        assert torch.equal(table(ids[:, 0]), table(torch.tensor([0, 3, 6])))


def test_slices_of_a_batch_are_recognised(worker, monkeypatch):
    """Ids that are made anew by slicing lie where they lay."""
    from cairn._rows import rows_ahead

    table = Embedding(None, 4)
    loader = [torch.randint(0, 50, (6, 3)) for _ in range(4)]
    made = []
    lookup = rows_ahead.Lookup.__init__
    monkeypatch.setattr(rows_ahead.Lookup, "__init__",
                        lambda self, ids: (made.append(1), lookup(self, ids))[1])
    for batch in cairn.prefetch(loader, lambda b: {table: [b[:, 0], b[:, 1]]}):
        before = len(made)
        table(batch[:, 0])
        table(batch[:, 1])
        assert len(made) == before
        table(batch[:, 2])
        assert len(made) == before + 1
    assert len(made) == 4 * 3


def test_a_table_that_nobody_trains():
    table = Embedding(None, 4)
    seen = [table(batch) for batch in cairn.prefetch(
        [torch.arange(5), torch.arange(3)], lambda b: {table: b})]
    assert torch.equal(seen[0][:3], seen[1])


# As an iterable.
def nothing(batch):
    return {}


def test_has_the_loaders_batches_length_and_attributes():
    dataset = TensorDataset(torch.arange(10))
    loader = cairn.prefetch(DataLoader(dataset, batch_size=3), nothing)
    assert len(loader) == 4 and loader.batch_size == 3 and loader.dataset is dataset
    for _ in range(2):
        assert [batch[0].tolist() for batch in loader] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    with pytest.raises(AttributeError):
        loader.nonsense


def test_any_iterable():
    assert list(cairn.prefetch((i for i in range(5)), nothing)) == list(range(5))
    assert list(cairn.prefetch([], nothing)) == []
    with pytest.raises(TypeError):
        len(cairn.prefetch((i for i in range(5)), nothing))


def test_is_one_batch_ahead_and_no_more():
    taken = []
    loader = iter(cairn.prefetch((taken.append(i) or i for i in range(5)), nothing))
    assert next(loader) == 0 and taken == [0, 1]
    assert next(loader) == 1 and taken == [0, 1, 2]


def wanted(table):
    return table.table.rows_of.wanted()


def left_clean(table):
    return wanted(table) is None and table.table.rows_of.now is None


def test_a_break_leaves_nothing_behind():
    table = Embedding(None, 4)
    for batch in cairn.prefetch([torch.tensor([i]) for i in range(4)], lambda b: {table: b}):
        assert wanted(table).tolist() == [int(batch) + 1]
        if int(batch) == 2:
            break
    assert left_clean(table)


def test_the_last_batch_wants_nothing_after_it():
    table = Embedding(None, 4)
    for batch in cairn.prefetch([torch.tensor([0]), torch.tensor([1])], lambda b: {table: b}):
        last = wanted(table)
    assert last is None and left_clean(table)


def test_an_exception_in_the_loop_leaves_nothing_behind():
    table = Embedding(None, 4)
    with pytest.raises(KeyError):
        for batch in cairn.prefetch([torch.tensor([i]) for i in range(4)], lambda b: {table: b}):
            raise KeyError
    assert left_clean(table)


def test_an_exception_of_the_loader_comes_in_its_turn():
    table = Embedding(None, 4)

    def loader():
        yield torch.tensor([0])
        yield torch.tensor([1])
        raise OSError("the file is gone")

    seen = []
    with pytest.raises(OSError, match="the file is gone"):
        for batch in cairn.prefetch(loader(), lambda b: {table: b}):
            seen.append(int(batch))
    assert seen == [0, 1] and left_clean(table)


def test_an_exception_of_the_function_comes_in_its_turn():
    seen = []
    with pytest.raises(ZeroDivisionError):
        for batch in cairn.prefetch(range(3), lambda b: {} if b < 2 else 1 // 0):
            seen.append(batch)
    assert seen == [0, 1]


@pytest.mark.parametrize("asked", [lambda: {nn.Embedding(3, 2): torch.tensor([1])},
                                   lambda: {Embedding(3, 2): [[1, 2]]}])
def test_what_can_not_be_read_ahead_is_refused(asked):
    with pytest.raises(TypeError, match="cairn.nn.Embedding|torch.Tensor"):
        list(cairn.prefetch([0], lambda batch: asked()))


def test_ids_out_of_range_are_the_forward_passes_error():
    table = Embedding(5, 2)
    for batch in cairn.prefetch([torch.tensor([7])], lambda b: {table: b}):
        with pytest.raises(IndexError, match="out of range"):
            table(batch)


def test_a_compiled_module_is_its_module():
    table = Embedding(None, 2)
    compiled = torch.compile(table, backend="aot_eager")
    for batch in cairn.prefetch([torch.tensor([7]), torch.tensor([8])], lambda b: {compiled: b}):
        assert table.table.rows_of.now.keys.tolist() == batch.tolist()
