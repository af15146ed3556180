"""copy.deepcopy of models with tables, and torch's AveragedModel: a copy has the rows as they were and
is a table of its own, or there is no copy."""
import copy

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

import cairn

pytestmark = pytest.mark.usefixtures("worker")

ROWS, DIM = 12, 4
ALL = torch.arange(ROWS)


def model_of(rows=ROWS, **options):
    return nn.Sequential(cairn.nn.Embedding(rows, DIM, **options), nn.Linear(DIM, 2))


def wrapped(model, make=torch.optim.SGD):
    return cairn.DistributedOptimizer(make(model.parameters(), lr=0.1), model)


def train(model, optimizer, ids=ALL[:7]):
    optimizer.zero_grad()
    model(ids).sin().sum().backward()
    optimizer.step()


def rows_of(model):
    with torch.no_grad():
        return model[0](ALL).clone()


@pytest.mark.parametrize("options", [{}, {"storage": "bfloat16"}, {"name": "kept"}])
def test_a_copy_of_a_trained_table_stays_as_it_was(options):
    model = model_of(**options)
    optimizer = wrapped(model)
    train(model, optimizer)
    before, initial = rows_of(model), model[0].table.rows_of.init
    other = copy.deepcopy(model).eval()
    train(model, optimizer)
    assert torch.equal(rows_of(other), before) and not torch.equal(rows_of(model), before)
    assert other[0].name != model[0].name and other[0].table.rows_of.init == initial
    assert other[0].state_dict()["weight"].equal(before)


def test_a_copy_can_be_trained_by_itself():
    model = model_of()
    optimizer = wrapped(model, torch.optim.Adagrad)
    train(model, optimizer)
    other = copy.deepcopy(model)
    other_optimizer = wrapped(other, torch.optim.Adagrad)
    before = rows_of(model)
    assert torch.equal(rows_of(other), before)
    train(other, other_optimizer)
    assert torch.equal(rows_of(model), before) and not torch.equal(rows_of(other), before)
    assert other_optimizer.state_dict()["state"][0]["sum"].shape == (ROWS, DIM)


def test_two_copies_are_two_tables():
    model = model_of()
    optimizer = wrapped(model)
    first, second = copy.deepcopy(model), copy.deepcopy(model)
    third = copy.deepcopy(first)
    assert len({m[0].name for m in (model, first, second, third)}) == 4
    train(first, wrapped(first))
    assert torch.equal(rows_of(model), rows_of(second)) and torch.equal(rows_of(model), rows_of(third))
    train(model, optimizer)


@pytest.mark.parametrize("rows", [ROWS, None])
def test_a_copy_of_what_nobody_trains_has_its_values(rows):
    model = model_of(rows)
    model[0].load_rows([3], torch.full((1, DIM), 9.0))
    other = copy.deepcopy(model)
    assert torch.equal(rows_of(model), rows_of(other))
    model[0].load_rows([3], torch.zeros(1, DIM))
    assert torch.equal(rows_of(other)[3], torch.full((DIM,), 9.0))


def test_modules_that_share_a_table_share_the_copy():
    model = nn.ModuleList([cairn.nn.Embedding(ROWS, DIM, name="both") for _ in range(2)])
    other = copy.deepcopy(model)
    assert other[0].table is other[1].table and other[0].table is not model[0].table


def test_an_unbounded_table_that_is_trained_is_not_copied():
    model = model_of(None)
    optimizer = wrapped(model)
    train(model, optimizer)
    with pytest.raises(TypeError, match=rf"{model[0].name}.*unbounded.*load_rows.*deepcopy\(model, "):
        copy.deepcopy(model)
    shared = copy.deepcopy(model, {id(model[0]): model[0]})  # as it says: the copy uses the same table
    train(model, optimizer)
    assert shared[0] is model[0] and shared[1] is not model[1]
    by_hand = cairn.nn.Embedding(None, DIM)
    by_hand.load_rows(*model[0].export())
    assert torch.equal(by_hand(ALL[:7]), model[0](ALL[:7]))


@pytest.mark.parametrize("rows", [ROWS, None])
def test_averaged_model_is_refused_with_advice(rows):
    model = model_of(rows)
    for when in ("before the wrap", "after it"):
        with pytest.raises(TypeError, match=rf"AveragedModel.*{model[0].name}.*AveragedModel\(model\.top\)"):
            AveragedModel(model)
        optimizer = wrapped(model)
    train(model, optimizer)
    averaged = AveragedModel(model[1])  # as it says
    averaged.update_parameters(model[1])
    assert torch.equal(averaged.module.weight, model[1].weight)


def test_the_name_of_a_copy_is_nobody_elses():
    with pytest.raises(cairn.InvalidArgumentError, match="choose another name"):
        cairn.nn.Embedding(3, 2, name="user~copy-1")
