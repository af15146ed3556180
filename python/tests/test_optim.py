"""cairn.optim by themselves: the formulas in NumPy, element by element, and what an optimizer must
do."""
import copy

import numpy as np
import pytest
import torch
from torch import nn

import cairn
from row_references import ftrl_row, rowwise_adagrad_row

F32 = np.float32


def gradients(shape, steps=20):
    generator = torch.Generator().manual_seed(5)
    for _ in range(steps):
        yield torch.randn(shape, generator=generator)


@pytest.mark.parametrize("settings",
                         [{}, {"lr": 0.3, "eps": 1e-3, "initial_accumulator_value": 0.1}])
@pytest.mark.parametrize("shape", [(5, 3), (4,), (3, 2, 2)])
def test_rowwise_adagrad(settings, shape):
    param = nn.Parameter(torch.ones(shape))
    optimizer = cairn.optim.RowwiseAdagrad([param], **settings)
    lr, eps = settings.get("lr", 0.01), settings.get("eps", 1e-10)
    rows = param.detach().numpy().copy().reshape(shape[0], -1)
    sums = np.full(shape[0], settings.get("initial_accumulator_value", 0.0), F32)
    for grad in gradients(shape):
        param.grad = grad.clone()
        optimizer.step()
        for i, g in enumerate(grad.numpy().reshape(shape[0], -1)):
            rows[i], sums[i] = rowwise_adagrad_row(rows[i], g, sums[i], lr, eps)
    got = param.detach().numpy().reshape(shape[0], -1)
    np.testing.assert_allclose(got, rows, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("settings", [
    {}, {"lr": 0.05, "beta": 0.5, "l1": 0.4, "l2": 0.2, "initial_accumulator_value": 0.1}])
@pytest.mark.parametrize("shape", [(5, 3), ()])
def test_ftrl(settings, shape):
    param = nn.Parameter(torch.ones(shape))
    optimizer = cairn.optim.FTRL([param], **settings)
    values = {"lr": 0.1, "beta": 1.0, "l1": 0.0, "l2": 0.0, "initial_accumulator_value": 0.0,
              **settings}
    row = param.detach().numpy().copy()
    z, n = np.zeros(shape, F32), np.full(shape, values.pop("initial_accumulator_value"), F32)
    for grad in gradients(shape):
        param.grad = grad.clone()
        optimizer.step()
        row, z, n = ftrl_row(row, grad.numpy(), z, n, **values)
    np.testing.assert_allclose(param.detach().numpy(), row, rtol=1e-5, atol=1e-6)


def test_l1_makes_weights_exactly_zero():
    param = nn.Parameter(torch.ones(100))
    optimizer = cairn.optim.FTRL([param], l1=1.0)
    for grad in gradients(100, steps=3):
        param.grad = 0.3 * grad
        optimizer.step()
    assert 0 < (param == 0).sum() < 100


MAKERS = {
    "RowwiseAdagrad": lambda p, **o: cairn.optim.RowwiseAdagrad(p, lr=0.1, **o),
    "FTRL": lambda p, **o: cairn.optim.FTRL(p, lr=0.1, l1=0.01, l2=0.1, **o),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_sparse_gradients_change_only_their_rows(make):
    torch.manual_seed(0)
    sparse = nn.Embedding(8, 3, sparse=True)
    dense = copy.deepcopy(sparse)
    dense.sparse = False
    optimizers = [make(m.parameters()) for m in (sparse, dense)]
    before = sparse.weight.detach().clone()
    for ids in (torch.tensor([1, 1, 5]), torch.tensor([5, 2])):
        for module, optimizer in zip((sparse, dense), optimizers):
            optimizer.zero_grad()
            module(ids).sin().sum().backward()
            optimizer.step()
    touched = [1, 2, 5]
    untouched = [0, 3, 4, 6, 7]
    assert torch.equal(sparse.weight[untouched], before[untouched])
    if isinstance(
        optimizers[0], cairn.optim.RowwiseAdagrad):  # there a gradient of zeros changes nothing
        assert torch.allclose(sparse.weight, dense.weight)
    assert not torch.equal(sparse.weight[touched], before[touched])


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_maximize_turns_the_sign(make):
    up, down = (nn.Parameter(torch.ones(4, 2)) for _ in range(2))
    climbing, falling = make([up], maximize=True), make([down])
    for grad in gradients((4, 2), steps=4):
        up.grad, down.grad = -grad, grad.clone()
        climbing.step()
        falling.step()
    assert torch.equal(up, down)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_is_a_torch_optimizer(make):
    """Groups, state_dict, schedulers, closures, parameters without gradients."""
    params = [nn.Parameter(torch.ones(3, 2)) for _ in range(3)]
    optimizer = make([{"params": params[:1]}, {"params": params[1:], "lr": 0.5}])
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)

    def closure():
        optimizer.zero_grad()
        loss = params[0].sin().sum() + params[1].sin().sum()
        loss.backward()
        return loss

    assert float(optimizer.step(closure).detach()) > 0
    scheduler.step()
    assert optimizer.param_groups[1]["lr"] == 0.25 and torch.equal(params[2], torch.ones(3, 2))
    assert not torch.equal(params[0], params[1])
    again = [nn.Parameter(p.detach().clone()) for p in params]
    other = make([{"params": again[:1]}, {"params": again[1:], "lr": 0.5}])
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for p, q in zip(params, again):
        p.grad = q.grad = torch.full((3, 2), 0.5)
    optimizer.step()
    other.step()
    assert all(torch.equal(p, q) for p, q in zip(params, again))
    assert optimizer.state[params[0]]["step"] == 2


@pytest.mark.parametrize("make", [
    lambda p: cairn.optim.RowwiseAdagrad(
        p, lr=-1.0), lambda p: cairn.optim.RowwiseAdagrad(p, eps=float("nan")),
    lambda p: cairn.optim.FTRL(p, l1=-0.1), lambda p: cairn.optim.FTRL(p, lr=0.0),
    lambda p: cairn.optim.FTRL(p, beta=0.0)])
def test_impossible_settings_are_refused(make):
    with pytest.raises(ValueError):
        make([nn.Parameter(torch.ones(2))])
