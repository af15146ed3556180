"""cairn.nn.EmbeddingCollection: what its modules return one by one, in one round trip."""
import copy

import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

import cairn
from cairn.nn import Embedding, EmbeddingBag, EmbeddingCollection
from embedding_problems import KEYS
from round_trips import RoundTrips


def collection(**more):
    return EmbeddingCollection({"user": Embedding(None, 4), "item": Embedding(50, 3, padding_idx=0),
                                "tags": EmbeddingBag(None, 2, mode="sum"), **more})


IDS = {"user": torch.tensor([7, -7, 7]), "item": torch.tensor([[0, 3], [3, 49]]),
       "tags": (torch.tensor([1, 2, 1]), torch.tensor([0, 2]))}


def gradients(module):
    filed = module.table.rows_of.filed()
    return {} if filed is None else dict(zip(filed[0].tolist(), filed[1].tolist()))


@st.composite
def all_ids(draw):
    lists = st.lists(KEYS | st.integers(0, 5), max_size=8)
    bags = draw(lists)
    return {"user": torch.tensor(draw(lists), dtype=torch.int64),
            "item": torch.tensor(draw(st.lists(st.integers(0, 49), max_size=8)), dtype=torch.int64),
            "tags": (torch.tensor(bags, dtype=torch.int64), torch.tensor([0, len(bags) // 2]),
                     torch.arange(float(len(bags))))}


@given(all_ids())
def test_equals_its_modules(ids):
    together, apart = collection(), None
    apart = copy.deepcopy(together)  # the same rows
    out = together(ids)
    expected = {name: apart[name](*(value if isinstance(value, tuple) else (value,)))
                for name, value in ids.items()}
    assert list(out) == list(ids) and all(torch.equal(out[name], expected[name]) for name in ids)
    for result in (out, expected):
        sum(tensor.sin().sum() for tensor in result.values()).backward()
    assert all(gradients(together[name]) == gradients(apart[name]) for name in ids)


def test_names_may_be_left_out_and_unknown_ones_are_refused():
    assert list(collection()({"item": IDS["item"]})) == ["item"]
    assert collection()({}) == {}
    with pytest.raises(cairn.InvalidArgumentError, match="no 'shop': it has user, item, tags"):
        collection()({"shop": IDS["user"]})
    with pytest.raises(IndexError, match="index out of range"):
        collection()({"item": torch.tensor([50])})


def test_other_modules_are_refused():
    with pytest.raises(TypeError, match="cairn.nn.Embedding"):
        EmbeddingCollection({"user": nn.Embedding(3, 4)})


def test_is_a_module():
    rows = collection()
    assert rows["user"] is dict(rows.named_modules())["user"]
    names = [name for name, _ in rows.named_parameters()]
    assert names == ["user.table", "item.table", "tags.table"]
    assert rows.state_dict().keys() == {"item.weight"}
    with torch.inference_mode():
        assert not rows(IDS)["user"].requires_grad
    rows(IDS)["user"].sum().backward()
    compiled = torch.compile(rows, backend="aot_eager")
    assert all(torch.equal(a, b) for a, b in zip(compiled(IDS).values(), rows(IDS).values()))


def test_two_names_of_one_table():
    first = Embedding(None, 4)
    rows = EmbeddingCollection({"buyer": first, "seller": first})
    out = rows({"buyer": torch.tensor([1, 2]), "seller": torch.tensor([2, 3])})
    (out["buyer"].sum() + out["seller"].sum()).backward()
    assert {key: row[0] for key, row in gradients(first).items()} == {1: 1.0, 2: 2.0, 3: 1.0}


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("mode", [cairn.Sync(), cairn.Async()], ids=["sync", "async"])
def test_twenty_tables_are_read_in_one_round_trip(servers, mode):
    cairn.init(servers=servers, threads=1)
    try:
        rows = EmbeddingCollection({f"t{i}": Embedding(None, 4) for i in range(20)})
        optimizer = cairn.DistributedOptimizer(
            torch.optim.SGD(rows.parameters(), lr=0.1), mode=mode)
        ids = {name: torch.arange(100) for name in rows}

        def step():
            optimizer.zero_grad()
            sum(out.sum() for out in rows(ids).values()).backward()
            optimizer.step()

        step()
        trips = RoundTrips()
        for _ in range(3):
            step()
        assert trips.taken() == [6] * servers  # one to read, one to write
        for _ in range(3):
            step()
            with torch.no_grad():
                for name, module in rows.items():
                    module(ids[name][:50])
        assert trips.taken() == [6 + 60] * servers  # one by one
        assert torch.allclose(rows["t3"](ids["t3"]), Embedding.forward(rows["t3"], ids["t3"]))
    finally:
        cairn.shutdown()
