"""state_dict() of models and optimizers with tables: a bounded table is saved whole, in torch's format;
of an unbounded one it is said what is missing, or raised."""
import io
import pathlib
import warnings

import pytest
import torch
from torch import nn

import cairn
from cairn._train import served_rows
from cairn._train.served_rows import ServedRows
from optimizer_workers.job import Job

pytestmark = pytest.mark.usefixtures("worker")

ROWS, DIM = 30, 4
MODES = {"sync": cairn.Sync(), "async": cairn.Async()}
OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, lr_decay=0.05, initial_accumulator_value=0.2),
    "SparseAdam": lambda p: torch.optim.SparseAdam(p, lr=0.02),
    "RowwiseAdagrad": lambda p: cairn.optim.RowwiseAdagrad(p, lr=0.1, initial_accumulator_value=0.1),
    "FTRL": lambda p: cairn.optim.FTRL(p, lr=0.2, l1=0.01, initial_accumulator_value=0.1),
}
KEPT = [name for name in OPTIMIZERS if name != "SGD"]


class Pair:
    """A table of ours and torch's with the same rows, trained in the same way."""

    def __init__(self, name, **options):
        self.make = OPTIMIZERS[name]
        self.mine, self.theirs = cairn.nn.Embedding(ROWS, DIM), nn.Embedding(ROWS, DIM, sparse=True)
        self.theirs.load_state_dict(self.mine.state_dict())
        self.plain = self.make(self.theirs.parameters())
        self.optimizer = cairn.DistributedOptimizer(self.make(self.mine.parameters()), self.mine, **options)

    def step(self, number):
        ids = torch.randint(0, ROWS - 5, (8,), generator=torch.Generator().manual_seed(number))
        for module, optimizer in ((self.mine, self.optimizer), (self.theirs, self.plain)):
            train(module, optimizer, ids)
        return self

    def assert_same(self):
        torch.testing.assert_close(self.mine.state_dict(), self.theirs.state_dict(), rtol=1e-5, atol=1e-6)
        mine, theirs = self.optimizer.state_dict(), self.plain.state_dict()
        assert mine["param_groups"] == theirs["param_groups"] and mine["state"].keys() == theirs["state"].keys()
        for index, entry in theirs["state"].items():
            assert mine["state"][index].keys() == entry.keys()
            for name, value in entry.items():
                assert type(mine["state"][index][name]) is type(value)
                torch.testing.assert_close(mine["state"][index][name], value, rtol=1e-5, atol=1e-6)
        return self


def train(module, optimizer, ids):
    optimizer.zero_grad()
    module(ids).sin().sum().backward()
    optimizer.step()


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


# Bounded tables.
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_state_of_rows_is_torchs(name, mode):
    both = Pair(name, mode=MODES[mode]).assert_same()
    for number in range(4):
        both.step(number).assert_same()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", KEPT)
def test_training_goes_on_from_a_file(name, mode):
    saved = Pair(name, mode=MODES[mode])
    for number in range(4):
        saved.step(number)
    model, state = through_a_file([saved.mine.state_dict(), saved.optimizer.state_dict()])
    both = Pair(name, mode=MODES[mode]).step(77)
    both.theirs.load_state_dict(model)
    both.mine.load_state_dict(model)
    both.optimizer.push_parameters()
    both.plain.load_state_dict(state)
    both.optimizer.load_state_dict(state)
    both.assert_same()
    for number in range(4, 8):
        both.step(number).assert_same()


@pytest.mark.parametrize("name", KEPT)
def test_what_is_loaded_before_the_wrap_reaches_the_servers_with_it(name):
    saved = Pair(name)
    for number in range(3):
        saved.step(number)
    both = Pair(name)
    both.mine, inner = cairn.nn.Embedding(ROWS, DIM), None
    both.mine.load_state_dict(saved.mine.state_dict())
    both.theirs.load_state_dict(saved.mine.state_dict())
    inner = both.make(both.mine.parameters())
    inner.load_state_dict(saved.optimizer.state_dict())
    both.plain.load_state_dict(saved.optimizer.state_dict())
    both.optimizer = cairn.DistributedOptimizer(inner, both.mine)
    both.assert_same().step(3).assert_same()


def test_a_wrap_before_init_keeps_what_was_loaded():
    saved = Pair("SparseAdam").step(0).step(1)
    model, state = through_a_file([saved.mine.state_dict(), saved.optimizer.state_dict()])
    cairn.shutdown()
    both = Pair("SparseAdam")
    both.assert_same()
    both.mine.load_state_dict(model)
    both.theirs.load_state_dict(model)
    both.optimizer.load_state_dict(state)
    both.plain.load_state_dict(state)
    both.assert_same()
    cairn.init()
    both.step(2).assert_same()


def test_a_fresh_state_makes_all_rows_forget_theirs():
    both = Pair("Adagrad")
    fresh = through_a_file(both.optimizer.state_dict())
    both.step(0).step(1)
    both.optimizer.load_state_dict(fresh)
    both.plain.load_state_dict(fresh)
    both.assert_same().step(2).assert_same()


@pytest.mark.parametrize("name", ["Adagrad", "SparseAdam"])
def test_state_and_rows_travel_in_calls_of_bounded_size(name, monkeypatch):
    saved = Pair(name)
    for number in range(4):
        saved.step(number)
    model, state = through_a_file([saved.mine.state_dict(), saved.optimizer.state_dict()])
    calls = {"pulled": [], "assigned": []}

    def counted(method, what):
        def call(self, keys, *arguments):
            calls[what].append(keys.numel())
            return method(self, keys, *arguments)
        return call

    monkeypatch.setattr(served_rows, "CALL_BYTES", 7 * 4 * DIM)
    monkeypatch.setattr(ServedRows, "pull_column", counted(ServedRows.pull_column, "pulled"))
    monkeypatch.setattr(ServedRows, "assign_column", counted(ServedRows.assign_column, "assigned"))
    torch.testing.assert_close(saved.optimizer.state_dict(), state, rtol=0, atol=0)
    used = [int((state["state"][0][column] != {"sum": 0.2}.get(column, 0.0)).any(1).sum())
            for column in saved.optimizer._served.tables[0].settings.state_names]
    assert calls["pulled"].count(7) >= 2 * len(used) and max(calls["pulled"]) == 7 and max(used) > 14
    both = Pair(name)
    both.theirs.load_state_dict(model)
    both.mine.load_state_dict(model)
    both.optimizer.push_parameters()
    both.plain.load_state_dict(state)
    both.optimizer.load_state_dict(state)
    assert max(calls["assigned"]) == 7 and sum(calls["assigned"]) >= sum(used) + 64
    both.assert_same().step(9).assert_same()


def test_rows_wider_than_a_call_travel_one_by_one(monkeypatch):
    monkeypatch.setattr(served_rows, "CALL_BYTES", DIM)
    both = Pair("Adagrad").step(0)
    assert both.optimizer._served.tables[0].keys_a_call == 1
    both.assert_same()


def test_rows_that_were_never_used_are_not_made_by_loading():
    both = Pair("RowwiseAdagrad").step(0)
    used = both.mine.export()[0].tolist()
    state = both.optimizer.state_dict()
    other = Pair("RowwiseAdagrad")
    other.optimizer.load_state_dict(state)
    assert other.mine.export()[0].tolist() == used and len(used) < ROWS


def test_state_of_another_shape_or_kind_is_refused():
    both = Pair("Adagrad").step(0)
    state = both.optimizer.state_dict()
    before = state["state"][0]["sum"].clone()
    state["state"][0]["sum"] = torch.zeros(0, DIM)
    with pytest.raises(cairn.InvalidArgumentError, match=r"sum of shape \(0, 4\).*\(30, 4\) is expected"):
        both.optimizer.load_state_dict(state)
    del state["state"][0]["sum"]
    with pytest.raises(cairn.InvalidArgumentError, match=r"no sum for table"):
        both.optimizer.load_state_dict(state)
    assert torch.equal(both.optimizer.state_dict()["state"][0]["sum"], before)


def test_of_modules_that_share_a_table_the_largest_counts():
    small, large = cairn.nn.Embedding(5, DIM, name="shared"), cairn.nn.Embedding(9, DIM, name="shared")
    model = nn.ModuleList([small, large])
    optimizer = cairn.DistributedOptimizer(OPTIMIZERS["Adagrad"](model.parameters()), model)
    train(large, optimizer, torch.tensor([8]))
    state = optimizer.state_dict()["state"][0]["sum"]
    assert state.shape == (9, DIM) and (state[8] > 0.2).all() and (state[:8] == 0.2).all()


def test_a_worker_that_is_started_again_does_not_undo_the_state(cairn_bin, tmp_path):
    script = pathlib.Path(__file__).resolve().parent / "embedding_workers" / "state_and_a_death.py"
    job = Job(cairn_bin, script, tmp_path, workers=2, servers=1, options=["--max-restarts", "1"])
    assert job.code == 0, job.output
    ((found,),) = [job.of_worker(1, r"^grown by (\d+) in (\d+) steps$")]
    assert int(found.group(1)) >= int(found.group(2)) > 6, job.output


# Unbounded ones.
def said(what):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        what()
    return [str(warning.message) for warning in seen], [warning.filename for warning in seen]


def beside_a_layer(make, rows=None):
    model = nn.Sequential(cairn.nn.Embedding(rows, DIM), nn.Linear(DIM, 2))
    optimizer = cairn.DistributedOptimizer(make(model.parameters()), model)
    return model, optimizer


def test_saving_says_once_what_of_the_optimizers_state_is_missing():
    model, optimizer = beside_a_layer(OPTIMIZERS["Adagrad"])
    assert said(optimizer.state_dict)[0] == []  # nothing is lost yet
    train(model, optimizer, torch.tensor([5, -7]))
    (text,), (place,) = said(optimizer.state_dict)
    assert f'"{model[0].name}"' in text and "sum" in text and "export()" in text and place == __file__
    assert said(optimizer.state_dict)[0] == []
    assert optimizer.state_dict()["state"].keys() == {1, 2}  # and no empty array for the table
    (text,), (place,) = said(lambda: optimizer.load_state_dict(optimizer.state_dict()))
    assert "load_state_dict" in text and place == __file__


def test_an_optimizer_of_nothing_but_unbounded_tables_is_not_saved():
    table = cairn.nn.Embedding(None, DIM)
    optimizer = cairn.DistributedOptimizer(OPTIMIZERS["SparseAdam"](table.parameters()), table)
    assert optimizer.state_dict()["state"] == {}
    train(table, optimizer, torch.tensor([5]))
    with pytest.raises(cairn.Error, match=rf"would save nothing.*{table.name}.*exp_avg.*export\(\)"):
        optimizer.state_dict()


def test_without_state_there_is_nothing_to_say():
    model, optimizer = beside_a_layer(OPTIMIZERS["SGD"])
    train(model, optimizer, torch.tensor([5]))
    assert said(optimizer.state_dict)[0] == []
    assert said(lambda: optimizer.load_state_dict(optimizer.state_dict()))[0] == []


def test_state_for_an_unbounded_table_is_refused():
    bounded, optimizer = beside_a_layer(OPTIMIZERS["Adagrad"], rows=6)
    train(bounded, optimizer, torch.tensor([5]))
    _, other = beside_a_layer(OPTIMIZERS["Adagrad"])
    with pytest.raises(cairn.InvalidArgumentError, match="unbounded.*num_embeddings="):
        other.load_state_dict(optimizer.state_dict())


def test_saving_a_model_says_once_which_rows_are_missing():
    model, optimizer = beside_a_layer(OPTIMIZERS["SGD"])
    train(model, optimizer, torch.tensor([5]))
    (text,), (place,) = said(model.state_dict)
    assert f'"{model[0].name}"' in text and "export()" in text and place == __file__
    assert said(model.state_dict)[0] == []


def test_a_bounded_model_is_saved_without_a_word():
    model, optimizer = beside_a_layer(OPTIMIZERS["Adagrad"], rows=6)
    train(model, optimizer, torch.tensor([5]))
    assert said(model.state_dict)[0] == said(optimizer.state_dict)[0] == []


def test_a_state_dict_that_would_be_empty_is_refused():
    table, loaded = cairn.nn.Embedding(None, DIM), cairn.nn.EmbeddingBag(None, DIM)
    assert not table.state_dict()  # initial values: nothing to lose
    loaded.load_rows([3], torch.ones(1, DIM))
    optimizer = cairn.DistributedOptimizer(OPTIMIZERS["SGD"](table.parameters()), table)
    train(table, optimizer, torch.tensor([5]))
    for module in (table, loaded, cairn.nn.EmbeddingCollection({"a": table, "b": loaded})):
        with pytest.raises(cairn.Error, match=r"would be empty.*export\(\)"):
            module.state_dict()
    with_a_layer = nn.ModuleDict({"rows": cairn.nn.EmbeddingCollection({"a": table}), "top": nn.Linear(2, 2)})
    with pytest.warns(UserWarning, match=r"export\(\)"):
        assert with_a_layer.state_dict().keys() == {"top.weight", "top.bias"}
