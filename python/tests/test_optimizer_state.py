"""state_dict() of a DistributedOptimizer is torch's: it loads into the plain optimizer and the
other way round, and training goes on as if nothing had happened. In one process, embedded."""
import copy
import io

import pytest
import torch
from torch import nn

import cairn
from cairn._train import served_buffers
from cairn._train.served_buffers import ServedIntegers, ServedTensors
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


# --- buffers, and what else of a model all workers share ---------------------------------------------------


def served(tensors, name, mode=cairn.Async(), kind=ServedTensors):
    made = kind(tensors)
    made.attach(cairn._runtime.context.current().client, name, mode)
    return made


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.frozen = nn.Linear(2, 2), nn.Parameter(torch.ones(3))
        self.whole = nn.Parameter(torch.ones(2, dtype=torch.float64), requires_grad=False)
        for name, tensor in {"mean": torch.ones(2), "narrow": torch.ones(2).bfloat16(), "count": torch.tensor(3),
                             "mask": torch.tensor([True]), "empty": torch.ones(0)}.items():
            self.register_buffer(name, tensor)
        self.register_buffer("again", self.mean)


def test_what_of_a_model_is_shared_and_how():
    model = Mixed()
    buffers, integers, others = served_buffers.shared_tensors(model, model.layer.parameters())
    assert [id(t) for t in buffers] == [id(model.mean), id(model.narrow)]
    assert [id(t) for t in integers] == [id(model.count), id(model.mask), id(model.whole)]
    assert [id(t) for t in others] == [id(model.frozen)]
    model.register_buffer("phase", torch.ones(1, dtype=torch.complex64))
    with pytest.warns(UserWarning, match="complex tensors of the model are not shared"):
        _, integers, _ = served_buffers.shared_tensors(model, model.layer.parameters())
    assert len(integers) == 3


def test_values_that_one_worker_gives_and_others_take(worker):
    given = served([torch.tensor([[1.0, float("inf")]]), torch.ones(3).bfloat16()], "shared")
    assert not given.are_there()
    given.give(once=True).wait()
    assert given.are_there()
    taken = served([torch.zeros(1, 2), torch.zeros(3).bfloat16()], "shared")
    taken.give(once=True).wait()  # too late: the first ones stay
    taken.take(when_assigned=True).wait()
    taken.store()
    assert taken.tensors[0].tolist() == [[1.0, float("inf")]] and taken.tensors[1].tolist() == [1.0] * 3
    given.tensors[1].fill_(2.0)
    given.give(once=False).wait()
    taken.take(when_assigned=False).wait()
    taken.store()
    assert taken.tensors[1].tolist() == [2.0] * 3


def test_a_tensor_that_has_its_value_already_is_not_written_to(worker):
    halves = served([torch.ones(3).half(), torch.ones(2).half()], "unchanged")
    halves.give(once=False).wait()
    halves.tensors[1].zero_()
    versions = [tensor._version for tensor in halves.tensors]
    halves.take(when_assigned=True).wait()
    halves.store()
    assert [t._version for t in halves.tensors] == [versions[0], versions[1] + 1]
    assert halves.tensors[1].tolist() == [1.0, 1.0]


def test_rounds_in_which_somebody_gives_or_nobody_does(worker):
    buffers = served([torch.tensor([1.0, 2.0])], "rounds", cairn.Sync())
    assert buffers.finish(buffers.give_and_take(gives=True)) and buffers.table.round() == 1
    buffers.tensors[0].fill_(9.0)
    assert not buffers.finish(buffers.give_and_take(gives=False))  # whoever should have given is gone
    assert buffers.tensors[0].tolist() == [9.0, 9.0] and buffers.table.round() == 2
    assert buffers.finish(buffers.give_and_take(gives=True)) and buffers.tensors[0].tolist() == [9.0, 9.0]


def test_integers_bools_and_doubles_are_exact(worker):
    values = [torch.tensor([[2**63 - 1, -2**63], [-1, 2**22]]), torch.tensor([True, False]),
              torch.tensor(-5, dtype=torch.int8), torch.tensor([1e300, -0.1, float("inf")], dtype=torch.float64)]
    served(values, "integers", kind=ServedIntegers).give(once=True).wait()
    into = [torch.zeros_like(value) for value in values]
    taken = served(into, "integers", kind=ServedIntegers)
    taken.take(when_assigned=True).wait()
    taken.store()
    assert all(torch.equal(a, b) for a, b in zip(into, values))


def test_a_wrap_shares_the_buffers_again_when_parameters_are_pushed(worker):
    for mode in (cairn.Sync(), cairn.Async()):
        model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
        optimizer = cairn.DistributedOptimizer(torch.optim.SGD(model[0].parameters(), lr=0.1), model, mode=mode)
        served_model = optimizer._served
        [buffers] = served_model.buffers
        assert [t.shape for t in buffers.tensors] == [(3,), (3,)]
        assert len(served_model._shared) == 2 and served_model._integers is served_model._shared[1]
        with torch.no_grad():
            model[1].running_mean.fill_(5.0)
            model[1].num_batches_tracked.fill_(7)
            model[1].weight.fill_(3.0)
        optimizer.push_parameters()
        found = [torch.zeros(3), torch.zeros(3)]
        table = buffers.table
        table.pull([t.data_ptr() for t in found], [3, 3], keep=found).wait()
        assert found[0].tolist() == [5.0] * 3 and found[1].tolist() == [1.0] * 3
        assert model[1].num_batches_tracked == 7 and model[1].weight.tolist() == [3.0] * 3
        other, count = ServedTensors([torch.zeros(3), torch.zeros(3)]), ServedIntegers([torch.tensor(0)])
        for mine, theirs in ((other, served_model._shared[0]), (count, served_model._shared[1])):
            mine.table = theirs.table
            mine.take(when_assigned=True).wait()
            mine.store()
        assert other.tensors[0].tolist() == [3.0] * 3 and count._integers[0] == 7


def test_parameters_without_state_begin_as_in_one_process():
    """FTRL's z begins at 0, its n at initial_accumulator_value."""
    def trained_on(wrap):
        first, second = (nn.Parameter(torch.ones(3)) for _ in range(2))
        optimizer = cairn.optim.FTRL([first, second], lr=0.1, initial_accumulator_value=0.5)
        if wrap:
            optimizer = cairn.DistributedOptimizer(optimizer)
        first.grad = torch.ones(3)
        optimizer.step()  # the second has no state yet
        optimizer.load_state_dict(optimizer.state_dict())
        for _ in range(2):
            first.grad, second.grad = torch.ones(3), torch.full((3,), 0.1)
            optimizer.step()
        return first.detach(), second.detach()

    for served, plain in zip(trained_on(True), trained_on(False)):
        torch.testing.assert_close(served, plain, rtol=0, atol=1e-6)
