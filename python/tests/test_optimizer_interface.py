"""DistributedOptimizer as a torch.optim.Optimizer: what schedulers, closures, hooks and copies see.

In one process, on an embedded cluster; the comparison is plain torch.
"""
import copy
import gc
import io
import pickle
import warnings

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

import cairn
from optimizer_workers.problems import (
    assert_close,
    assert_same,
    backward,
    batch,
    copied,
    differs,
    loss_of,
    net,
    train,
)

pytestmark = pytest.mark.usefixtures("worker")


def sgd(model, **options):
    return torch.optim.SGD(model.parameters(), **{"lr": 0.1, "momentum": 0.9, **options})


def test_is_a_torch_optimizer_that_delegates():
    model = net()
    inner = sgd(model)
    optimizer = cairn.DistributedOptimizer(inner, model)
    assert isinstance(optimizer, torch.optim.Optimizer)
    assert optimizer.param_groups is inner.param_groups
    assert optimizer.state is inner.state
    assert optimizer.defaults is inner.defaults
    assert "SGD" in repr(optimizer) and "Sync" in repr(optimizer)
    before = copied(model)
    optimizer.param_groups[0]["lr"] = 0.0
    train(model, optimizer, [batch(0, 0)])
    assert_same(model, before)


SCHEDULERS = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, step_size=2, gamma=0.3),
    # Changes the momentum too, every step.
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.2, total_steps=8),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=0, factor=0.3),
}


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_schedulers_made_before_and_after_the_wrap(name, when):
    model, alone = net(), net()
    plain = sgd(alone)
    plain_scheduler = SCHEDULERS[name](plain)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # "lr_scheduler.step() before optimizer.step()"
        inner = sgd(model)
        scheduler = SCHEDULERS[name](inner) if when == "before" else None
        optimizer = cairn.DistributedOptimizer(inner, model)
        if scheduler is None:
            scheduler = SCHEDULERS[name](optimizer)
        for step in range(6):
            for one, other, schedule in ((model, optimizer, scheduler),
                                         (alone, plain, plain_scheduler)):
                train(one, other, [batch(0, step)])
                schedule.step(*((1.0,) if name == "ReduceLROnPlateau" else ()))
            assert optimizer.param_groups[0]["lr"] == plain.param_groups[0]["lr"]
    assert_close(model, alone)


def test_a_scheduler_that_steps_first_is_warned_about():
    """The warning that the test above does without must not be lost."""
    model = net()
    inner = sgd(model)
    scheduler = lr_scheduler.StepLR(inner, step_size=1)
    cairn.DistributedOptimizer(inner, model)
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        scheduler.step()


def test_a_closure_runs_once_and_gives_the_loss():
    model, alone = net(), net()
    optimizer, plain = cairn.DistributedOptimizer(sgd(model), model), sgd(alone)
    calls = []

    def closure():
        calls.append(torch.is_grad_enabled())
        optimizer.zero_grad()
        return backward(model, batch(0, 0))

    loss = optimizer.step(closure)
    assert calls == [True]
    plain.zero_grad()
    assert loss.item() == pytest.approx(backward(alone, batch(0, 0)).item())
    plain.step()
    assert_close(model, alone)
    optimizer.zero_grad()
    backward(model, batch(0, 1))
    assert optimizer.step() is None


def test_zero_grad():
    model = net()
    optimizer = cairn.DistributedOptimizer(sgd(model), model)
    backward(model, batch(0, 0))
    optimizer.zero_grad(set_to_none=False)
    assert all(not p.grad.any() for p in model.parameters())
    optimizer.zero_grad()
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("update", ["server", "worker"])
def test_hooks_run_wherever_they_were_registered(update):
    model = net()
    inner = sgd(model)
    seen = []
    inner.register_step_pre_hook(lambda *_: seen.append("inner before"))
    inner.register_state_dict_post_hook(lambda *_: seen.append("inner state"))
    optimizer = cairn.DistributedOptimizer(inner, model, update=update)
    optimizer.register_step_post_hook(lambda *_: seen.append("after"))
    optimizer.register_state_dict_post_hook(lambda *_: seen.append("state"))
    train(model, optimizer, [batch(0, 0)])
    optimizer.state_dict()
    assert seen == ["inner before", "after", "inner state", "state"]


def test_copies_are_refused():
    model = net()
    optimizer = cairn.DistributedOptimizer(sgd(model), model)
    for attempt in (copy.deepcopy, copy.copy, pickle.dumps, lambda o: torch.save(o, io.BytesIO())):
        with pytest.raises(TypeError, match=r"state_dict\(\)"):
            attempt(optimizer)
    assert_same(copy.deepcopy(model), model)  # the model can be


def test_wrapping_again_starts_afresh():
    """As a notebook's cell that is run again: old state is gone, and so are the old tables."""
    model = net()
    for _ in range(3):
        alone = net()
        model.load_state_dict(alone.state_dict())
        plain = sgd(alone)
        optimizer = cairn.DistributedOptimizer(sgd(model), model)
        for step in range(3):
            train(model, optimizer, [batch(0, step)])
            train(alone, plain, [batch(0, step)])
        assert_close(model, alone)
    name = optimizer._served.groups[0].table.name
    client = cairn._runtime.context.current().client
    with pytest.raises(cairn.AlreadyExistsError):
        client.create_dense(name, 5)
    del optimizer
    gc.collect()
    client.create_dense(name, 5)  # the table is gone


def test_a_wrap_before_init_contacts_nobody():
    cairn.shutdown()
    model, alone = net(), net()
    plain = sgd(alone)
    train(alone, plain, [batch(0, 0)])
    # With state of its own, which goes to the servers at the first contact.
    inner = sgd(model)
    train(model, inner, [batch(0, 0)])
    optimizer = cairn.DistributedOptimizer(inner, model)
    scheduler = lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    plain_scheduler = lr_scheduler.StepLR(plain, step_size=1, gamma=0.5)
    assert optimizer.state_dict()["state"].keys() == plain.state_dict()["state"].keys()
    backward(model, batch(0, 1))
    with pytest.raises(cairn.NotInitializedError, match=r"cairn\.init\(\)"):
        optimizer.step()
    cairn.init()
    for step in range(1, 4):
        train(model, optimizer, [batch(0, step)])
        scheduler.step()
        train(alone, plain, [batch(0, step)])
        plain_scheduler.step()
    assert_close(model, alone)


def test_an_optimizer_of_before_the_shutdown_says_so():
    model = net()
    optimizer = cairn.DistributedOptimizer(sgd(model), model)
    cairn.shutdown()
    cairn.init()
    backward(model, batch(0, 0))
    with pytest.raises(cairn.Error, match="make the optimizer anew"):
        optimizer.step()


def test_parameters_written_from_outside_are_noticed():
    for write in (
        lambda m: m[0].weight.clamp_(-0.1, 0.1),
        lambda m: m.load_state_dict(net(seed=5).state_dict()),
        lambda m: nn.init.zeros_(m[2].bias),
    ):
        model = net()
        optimizer = cairn.DistributedOptimizer(sgd(model), model)
        train(model, optimizer, [batch(0, 0)])
        with torch.no_grad():
            write(model)
        written = copied(model)
        optimizer.zero_grad()
        backward(model, batch(0, 1))
        with pytest.raises(cairn.ParametersChangedError,
                           match=r"parameter \d\.\w+ .*optimizer\.push_parameters\(\)"):
            optimizer.step()
        optimizer.push_parameters()
        assert_same(model, written)
        optimizer.param_groups[0].update(lr=0.5, momentum=0.0)
        expected = {n: written[n] - 0.5 * p.grad for n, p in model.named_parameters()}
        optimizer.step()
        for n, p in model.named_parameters():
            assert torch.allclose(p, expected[n], atol=1e-6)


@pytest.mark.parametrize("mode", [cairn.Sync(), cairn.Async()], ids=["sync", "async"])
def test_autograd_notices_a_step_between_forward_and_backward(mode):
    """As with any optimizer: the servers write to the parameters behind autograd's back."""
    model = net()
    optimizer = cairn.DistributedOptimizer(sgd(model), model, mode=mode)
    backward(model, batch(0, 0))
    loss = loss_of(model, batch(0, 1))
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_pull_takes_back_what_was_written():
    model = net()
    optimizer = cairn.DistributedOptimizer(sgd(model), model)
    train(model, optimizer, [batch(0, 0)])
    trained = copied(model)
    with torch.no_grad():
        model[0].weight.zero_()
    optimizer.pull()
    assert_same(model, trained)
    train(model, optimizer, [batch(0, 1)])
    assert differs(model, trained)


def test_names_lose_what_compile_and_ddp_put_in_front():
    from cairn._train.served_parts import plain_name

    assert plain_name("_orig_mod.layer.weight") == "layer.weight"
    assert plain_name("module.layer.weight") == "layer.weight"
    assert plain_name("module._orig_mod.layer.weight") == "layer.weight"
    assert plain_name("layer.module.weight") == "layer.module.weight"
    assert plain_name("module") == "module"


def test_messages_name_parameters_without_what_compile_puts_in_front():
    model = net()
    compiled = torch.compile(model)  # not run: only its names matter
    optimizer = cairn.DistributedOptimizer(sgd(compiled), compiled)
    backward(model, batch(0, 0))
    model[0].weight.grad[0, 0] = float("nan")
    with pytest.raises(cairn.NotFiniteError, match=r"gradient of 0\.weight is NaN"):
        optimizer.step()


def test_join_in_one_process():
    model, alone = net(), net()
    optimizer, plain = cairn.DistributedOptimizer(sgd(model), model), sgd(alone)
    for _ in range(2):
        with optimizer.join():
            train(model, optimizer, [batch(0, step) for step in range(3)])
        train(alone, plain, [batch(0, step) for step in range(3)])
    assert_close(model, alone)


def test_a_join_block_that_ended_by_an_error_is_over():
    model = net()
    optimizer = cairn.DistributedOptimizer(sgd(model), model)
    with pytest.raises(ZeroDivisionError), optimizer.join():
        1 / 0
    before = copied(model)
    with optimizer.join():
        train(model, optimizer, [batch(0, 0)])
    assert differs(model, before)


def test_the_default_dtype_of_torch_does_not_matter(worker):
    """Memory that the extension writes is float32 whatever torch.zeros() makes by default."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        model = torch.nn.Linear(40, 30).float()
        optimizer = cairn.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=0.1), model)
        model(torch.ones(4, 40, dtype=torch.float32)).sum().backward()
        optimizer.step()
        state = optimizer.state_dict()["state"][0]
    finally:
        torch.set_default_dtype(before)
    assert state["exp_avg"].dtype == torch.float32
    assert torch.allclose(state["exp_avg"], torch.full((30, 40), 0.4))


@pytest.mark.parametrize("samples", [float("nan"), -1, float("inf")])
def test_samples_that_are_no_number_of_samples(worker, samples):
    model = torch.nn.Linear(2, 1)
    optimizer = cairn.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model)
    model(torch.ones(1, 2)).sum().backward()
    with pytest.raises(ValueError, match="number of samples"):
        optimizer.step(samples=samples)
