"""A step of a DistributedOptimizer as an object: what it is made of, and the states that it goes through."""
import pytest
import torch
from torch import nn

import cairn
from cairn._runtime.calls_under_way import CallsUnderWay
from cairn._train.step import State, Step
from cairn._train.step_parts import Terms, parts_of

pytestmark = pytest.mark.usefixtures("worker")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = cairn.nn.Embedding(9, 4)
        self.norm, self.head = nn.BatchNorm1d(4), nn.Linear(4, 1)

    def forward(self, ids):
        return self.head(self.norm(self.rows(ids)))


def wrapped(model, lr=0.1, **options):
    return cairn.DistributedOptimizer(torch.optim.Adagrad(model.parameters(), lr=lr), model, **options)


def hybrid(**assigned):
    net = Net()
    cairn.assign(net, "auto", **assigned)
    return net


def kinds(optimizer):
    return [type(part).__name__ for part in parts_of(optimizer._served)]


def test_what_a_model_does_not_have_is_no_part_of_its_steps():
    assert kinds(wrapped(nn.Linear(2, 1))) == ["ServedPart"]
    assert kinds(wrapped(nn.Linear(2, 1), update="worker")) == ["ServedPart", "UpdateHere"]
    assert kinds(wrapped(nn.BatchNorm1d(2))) == ["ServedPart", "SharedBuffers"]
    assert kinds(wrapped(Net())) == ["ServedPart", "ServedPart", "RowsAhead", "SharedBuffers"]
    assert kinds(wrapped(hybrid())) == ["ServedPart", "RowsAhead", "SharedBuffers", "ReducedPart"]
    dense = nn.Linear(2, 1)
    cairn.assign(dense, "auto")
    assert kinds(wrapped(dense)) == ["ReducedPart"]


@pytest.fixture
def states(monkeypatch):
    """Those that steps go through."""
    seen, become = [], Step._become

    def noted(step, state):
        become(step, state)
        seen.append(state)

    monkeypatch.setattr(Step, "_become", noted)
    return seen


def backward(net, optimizer):
    optimizer.zero_grad()
    net(torch.arange(6)).square().sum().backward()


@pytest.mark.parametrize("make", [Net, hybrid])
def test_states_of_a_step(states, make):
    net = make()
    optimizer = wrapped(net)
    backward(net, optimizer)
    optimizer.step()
    assert states == [State.BEGUN, State.ENDED]
    states.clear()
    backward(net, optimizer)
    optimizer.clip_grad_norm_(0.1)
    assert states == [State.CONTRIBUTED, State.SUMMED_UP]
    optimizer.clip_grad_norm_(0.05)  # of the same step
    optimizer.step()
    assert states == [State.CONTRIBUTED, State.SUMMED_UP, State.SUMMED_UP, State.BEGUN, State.ENDED]
    assert optimizer._steps.undecided is None


@pytest.mark.parametrize("make", [Net, hybrid])
def test_a_step_that_could_not_be_summed_up_is_given_up(states, monkeypatch, make):
    net = make()
    optimizer = wrapped(net)
    before = net.head.weight.detach().clone()
    finish = CallsUnderWay.finish

    def fails(calls):
        finish(calls)
        monkeypatch.setattr(CallsUnderWay, "finish", finish)
        raise cairn.DeadlineExceededError("a worker is late")

    backward(net, optimizer)
    monkeypatch.setattr(CallsUnderWay, "finish", fails)
    with pytest.raises(cairn.DeadlineExceededError, match="is late"):
        optimizer.clip_grad_norm_(0.1)
    assert states == [State.CONTRIBUTED, State.GIVEN_UP] and optimizer._steps.undecided is None
    assert torch.equal(net.head.weight, before)
    states.clear()
    backward(net, optimizer)
    optimizer.step()
    assert states == [State.BEGUN, State.ENDED] and not torch.equal(net.head.weight, before)


def test_a_state_does_not_follow_any_other():
    optimizer = wrapped(nn.Linear(2, 1))
    step = Step(optimizer._served, Terms(), parts_of(optimizer._served))
    with pytest.raises(AssertionError, match="becomes"):
        step._become(State.SUMMED_UP)
