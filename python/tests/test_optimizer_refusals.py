"""What DistributedOptimizer refuses, and in which words: at the wrap where it can."""
import pytest
import torch
from torch import nn

import cairn
from optimizer_workers.problems import assert_close, assert_same, backward, batch, copied, loss_of, net, train

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


def two_params():
    return nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(3))


def with_table(kind, **settings):
    return cairn.DistributedOptimizer(kind(cairn.nn.Embedding(4, 2).parameters(), **settings))


TABLES = {
    "Adam": (lambda: with_table(torch.optim.Adam), "Adam changes every row.*torch.optim.SparseAdam, SGD"),
    "AdamW": (lambda: with_table(torch.optim.AdamW), "AdamW changes every row.*torch.optim.SparseAdam, SGD"),
    "RMSprop": (lambda: with_table(torch.optim.RMSprop), "RMSprop changes every row.*torch.optim.Adagrad, SGD"),
    "momentum": (lambda: with_table(torch.optim.SGD, lr=0.1, momentum=0.5),
                 "SGD with momentum=0.5 would change rows.*group of its own with momentum=0"),
    "weight decay": (lambda: with_table(torch.optim.Adagrad, weight_decay=0.25),
                     "Adagrad with weight_decay=0.25 would.*with weight_decay=0"),
    "SparseAdam for ordinary parameters": (
        lambda: cairn.DistributedOptimizer(torch.optim.SparseAdam([two_params()[0]])),
        "SparseAdam is for tables .* alone.*to another optimizer"),
    "RowwiseAdagrad for ordinary parameters": (
        lambda: cairn.DistributedOptimizer(cairn.optim.RowwiseAdagrad([two_params()[0]])),
        "RowwiseAdagrad is for tables .* alone"),
    "a subclass": (lambda: cairn.DistributedOptimizer(MySGD(two_params(), lr=0.1)),
                   "or use SGD, Adagrad, Adam, AdamW, RMSprop or cairn.optim.FTRL"),
    "differentiable": (lambda: cairn.DistributedOptimizer(torch.optim.SGD(two_params(), lr=0.1, differentiable=True)),
                       'needs the update in this process: use update="worker"'),
}


@pytest.mark.parametrize("what", TABLES)
def test_optimizers_that_do_not_fit_what_they_hold(what):
    make, words = TABLES[what]
    with pytest.raises(ValueError, match=words):
        make()


def test_a_table_whose_rows_a_worker_would_update():
    embedding = cairn.nn.Embedding(4, 2)
    with pytest.raises(cairn.Error, match='update="worker" can\'t train a table.*an optimizer of their own'):
        cairn.DistributedOptimizer(sgd(embedding.parameters()), update="worker")


@pytest.mark.parametrize("kind, settings, option, value", [
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}, "nesterov", True),
    (torch.optim.SGD, {"lr": 0.1}, "maximize", True),
    (torch.optim.SGD, {"lr": 0.1, "maximize": True}, "maximize", False),
    (torch.optim.Adam, {}, "amsgrad", True),
    (torch.optim.Adam, {"amsgrad": True}, "amsgrad", False),
    (torch.optim.RMSprop, {}, "centered", True),
])
def test_what_the_servers_keep_can_not_change_after_the_wrap(kind, settings, option, value):
    param, _ = two_params()
    optimizer = cairn.DistributedOptimizer(kind([param], **settings))
    param.grad = torch.ones(2)
    optimizer.step()
    optimizer.param_groups[0][option] = value
    with pytest.raises(ValueError, match="nesterov, amsgrad, centered or maximize was changed after the wrap"):
        optimizer.step()


def test_momentum_may_fall_to_nothing_and_come_back():
    param, _ = two_params()
    optimizer = cairn.DistributedOptimizer(torch.optim.SGD([param], lr=0.1, momentum=0.5))
    for momentum in (0.5, 0.0, 0.5):
        optimizer.param_groups[0]["momentum"] = momentum
        param.grad = torch.ones(2)
        optimizer.step()
    assert param.tolist() == pytest.approx([-0.35, -0.35])


def test_settings_of_a_table_can_not_change_after_the_wrap():
    embedding = cairn.nn.Embedding(4, 2)
    optimizer = cairn.DistributedOptimizer(torch.optim.Adagrad(embedding.parameters()), embedding)
    embedding(torch.tensor([1])).sum().backward()
    for option, value in (("maximize", True), ("initial_accumulator_value", 1.0)):
        before = optimizer.param_groups[0][option]
        optimizer.param_groups[0][option] = value
        with pytest.raises(ValueError, match="was changed after the wrap.*maximize and initial_accumulator_value"):
            optimizer.step()
        optimizer.param_groups[0][option] = before
    optimizer.step()


def test_groups_can_not_change_or_go_after_the_wrap():
    one, other = two_params()
    for change, words in ((lambda groups: groups.pop(), "groups were removed after the wrap"),
                          (lambda groups: groups[1]["params"].clear(), "parameters of a group were changed"),
                          (lambda groups: groups[1]["params"].__setitem__(0, nn.Parameter(torch.zeros(3))),
                           "parameters of a group were changed.*add_param_group")):
        optimizer = cairn.DistributedOptimizer(sgd([{"params": [one]}, {"params": [other]}]))
        change(optimizer.param_groups)
        one.grad = torch.ones(2)
        with pytest.raises(cairn.Error, match=words):
            optimizer.step()


def test_all_reduced_parameters_are_known_at_the_wrap():
    model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    cairn.assign(model, allreduce=[model[1]])
    with pytest.raises(ValueError, match='update="worker" is for parameters on the servers: leave it out'):
        cairn.DistributedOptimizer(sgd(model.parameters()), model, update="worker")
    with pytest.raises(ValueError, match="overlap=True is for parameters on the servers, and some are all-reduced"):
        cairn.DistributedOptimizer(sgd(model.parameters()), model, overlap=True)
    optimizer = cairn.DistributedOptimizer(sgd(model[0].parameters()), model)
    with pytest.raises(cairn.Error, match="all-reduced can't be added after the wrap"):
        optimizer.add_param_group({"params": list(model[1].parameters())})


def test_names_of_compiled_and_wrapped_models():
    assert cairn._train.served_parts.plain_name("_orig_mod.tower.0.weight") == "tower.0.weight"
    assert cairn._train.served_parts.plain_name("module._orig_mod.tower.weight") == "tower.weight"
    assert cairn._train.served_parts.plain_name("_orig_mod.module.weight") == "weight"
    assert cairn._train.served_parts.plain_name("module") == "module"
    assert cairn._train.served_parts.plain_name("tower.module.weight") == "tower.module.weight"


@pytest.mark.parametrize("samples", [-1, float("inf"), float("nan"), "2"])
def test_samples_that_are_no_number_of_samples(samples):
    param, _ = two_params()
    optimizer = cairn.DistributedOptimizer(sgd([param]))
    param.grad = torch.ones(2)
    with pytest.raises(ValueError, match=f"samples is {samples!r}: give the number"):
        optimizer.step(samples=samples)
    with pytest.raises(ValueError, match="max_norm is -1.0"):
        optimizer.clip_grad_norm_(-1.0)


def test_what_overlap_can_not_do():
    param, _ = two_params()
    with pytest.raises(ValueError, match='overlap=True is for updates on the servers'):
        cairn.DistributedOptimizer(sgd([param]), update="worker", overlap=True)
    optimizer = cairn.DistributedOptimizer(sgd([param]), overlap=True)
    with pytest.raises(ValueError, match=r"clip_grad_norm_\(\) with overlap=True"):
        optimizer.clip_grad_norm_(1.0)
    with pytest.raises(ValueError, match="samples= with overlap=True"):
        optimizer.step(samples=2)
    optimizer.found_inf, optimizer.grad_scale = torch.zeros(1), torch.ones(1)  # as GradScaler does it
    with pytest.raises(ValueError, match="a GradScaler with overlap=True"):
        optimizer.step()
    assert not hasattr(optimizer, "found_inf") and not hasattr(optimizer, "grad_scale")


@pytest.mark.parametrize("ids", [[1], [1, 2]])  # torch would do nothing, or fail in words about shapes
def test_the_inner_optimizer_does_not_step_a_table(ids):
    embedding = cairn.nn.Embedding(4, 2)
    inner, other = sgd(embedding.parameters()), sgd(embedding.parameters())
    optimizer = cairn.DistributedOptimizer(inner, embedding)
    for step, words in ((inner.step, r"this SGD is wrapped.*call step\(\) of the DistributedOptimizer"),
                        (other.step, "trained on the servers, and SGD alone.*cairn.DistributedOptimizer that the table")):
        before = embedding(torch.tensor(ids)).detach()
        embedding(torch.tensor(ids)).sum().backward()
        with pytest.raises(cairn.Error, match=words):
            step()
        optimizer.step()
        optimizer.zero_grad()
        torch.testing.assert_close(embedding(torch.tensor(ids)).detach(), before - 0.1)


@pytest.mark.parametrize("options, reduced", [({}, False), ({}, True), ({"update": "worker"}, False),
                                              ({"mode": cairn.Async()}, False)])
def test_the_inner_optimizer_does_not_step_what_is_wrapped(options, reduced):
    model, alone = net(), net()
    if reduced:
        cairn.assign(model, "auto")
    inner, plain = sgd(model.parameters()), sgd(alone.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(inner, 2, gamma=0.5)
    optimizer = cairn.DistributedOptimizer(inner, model, **options)
    plain_scheduler = torch.optim.lr_scheduler.StepLR(plain, 2, gamma=0.5)
    for number in range(4):
        for wrong in (inner.step, lambda: scaler.step(inner), None):
            scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
            optimizer.zero_grad()
            scaler.scale(loss_of(model, batch(0, number))).backward()
            before = copied(model)
            if wrong is not None:
                with pytest.raises(cairn.Error, match="this SGD is wrapped in a cairn.DistributedOptimizer"):
                    wrong()
                assert_same(model, before)
        scaler.step(optimizer)
        scheduler.step()
        train(alone, plain, [batch(0, number)])
        plain_scheduler.step()
    assert_close(model, alone)
    cairn.shutdown()
    inner.step()  # the model is this process's own from then on
