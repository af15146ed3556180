"""DistributedOptimizer where something goes wrong in the middle, or is changed behind its back: an
error that says what to do, or the right result; never a silent wrong one. In one process."""
import os
import signal
import types

import pytest
import torch

import cairn
from cairn._runtime.calls_under_way import CallsUnderWay
from cairn._train import late_joiner, wrap_plan
from cairn._train.served_group import ServedGroup
from cairn._train.step import Step
from cairn._train.step_parts import ServedPart
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
        def begin(part, *arguments):
            begun.append(part)
            if len(begun) == 2:
                os.kill(os.getpid(), signal.SIGINT)
            return method(part, *arguments)
        return begin

    name = "contribute" if clips else "begin"
    monkeypatch.setattr(ServedPart, name, signalled(getattr(ServedPart, name)))
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

    contribute = ServedPart.contribute

    def signalled(*arguments):
        os.kill(os.getpid(), signal.SIGINT)  # takes effect when all tables have begun
        return contribute(*arguments)

    if when == "sent":
        monkeypatch.setattr(ServedPart, "contribute", signalled)
    elif when == "summed up":
        monkeypatch.setattr(Step, "norm", property(interrupt))
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


# --- wraps that differ, and steps of several optimizers ----------------------------------------------------


class Planned(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = cairn.nn.Embedding(9, 4, name="planned")
        self.tower, self.head, self.aside = (torch.nn.Linear(4, 2) for _ in range(3))
        self.norm = torch.nn.BatchNorm1d(2, affine=False)


def test_a_wrap_in_words():
    model = Planned()
    cairn.assign(model, allreduce=[model.head.bias])
    inner = torch.optim.SGD([{"params": [*model.tower.parameters(), model.head.bias]},
                             {"params": [*model.rows.parameters(), torch.nn.Parameter(torch.ones(1))]}], lr=0.1)
    optimizer = cairn.DistributedOptimizer(inner, model, mode=cairn.Sync(deterministic=True), wire="topk", wire_topk=0.5)
    first, *others = wrap_plan.lines_of(optimizer._served, model)
    assert first == ("SGD, Sync(deterministic=True), update=server, reduce=mean, root_rank=0, overlap=False, "
                     "wire=topk, wire_topk=0.5")
    assert others == [
        "group 0 with 3 parameters", "tower.weight of shape (2, 4), on the servers",
        "tower.bias of shape (2,), on the servers", "head.bias of shape (2,), all-reduced",
        "group 1 with 2 parameters", 'rows, the table "planned" of rows of 4',
        "parameter 1.1 of shape (1,), on the servers", "head.weight of shape (2, 4), not in the optimizer",
        "aside.weight of shape (2, 4), not in the optimizer", "aside.bias of shape (2,), not in the optimizer",
        "the buffer norm.running_mean of shape (2,)", "the buffer norm.running_var of shape (2,)",
        "the buffer norm.num_batches_tracked of shape ()"]
    param = torch.nn.Parameter(torch.ones(1))
    plain = cairn.DistributedOptimizer(torch.optim.NAdam([param]), update="worker", reduce="sum")
    assert wrap_plan.lines_of(plain._served, None) == [
        "NAdam, Sync(deterministic=False), update=worker, reduce=sum, root_rank=0, overlap=False",
        "parameter 0.0 of shape (1,), on the servers"]


def test_workers_whose_wraps_differ_are_told_where():
    client = cairn._runtime.context.current().client
    lines = ["SGD", *(f"layer {i} of a model that needs many rows to be written down" for i in range(60))]
    for rank in (3, 0):
        wrap_plan.agree(client, rank, "optimizer-7", list(lines))
    for changed, words in (
            (["Adam", *lines[1:]], "rank 3 has SGD, rank 1 has Adam[.] Make the same"),
            ([*lines[:-1], "é"], "rank 3 has layer 59 of .* down, rank 1 has é .after layer 58 of"),
            (lines[:-1], "rank 3 has layer 59 of .* down, rank 1 has nothing more .after layer 58"),
            ([*lines, "more"], "rank 3 has nothing more, rank 1 has more .after layer 59")):
        with pytest.raises(cairn.Error, match=f"optimizer-7 is not the same on all workers: {words}"):
            wrap_plan.agree(client, 1, "optimizer-7", changed)
    wrap_plan.agree(client, 1, "optimizer-8", ["another one"])


def test_wraps_of_equal_shapes_that_changed_places_are_noticed_by_their_values():
    client = cairn._runtime.context.current().client

    def wraps(rank, *values):
        """In the order in which the workers come."""
        for number, value in enumerate(values, start=first_number):
            params = [torch.full((2, 3), float(value)), torch.tensor(1.0), torch.ones(0)]
            wrap_plan.check_order(client, rank, number, params,
                                  lambda n=number: wrap_plan.agree(client, rank, f"optimizer-{n}", ["alike"]))

    first_number = 1000
    wraps(0, 1, 2, 3)
    wraps(1, 1, 2, 3)
    wraps(2, 5, 1, 2)  # other seeds, which happen to be those of rank 0 with others: nothing has changed places
    with pytest.raises(cairn.Error, match="optimizer-1000 and optimizer-1002 have changed places: rank 3 has "
                                          "wrapped first what rank 0 has wrapped later"):
        wraps(3, 3, 2, 1)
    first_number = 2000
    wraps(0, 1)
    wraps(1, 2, 1)  # the first to come to the second wrap
    with pytest.raises(cairn.Error, match="rank 0 has wrapped first what rank 1 has wrapped later"):
        first_number = 2001
        wraps(0, 2)


class Waiting:
    """A call that ends after so many looks."""

    def __init__(self, looks, is_ready=False):
        self.looks, self.is_ready, self.waits = looks, is_ready, []

    def ready(self):
        return self.is_ready

    def wait_for(self, milliseconds):
        self.waits.append(milliseconds)
        return len(self.waits) > self.looks


class Other:
    """A late joiner's optimizer that is not the one waited in."""

    def __init__(self, served):
        self._served, self.asked = served, []

    def _take_part(self, waited_for):
        self.asked.append(waited_for)


@pytest.fixture
def of_worker(monkeypatch):
    """What late_joiner sees of an optimizer: of this number, on this worker, at this step."""
    client = types.SimpleNamespace(create_sparse=cairn._runtime.context.current().client.create_sparse,
                                   live_ranks=lambda: [0, 1, 2])
    monkeypatch.setattr(late_joiner, "_all", [])
    monkeypatch.setattr(late_joiner, "_late_joiners", [])

    def make(number, rank, steps=0, **changed):
        served = types.SimpleNamespace(**{
            "number": number, "sync": True, "reduced": [types.SimpleNamespace(steps=steps)], "on_servers": [],
            "context": types.SimpleNamespace(rank=rank, client=client, embedded=False), **changed})
        late_joiner._all.append(served)
        return served

    return make


def test_a_late_joiner_takes_part_where_somebody_waits_for_it(of_worker):
    here, there = of_worker(0, rank=0, steps=3), of_worker(5, rank=0, steps=2**23 + 1)
    other, own = Other(there), Other(here)
    late_joiner._late_joiners.extend([other, own])
    late_joiner.wait_for(here, pending := Waiting(looks=2))
    assert other.asked == [False] and own.asked == [] and pending.waits == [100, 20, 20]
    late_joiner._late_joiners.clear()
    late_joiner.wait_for(of_worker(5, rank=2, steps=2**23 + 2), Waiting(looks=1))  # waits at a later step
    late_joiner._late_joiners.append(other)
    late_joiner.wait_for(here, Waiting(looks=2))
    assert other.asked == [False, False]
    late_joiner._late_joiners.clear()
    late_joiner.wait_for(of_worker(5, rank=1, steps=2**23 + 1), Waiting(looks=1))
    late_joiner._late_joiners.append(other)
    late_joiner.wait_for(here, Waiting(looks=3))
    assert other.asked == [False, False, True, True]


def test_nobody_is_told_of_a_step_that_ends_soon(of_worker, monkeypatch):
    told = []
    monkeypatch.setattr(late_joiner, "_tell", lambda table, served: told.append(served))
    served, _ = of_worker(0, rank=0), of_worker(1, rank=0)
    late_joiner.wait_for(served, at_once := Waiting(looks=9, is_ready=True))
    late_joiner.wait_for(served, soon := Waiting(looks=0))
    assert told == [] and at_once.waits == [] and soon.waits == [late_joiner.PATIENCE_MS]
    late_joiner.wait_for(served, long := Waiting(looks=5))
    assert told == [served] and long.waits == [late_joiner.PATIENCE_MS]  # the rest is an ordinary wait


def test_when_a_late_joiner_may_be_needed(of_worker):
    served = of_worker(0, rank=0)
    assert not late_joiner.may_be_needed(served)  # the only optimizer
    assert all(map(late_joiner.may_be_needed, (served, of_worker(1, rank=0))))
    embedded = types.SimpleNamespace(rank=0, client=None, embedded=True)
    for changed in ({"sync": False}, {"context": None}, {"context": embedded}):
        assert not late_joiner.may_be_needed(of_worker(2, rank=0, **changed))


def test_the_place_of_an_optimizer_is_its_round():
    param = torch.nn.Parameter(torch.zeros(2))
    optimizer = cairn.DistributedOptimizer(torch.optim.SGD([param], lr=1.0))
    begun = optimizer._served.groups[0].table.round()
    step(optimizer, [param])
    served = optimizer._served
    assert late_joiner._place(served, given=False) == (served.number, begun + 1)
    assert late_joiner._place(served, given=True) == (served.number, begun)
