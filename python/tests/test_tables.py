"""cairn.dense_table and cairn.sparse_table: pushes, pulls, futures, and the tensors that they take."""
import gc
import threading
import time

import numpy as np
import pytest
import torch

import cairn
from cairn._tables import tensors


def test_async_sgd_is_torchs(worker):
    start = torch.linspace(-1, 1, 12).reshape(3, 4)
    table = worker.dense_table("w", (3, 4), mode=cairn.Async(), optimizer="sgd", lr=0.1, momentum=0.9,
                               weight_decay=0.01, nesterov=True)
    table.assign(start).wait()
    param = torch.nn.Parameter(start.clone())
    optimizer = torch.optim.SGD([param], lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True)
    for step in range(5):
        param.grad = torch.randn(3, 4, generator=torch.Generator().manual_seed(step))
        optimizer.step()
        table.push(param.grad).wait()
    torch.testing.assert_close(table.pull().result(), param.detach(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name, kind, settings", [
    ("adagrad", torch.optim.Adagrad, {"lr": 0.1, "lr_decay": 0.05, "initial_accumulator_value": 0.2}),
    ("adam", torch.optim.Adam, {"lr": 0.02, "betas": (0.8, 0.99), "amsgrad": True}),
    ("adamw", torch.optim.AdamW, {"lr": 0.02, "weight_decay": 0.1}),
    ("rmsprop", torch.optim.RMSprop, {"lr": 0.02, "alpha": 0.9, "momentum": 0.5, "centered": True}),
    ("sgd", torch.optim.SGD, {"lr": 0.02, "maximize": True}),
])
def test_sync_optimizers_are_torchs(worker, name, kind, settings):
    table = worker.dense_table(f"w-{name}", 7, optimizer=name, init=0.5, **settings)
    param = torch.nn.Parameter(torch.full((7,), 0.5))
    optimizer = kind([param], **settings)
    for step in range(4):
        param.grad = torch.randn(7, generator=torch.Generator().manual_seed(step))
        optimizer.step()
        got = table.push_pull(param.grad).result()
    torch.testing.assert_close(got, param.detach(), rtol=1e-6, atol=1e-6)
    assert table.round() == 4


def test_settings_of_one_push(worker):
    table = worker.dense_table("w", 2, mode="async", optimizer="sgd", lr=1.0)
    table.push(torch.ones(2)).wait()
    table.push(torch.ones(2), lr=0.25).wait()
    assert table.pull().result().tolist() == [-1.25, -1.25]
    with pytest.raises(cairn.InvalidArgumentError, match="no betas.*takes dampening, lr"):
        table.push(torch.ones(2), betas=(0, 0))
    with pytest.raises(cairn.InvalidArgumentError, match="made without momentum"):
        table.push(torch.ones(2), momentum=0.9)


def test_sums_of_integers(worker):
    table = worker.dense_table("n", (2, 2), mode="async", optimizer="sum", dtype=torch.int64)
    table.push(torch.tensor([[1, 2], [3, 2**40]])).wait()
    assert table.push_pull(torch.ones(2, 2, dtype=torch.int64)).result().tolist() == [[2, 3], [4, 2**40 + 1]]


def test_done_is_a_round_without_a_gradient(worker):
    table = worker.dense_table("w", 2, optimizer="sgd", lr=1.0)
    table.done(lr=1.0).wait()
    assert table.round() == 1
    assert table.pull().result().tolist() == [0, 0]


def test_sparse_rows(worker):
    table = worker.sparse_table("rows", 3, mode=cairn.Async(), optimizer="sgd", lr=1.0, init=("normal", 0, 1, 7))
    keys = torch.tensor([[5, -1], [2**62, 5]])
    before = table.pull(keys).result()
    assert before.shape == (2, 2, 3) and torch.equal(before[0, 0], before[1, 1])
    assert len({tuple(r) for r in before.reshape(-1, 3).tolist()}) == 3
    after = table.push_pull(keys, torch.ones(2, 2, 3)).result()
    expected = before - torch.tensor([[2.0, 1.0], [1.0, 2.0]]).unsqueeze(-1)  # 5 comes twice: summed
    torch.testing.assert_close(after, expected)
    # A negative key is the same row as its bits.
    unsigned = np.array([2**64 - 1], dtype=np.uint64)
    assert torch.equal(table.pull(torch.from_numpy(unsigned)).result()[0], after[0, 1])
    assert torch.equal(table.pull([5]).result()[0], after[0, 0])
    assert table.pull([]).result().shape == (0, 3)


def test_keys_that_are_none(worker):
    table = worker.sparse_table("rows", 3, mode="async")
    for keys in (torch.ones(2), torch.ones(2, dtype=torch.int32), [1.5], ["a"], object()):
        with pytest.raises(cairn.InvalidArgumentError, match="keys are"):
            table.pull(keys)


@pytest.mark.parametrize("wrong, message", [
    (torch.ones(3), r'table "w" has shape \(2, 3\), gradient has shape \(3,\)'),
    (torch.ones(2, 3, dtype=torch.float64), r"gradient is float64 of shape \(2, 3\): convert it with .float\(\)"),
    (torch.ones(2, 3, dtype=torch.bfloat16), r"bfloat16.*\.float\(\)"),
    (torch.ones(2, 3, dtype=torch.half), r"float16.*\.float\(\)"),
    (torch.ones(2, 3).to_sparse(), r"\.to_dense\(\)"),
    (torch.ones(2, 3, device="meta"), r"device meta"),
    (np.ones((2, 3), np.float32), r"a ndarray, not a torch.Tensor"),
])
def test_tensors_that_are_refused(worker, wrong, message):
    table = worker.dense_table("w", (2, 3), mode="async")
    with pytest.raises(cairn.InvalidArgumentError, match=message):
        table.push(wrong)
    if isinstance(wrong, torch.Tensor):
        with pytest.raises(cairn.InvalidArgumentError, match=message.replace("gradient", "out")):
            table.pull(wrong)


def test_inputs_of_other_layouts_are_copied(worker):
    table = worker.dense_table("w", (2, 3), mode="async", optimizer="sum")
    table.push(torch.arange(6.0).reshape(3, 2).t()).wait()
    assert table.pull().result().tolist() == [[0, 2, 4], [1, 3, 5]]
    negated = torch.complex(torch.zeros(2, 3), torch.ones(2, 3)).conj().imag  # a view with the neg bit
    assert negated.is_neg()
    table.push(negated).wait()
    assert table.pull().result().tolist() == [[-1, 1, 3], [0, 2, 4]]
    table.push(torch.ones(2, 3, requires_grad=True) * 2).wait()
    assert table.pull().result().tolist() == [[1, 3, 5], [2, 4, 6]]


def test_outputs_of_other_layouts_are_written_back(worker):
    table = worker.dense_table("w", (2, 3), mode="async", optimizer="sum")
    table.push(torch.arange(6.0).reshape(2, 3)).wait()
    base = torch.zeros(3, 2)
    out = base.t()
    assert table.pull(out).result() is out
    assert base.tolist() == [[0, 3], [1, 4], [2, 5]]


def test_an_output_is_written_once_however_often_it_is_waited_for(worker):
    table = cairn.dense_table("w", (2, 3), optimizer="sum")
    table.push(torch.ones(2, 3)).wait()
    out = torch.zeros(3, 2).t()  # of another layout: it is written when the call has ended
    future = table.pull(out)
    assert future.result().sum() == 6
    out.fill_(5)
    future.wait()
    assert future.result().sum() == 30, "what was done with it since stays"


def test_a_parameter_as_output(worker):
    table = worker.dense_table("w", 3, mode="async", init=2.0)
    param = torch.nn.Parameter(torch.zeros(3))
    used = (param * param).sum()
    table.pull(param).wait()
    assert param.tolist() == [2, 2, 2] and param.requires_grad and param.grad is None
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        used.backward()  # autograd knows that what it saved is stale
    with pytest.raises(cairn.InvalidArgumentError, match="result of a computation"):
        table.pull(param * 1.0)


def test_not_finite_is_refused_or_allowed(worker):
    strict = worker.dense_table("strict", 3, mode="async", optimizer="sum")
    with pytest.raises(cairn.NotFiniteError, match="strict"):
        strict.push(torch.tensor([0.0, float("nan"), 0.0])).wait()
    assert strict.pull().result().tolist() == [0, 0, 0]
    loose = worker.dense_table("loose", 3, mode="async", optimizer="sum", non_finite="allow")
    loose.push(torch.tensor([0.0, float("inf"), 0.0])).wait()
    assert loose.pull().result().tolist() == [0, float("inf"), 0]


def test_errors_have_names(worker):
    worker.dense_table("w", 3)
    with pytest.raises(cairn.AlreadyExistsError, match='"w"'):
        worker.dense_table("w", 4)
    table = worker.dense_table("gone", 3, mode="async")
    table.drop()
    with pytest.raises(cairn.NotFoundError, match="gone"):
        table.pull().wait()
    with pytest.raises(cairn.InvalidArgumentError, match="asynchronous"):
        worker.dense_table("a", 3, mode="async").round()
    for wrong in ({"optimizer": "lbfgs"}, {"mode": "sometimes"}, {"dtype": torch.half}, {"init": ("normal", 1)},
                  {"reduce": "max"}, {"shape": (2, 0)}):
        with pytest.raises((cairn.InvalidArgumentError, TypeError)):
            worker.dense_table("x", **{"shape": 3, **wrong})
    with pytest.raises(cairn.InvalidArgumentError, match="no momentum"):
        worker.sparse_table("x", 3, momentum=0.9)


def test_a_future_that_takes_too_long(worker):
    table = worker.dense_table("w", 2, mode="async", optimizer="sum")
    unassigned = table.pull(when_assigned=True)
    assert not unassigned.done()
    with pytest.raises(cairn.DeadlineExceededError, match="it goes on"):
        unassigned.wait(timeout=0.05)
    with pytest.raises(TimeoutError):
        table.pull(when_assigned=True, timeout=0.05).wait()
    table.assign(torch.ones(2), once=True).wait()
    assert unassigned.result().tolist() == [1, 1] and unassigned.done()
    table.assign(torch.zeros(2), once=True).wait()
    assert table.pull().result().tolist() == [1, 1]


def test_a_dropped_future_keeps_its_memory_and_does_not_wait(worker):
    table = worker.dense_table("w", 2, mode="async", optimizer="sum")
    out = torch.zeros(2)
    table.pull(out, when_assigned=True)  # the future is gone at once
    gc.collect()
    table.assign(torch.ones(2)).wait()
    until = time.monotonic() + 30
    while out.tolist() != [1, 1]:
        assert time.monotonic() < until
        time.sleep(0.005)


def test_threads_of_one_process(worker):
    table = worker.dense_table("w", 1000, mode="async", optimizer="sum")

    def push():
        for _ in range(50):
            table.push(torch.ones(1000)).wait()

    threads = [threading.Thread(target=push) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert table.pull().result().unique().tolist() == [200]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here: CUDA tensors are not tested")
def test_cuda_tensors_are_staged(worker):
    table = worker.dense_table("w", (2, 3), mode="async", optimizer="sum")
    table.push(torch.arange(6.0, device="cuda").reshape(2, 3)).wait()
    out = torch.zeros(3, 2, device="cuda").t()
    assert table.pull(out).result() is out
    assert out.cpu().tolist() == [[0, 1, 2], [3, 4, 5]]
    rows = worker.sparse_table("rows", 2, mode="async", optimizer="sum")
    assert rows.push_pull(torch.tensor([3, 4], device="cuda"), torch.ones(2, 2, device="cuda"),
                          torch.empty(2, 2, device="cuda")).result().cpu().tolist() == [[1, 1], [1, 1]]


def test_staging_does_not_copy_what_lies_right():
    tensor = torch.ones(4)
    assert tensors.take_input("x", tensor, (4,), torch.float32, "t").address == tensor.data_ptr()
    assert tensors.take_output("x", tensor, (2, 2), torch.float32, "t").address == tensor.data_ptr()


def test_what_has_as_many_elements_but_another_shape_is_refused(worker):
    table = worker.dense_table("shapes", (2, 3), mode=cairn.Async())
    with pytest.raises(cairn.InvalidArgumentError, match=r"\(2, 3\).*\(3, 2\)"):
        table.push(torch.ones(3, 2))
    table.push(torch.ones(6)).wait()  # flat is plain enough
    rows = worker.sparse_table("rows", 4, mode=cairn.Async())
    with pytest.raises(cairn.InvalidArgumentError, match="shape"):
        rows.push(torch.arange(3), torch.ones(4, 3))


def test_what_is_refused_at_once_is_told_to_those_who_do_not_wait(worker):
    table = worker.dense_table("unwaited", 3, mode=cairn.Async())
    with pytest.raises(cairn.NotFiniteError, match="non_finite"):
        table.push(torch.full((3,), float("nan")))
    with pytest.raises(cairn.InvalidArgumentError, match="weight"):
        table.push(torch.ones(3), weight=2.0)


# --- what is asked of the extension ------------------------------------------------------------------------


class Ready:
    """A call that has ended well."""

    def ready(self):
        return True

    def wait(self):
        pass


class Recorder:
    """Stands for the extension's table: notes the calls, of which all end at once."""

    def __init__(self, table):
        self.name, self.dim, self.calls = table.name, getattr(table, "dim", None), []

    def __getattr__(self, name):
        def call(*arguments, **options):
            self.calls.append((name, arguments, options))
            return Ready()
        return call

    def last(self):
        name, arguments, options = self.calls[-1]
        return name, arguments, {key: value for key, value in options.items() if key != "keep"}


def test_each_call_hands_over_all_of_its_options(worker):
    table = worker.dense_table("w", 2, mode="async", lr=0.5, momentum=0.25, dampening=0.125, weight_decay=2.0)
    table._table = seen = Recorder(table._table)
    hyper, changed = (0.5, 2.0, 0.25, 0.0, 0.0, 0.125), (0.75, 2.0, 0.25, 0.0, 0.0, 0.125)
    given, out = torch.ones(2), torch.zeros(2)
    at, into = given.data_ptr(), out.data_ptr()
    assert table.push(given, weight=3.0, timeout=1.5, lr=0.75).result() is None
    assert seen.last() == ("push", ([at], [2], changed), {"weight": 3.0, "timeout_ms": 1500})
    assert table.pull(out, timeout=2).result() is out
    assert seen.last() == ("pull", ([into], [2]), {"when_assigned": False, "timeout_ms": 2000})
    table.push_pull(given, out, weight=3.0, timeout=0.25, lr=0.75)
    assert seen.last() == ("push_pull", ([at], [2], [into], [2], changed), {"weight": 3.0, "timeout_ms": 250})
    table.assign(given, timeout=0.0001)
    assert seen.last() == ("push", ([at], [2], hyper), {"op": cairn._core.OP_ASSIGN, "timeout_ms": 1})
    table.assign(given, once=True)
    assert seen.last() == ("push", ([at], [2], hyper), {"op": cairn._core.OP_ASSIGN_ONCE, "timeout_ms": 0})
    table.done(weight=2.0, timeout=1, lr=0.75)
    assert seen.last() == ("done", (changed,), {"weight": 2.0, "timeout_ms": 1000})
    assert all(call[2].get("keep") is not None for call in seen.calls[:-1])  # the memory outlives the call


def test_each_call_on_rows_hands_over_all_of_its_options(worker):
    table = worker.sparse_table("rows", 2, mode="async", optimizer="sparse_adam", lr=0.5, betas=(0.25, 0.75), eps=1.0)
    table._table = seen = Recorder(table._table)
    hyper, changed = (0.5, 0.0, 0.25, 0.75, 1.0, 0.0), (2.0, 0.0, 0.25, 0.75, 1.0, 0.0)
    keys, given, out = torch.tensor([7]), torch.ones(1, 2), torch.zeros(1, 2)
    at, rows, into = keys.data_ptr(), given.data_ptr(), out.data_ptr()
    table.push(keys, given, weight=3.0, timeout=1.5, lr=2.0)
    assert seen.last() == ("push", (at, 1, rows, changed), {"weight": 3.0, "step": 1, "timeout_ms": 1500})
    table.push_pull(keys, given, out, weight=3.0, timeout=0.5, lr=2.0)
    assert seen.last() == (
        "push_pull", (at, 1, rows, into, changed), {"weight": 3.0, "step": 2, "timeout_ms": 500})
    table.done(weight=2.0, timeout=1, lr=2.0)
    assert seen.last() == ("done", (changed,), {"weight": 2.0, "step": 3, "timeout_ms": 1000})
    table.push(keys, given, step=9)
    assert seen.last()[2]["step"] == 9
    table.push(keys, given)
    assert seen.last()[2]["step"] == 4  # a step that was given is none of those counted here
    for state, column in ((None, 0), ("exp_avg", 1), ("exp_avg_sq", 2), ("step", cairn._core.STEP_COLUMN)):
        table.pull(keys, out, state=state, timeout=3)
        assert seen.last() == ("pull", (at, 1, into), {"column": column, "timeout_ms": 3000})
    table.assign(keys, given, timeout=4)
    assert seen.last() == ("push", (at, 1, rows, hyper), {"op": cairn._core.OP_ASSIGN, "timeout_ms": 4000})
    table.assign(keys, given, once=True)
    assert seen.last()[2]["op"] == cairn._core.OP_ASSIGN_ONCE
    assert all(call[2].get("keep") is not None for call in seen.calls if call[0] != "done")
    with pytest.raises(cairn.InvalidArgumentError, match="keeps no 'sum': it keeps exp_avg, exp_avg_sq, step$"):
        table.pull(keys, state="sum")
    with pytest.raises(cairn.InvalidArgumentError, match="keeps no 'step': it keeps nothing$"):
        worker.sparse_table("plain", 2, mode="async").pull(keys, state="step")
    with pytest.raises(cairn.InvalidArgumentError, match="keeps no 'step': it keeps z, n$"):
        worker.sparse_table("ftrl", 2, mode="async", optimizer="ftrl").pull(keys, state="step")


class Creator:
    """Stands for the client: notes what tables are made with."""

    def __init__(self):
        self.made = {}

    def create_dense(self, name, size, **options):
        self.made = {"name": name, "size": size, **options}
        return Recorder(self)

    def create_sparse(self, name, dim, **options):
        self.made = {"name": name, "dim": dim, **options}
        return Recorder(self)

    name = dim = None


@pytest.fixture
def creator(worker, monkeypatch):
    made = Creator()
    monkeypatch.setattr(type(cairn._runtime.context.current()), "client", made)
    yield made
    monkeypatch.undo()


def test_defaults_of_a_new_table(creator):
    cairn.dense_table("w", 4)
    default = {"dtype": "float32", "optimizer": "sgd", "flags": 0, "non_finite": "reject", "initial_state": 0.0,
               "init": ("zeros", 0.0, 0.0, 0), "mode": "sync", "deterministic": False, "wire": "plain",
               "staleness": cairn._core.UNBOUNDED}
    assert creator.made == {"name": "w", "size": 4, **default}
    cairn.sparse_table("rows", 3)
    assert creator.made == {"name": "rows", "dim": 3, "storage": "float32", **default}


@pytest.mark.parametrize("given, made", [
    ({"mode": "async"}, {"mode": "async", "deterministic": False}),
    ({"mode": cairn.Sync(deterministic=True)}, {"mode": "sync", "deterministic": True}),
    ({"mode": cairn.BoundedStaleness(2)}, {"mode": "async", "deterministic": False, "staleness": 2}),
    ({"non_finite": "allow"}, {"non_finite": "allow"}),
    ({"dtype": torch.int64}, {"dtype": "int64"}),
    ({"wire": "bf16"}, {"wire": "bf16"}),
    ({"init": 2}, {"init": ("constant", 2.0, 0.0, 0)}),
    ({"init": "zeros"}, {"init": ("zeros", 0.0, 0.0, 0)}),
    ({"init": ("uniform", -1, 2)}, {"init": ("uniform", -1.0, 2.0, 0)}),
    ({"init": ("normal", 3, 4, 5)}, {"init": ("normal", 3.0, 4.0, 5)}),
    ({"init": ("constant", 6)}, {"init": ("constant", 6.0, 0.0, 0)}),
    ({"reduce": "sum"}, {"flags": cairn._core.FLAG_REDUCE_SUM}),
    ({"reduce": "sum", "optimizer": "sum"}, {"flags": 0}),
    ({"maximize": True}, {"flags": cairn._core.FLAG_MAXIMIZE}),
    ({"optimizer": "adagrad", "initial_accumulator_value": 0.5}, {"initial_state": 0.5}),
    ({"optimizer": "ftrl", "initial_accumulator_value": 0.5}, {"initial_state": 0.5}),
])
def test_options_of_a_new_table(creator, given, made):
    for make in (cairn.dense_table, cairn.sparse_table):
        make("t", 3, **given)
        assert {key: creator.made[key] for key in made} == made


@pytest.mark.parametrize("given, flags", [
    ({"momentum": 0.9, "nesterov": True}, ("FLAG_MOMENTUM", "FLAG_NESTEROV")),
    ({"momentum": 0.0, "nesterov": False}, ()),
    ({"optimizer": "adam", "amsgrad": True}, ("FLAG_AMSGRAD",)),
    ({"optimizer": "adamw", "amsgrad": True, "maximize": True}, ("FLAG_AMSGRAD", "FLAG_MAXIMIZE")),
    ({"optimizer": "rmsprop", "centered": True, "momentum": 0.5}, ("FLAG_CENTERED", "FLAG_MOMENTUM")),
])
def test_flags_of_a_new_dense_table(creator, given, flags):
    cairn.dense_table("w", (2, 3), wire="topk", wire_topk=0.25, **given)
    assert creator.made["flags"] == sum(getattr(cairn._core, flag) for flag in flags)
    assert creator.made["size"] == 6 and creator.made["wire"] == "topk" and creator.made["wire_topk"] == 0.25


@pytest.mark.parametrize("wrong, words", [
    ({"init": ("normal", 1)}, "init is .'normal', 1.: give a number"),
    ({"init": ("uniform", 0, 1, 2, 3)}, "give a number"),
    ({"init": ("zeros", 1)}, "give a number"),
    ({"init": "ones"}, "give a number"),
    ({"optimizer": "lbfgs"}, '"lbfgs" is unknown: it is one of sum, mean, first, sgd'),
    ({"reduce": "max"}, 'reduce is "max": it is "mean" or "sum"'),
    ({"dtype": torch.half}, "tables hold float32 or int64"),
    ({"amsgrad": True}, '"sgd" has no amsgrad: a table with it takes dampening, lr, momentum, nesterov, weight_decay'),
    ({"initial_accumulator_value": 1.0}, "has no initial_accumulator_value"),
    ({"optimizer": "sum", "lr": 1.0}, '"sum" has no lr: a table with it takes no settings'),
])
def test_refused_by_their_words(creator, wrong, words):
    for make in (cairn.dense_table, cairn.sparse_table):
        with pytest.raises(cairn.InvalidArgumentError, match=words):
            make("t", 3, **wrong)
    assert creator.made == {}
    with pytest.raises(cairn.InvalidArgumentError, match=r'"t" has shape \(2, 0\): every dimension is at least 1'):
        cairn.dense_table("t", (2, 0))
    table = cairn.dense_table("t", 2)
    for timeout in (0, -1, float("nan")):
        with pytest.raises(cairn.InvalidArgumentError, match="not a number of seconds above 0"):
            table.pull(timeout=timeout)


@pytest.mark.parametrize("name, kind", [
    ("sgd", torch.optim.SGD), ("adagrad", torch.optim.Adagrad), ("adam", torch.optim.Adam),
    ("adamw", torch.optim.AdamW), ("rmsprop", torch.optim.RMSprop), ("sparse_adam", torch.optim.SparseAdam),
    ("rowwise_adagrad", cairn.optim.RowwiseAdagrad), ("ftrl", cairn.optim.FTRL),
])
def test_default_settings_are_those_of_the_optimizers(name, kind):
    defaults = kind([torch.nn.Parameter(torch.ones(2, 2))]).defaults
    settings = cairn._tables.hypers.optimizer(name, {}, maximize=False, reduce="mean").settings
    assert settings == {key: defaults[key] for key in settings}
    hyper = cairn._tables.hypers.optimizer(name, {}, maximize=False, reduce="mean").hyper
    assert hyper == cairn._tables.optimizer_settings.hyper_of(name, defaults)


def test_repr_and_names(worker):
    table = worker.dense_table("w", (2, 3), mode="async", optimizer="adam")
    assert repr(table) == "<cairn.DenseTable 'w', (2, 3), adam>" and table.dtype == torch.float32
    rows = worker.sparse_table("rows", 4, mode="async", dtype="int64", optimizer="first")
    assert repr(rows) == "<cairn.SparseTable 'rows', dim 4, first>" and rows.dtype == torch.int64
