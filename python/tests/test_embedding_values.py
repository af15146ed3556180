"""Names, values and files of cairn.nn tables: who shares rows, state_dict, export, from_torch. Nobody
trains here, so no server is asked."""
import warnings

import pytest
import torch
from torch import nn

import cairn
from embedding_problems import Pair


def module(rows=10, dim=4, **options):
    return cairn.nn.Embedding(rows, dim, **options)


def pair(rows=10, dim=4, padding=None, **options):
    return Pair(False, None, dim, padding, rows=rows, **options)


def head(table):
    torch.manual_seed(0)
    return nn.Sequential(table, nn.Linear(4, 2), nn.Tanh())


IDS = torch.tensor([[1, 2, 1], [0, 9, 2]])


# Names.
def test_unnamed_tables_are_numbered_in_order():
    first, second = module(), module()
    stem, number = first.name.split("-")
    assert stem == "embedding" and second.name == f"embedding-{int(number) + 1}"


def test_a_name_that_an_unnamed_table_could_get_is_refused():
    with pytest.raises(cairn.InvalidArgumentError, match="choose another name"):
        module(name="embedding-7")


def test_modules_of_one_name_share_rows_and_gradient():
    first = module(None, name="shared")
    second = cairn.nn.EmbeddingBag(None, 4, name="shared", mode="sum")
    model = nn.ModuleList([first, second])
    assert len(list(model.parameters())) == 1
    first(torch.tensor([1, 2])).sum().backward()
    second(torch.tensor([[2, 3]])).sum().backward()
    keys, rows = first.table.rows_of.filed()
    assert dict(zip(keys.tolist(), rows[:, 0].tolist())) == {1: 1.0, 2: 2.0, 3: 1.0}
    with pytest.raises(cairn.InvalidArgumentError, match="another name"):
        module(None, 8, name="shared")
    with pytest.raises(cairn.InvalidArgumentError, match="another name"):
        module(None, 4, name="shared", init="zeros")
    for options in ({"dtype": torch.bfloat16}, {"device": "meta"}, {"_freeze": True}):
        with pytest.raises(cairn.InvalidArgumentError, match="for all modules that share it"):
            module(None, 4, name="shared", **options)
    assert module(None, 4, name="shared", dtype=torch.float32, device="cpu").table is first.table


def test_a_table_is_shared_by_its_handle():
    first, second = module(None), module(None)
    second.table = first.table
    assert torch.equal(first(IDS), second(IDS)) and second.name == first.name


# Values.
def test_state_dict_has_torchs_format_and_loads_both_ways():
    both = pair(padding=2)
    theirs = nn.Embedding(10, 4, padding_idx=2)
    head_of_theirs, head_of_mine = head(theirs), head(both.mine)
    head_of_mine.load_state_dict(head_of_theirs.state_dict())
    assert torch.equal(head_of_mine(IDS), head_of_theirs(IDS))
    third = head(module(padding_idx=2))
    third.load_state_dict(head_of_mine.state_dict())
    assert torch.equal(third(IDS), head_of_mine(IDS))
    assert head_of_mine.state_dict().keys() == head_of_theirs.state_dict().keys()


def test_state_dicts_that_do_not_fit():
    model = head(module())
    state = model.state_dict()
    with pytest.raises(RuntimeError, match="size mismatch for 0.weight"):
        model.load_state_dict({**state, "0.weight": torch.zeros(10, 5)})
    del state["0.weight"]
    with pytest.raises(RuntimeError, match='Missing key.*"0.weight"'):
        model.load_state_dict(state)
    assert model.load_state_dict(state, strict=False).missing_keys == ["0.weight"]
    with pytest.raises(RuntimeError, match='Unexpected key.*"0.other"'):
        model.load_state_dict({**model.state_dict(), "0.other": torch.zeros(1)})


def test_unbounded_rows_are_not_in_a_state_dict_and_loading_says_so():
    model = head(module(None))
    state = model.state_dict()
    assert state.keys() == {"1.weight", "1.bias"}
    with pytest.warns(UserWarning, match=r"unbounded.*export\(\).*load_rows"):
        model.load_state_dict(state)
    with pytest.raises(RuntimeError, match=r"0.weight.*unbounded.*export\(\)"):
        model.load_state_dict({**state, "0.weight": torch.zeros(3, 4)})


def test_export_and_load_rows():
    table = module(None)
    assert [part.shape for part in table.export()] == [(0,), (0, 4)]
    values = torch.arange(12.0).reshape(3, 4)
    table.load_rows(torch.tensor([5, -2, 5]), values)  # the last one counts
    table.load_rows(torch.tensor([2**63], dtype=torch.uint64), values[:1])
    keys, rows = table.export()
    assert keys.tolist() == [-(2**63), -2, 5] and torch.equal(rows, values[[0, 1, 2]])
    assert torch.equal(table(torch.tensor([-2, 5])), values[1:])
    assert table(torch.tensor([5, 6]))[1].any()  # an initial value beside a loaded one
    with pytest.raises(cairn.InvalidArgumentError, match=r"\(2, 4\) is expected"):
        table.load_rows(torch.tensor([1, 2]), values)
    with pytest.raises(IndexError, match="0 to 9"):
        module().load_rows(torch.tensor([10]), values[:1])


def test_from_pretrained():
    values = torch.randn(6, 3)
    table = cairn.nn.Embedding.from_pretrained(values, padding_idx=2)
    assert torch.equal(table(torch.arange(6)), values) and not table.table.requires_grad
    assert cairn.nn.Embedding.from_pretrained(values, freeze=False).table.requires_grad
    values[0] = 0  # a copy was taken
    assert table(torch.tensor(0)).any()
    with pytest.raises(AssertionError, match="2-dimensional"):
        cairn.nn.Embedding.from_pretrained(values[0])
    with pytest.raises(AssertionError, match="Shape of weight"):
        cairn.nn.Embedding(7, 3, _weight=values)


def test_from_torch():
    theirs = nn.Embedding(6, 3, padding_idx=1, scale_grad_by_freq=True,
                          sparse=True, dtype=torch.bfloat16).eval()
    theirs.weight.requires_grad_(False)
    mine = cairn.nn.Embedding.from_torch(theirs, name="from-torch")
    assert torch.equal(mine(torch.arange(6)), theirs(torch.arange(6)))
    assert (mine.padding_idx, mine.scale_grad_by_freq, mine.sparse) == (1, True, True)
    assert not mine.training and not mine.table.requires_grad and mine.name == "from-torch"
    with pytest.raises(TypeError, match="EmbeddingBag"):
        cairn.nn.Embedding.from_torch(nn.EmbeddingBag(3, 2))


def test_a_plain_optimizer_is_told_to_be_wrapped():
    for ids in (IDS, torch.tensor([3])):  # of one row torch would say nothing
        table = module()
        optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
        optimizer.step()  # nothing to do
        table(ids).sum().backward()
        with pytest.raises(cairn.Error, match="cairn.DistributedOptimizer"):
            optimizer.step()


def test_there_are_no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = head(module())
        model(IDS).sum().backward()
        model.load_state_dict(model.state_dict())
