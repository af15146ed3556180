"""overlap=True: gradients leave in backward; the results are those without it, and misuse raises."""
import gc

import pytest
import torch

import cairn
import overlap_problem as problem
from cairn import Error, NotFiniteError
from optimizer_workers.job import Job

MODES = {"sync": cairn.Sync(), "async": cairn.Async()}


def small(overlap=True, mode=cairn.Sync(), make=lambda p: torch.optim.SGD(p, lr=0.5)):
    torch.manual_seed(2)
    model = torch.nn.Sequential(torch.nn.Linear(4, 300), torch.nn.Linear(300, 300),
                                torch.nn.Linear(300, 1))
    return model, cairn.DistributedOptimizer(make(model.parameters()), model, mode=mode,
                                             overlap=overlap)


def backward(model):
    model(torch.ones(2, 4)).sum().backward()


def values(model):
    return [p.detach().clone() for p in model.parameters()]


def assert_same(some, others):
    assert len(some) == len(others)
    for at, (one, other) in enumerate(zip(some, others)):
        assert torch.equal(one, other), at


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("kind", problem.OPTIMIZERS)
@pytest.mark.parametrize("accumulate", [1, 3])
def test_the_same_bits(worker, mode, kind, accumulate):
    found = []
    for overlap in (False, True):
        model = problem.Model()
        optimizers = problem.wrap(model, kind, mode, overlap)
        found.append(problem.train(model, optimizers, accumulate=accumulate))
        found[-1] += [value for _, state in sorted(optimizers[0].state_dict()["state"].items())
                      for value in state.values()]
    assert_same(*found)


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("wire", [{"wire": "topk", "wire_topk": 0.1}, {"wire": "bf16"}, {"wire": "lz4"}],
                         ids=lambda wire: wire["wire"])
def test_the_same_bits_whatever_the_wire(worker, mode, wire):
    found = []
    for overlap in (False, True):
        torch.manual_seed(2)
        model = torch.nn.Sequential(torch.nn.Linear(4, 300), torch.nn.Linear(300, 300), torch.nn.Linear(300, 1))
        optimizer = cairn.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1e-3), model,
                                               mode=mode, overlap=overlap, **wire)
        for step in range(5):  # what top-k leaves of a gradient goes with the next one
            optimizer.zero_grad()
            model(torch.full((2, 4), 1.0 + step)).square().sum().backward()
            optimizer.step()
        found.append(values(model))
    assert_same(*found)


def test_two_workers_have_the_same_bits(cairn_bin):
    job = Job(cairn_bin, "overlapped.py", options=["--no-progress"])
    assert job.code == 0, job.output
    for rank in (0, 1):
        assert [found[1] for found in job.of_worker(rank, r"^ok (sgd|adam) \d")] == [
            "sgd", "adam"], job.output
    joined = [job.of_worker(rank, r"^joined (.*)$")[0][1] for rank in (0, 1)]
    assert joined[0] == joined[1]


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_gradients_leave_in_backward_and_values_change_in_step(worker, mode):
    model, optimizer = small(mode=mode)
    before = values(model)
    backward(model)
    # A second client's view: what the servers have by now of the bucket that backward ended first.
    bucket = optimizer._served.groups[0]
    optimizer._overlap._sent[bucket].pending.wait()
    held = [c for c in bucket.pull_column(0)]
    assert all(not torch.equal(p, column) for p, column in zip(bucket.params, held))
    assert_same(values(model), before)
    optimizer.step()
    assert_same([p.detach() for p in bucket.params], held)


def test_several_buckets_and_one_that_is_not_complete_in_backward(worker):
    model, optimizer = small()
    assert len(optimizer._served.groups) > 1
    assert sorted(n for g in optimizer._served.groups for n in g.names) == sorted(
        n for n, _ in model.named_parameters())
    model[2](torch.ones(1, 300)).sum().backward()  # the other layers have no gradient
    first = model[0].weight.detach().clone()
    last = model[2].weight.detach().clone()
    optimizer.step()
    assert torch.equal(model[0].weight, first) and not torch.equal(model[2].weight, last)


def test_a_closure(worker):
    model, optimizer = small()
    plain, other = small(overlap=False)

    def loss_of(which, optimizer):
        def closure():
            optimizer.zero_grad()
            loss = which(torch.ones(2, 4)).square().sum()
            loss.backward()
            return loss
        return closure

    for _ in range(3):
        assert optimizer.step(loss_of(model, optimizer)) == other.step(loss_of(plain, other))
    assert_same(values(model), values(plain))


def test_a_table_that_is_used_twice_leaves_with_the_second_backward(worker):
    found = []
    for overlap in (False, True):
        table = cairn.nn.Embedding(None, 2, init=1.0)
        optimizer = cairn.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=1.0),
                                               overlap=overlap)
        for _ in range(3):
            optimizer.zero_grad()
            (table(torch.tensor([1, 2])).sum() + 2 * table(torch.tensor([2, 3])).sum()).backward()
            optimizer.step()
        found.append(table.export())
    assert_same(*found)


# What is not final in backward.
def test_a_second_backward_raises_and_a_step_sets_it_right(worker):
    model, optimizer = small()
    backward(model)
    with pytest.raises(Error, match=r"second backward before step\(\).*no_sync"):
        backward(model)
    with pytest.raises(Error, match="changed after backward"):
        optimizer.step()  # the second one has added to some gradients
    for _ in range(2):
        optimizer.zero_grad()
        backward(model)
        optimizer.step()


def test_a_gradient_that_is_changed_afterwards(worker):
    model, optimizer = small()
    backward(model)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    with pytest.raises(Error, match="changed after backward, and had left by then"):
        optimizer.step()


def test_a_rate_that_is_changed_afterwards(worker):
    model, optimizer = small()
    backward(model)
    optimizer.param_groups[0]["lr"] = 0.1
    with pytest.raises(Error, match=r"settings .* changed between backward and step\(\)"):
        optimizer.step()


def test_hooks_of_the_user_come_first(worker):
    found = []
    for overlap in (False, True):
        model, optimizer = small(overlap)
        for param in model.parameters():
            param.register_hook(lambda grad: grad * 0.5)
        for _ in range(3):
            optimizer.zero_grad()
            backward(model)
            optimizer.step()
        found.append(values(model))
    assert_same(*found)


def test_clipping_samples_and_scalers_are_refused(worker):
    model, optimizer = small()
    with pytest.raises(ValueError, match="clip_grad_norm_.. with overlap=True"):
        optimizer.clip_grad_norm_(1.0)
    backward(model)
    with pytest.raises(ValueError, match="samples= with overlap=True"):
        optimizer.step(samples=3)
    optimizer.step()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    scaler.scale(model(torch.ones(2, 4)).sum()).backward()
    with pytest.raises(ValueError, match="a GradScaler with overlap=True"):
        scaler.step(optimizer)


@pytest.mark.parametrize("call", [
    lambda o: o.pull(), lambda o: o.push_parameters(), lambda o: o.state_dict()])
def test_other_calls_between_backward_and_step(worker, call):
    model, optimizer = small()
    backward(model)
    with pytest.raises(Error, match=r"between backward and step\(\)"):
        call(optimizer)
    optimizer.step()
    call(optimizer)


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_nan_in_one_bucket(worker, mode):
    model, optimizer = small(mode=mode)
    handle = model[0].weight.register_hook(lambda grad: grad * float("nan"))
    backward(model)
    with pytest.raises(NotFiniteError, match=r"gradient of 0.weight is NaN .*Other parameters' parts"):
        optimizer.step()
    assert all(bool(p.isfinite().all()) for p in model.parameters())
    handle.remove()
    before = values(model)
    optimizer.zero_grad()
    backward(model)
    optimizer.step()
    assert all(not torch.equal(a, b) for a, b in zip(before, values(model)))


def test_parameters_that_were_written_to_are_noticed_in_backward(worker):
    model, optimizer = small()
    with torch.no_grad():
        model[0].weight.zero_()
    with pytest.raises(cairn.Error, match=r"push_parameters\(\)"):
        backward(model)


def test_refusals_at_the_wrap(worker):
    model = torch.nn.Linear(2, 2)
    with pytest.raises(ValueError, match="overlap=True is for updates on the servers"):
        cairn.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1), model, update="worker",
                                   overlap=True)
    cairn.assign(model, allreduce=["*"])
    with pytest.raises(ValueError, match="some are all-reduced here"):
        cairn.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1), model, overlap=True)


def test_an_optimizer_that_is_gone_sends_nothing(worker):
    model, optimizer = small()
    backward(model)
    optimizer.step()
    del optimizer
    gc.collect()
    assert not model[0].weight._post_accumulate_grad_hooks
    optimizer = cairn.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model,
                                           overlap=True)
    for _ in range(2):
        optimizer.zero_grad()
        backward(model)
        optimizer.step()


def test_wrapped_before_init():
    model, optimizer = small()
    cairn.init()
    try:
        for _ in range(3):
            optimizer.zero_grad()
            backward(model)
            optimizer.step()
        assert optimizer._served.context is not None
    finally:
        cairn.shutdown()
