"""cairn.assign: what goes to the servers and what is all-reduced."""
import copy

import pytest
import torch
from torch import nn

import cairn
from cairn.assign import placement_of


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 4, sparse=True)
        self.tower = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
        self.head = nn.Linear(2, 1)


def of(model):
    """By place."""
    placed = placement_of(model)
    return {place: sorted(n for n, p in placed.items() if p == place) for place in ("server", "allreduce")}


def test_nothing_is_placed_before():
    assert placement_of(Model()) == {}


def test_by_module_parameter_and_pattern():
    model = Model()
    cairn.assign(model, server=[model.embedding, "head.*"], allreduce=[model.tower, model.head.bias])
    assert of(model) == {
        "server": ["embedding.weight", "head.weight"],
        "allreduce": ["head.bias", "tower.0.bias", "tower.0.weight", "tower.1.bias", "tower.1.weight"],
    }


def test_single_ones_need_no_list_and_a_modules_name_is_a_pattern():
    model = Model()
    cairn.assign(model, allreduce="tower.1")
    cairn.assign(model, server=model.embedding)
    assert of(model) == {"server": ["embedding.weight"], "allreduce": ["tower.1.bias", "tower.1.weight"]}


@pytest.mark.parametrize("swapped", [False, True])
def test_what_is_named_more_exactly_wins(swapped):
    model = Model()
    inner, outer = ("server", "allreduce") if swapped else ("allreduce", "server")
    cairn.assign(model, **{outer: [model, "*"], inner: [model.tower[0], model.head.weight]})
    assert of(model)[inner] == ["head.weight", "tower.0.bias", "tower.0.weight"]
    assert len(of(model)[outer]) == 4


@pytest.mark.parametrize("swapped", [False, True])
def test_a_child_wins_over_the_model_itself(swapped):
    model = Model()
    inner, outer = ("server", "allreduce") if swapped else ("allreduce", "server")
    cairn.assign(model, **{outer: model, inner: model.tower})
    assert of(model)[inner] == ["tower.0.bias", "tower.0.weight", "tower.1.bias", "tower.1.weight"]
    assert of(model)[outer] == ["embedding.weight", "head.bias", "head.weight"]


def test_of_two_patterns_the_one_for_allreduce_wins():
    model = Model()
    cairn.assign(model, server=["*"], allreduce=["tower.*"])
    assert of(model)["allreduce"] == ["tower.0.bias", "tower.0.weight", "tower.1.bias", "tower.1.weight"]
    assert of(model)["server"] == ["embedding.weight", "head.bias", "head.weight"]


def test_a_later_call_changes_only_what_it_names():
    model = Model()
    cairn.assign(model, allreduce=["*"])
    cairn.assign(model, server=["head.bias"])
    assert of(model)["server"] == ["head.bias"] and len(of(model)["allreduce"]) == 6


def test_auto():
    model = Model()
    model.table = cairn.nn.Embedding(100, 4)
    cairn.assign(model, "auto")
    assert of(model)["server"] == ["embedding.weight", "table.table"]
    assert len(of(model)["allreduce"]) == 6
    cairn.assign(model, "auto", server=[model.head])
    assert of(model)["server"] == ["embedding.weight", "head.bias", "head.weight", "table.table"]


def test_a_copy_keeps_it():
    model = Model()
    cairn.assign(model, allreduce=[model.tower])
    placed = placement_of(model)
    assert placement_of(copy.deepcopy(model)) == placed
    assert not any("placement" in key for key in model.state_dict())
    cairn.assign(model, server=["*"])
    assert of(model)["allreduce"] == []


def test_a_model_around_it_has_it_too():
    model = Model()
    cairn.assign(model, allreduce=[model.tower[1]])
    cairn.assign(model.tower, server=["0", "1"])  # of a part: what was said of the whole wins
    compiled = torch.compile(model)
    assert of(compiled) == {
        "server": ["_orig_mod.tower.0.bias", "_orig_mod.tower.0.weight"],
        "allreduce": ["_orig_mod.tower.1.bias", "_orig_mod.tower.1.weight"],
    }
    cairn.assign(compiled, allreduce="head.*")
    assert "_orig_mod.head.bias" in of(compiled)["allreduce"]


def test_what_is_not_of_the_model_is_refused():
    model = Model()
    for what in ("towr.*", nn.Linear(2, 2), nn.Parameter(torch.zeros(1)), nn.ReLU()):
        with pytest.raises(cairn.InvalidArgumentError, match="Its parameters are embedding.weight"):
            cairn.assign(model, server=[what])
    with pytest.raises(TypeError, match="modules, parameters and patterns"):
        cairn.assign(model, server=[3])
    with pytest.raises(cairn.InvalidArgumentError, match='"auto"'):
        cairn.assign(model, "all")
    with pytest.raises(TypeError, match="not a torch.nn.Module"):
        cairn.assign(model.parameters(), "auto")
    assert placement_of(model) == {}, "a call that is refused changes nothing"


def test_one_place_each():
    model = Model()
    with pytest.raises(cairn.InvalidArgumentError, match="tower.0.weight is in server= and in allreduce="):
        cairn.assign(model, server=[model.tower], allreduce=[model.tower])
    model.table = cairn.nn.Embedding(100, 4)
    with pytest.raises(cairn.InvalidArgumentError, match="table of rows"):
        cairn.assign(model, allreduce=[model.table])


def test_tied_parameters_go_together():
    model = Model()
    model.head = nn.Linear(4, 4)
    model.head.weight = model.tower[0].weight
    cairn.assign(model, allreduce=[model.head.weight])
    assert of(model)["allreduce"] == ["head.weight", "tower.0.weight"]
    with pytest.raises(cairn.InvalidArgumentError, match="are one parameter"):
        cairn.assign(model, server=["head.weight"])
