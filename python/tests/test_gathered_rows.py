"""cairn.nn's own gather against index_select: the same bits, forwards, backwards and twice."""
import pytest
import torch

from cairn import InvalidArgumentError, _core
from cairn.nn.gathered_rows import gathered


def both(dim, rows=7, ids=23, dtype=torch.float32):
    generator = torch.Generator().manual_seed(dim)
    values = torch.randn(rows, dim, generator=generator, dtype=torch.float64).to(dtype)
    places = torch.randint(rows, (ids,), generator=generator)
    scale = torch.randn(ids, dim, generator=generator, dtype=torch.float64).to(dtype)
    found = []
    for gather in (gathered, lambda leaf, at: leaf.index_select(0, at)):
        leaf = values.clone().requires_grad_()
        out = gather(leaf, places)
        (first,) = torch.autograd.grad((out.pow(3) * scale).sum(), leaf, create_graph=True)
        (second,) = torch.autograd.grad(first.pow(2).sum(), leaf)
        found.append((out.detach(), first.detach(), second))
    return found


@pytest.mark.parametrize("dim", [1, 3, 8, 16, 37])
def test_same_bits_as_index_select(dim):
    for mine, torchs in zip(*both(dim)):
        assert torch.equal(mine, torchs)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types_are_torchs(dtype):
    for mine, torchs in zip(*both(4, dtype=dtype)):
        assert torch.equal(mine, torchs)


def test_a_gradient_that_is_not_contiguous():
    leaf = torch.randn(3, 4, requires_grad=True)
    gathered(leaf, torch.tensor([2, 0, 2])).t().sum(1).sum().backward()
    assert leaf.grad.tolist() == [[1] * 4, [0] * 4, [2] * 4]


def test_no_ids():
    leaf = torch.randn(3, 4, requires_grad=True)
    gathered(leaf, torch.empty(0, dtype=torch.int64)).sum().backward()
    assert not leaf.grad.any()


@pytest.mark.parametrize("place", [3, -1])
def test_a_place_that_is_not_there(place):
    with pytest.raises(InvalidArgumentError, match="a place is not among the 3 rows"):
        gathered(torch.randn(3, 4), torch.tensor([place]))


def test_finiteness_of_many_arrays():
    arrays = [torch.ones(5), torch.ones(1000)]

    def finite():
        return _core.all_finite([a.data_ptr() for a in arrays], [a.numel() for a in arrays])

    assert finite() and _core.all_finite([], [])
    for bad in (float("nan"), float("inf"), -float("inf")):
        arrays[1][999] = bad
        assert not finite()
