"""cairn.nn.EmbeddingBag against torch.nn.EmbeddingBag."""
import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

import cairn
from embedding_problems import Pair, positions, rows_of, tables, upstream


@st.composite
def problems(draw):
    mode = draw(st.sampled_from(["sum", "mean", "max"]))
    table = {**draw(tables(bag=True)), "mode": mode, "include_last_offset": draw(st.booleans())}
    if draw(st.booleans()):
        shape = (draw(st.integers(0, 4)), draw(st.integers(1, 4)))
        at, offsets = positions(draw, rows_of(table), shape, table["pool"]), None
        table["include_last_offset"] = False  # nor this
    else:
        lengths = draw(st.lists(st.integers(0, 4), min_size=1, max_size=5))
        at = positions(draw, rows_of(table), (sum(lengths),), table["pool"])
        ends = torch.tensor(lengths).cumsum(0)
        offsets = torch.cat((torch.zeros(1, dtype=torch.int64), ends))
        offsets = (offsets if table["include_last_offset"] else offsets[:-1]).to(at.dtype)
        if table["include_last_offset"] and table["padding"] is not None:
            offsets[-1] -= draw(st.integers(0, lengths[-1]))  # the last bag has the rest all the same
    weighted = mode == "sum" and draw(st.booleans())
    return table, at, offsets, weighted, draw(st.integers(0, 1000))


@given(problems())
def test_equals_torch(problem):
    table, at, offsets, weighted, seed = problem
    pair = Pair(**table)
    outputs, weights = [], []
    for module, ids in ((pair.mine, pair.ids(at)), (pair.torch, at)):
        weights.append(upstream(at.shape, seed + 1).requires_grad_() if weighted else None)
        out = module(ids, offsets, per_sample_weights=weights[-1])
        out.backward(upstream(out.shape, seed))
        outputs.append(out)
    assert outputs[0].shape == outputs[1].shape
    torch.testing.assert_close(*outputs, rtol=1e-6, atol=1e-6)
    if weighted:
        torch.testing.assert_close(weights[0].grad, weights[1].grad, rtol=1e-5, atol=1e-6)
    pair.check_gradient(at)


def bags(mode="sum", rows=10, padding=None, **options):
    return Pair(True, None, 4, padding, rows=rows, mode=mode, **options)


IDS, OFFSETS = torch.tensor([1, 2, 1, 9, 3]), torch.tensor([0, 3, 3])


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_empty_bags_are_zero(mode):
    both = bags(mode)
    for ids, offsets in ((IDS, OFFSETS), (IDS[:0], torch.tensor([0, 0]))):
        mine, theirs = both.mine(ids, offsets), both.torch(ids, offsets)
        assert torch.equal(mine, theirs) and not mine[1].any()
        mine.sum().backward()
        theirs.sum().backward()
    both.check_gradient(IDS)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_skip_the_padding(mode):
    both = bags(mode, padding=1)
    ids = torch.tensor([1, 2, 1, 1, 1])
    for module in (both.mine, both.torch):
        module(ids, torch.tensor([0, 3])).sin().sum().backward()
    assert torch.equal(both.mine(ids, torch.tensor([0, 3])), both.torch(ids, torch.tensor([0, 3])))
    both.check_gradient(ids)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("ids", [[0, 1], [0, 1, 3], [0, 1, 2, 1]])
def test_ids_behind_the_last_offset_are_the_last_bags(mode, ids):
    """torch's test of its issue 89677, with padding that is in the batch and that is not."""
    both = bags(mode, padding=3, include_last_offset=True)
    ids, offsets = torch.tensor(ids), torch.tensor([0, 1, 1])
    outputs = [module(ids, offsets) for module in (both.mine, both.torch)]
    assert torch.equal(*outputs) and outputs[0][1].any()
    for out in outputs:
        out.sin().sum().backward()
    both.check_gradient(ids)
    assert offsets.tolist() == [0, 1, 1]
    for module in (both.mine, both.torch):
        with pytest.raises(RuntimeError, match="offsets"):
            module(ids, torch.tensor([0, 9]))


def test_weights_get_their_gradient_from_a_frozen_table_too():
    both = bags()
    both.mine.requires_grad_(False)
    both.torch.weight.requires_grad_(False)
    weights = [torch.arange(5.0, requires_grad=True) for _ in range(2)]
    for module, weight in zip((both.mine, both.torch), weights):
        module(IDS, OFFSETS, weight).sin().sum().backward()
    assert torch.allclose(weights[0].grad, weights[1].grad) and both.mine.table.grad is None


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_gradients_are_scaled_by_frequency(mode):
    """torch 2.13 itself divides by the counts of other ids than it says: compared with what it
    says."""
    both = bags(mode, padding=9)
    both.mine.scale_grad_by_freq = True
    ids, offsets = torch.tensor([1, 2, 1, 9, 3, 2, 1, 1]), torch.tensor([0, 3, 3])
    for module in (both.mine, both.torch):
        module(ids, offsets).sin().sum().backward()
    both.torch.weight.grad[1] /= 4
    both.torch.weight.grad[2] /= 2
    both.check_gradient(ids)
    for kind in (cairn.nn.EmbeddingBag, nn.EmbeddingBag):
        with pytest.raises(ValueError, match="max mode"):
            kind(10, 4, mode="max", scale_grad_by_freq=True)(IDS, OFFSETS)


@pytest.mark.parametrize("call", [
    lambda bag: bag(IDS),  # no offsets
    lambda bag: bag(IDS.reshape(1, 5), OFFSETS),  # two ways of saying where bags are
    lambda bag: bag(IDS, torch.tensor([1, 3])),  # the first bag does not begin at 0
    lambda bag: bag(IDS, OFFSETS, torch.ones(3)),  # too few weights
    lambda bag: bag(IDS.reshape(1, 1, 5)),
])
def test_torchs_errors_are_ours(call):
    both = bags()
    with pytest.raises(Exception) as torchs:
        call(both.torch)
    with pytest.raises(type(torchs.value)) as ours:
        call(both.mine)
    assert str(ours.value) == str(torchs.value)


def test_weights_are_for_sums_only():
    for module in (bags("mean").mine, bags("mean").torch):
        with pytest.raises(NotImplementedError, match="per_sample_weights"):
            module(IDS, OFFSETS, torch.ones(5))


def test_an_unknown_mode_is_refused():
    with pytest.raises(cairn.InvalidArgumentError, match='"sum", "mean" or "max"'):
        cairn.nn.EmbeddingBag(10, 4, mode="median")


def test_an_id_out_of_range_is_torchs_error():
    with pytest.raises(IndexError, match="index out of range"):
        bags().mine(torch.tensor([[10]]))


def test_the_default_is_the_mean_as_in_torch():
    assert cairn.nn.EmbeddingBag(10, 4).mode == nn.EmbeddingBag(10, 4).mode == "mean"


def test_the_padding_row_of_a_state_dict_is_zero_as_in_torch():
    assert not bags(padding=3).mine.state_dict()["weight"][3].any()


def test_from_torch_and_from_pretrained():
    theirs = nn.EmbeddingBag(6, 3, mode="max", padding_idx=2, include_last_offset=True).eval()
    mine = cairn.nn.EmbeddingBag.from_torch(theirs)
    ids, offsets = torch.tensor([0, 2, 5]), torch.tensor([0, 1, 3])
    assert torch.equal(mine(ids, offsets), theirs(ids, offsets)) and not mine.training
    values = torch.randn(6, 3)
    frozen = cairn.nn.EmbeddingBag.from_pretrained(values, mode="sum", padding_idx=1)
    expected = nn.EmbeddingBag.from_pretrained(values, mode="sum", padding_idx=1)
    assert torch.equal(frozen(ids.view(1, 3)), expected(ids.view(1, 3)))
    assert not frozen.table.requires_grad
    with pytest.raises(TypeError, match="torch.nn.EmbeddingBag"):
        cairn.nn.EmbeddingBag.from_torch(nn.Embedding(3, 2))


def test_compiled_and_in_half_precision():
    both = bags()
    model = torch.compile(both.mine, backend="aot_eager")
    assert torch.equal(model(IDS, OFFSETS), both.torch(IDS, OFFSETS))
    both.mine.bfloat16()
    both.torch.bfloat16()
    assert torch.equal(both.mine(IDS, OFFSETS), both.torch(IDS, OFFSETS))
