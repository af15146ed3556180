"""cairn.nn.Embedding against torch.nn.Embedding: forward, backward, and what models do with
modules. Nobody trains here, so no server is asked (test_embedding_training.py has the rest)."""
import copy
import io
import pickle

import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

import cairn
from embedding_problems import Pair, positions, rows_of, tables, upstream


@st.composite
def problems(draw):
    table = draw(tables(bag=False))
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    calls = [positions(draw, rows_of(table), shape, table["pool"])
                       for _ in range(draw(st.integers(1, 3)))]
    return table, calls, draw(st.integers(0, 1000))


@given(problems())
def test_equals_torch(problem):
    """Several forwards, then one backward through all."""
    table, calls, seed = problem
    pair = Pair(**table)
    mine = [pair.mine(pair.ids(at)) for at in calls]
    theirs = [pair.torch(at) for at in calls]
    for a, b in zip(mine, theirs):
        assert a.shape == b.shape and torch.equal(a, b)
    for outputs in (mine, theirs):
        torch.autograd.backward(outputs, [upstream(out.shape, seed + i)
                                for i, out in enumerate(outputs)])
    pair.check_gradient(torch.cat([at.reshape(-1) for at in calls]))


def module(rows=10, dim=4, **options):
    return cairn.nn.Embedding(rows, dim, **options)


def pair(rows=10, dim=4, padding=None, **options):
    return Pair(False, None, dim, padding, rows=rows, **options)


def test_gradients_are_divided_by_how_often_an_id_is_there():
    both = pair(scale_grad_by_freq=True)
    ids = torch.tensor([[1, 1, 1, 2], [2, 3, 1, 1]])
    for module in (both.mine, both.torch):
        module(ids).sin().sum().backward()
    both.check_gradient(ids)


IDS = torch.tensor([[1, 2, 1], [0, 9, 2]])


# Ids.
@pytest.mark.parametrize("bad", [-1, 10, 2**40])
def test_an_id_out_of_range_is_torchs_error(bad):
    both = pair()
    with pytest.raises(IndexError) as torchs:
        both.torch(torch.tensor([0, bad]))
    with pytest.raises(IndexError, match=f"{torchs.value}.*id {bad} .*num_embeddings=None"):
        both.mine(torch.tensor([0, bad]))


def test_negative_and_unsigned_keys_are_the_same_bits():
    table = module(None)
    signed = table(torch.tensor([-1, -(2**63), 7]))
    unsigned = table(torch.tensor([2**64 - 1, 2**63, 7], dtype=torch.uint64))
    assert torch.equal(signed, unsigned)
    assert len(set(signed.reshape(-1).tolist())) == 12


@pytest.mark.parametrize("dtype", [torch.float32, torch.int16, torch.bool])
def test_ids_of_a_wrong_type_are_refused(dtype):
    with pytest.raises(RuntimeError, match=r"Long, Int.*\.long\(\)"):
        module()(torch.zeros(3, dtype=dtype))


def test_ids_that_are_no_tensor_are_refused():
    with pytest.raises(TypeError, match="as_tensor"):
        module()([1, 2])


@pytest.mark.parametrize("ids", [torch.arange(6).reshape(2, 3).t(), torch.arange(10)[::3],
                                 torch.tensor(4), torch.empty(2, 0, 3, dtype=torch.long)])
def test_views_scalars_and_nothing(ids):
    both = pair()
    assert torch.equal(both.mine(ids), both.torch(ids))


# Initial values.
def test_initial_values_are_normal_and_depend_on_name_and_seed():
    keys = torch.arange(20_000)
    values = module(None, 16, name="a-normal")(keys)
    assert abs(values.mean().item()) < 0.01 and abs(values.std().item() - 1) < 0.01
    assert torch.equal(values, module(None, 16, name="a-normal")(keys))
    assert not torch.equal(values, module(None, 16, name="another")(keys))
    del values
    seeded = module(None, 16, name="seeded", seed=1)(keys)
    assert not torch.equal(seeded, module(None, 16, name="unseeded", seed=0)(keys))


def test_other_initial_values():
    keys = torch.arange(5000)
    uniform = module(None, 8, init=("uniform", -0.25, 0.5))(keys)
    assert -0.25 <= uniform.min() < -0.24 and 0.49 < uniform.max() < 0.5
    assert not module(None, 8, init="zeros")(keys).any()
    assert torch.equal(module(None, 8, init=2.5)(keys), torch.full((5000, 8), 2.5))
    with pytest.raises(cairn.InvalidArgumentError, match="normal"):
        module(init=("gamma", 1, 2))


def test_no_server_is_asked_before_somebody_trains():
    with pytest.raises(cairn.NotInitializedError):
        cairn.rank()
    table = module(None)
    table(torch.tensor([3])).sum().backward()
    assert table.table.rows_of.table is None


# Gradients.
def test_two_forwards_before_a_backward_and_retain_graph():
    both = pair()
    for table in (both.mine, both.torch):
        first, second = table(IDS), table(IDS[0])
        loss = (first.sin().sum() + second.cos().sum())
        loss.backward(retain_graph=True)
        loss.backward()
    both.check_gradient(IDS)


def test_gradients_accumulate_over_backwards_with_other_ids():
    both = pair()
    for ids in (IDS, torch.tensor([5, 5, 1]), IDS[1]):
        for table in (both.mine, both.torch):
            table(ids).sin().sum().backward()
        both.check_gradient(torch.arange(10)[both.torch.weight.grad.any(1)])


def test_zero_grad_between_forward_and_backward_clears_only_what_is_filed():
    both = pair()
    for table, optimizer in ((both.mine, torch.optim.SGD(both.mine.parameters(), 0.1)),
                             (both.torch, torch.optim.SGD(both.torch.parameters(), 0.1))):
        table(torch.tensor([7])).sum().backward()
        out = table(IDS)
        optimizer.zero_grad()
        assert next(table.parameters()).grad is None
        out.sin().sum().backward()
    both.check_gradient(IDS)


def test_zero_grad_that_leaves_zeros_does_not_drag_keys_along():
    table = module()
    for ids in (IDS, torch.tensor([7])):
        table(ids).sum().backward()
        torch.optim.SGD(table.parameters(), 0.1).zero_grad(set_to_none=False)
        assert table.table.grad is None
    table(torch.tensor([3])).sum().backward()
    keys, rows = table.table.rows_of.filed()
    assert keys.tolist() == [3] and torch.equal(rows, torch.ones(1, 4))


def test_a_gradient_of_zeros_that_was_looked_at_still_counts():
    table = module()
    (table(torch.tensor([1, 2])) * 0).sum().backward()
    assert table.table.grad.norm() == 0
    table(torch.tensor([7])).sum().backward()
    assert sorted(table.table.rows_of.filed()[0].tolist()) == [1, 2, 7]


def test_the_gradient_is_a_tensor_that_may_be_changed_in_place():
    table = module()
    table(IDS).sum().backward()
    table(torch.tensor([1])).sum().backward()
    grad = table.table.grad
    assert grad is table.table.grad and grad.shape == (4, 4)
    grad.mul_(2)
    torch.nn.utils.clip_grad_value_(table.parameters(), 5.0)
    keys, rows = table.table.rows_of.filed()
    assert dict(zip(keys.tolist(), rows[:, 0].tolist())) == {1: 5.0, 2: 4.0, 0: 2.0, 9: 2.0}
    table.table.grad = table.table.grad / 2
    table(torch.tensor([9])).sum().backward()
    keys, rows = table.table.rows_of.filed()
    assert dict(zip(keys.tolist(), rows[:, 0].tolist())) == {1: 2.5, 2: 2.0, 0: 1.0, 9: 2.0}
    with pytest.raises(RuntimeError, match="in place"):
        table.table.grad = torch.zeros(1, 4)
    del table.table.grad
    assert table.table.grad is None and table.table.rows_of.filed() is None


def test_clipping_by_norm_counts_each_row_once():
    both = pair()
    norms = []
    for table in (both.mine, both.torch):
        table(IDS).sin().sum().backward()
        norms.append(torch.nn.utils.clip_grad_norm_(table.parameters(), 0.5))
    torch.testing.assert_close(*norms)
    both.check_gradient(IDS)


def test_padding_gets_no_gradient_and_is_zero():
    both = pair(padding=-1)
    ids = torch.tensor([9, 1, 9])
    assert both.mine.padding_idx == 9 and not both.mine(ids)[0].any()
    for table in (both.mine, both.torch):
        table(ids).sin().sum().backward()
        table(torch.tensor([9])).sum().backward()  # nothing but padding
    both.check_gradient(ids)


@pytest.mark.parametrize("padding", [2**64 - 1, -1])
def test_padding_of_an_unbounded_table_is_a_key(padding):
    table = module(None, padding_idx=padding)
    out = table(torch.tensor([-1, 4]))
    out.sum().backward()
    assert not out[0].any() and table.table.rows_of.filed()[0].tolist() == [4]


def test_padding_out_of_range_is_torchs_error():
    for kind in (cairn.nn.Embedding, nn.Embedding):
        with pytest.raises(AssertionError, match="within num_embeddings"):
            kind(5, 3, padding_idx=5)


def test_double_backward():
    both = pair()
    for table in (both.mine, both.torch):
        x = torch.ones(4, requires_grad=True)
        (grad,) = torch.autograd.grad((table(IDS) * x).sin().sum(), x, create_graph=True)
        grad.pow(2).sum().backward()
    both.check_gradient(IDS)


def test_frozen_tables_file_nothing():
    table = module()
    table.requires_grad_(False)
    assert not table(IDS).requires_grad
    frozen_later = module()
    out = frozen_later(IDS)
    frozen_later.table.requires_grad_(True)
    out.sum().backward()
    assert table.table.grad is None and frozen_later.table.grad is not None
    assert not cairn.nn.Embedding(5, 3, _freeze=True)(torch.tensor([1])).requires_grad


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients(mode):
    both = pair()
    both.mine.eval()
    with mode():
        assert torch.equal(both.mine(IDS), both.torch(IDS)) and not both.mine(IDS).requires_grad
    # What was read there may be used for training.
    for table in (both.mine, both.torch):
        table(IDS).sin().sum().backward()
    both.check_gradient(IDS)


def test_ids_that_were_made_in_inference_mode():
    with torch.inference_mode():
        ids = IDS + 0
    both = pair()
    for table in (both.mine, both.torch):
        (table(ids) if table is both.mine else table(IDS)).sin().sum().backward()
    both.check_gradient(IDS)


# In models.
def head(table):
    torch.manual_seed(0)
    return nn.Sequential(table, nn.Linear(4, 2), nn.Tanh())


def test_in_a_sequential():
    both = pair()
    mine, theirs = head(both.mine), head(both.torch)
    for model in (mine, theirs):
        model(IDS).sum().backward()
    both.check_gradient(IDS)
    assert torch.equal(mine[1].weight.grad, theirs[1].weight.grad)
    assert dict(mine.named_parameters()).keys() == {"0.table", "1.weight", "1.bias"}


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing(reentrant):
    both = pair()
    for table in (both.mine, both.torch):
        model, scale = head(table), torch.ones(1, requires_grad=True)
        checkpoint(lambda s: model(IDS) * s, scale, use_reentrant=reentrant).sin().sum().backward()
    both.check_gradient(IDS)


def test_compiled():
    both = pair()
    for table in (both.mine, both.torch):
        model = torch.compile(head(table), backend="aot_eager")
        for _ in range(2):
            model(IDS).sum().backward()
        with torch.no_grad():
            assert torch.equal(model(IDS), head(table)(IDS))
    both.check_gradient(IDS)


def test_autocast():
    both = pair()
    for table in (both.mine, both.torch):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = head(table)(IDS)
        assert out.dtype == torch.bfloat16
        out.float().sum().backward()
    both.check_gradient(IDS)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_rows_come_in_the_modules_dtype(dtype):
    both = pair()
    handle = both.mine.table
    both.mine.to(dtype)
    both.torch.to(dtype)
    assert both.mine.table is handle
    out = both.mine(IDS)
    assert out.dtype == dtype and torch.equal(out, both.torch(IDS))
    for table in (both.mine, both.torch):
        table(IDS).sum().backward()
    assert handle.grad.dtype == dtype
    both.check_gradient(IDS)
    assert module(dtype=dtype)(IDS).dtype == dtype
    both.mine.float()
    assert both.mine(IDS).dtype == torch.float32 and handle.grad.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_torchs_default_dtype_is_that_of_the_module(dtype):
    expected = module(None, 4, name="default-dtype")(IDS)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        table = module(None, 4, name="default-dtype", padding_idx=1)
        out = table(IDS)
        out.sum().backward()
        table.load_rows(torch.tensor([5]), torch.ones(1, 4))
        assert out.dtype == dtype and table.table.grad.dtype == dtype
        assert table.table.rows_of.filed()[1].dtype == torch.float32 == table.export()[1].dtype
    finally:
        torch.set_default_dtype(before)
    assert torch.equal(out[1], expected.to(dtype)[1])


def test_torchs_default_device_does_not_matter():
    ids, bag = IDS.reshape(-1), torch.tensor([0, 2])
    with torch.device("meta"):  # tensors without memory, where no device is named
        table = module(10, device="cpu", padding_idx=2)
        table(ids).sum().backward()
        cairn.nn.EmbeddingBag(10, 4, device="cpu", padding_idx=2)(ids, bag).sum().backward()
        assert table.state_dict()["weight"].device.type == "cpu" and table.table.rows_of.filed()[
                                0].is_cpu
        assert table.export()[0].is_cpu and module(None, device="cpu").export()[0].is_cpu
        assert module(10)(ids).is_meta


def test_integer_rows_are_refused():
    with pytest.raises(TypeError, match="floating point"):
        module(dtype=torch.int32)


@pytest.mark.parametrize("swap", [True, False])
def test_the_handle_stays_the_same_object(swap):
    table = module()
    handle = table.table
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(swap)
    try:
        nn.Sequential(table).double().cpu().float()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)
    assert table.table is handle and type(handle).__name__ == "TableHandle"
    assert table(IDS).requires_grad


def test_a_deepcopy_has_the_same_rows_and_its_own_gradient():
    model = head(module())
    model(IDS).sum().backward()
    other = copy.deepcopy(model)
    assert other[0].table is not model[0].table and torch.equal(other(IDS), model(IDS))
    assert other[0].table.grad is None
    other.requires_grad_(False)
    assert model[0].table.requires_grad and not other[0](IDS).requires_grad
    other.requires_grad_(True)
    other[0](torch.tensor([3])).sum().backward()
    assert other[0].table.grad.shape == (1, 4) and model[0].table.grad.shape == (4, 4)
    memo = {}
    assert copy.deepcopy(model[0].table, memo) is copy.deepcopy(model[0].table, memo)


def test_pickling_is_refused_with_advice():
    for save in (pickle.dumps, lambda model: torch.save(model, io.BytesIO())):
        with pytest.raises(TypeError, match=r"state_dict\(\).*export\(\)"):
            save(head(module()))


def test_the_weight_is_not_here():
    table = module()
    assert not hasattr(table, "weight")
    with pytest.raises(AttributeError, match=r"on the servers.*\.table.*export\(\)"):
        table.weight
    with pytest.raises(AttributeError, match="load_rows"):
        table.weight = nn.Parameter(torch.zeros(10, 4))


def test_max_norm_is_refused_with_advice():
    for kind in (cairn.nn.Embedding, cairn.nn.EmbeddingBag):
        with pytest.raises(cairn.InvalidArgumentError, match="max_norm.*clip"):
            kind(10, 4, max_norm=1.0)
    with pytest.raises(cairn.InvalidArgumentError, match="max_norm"):
        cairn.nn.Embedding.from_torch(nn.Embedding(3, 2, max_norm=1.0))


@pytest.mark.parametrize("arguments", [(10, 0), (-1, 3), (None, -2)])
def test_impossible_sizes_are_refused(arguments):
    with pytest.raises(cairn.InvalidArgumentError, match="num_embeddings=None"):
        cairn.nn.Embedding(*arguments)


def test_repr_says_what_it_is():
    text = repr(cairn.nn.Embedding(None, 4, padding_idx=3, scale_grad_by_freq=True, name="seen"))
    assert text == "Embedding(None, 4, padding_idx=3, scale_grad_by_freq=True, name='seen')"
    assert "'seen'" in repr(cairn.nn.Embedding(None, 4, name="seen").table)
