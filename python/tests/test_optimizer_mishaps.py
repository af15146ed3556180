"""DistributedOptimizer where something goes wrong in the middle, or is changed behind its back: an
error that says what to do, or the right result; never a silent wrong one. In one process."""
import os
import signal

import pytest
import torch

import cairn
from cairn.calls_under_way import CallsUnderWay
from cairn.optimizer_rounds import Rounds
from cairn.served_group import ServedGroup
from cairn.undecided import Undecided
from optimizer_workers.problems import assert_same, batch, copied, net, train

pytestmark = pytest.mark.usefixtures("worker")


def two(dtype=torch.float32):
    return [torch.nn.Parameter(torch.zeros(3, dtype=dtype)) for _ in range(2)]


def groups_of(params):
    return [{"params": [param]} for param in params]


def step(optimizer, params):
    optimizer.zero_grad()
    sum(param.sum() for param in params).backward()
    optimizer.step()


class Interrupted(torch.optim.Optimizer):
    """Plain SGD that gets a SIGINT between two parameters, once."""

    def __init__(self, params):
        super().__init__(params, {"lr": 1.0})
        self.when = -1

    @torch.no_grad()
    def step(self, closure=None):
        for index, param in enumerate(self.param_groups[0]["params"]):
            if index == self.when:
                self.when = -1
                os.kill(os.getpid(), signal.SIGINT)
            param.add_(param.grad, alpha=-1.0)


def test_ctrl_c_in_a_workers_update_waits_for_its_end():
    params = two()
    inner = Interrupted(params)
    optimizer = cairn.DistributedOptimizer(inner, update="worker")
    step(optimizer, params)
    inner.when = 1
    with pytest.raises(KeyboardInterrupt):
        step(optimizer, params)
    step(optimizer, params)
    for param in params:
        assert param.tolist() == [-3.0] * 3


@pytest.mark.parametrize("clips", [False, True])
def test_ctrl_c_between_two_tables_leaves_them_at_one_step(monkeypatch, clips):
    params = two()
    optimizer = cairn.DistributedOptimizer(torch.optim.SGD(groups_of(params), lr=1.0))
    begun = []

    def signalled(method):
        def begin(self, group, *arguments, **named):
            begun.append(group)
            if len(begun) == 2:
                os.kill(os.getpid(), signal.SIGINT)
            return method(self, group, *arguments, **named)
        return begin

    name = "_contribute" if clips else "_step"
    monkeypatch.setattr(Rounds, name, signalled(getattr(Rounds, name)))
    for _ in range(2):
        try:
            optimizer.zero_grad()
            sum(param.sum() for param in params).backward()
            if clips:
                optimizer.clip_grad_norm_(100.0)
            optimizer.step()
        except KeyboardInterrupt:
            pass
    rounds = {group.table.round() for group in optimizer._served.groups}
    assert len(begun) >= 3 and len(rounds) == 1, rounds
    optimizer.pull()
    assert params[0].tolist() == params[1].tolist() == [-2.0] * 3


@pytest.mark.parametrize("limit", [1.0, 3.0])
@pytest.mark.parametrize("when", ["sent", "not yet summed up", "summed up"])
def test_a_clip_that_is_called_again_after_ctrl_c_is_one_clip(monkeypatch, when, limit):
    """The one that was interrupted clips nothing, however far it has come."""
    params = two()
    optimizer = cairn.DistributedOptimizer(torch.optim.SGD(groups_of(params), lr=1.0))
    for param in params:
        param.grad = torch.full((3,), 2.0)

    def interrupt(*_):
        monkeypatch.undo()
        raise KeyboardInterrupt

    contribute = Rounds._contribute

    def signalled(*arguments):
        os.kill(os.getpid(), signal.SIGINT)  # takes effect when all tables have begun
        return contribute(*arguments)

    if when == "sent":
        monkeypatch.setattr(Rounds, "_contribute", signalled)
    elif when == "summed up":
        monkeypatch.setattr(Undecided, "norm", property(interrupt))
    else:
        monkeypatch.setattr(CallsUnderWay, "finish", interrupt)
    with pytest.raises(KeyboardInterrupt):
        optimizer.clip_grad_norm_(1.0)
    monkeypatch.undo()
    norm = float(optimizer.clip_grad_norm_(limit))
    assert norm == pytest.approx(24**0.5)
    optimizer.step()
    for param in params:
        assert param.tolist() == pytest.approx([-2.0 * limit / norm] * 3, rel=1e-5)
    step(optimizer, params)
    assert params[0].tolist() == pytest.approx([-2.0 * limit / norm - 1.0] * 3, rel=1e-5)


def test_staged_parameters_survive_an_interrupted_step(monkeypatch):
    params = two(torch.bfloat16)
    optimizer = cairn.DistributedOptimizer(torch.optim.SGD(groups_of(params), lr=1.0))
    store, calls = ServedGroup.store, []

    def interrupted(self):
        calls.append(self)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return store(self)

    monkeypatch.setattr(ServedGroup, "store", interrupted)
    with pytest.raises(KeyboardInterrupt):
        step(optimizer, params)
    step(optimizer, params)
    for param in params:
        assert param.tolist() == [-2.0] * 3


def test_a_parameter_that_changed_its_shape_or_type_is_refused():
    param = torch.nn.Parameter(torch.zeros(1000))
    optimizer = cairn.DistributedOptimizer(torch.optim.SGD([param], lr=1.0))
    step(optimizer, [param])
    param.data = torch.zeros(10)
    param.grad = None
    with pytest.raises(cairn.InvalidArgumentError, match=r"shape \(1000,\).*shape \(10,\)"):
        step(optimizer, [param])
    model = net()
    optimizer = cairn.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model)
    model.double()
    x, y = batch(0, 0)
    with pytest.raises((cairn.InvalidArgumentError, cairn.ParametersChangedError)):
        train(model, optimizer, [(x.double(), y)])


def test_two_wraps_of_one_model_in_half_precision():
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1)).bfloat16()
    first = cairn.DistributedOptimizer(torch.optim.SGD(model[0].parameters(), lr=0.1), model)
    second = cairn.DistributedOptimizer(torch.optim.SGD(model[1].parameters(), lr=0.1), model)
    for optimizer in (first, second, first):
        model.zero_grad()
        model(torch.ones(1, 3, dtype=torch.bfloat16)).sum().backward()
        optimizer.step()


@pytest.mark.parametrize("mode", [cairn.Sync(), cairn.Async()])
def test_nan_in_one_group_stops_them_all(mode):
    params = two()
    optimizer = cairn.DistributedOptimizer(torch.optim.SGD(groups_of(params), lr=1.0), mode=mode)
    for param in params:
        param.grad = torch.ones(3)
    params[1].grad[2] = float("nan")
    with pytest.raises(cairn.NotFiniteError):
        optimizer.step()
    optimizer.pull()
    assert params[0].tolist() == [0.0] * 3
    step(optimizer, params)
    assert params[0].tolist() == params[1].tolist() == [-1.0] * 3


def test_groups_changed_behind_the_wrap():
    params = two()
    inner = torch.optim.SGD([params[0]], lr=1.0)
    optimizer = cairn.DistributedOptimizer(inner)
    inner.add_param_group({"params": [params[1]]})
    step(optimizer, params)
    assert params[1].tolist() == [-1.0] * 3
    inner.param_groups[0]["params"].append(torch.nn.Parameter(torch.zeros(1)))
    with pytest.raises(cairn.Error, match="add_param_group"):
        step(optimizer, params)


def test_writes_from_outside_are_noticed_with_updates_here_too():
    model = net()
    optimizer = cairn.DistributedOptimizer(torch.optim.NAdam(model.parameters()), model, update="worker")
    train(model, optimizer, [batch(0, 0)])
    with torch.no_grad():
        model[0].weight.fill_(0.5)
    written = copied(model)
    with pytest.raises(cairn.ParametersChangedError, match="0.weight"):
        optimizer.step()
    optimizer.push_parameters()
    assert_same(model, written)
    train(model, optimizer, [batch(0, 1)])


def test_mistaken_arguments_are_named():
    param = torch.nn.Parameter(torch.zeros(3))
    with pytest.raises(cairn.InvalidArgumentError, match="root_rank is 9"):
        cairn.DistributedOptimizer(torch.optim.SGD([param], lr=1.0), root_rank=9)
    optimizer = cairn.DistributedOptimizer(torch.optim.SGD([param], lr=1.0))
    other = cairn.DistributedOptimizer(torch.optim.SGD([param], lr=1.0))
    with pytest.raises(ValueError, match="max_norm is nan"):
        optimizer.clip_grad_norm_(float("nan"))
    with pytest.raises(cairn.Error, match=r"cairn\.join\(a, b\)"), optimizer.join(), other.join():
        pass
    with pytest.raises(TypeError, match="which optimizers"), cairn.join():
        pass
    spoilt = torch.nn.Parameter(torch.tensor([1.0, float("nan")]))
    with pytest.raises(cairn.NotFiniteError, match="before the wrap"):
        cairn.DistributedOptimizer(torch.optim.SGD([spoilt], lr=1.0))


def test_zero_grad_leaves_alone_what_an_interrupt_left_under_way():
    param = torch.nn.Parameter(torch.zeros(3))
    optimizer = cairn.DistributedOptimizer(torch.optim.SGD([param], lr=1.0))
    param.grad = torch.ones(3)
    sent = param.grad
    optimizer.zero_grad(set_to_none=False)
    assert param.grad is sent and sent.tolist() == [0.0] * 3  # as torch does it
    sent.fill_(1.0)
    optimizer._served.calls.expect_call(lambda: None)
    optimizer.zero_grad(set_to_none=False)
    assert param.grad is None and sent.tolist() == [1.0] * 3


def test_samples_have_no_meaning_in_a_sum():
    param = torch.nn.Parameter(torch.zeros(3))
    optimizer = cairn.DistributedOptimizer(torch.optim.SGD([param], lr=1.0), reduce="sum")
    with pytest.raises(ValueError, match="reduce"):
        optimizer.step(samples=8)
    with pytest.raises(ValueError, match="reduce"):
        optimizer.clip_grad_norm_(1.0, samples=8)


def test_a_device_that_is_not_supported_is_named():
    with pytest.raises(TypeError, match="device meta"):
        cairn.DistributedOptimizer(torch.optim.SGD([torch.nn.Parameter(torch.zeros(3, device="meta"))], lr=1.0))
