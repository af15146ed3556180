"""state_dict() of a DistributedOptimizer is torch's: it loads into the plain optimizer and the
other way round, and training goes on as if nothing had happened. In one process, embedded."""
import copy
import io

import pytest
import torch

import cairn
from optimizer_workers.problems import assert_close, backward, batch, net, train

pytestmark = pytest.mark.usefixtures("worker")

OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.2),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "AdamW amsgrad": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1, amsgrad=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, lr_decay=0.1,
                                             initial_accumulator_value=0.1),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True, momentum=0.5),
}
BEFORE = [batch(0, step) for step in range(3)]
AFTER = [batch(0, step) for step in range(3, 7)]

every_optimizer = pytest.mark.parametrize("name", OPTIMIZERS)
every_mode = pytest.mark.parametrize("mode", [cairn.Sync(), cairn.Async()], ids=["sync", "async"])


def trained(make, data=()):
    model = net()
    optimizer = make(model.parameters())
    train(model, optimizer, data)
    return model, optimizer


def wrapped(make, data=(), **options):
    model = net()
    optimizer = cairn.DistributedOptimizer(make(model.parameters()), model, **options)
    train(model, optimizer, data)
    return model, optimizer


def _given(entry):
    """SGD's buffer may be there as None."""
    return {key for key, value in entry.items() if value is not None}


def assert_same_state(got, want):
    """Same structure, types and shapes; values up to rounding."""
    assert got.keys() == want.keys()
    assert got["param_groups"] == want["param_groups"]
    assert got["state"].keys() == want["state"].keys()
    for index, entry in want["state"].items():
        mine = got["state"][index]
        assert _given(mine) == _given(entry)
        for key, value in entry.items():
            if isinstance(value, torch.Tensor):
                assert mine[key].dtype == value.dtype and mine[key].shape == value.shape, key
                assert_close([mine[key]], [value])
            else:
                assert mine[key] == value


@every_mode
@every_optimizer
def test_ours_goes_on_in_torch(name, mode):
    model, optimizer = wrapped(OPTIMIZERS[name], BEFORE, mode=mode)
    alone, plain = trained(OPTIMIZERS[name], BEFORE)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    assert_same_state(state, plain.state_dict())

    resumed = net()
    resumed.load_state_dict(model.state_dict())
    torchs = OPTIMIZERS[name](resumed.parameters())
    torchs.load_state_dict(state)
    train(resumed, torchs, AFTER)
    train(model, optimizer, AFTER)  # taking the dict has not disturbed it
    train(alone, plain, AFTER)
    assert_close(resumed, alone)
    assert_close(model, alone)


@every_mode
@every_optimizer
def test_torchs_goes_on_in_ours(name, mode):
    alone, plain = trained(OPTIMIZERS[name], BEFORE)
    # Ours is somewhere else before: that state must be gone, steps too.
    model, optimizer = wrapped(OPTIMIZERS[name], AFTER[:2], mode=mode)
    model.load_state_dict(alone.state_dict())
    optimizer.push_parameters()
    optimizer.load_state_dict(plain.state_dict())
    assert_same_state(optimizer.state_dict(), plain.state_dict())
    train(alone, plain, AFTER)
    train(model, optimizer, AFTER)
    assert_close(model, alone)


@every_mode
@every_optimizer
def test_state_from_before_the_wrap(name, mode):
    alone, plain = trained(OPTIMIZERS[name], BEFORE)
    model, inner = trained(OPTIMIZERS[name], BEFORE)
    optimizer = cairn.DistributedOptimizer(inner, model, mode=mode)
    assert_same_state(optimizer.state_dict(), plain.state_dict())
    train(alone, plain, AFTER)
    train(model, optimizer, AFTER)
    assert_close(model, alone)


@every_optimizer
def test_nothing_has_happened_yet(name):
    """The dict of an optimizer that has made no step, and going back to it."""
    _, plain = trained(OPTIMIZERS[name])
    model, optimizer = wrapped(OPTIMIZERS[name])
    fresh = copy.deepcopy(optimizer.state_dict())
    assert_same_state(fresh, plain.state_dict())
    train(model, optimizer, AFTER)
    model.load_state_dict(net().state_dict())
    optimizer.push_parameters()
    optimizer.load_state_dict(fresh)
    alone, plain = trained(OPTIMIZERS[name], BEFORE)
    train(model, optimizer, BEFORE)
    assert_close(model, alone)


def test_hyperparameters_are_loaded_too():
    alone, plain = trained(OPTIMIZERS["Adam"], BEFORE)
    plain.param_groups[0].update(lr=0.05, betas=(0.7, 0.8))
    model, optimizer = wrapped(OPTIMIZERS["Adam"])
    model.load_state_dict(alone.state_dict())
    optimizer.push_parameters()
    optimizer.load_state_dict(plain.state_dict())
    assert optimizer.param_groups[0]["lr"] == 0.05
    train(alone, plain, AFTER)
    train(model, optimizer, AFTER)
    assert_close(model, alone)


def test_parameters_that_were_never_used_have_no_state():
    model, optimizer = wrapped(OPTIMIZERS["Adam"])
    alone, plain = trained(OPTIMIZERS["Adam"])
    for one, other in ((model, optimizer), (alone, plain)):
        one[0].weight.requires_grad_(False)
        train(one, other, BEFORE)
    assert_same_state(optimizer.state_dict(), plain.state_dict())
    for one, other in ((model, optimizer), (alone, plain)):
        one[0].weight.requires_grad_(True)
        train(one, other, AFTER[:1])
    assert_same_state(optimizer.state_dict(), plain.state_dict())  # they count steps of their own


def test_state_dict_between_clipping_and_step():
    model, optimizer = wrapped(OPTIMIZERS["Adam"], BEFORE)
    alone, plain = trained(OPTIMIZERS["Adam"], BEFORE)
    backward(model, AFTER[0])
    optimizer.clip_grad_norm_(1000.0)
    assert_same_state(optimizer.state_dict(), plain.state_dict())


@pytest.mark.parametrize("name", ["SGD momentum", "Adam"])
def test_worker_updates_have_torchs_own_state(name):
    model, optimizer = wrapped(OPTIMIZERS[name], BEFORE, update="worker")
    alone, plain = trained(OPTIMIZERS[name], BEFORE)
    state = copy.deepcopy(optimizer.state_dict())
    assert_same_state(state, plain.state_dict())
    train(model, optimizer, AFTER)
    model.load_state_dict(alone.state_dict())
    optimizer.push_parameters()
    optimizer.load_state_dict(state)
    train(model, optimizer, AFTER)
    train(alone, plain, AFTER)
    assert_close(model, alone)


def test_other_groups_are_refused_as_in_torch():
    model, optimizer = wrapped(OPTIMIZERS["Adam"], BEFORE)
    two = torch.optim.Adam([{"params": [model[0].weight]}, {"params": [model[0].bias]}])
    with pytest.raises(ValueError, match="different number of parameter groups"):
        optimizer.load_state_dict(two.state_dict())
    train(model, optimizer, AFTER)
