"""What DistributedOptimizer refuses, and in which words: at the wrap where it can."""
import pytest
import torch
from torch import nn

import cairn
from optimizer_workers.problems import assert_same, backward, batch, copied, net, train

pytestmark = pytest.mark.usefixtures("worker")


class MySGD(torch.optim.SGD):
    pass


def sgd(params):
    return torch.optim.SGD(params, lr=0.1)


WRAPS = {
    "LBFGS": (lambda p: torch.optim.LBFGS(p), {}, ValueError, "LBFGS"),
    "LBFGS on workers": (lambda p: torch.optim.LBFGS(p), {"update": "worker"}, ValueError, "LBFGS"),
    "a subclass": (lambda p: MySGD(p, lr=0.1), {}, ValueError, 'no MySGD.*update="worker"'),
    "NAdam": (lambda p: torch.optim.NAdam(p), {}, ValueError, 'no NAdam.*update="worker"'),
    "differentiable": (lambda p: torch.optim.Adam(p, differentiable=True), {}, ValueError,
                       "differentiable"),
    "async on workers": (sgd, {"update": "worker", "mode": cairn.Async()}, ValueError, r"Sync\(\)"),
    "a sum in async": (sgd, {"reduce": "sum", "mode": cairn.Async()}, ValueError, "sum"),
    "update": (sgd, {"update": "both"}, ValueError, '"server" or "worker"'),
    "reduce": (sgd, {"reduce": "max"}, ValueError, '"mean" or "sum"'),
    "mode": (sgd, {"mode": "sync"}, TypeError, r"cairn\.Sync\(\)"),
    "no optimizer": (lambda p: list(p), {}, TypeError, "torch.optim optimizer, not list"),
    "distributed already": (lambda p: cairn.DistributedOptimizer(sgd(p)), {}, TypeError,
                            "distributed already"),
}


@pytest.mark.parametrize("what", WRAPS)
def test_refused_at_the_wrap(what):
    make, options, kind, words = WRAPS[what]
    with pytest.raises(kind, match=words):
        cairn.DistributedOptimizer(make(net().parameters()), **options)


def test_a_model_that_is_none():
    model = net()
    with pytest.raises(TypeError, match="not a torch.nn.Module"):
        cairn.DistributedOptimizer(sgd(model.parameters()), model.parameters())


def test_other_optimizers_work_on_workers():
    for make in (lambda p: MySGD(p, lr=0.1, momentum=0.9), lambda p: torch.optim.NAdam(p)):
        model, alone = net(), net()
        optimizer = cairn.DistributedOptimizer(make(model.parameters()), model, update="worker")
        plain = make(alone.parameters())
        train(model, optimizer, [batch(0, step) for step in range(3)])
        train(alone, plain, [batch(0, step) for step in range(3)])
        assert_same(model, alone)


def test_mode_may_be_given_as_a_class():
    model = net()
    optimizer = cairn.DistributedOptimizer(sgd(model.parameters()), model, mode=cairn.Async)
    assert optimizer.mode == cairn.Async()


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64])
def test_types_that_servers_do_not_keep(dtype):
    param = nn.Parameter(torch.zeros(3, dtype=dtype))
    with pytest.raises(TypeError, match=f"{dtype}.*float32"):
        cairn.DistributedOptimizer(torch.optim.SGD([param], lr=0.1))


@pytest.mark.parametrize("mode", [cairn.Sync(), cairn.Async()])
@pytest.mark.parametrize("groups", [1, 2])
def test_sparse_gradients(mode, groups):
    """Never silently dense; and nothing of the step is applied, of other groups neither."""
    model = nn.ModuleDict({"dense": nn.Linear(4, 4), "rows": nn.Embedding(5, 4, sparse=True)})
    params = [list(model["dense"].parameters()), list(model["rows"].parameters())]
    made = [{"params": p} for p in params] if groups == 2 else params[0] + params[1]
    optimizer = cairn.DistributedOptimizer(torch.optim.SGD(made, lr=0.1), model, mode=mode)
    before = copied(model)
    model["dense"](model["rows"](torch.tensor([1, 3]))).sum().backward()
    with pytest.raises(TypeError, match=r"rows\.weight is sparse.*sparse=False"):
        optimizer.step()
    optimizer.pull()
    assert_same(model, before)


def test_flags_can_not_change_half_way():
    model = net()
    optimizer = cairn.DistributedOptimizer(sgd(model.parameters()), model)
    backward(model, batch(0, 0))
    optimizer.param_groups[0]["momentum"] = 0.9
    with pytest.raises(ValueError, match="changed after the wrap"):
        optimizer.step()


def test_not_a_number_is_refused_and_named():
    model = net()
    for mode in (cairn.Sync(), cairn.Async()):
        optimizer = cairn.DistributedOptimizer(sgd(model.parameters()), model, mode=mode)
        before = copied(model)
        for value, word in ((float("nan"), "NaN"), (float("inf"), "infinite")):
            optimizer.zero_grad()
            backward(model, batch(0, 0))
            model[2].weight.grad[0, 1] = value
            with pytest.raises(cairn.NotFiniteError, match=rf"gradient of 2\.weight is {word}"):
                optimizer.step()
            assert_same(model, before)
        train(model, optimizer, [batch(0, 1)])


def test_clipping_has_the_two_norm_only():
    model = net()
    optimizer = cairn.DistributedOptimizer(sgd(model.parameters()), model)
    backward(model, batch(0, 0))
    with pytest.raises(ValueError, match="2-norm"):
        optimizer.clip_grad_norm_(1.0, norm_type=1.0)
