"""Tables under DistributedOptimizer, in one process on an embedded cluster: what torch's modules
with sparse gradients come to, and what training loops do besides."""
import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import cairn
from cairn import _core
from row_references import ftrl_row, rowwise_adagrad_row

pytestmark = pytest.mark.usefixtures("worker")

ROWS, DIM = 30, 5
MODES = {"sync": cairn.Sync(), "deterministic": cairn.Sync(deterministic=True), "async": cairn.Async()}
OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD, maximize": lambda p: torch.optim.SGD(p, lr=0.1, maximize=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "Adagrad, lr_decay": lambda p: torch.optim.Adagrad(p, lr=0.1, lr_decay=0.05,
                                                       initial_accumulator_value=0.2),
    "SparseAdam": lambda p: torch.optim.SparseAdam(p, lr=0.02),
    "SparseAdam, betas": lambda p: torch.optim.SparseAdam(p, lr=0.02, betas=(0.5, 0.9), eps=1e-6),
}


def ids_of(step, count=12):
    return torch.randint(0, ROWS, (count,), generator=torch.Generator().manual_seed(step))


def tables(bag=False, sparse=True, **options):
    """A module of ours and torch's with the same rows."""
    kind = "EmbeddingBag" if bag else "Embedding"
    mine = getattr(cairn.nn, kind)(ROWS, DIM, **options)
    theirs = getattr(nn, kind)(ROWS, DIM, sparse=sparse, **options)
    theirs.load_state_dict(mine.state_dict())
    return mine, theirs


def wrapped(make, module, **options):
    return cairn.DistributedOptimizer(make(module.parameters()), module, **options)


def assert_equal_rows(mine, theirs, tolerance=1e-5):
    got, want = mine.state_dict()["weight"], theirs.weight.detach()
    distance = float((got - want).norm())
    assert distance <= tolerance * float(want.norm()), distance


def step_on(module, optimizer, *inputs, clip=None):
    optimizer.zero_grad()
    loss = module(*inputs).sin().sum()
    loss.backward()
    if clip is not None:
        clip()
    optimizer.step()
    return loss


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_fifty_steps_equal_torch(name, mode):
    mine, theirs = tables(padding_idx=3)
    optimizer = wrapped(OPTIMIZERS[name], mine, mode=mode)
    plain = OPTIMIZERS[name](theirs.parameters())
    before = theirs.weight.detach().clone()
    for step in range(50):
        step_on(mine, optimizer, ids_of(step))
        step_on(theirs, plain, ids_of(step))
    assert_equal_rows(mine, theirs)
    assert (theirs.weight - before).norm() > 0.1 and not mine.state_dict()["weight"][3].any()


@pytest.mark.parametrize("name", ["SGD", "Adagrad", "SparseAdam"])
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_fifty_steps_of_bags_equal_torch(name, mode):
    mine, theirs = tables(bag=True, mode=mode)
    optimizer, plain = wrapped(OPTIMIZERS[name], mine), OPTIMIZERS[name](theirs.parameters())
    offsets = torch.tensor([0, 2, 2, 7])
    for step in range(50):
        step_on(mine, optimizer, ids_of(step), offsets)
        step_on(theirs, plain, ids_of(step), offsets)
    assert_equal_rows(mine, theirs)


def lazily(table, optimizer, update):
    """Fifty steps beside `update(key, row, gradient)`, which says what becomes of a row."""
    rows = dict(enumerate(table.state_dict()["weight"].numpy().copy()))
    for step in range(50):
        optimizer.zero_grad()
        table(ids_of(step)).sin().sum().backward()
        keys, gradients = (part.clone().numpy() for part in table.table.rows_of.filed())
        optimizer.step()
        for key, gradient in zip(keys.tolist(), gradients):
            rows[key] = update(key, rows[key], gradient)
    want = np.stack([rows[key] for key in range(ROWS)])
    np.testing.assert_allclose(table.state_dict()["weight"].numpy(), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", [cairn.Sync(), cairn.Async()], ids=["sync", "async"])
def test_rowwise_adagrad_equals_numpy(mode):
    table = cairn.nn.Embedding(ROWS, DIM)
    make = lambda p: cairn.optim.RowwiseAdagrad(p, lr=0.2, eps=1e-6, initial_accumulator_value=0.05)
    sums = {}

    def update(key, row, gradient):
        total = sums.get(key, np.float32(0.05))
        row, sums[key] = rowwise_adagrad_row(row, gradient, total, 0.2, 1e-6)
        return row

    lazily(table, wrapped(make, table, mode=mode), update)


@pytest.mark.parametrize("mode", [cairn.Sync(), cairn.Async()], ids=["sync", "async"])
def test_ftrl_equals_numpy(mode):
    table = cairn.nn.Embedding(ROWS, DIM, name=f"ftrl-{type(mode).__name__}")
    settings = {"lr": 0.2, "beta": 0.7, "l1": 3.0, "l2": 0.1}
    make = lambda p: cairn.optim.FTRL(p, initial_accumulator_value=0.05, **settings)
    state, zeros = {}, []

    def update(key, row, gradient):
        z, n = state.get(key, (np.zeros(DIM, np.float32), np.full(DIM, 0.05, np.float32)))
        row, *state[key] = ftrl_row(row, gradient, z, n, **settings)
        zeros.append(int((row == 0).sum()))
        return row

    lazily(table, wrapped(make, table, mode=mode), update)
    assert 0 < sum(zeros) < DIM * len(zeros)


def test_ftrl_of_ordinary_parameters_equals_the_one_here():
    torch.manual_seed(0)
    mine = nn.Linear(4, 3)
    alone = copy.deepcopy(mine)
    make = lambda p: cairn.optim.FTRL(p, lr=0.2, beta=0.7, l1=0.05, l2=0.1)
    optimizer, plain = wrapped(make, mine), make(alone.parameters())
    for step in range(20):
        x = torch.randn(6, 4, generator=torch.Generator().manual_seed(step))
        step_on(mine, optimizer, x)
        step_on(alone, plain, x)
    assert torch.allclose(mine.weight, alone.weight, rtol=1e-5, atol=1e-6)
    assert not torch.equal(mine.weight, torch.zeros(3, 4))


# Keys.
def test_rows_of_any_key_are_trained():
    table = cairn.nn.Embedding(None, DIM)
    keys = torch.tensor([-1, 2**62, 0, -(2**63), 77])
    before = table(keys).detach()
    optimizer = wrapped(OPTIMIZERS["SGD"], table)
    optimizer.zero_grad()
    table(keys[[0, 1, 1]]).sum().backward()
    optimizer.step()
    expected = before.clone()
    expected[0] -= 0.1
    expected[1] -= 0.2
    assert torch.allclose(table(keys), expected)
    found, rows = table.export()
    assert found.tolist() == [-1, 2**62] and torch.allclose(rows, expected[:2])


def test_reading_never_makes_a_row():
    table = cairn.nn.Embedding(None, DIM)
    optimizer = wrapped(OPTIMIZERS["SGD"], table)
    for _ in cairn.prefetch([torch.arange(9)] * 2, lambda b: {table: b}):
        table(torch.arange(50))
        optimizer.step()
    assert table.export()[0].numel() == 0


def test_initial_rows_are_the_same_before_and_after_the_wrap():
    table = cairn.nn.Embedding(None, DIM, init=("uniform", -1, 1), seed=4)
    keys = torch.arange(-500, 500)
    before = table(keys).detach()
    wrapped(OPTIMIZERS["SGD"], table)
    assert table.table.rows_of.table is not None and torch.equal(table(keys), before)


# Loops.
class TwoTowers(nn.Module):
    def __init__(self, **kinds):
        super().__init__()
        torch.manual_seed(2)
        self.rows = kinds.get("rows") or cairn.nn.Embedding(ROWS, DIM)
        self.top = nn.Linear(DIM, 2)

    def forward(self, ids):
        return self.top(self.rows(ids)).tanh()


def towers(make, **options):
    """A model on the servers and one in this process, with their optimizers."""
    mine = TwoTowers()
    theirs = TwoTowers(rows=nn.Embedding(ROWS, DIM))
    theirs.load_state_dict(mine.state_dict())
    return mine, wrapped(make, mine, **options), theirs, make(theirs.parameters())


def assert_equal_models(mine, theirs, tolerance=1e-5):
    for (name, a), b in zip(mine.state_dict().items(), theirs.state_dict().values()):
        assert float((a - b).norm()) <= tolerance * float(b.norm()) + 1e-8, name


SGD = OPTIMIZERS["SGD"]


def test_a_model_of_tables_and_dense_layers():
    mine, optimizer, theirs, plain = towers(SGD)
    for step in range(10):
        step_on(mine, optimizer, ids_of(step))
        step_on(theirs, plain, ids_of(step))
    assert_equal_models(mine, theirs)


@pytest.mark.parametrize("mode", [cairn.Sync(), cairn.Async()], ids=["sync", "async"])
def test_what_others_push_between_two_forwards_is_seen_in_async(mode):
    """Without a step of one's own. In Sync() nothing changes between two steps."""
    table = cairn.nn.Embedding(ROWS, DIM)
    wrapped(lambda p: torch.optim.SGD(p, lr=1.0), table, mode=mode)
    ids, keys, rows = torch.tensor([1, 2]), torch.tensor([2]), torch.ones(1, DIM)
    before = table(ids).detach().clone()
    op = _core.OP_UPDATE if mode == cairn.Async() else _core.OP_ASSIGN  # what is no round
    table.table.rows_of.table.push(keys.data_ptr(), 1, rows.data_ptr(), (1.0,) + 5 * (0.0,), op=op,
                                   keep=(keys, rows)).wait()
    after = table(ids).detach()
    assert torch.equal(after[0], before[0])
    assert torch.equal(after[1], before[1] - 1 if mode == cairn.Async() else before[1])


def test_two_forwards_before_a_backward():
    mine, optimizer, theirs, plain = towers(SGD)
    for step in range(5):
        for model, opt in ((mine, optimizer), (theirs, plain)):
            opt.zero_grad()
            first, second = model(ids_of(step)), model(ids_of(step + 100))
            (first.mean() * second.mean()).backward()  # of sums it is so steep that rounding grows
            opt.step()
    assert_equal_models(mine, theirs)


def test_accumulation():
    mine, optimizer, theirs, plain = towers(SGD)
    for step in range(9):
        for model, opt in ((mine, optimizer), (theirs, plain)):
            model(ids_of(step)).sin().sum().backward()
            if step % 3 == 2:
                opt.step()
                opt.zero_grad(set_to_none=step > 4)
    assert_equal_models(mine, theirs)


@pytest.mark.parametrize("mode", [cairn.Sync(), cairn.Async()], ids=["sync", "async"])
def test_clipping_over_rows_and_dense_together(mode):
    mine, optimizer, theirs, plain = towers(SGD, mode=mode)
    for step in range(5):
        norms = []
        step_on(mine, optimizer, ids_of(step),
                clip=lambda: norms.append(optimizer.clip_grad_norm_(0.5)))
        step_on(theirs, plain, ids_of(step),
                clip=lambda: norms.append(nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)))
        torch.testing.assert_close(*norms, rtol=1e-5, atol=0.0)
        assert norms[0] > 0.5  # something is clipped
    assert_equal_models(mine, theirs)


@pytest.mark.parametrize("unscales", [False, True])
@pytest.mark.parametrize("mode", [cairn.Sync(), cairn.Async()], ids=["sync", "async"])
def test_amp(mode, unscales):
    """Steps under a GradScaler, one of them with an overflow in the rows' gradient alone."""
    mine, optimizer, theirs, plain = towers(SGD, mode=mode)
    scalers = [torch.amp.GradScaler("cpu", init_scale=2.0**10) for _ in range(2)]
    for step in range(6):
        for model, opt, scaler in zip((mine, theirs), (optimizer, plain), scalers):
            opt.zero_grad()
            loss = model(ids_of(step)).sin().sum()
            if step == 3:
                loss = loss + model.rows(ids_of(step)).sum() * torch.tensor(torch.inf)
            scaler.scale(loss).backward()
            if unscales:
                scaler.unscale_(opt)
                if model is mine:
                    optimizer.clip_grad_norm_(0.5)
                else:
                    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(opt)
            scaler.update()
        assert scalers[0].get_scale() == scalers[1].get_scale() == (2.0**10 if step < 3 else 2.0**9)
    assert_equal_models(mine, theirs)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing(reentrant):
    mine, optimizer, theirs, plain = towers(SGD)
    for step in range(5):
        for model, opt in ((mine, optimizer), (theirs, plain)):
            opt.zero_grad()
            scale = torch.ones(1, requires_grad=True)
            checkpoint(lambda s: model(ids_of(step)) * s, scale,
                       use_reentrant=reentrant).sum().backward()
            opt.step()
    assert_equal_models(mine, theirs)


def test_frozen_tables_stay():
    mine, optimizer, theirs, plain = towers(SGD)
    step_on(mine, optimizer, ids_of(0))
    step_on(theirs, plain, ids_of(0))
    mine.rows.requires_grad_(False)
    theirs.rows.requires_grad_(False)
    before = mine.rows.state_dict()["weight"]
    for step in range(1, 4):
        step_on(mine, optimizer, ids_of(step))
        step_on(theirs, plain, ids_of(step))
    assert torch.equal(mine.rows.state_dict()["weight"], before)
    mine.rows.requires_grad_(True)
    theirs.rows.requires_grad_(True)
    step_on(mine, optimizer, ids_of(5))
    step_on(theirs, plain, ids_of(5))
    assert_equal_models(mine, theirs)


def test_evaluation_inside_training():
    """Between forward and backward too; and what it sees is the newest."""
    mine, optimizer, theirs, plain = towers(SGD)
    for step in range(5):
        for model, opt in ((mine, optimizer), (theirs, plain)):
            opt.zero_grad()
            loss = model(ids_of(step)).sin().sum()
            model.eval()
            with torch.inference_mode():
                model(torch.arange(ROWS))
            model.train()
            loss.backward()
            opt.step()
        with torch.no_grad():
            seen = [model(torch.arange(ROWS)) for model in (mine, theirs)]
            torch.testing.assert_close(*seen, rtol=1e-5, atol=1e-6)


def test_a_model_with_two_optimizers():
    """Rows by one, the rest by another, not always in step."""
    mine = TwoTowers()
    theirs = TwoTowers(rows=nn.Embedding(ROWS, DIM, sparse=True))
    theirs.load_state_dict(mine.state_dict())
    optimizers = []
    for model in (mine, theirs):
        parts = [torch.optim.SparseAdam(model.rows.parameters(), lr=0.02),
                 torch.optim.AdamW(model.top.parameters(), lr=0.01)]
        optimizers.append([cairn.DistributedOptimizer(o, model)
                          for o in parts] if model is mine else parts)
    for step in range(8):
        for model, (rows, dense) in zip((mine, theirs), optimizers):
            rows.zero_grad()
            dense.zero_grad()
            model(ids_of(step)).sin().sum().backward()
            rows.step()
            if step % 2:
                dense.step()
    assert_equal_models(mine, theirs)


def test_groups_have_rates_of_their_own_and_schedulers_change_them():
    mine, theirs = TwoTowers(), TwoTowers(rows=nn.Embedding(ROWS, DIM))
    theirs.load_state_dict(mine.state_dict())
    optimizers = []
    for model in (mine, theirs):
        plain = torch.optim.SGD([{"params": model.rows.parameters(), "lr": 0.3},
                                 {"params": model.top.parameters()}], lr=0.05)
        optimizers.append(plain if model is theirs else cairn.DistributedOptimizer(plain, model))
    schedulers = [torch.optim.lr_scheduler.ExponentialLR(o, 0.7) for o in optimizers]
    for step in range(5):
        for model, opt, scheduler in zip((mine, theirs), optimizers, schedulers):
            step_on(model, opt, ids_of(step))
            scheduler.step()
    assert_equal_models(mine, theirs)


def test_half_precision_rows_are_kept_in_float32():
    table = cairn.nn.Embedding(None, DIM, dtype=torch.bfloat16, init=1.0)
    optimizer = wrapped(lambda p: torch.optim.SGD(p, lr=1e-3), table)
    for step in range(10):  # each too small to be seen in bfloat16
        optimizer.zero_grad()
        out = table(torch.tensor([4]))
        assert out.dtype == torch.bfloat16
        out.sum().backward()
        optimizer.step()
    keys, rows = table.export()
    assert keys.tolist() == [4] and rows.dtype == torch.float32
    assert torch.allclose(rows, torch.full((1, DIM), 0.99))


def test_the_backward_pass_of_a_compiled_model():
    mine, optimizer, theirs, plain = towers(SGD)
    compiled = torch.compile(mine, backend="aot_eager")
    for step in range(3):
        step_on(compiled, optimizer, ids_of(step))
        step_on(theirs, plain, ids_of(step))
    assert_equal_models(mine, theirs)


# Values.
def test_from_torch_trains_on_from_where_torch_was():
    theirs = nn.Embedding(ROWS, DIM, sparse=True)
    mine = cairn.nn.Embedding.from_torch(theirs)
    optimizer = wrapped(OPTIMIZERS["Adagrad"], mine)
    plain = OPTIMIZERS["Adagrad"](theirs.parameters())
    assert mine.table.rows_of.loaded() is None and torch.equal(mine(ids_of(0)), theirs(ids_of(0)))
    for step in range(5):
        step_on(mine, optimizer, ids_of(step))
        step_on(theirs, plain, ids_of(step))
    assert_equal_rows(mine, theirs)
    assert mine.export()[0].tolist() == list(range(ROWS))


def test_loading_after_the_wrap_asks_for_push_parameters():
    mine, optimizer, theirs, plain = towers(SGD)
    step_on(mine, optimizer, ids_of(0))
    mine.load_state_dict(theirs.state_dict())
    assert torch.equal(mine(ids_of(1)), theirs(ids_of(1)))  # as loaded, before anybody else knows
    with pytest.raises(cairn.ParametersChangedError, match="push_parameters"):
        step_on(mine, optimizer, ids_of(1))
    optimizer.push_parameters()
    step_on(mine, optimizer, ids_of(1))
    step_on(theirs, plain, ids_of(1))
    assert_equal_models(mine, theirs)


def test_a_state_dict_of_trained_rows_goes_into_torch_and_back():
    mine, optimizer, theirs, plain = towers(SGD)
    for step in range(3):
        step_on(mine, optimizer, ids_of(step))
    theirs.load_state_dict(mine.state_dict())
    again = TwoTowers()
    again.load_state_dict(theirs.state_dict())
    assert torch.equal(again(torch.arange(ROWS)), mine(torch.arange(ROWS)))


def test_export_goes_into_another_table():
    first = cairn.nn.Embedding(None, DIM)
    optimizer = wrapped(SGD, first)
    step_on(first, optimizer, torch.tensor([-5, 3, 2**50]))
    second = cairn.nn.Embedding(None, DIM)
    second.load_rows(*first.export())
    wrapped(SGD, second)
    assert torch.equal(second(torch.tensor([3, -5, 2**50])), first(torch.tensor([3, -5, 2**50])))


def test_a_large_table_is_saved_in_pieces(monkeypatch):
    from cairn._rows import row_source

    monkeypatch.setattr(row_source, "CALL_BYTES", 7 * 4 * DIM)
    mine, theirs = tables()
    optimizer, plain = wrapped(SGD, mine), SGD(theirs.parameters())
    step_on(mine, optimizer, ids_of(0))
    step_on(theirs, plain, ids_of(0))
    assert_equal_rows(mine, theirs)


def test_wrapping_again_with_the_same_settings_goes_on_and_with_others_raises():
    mine, theirs = tables()
    plain = OPTIMIZERS["Adagrad"](theirs.parameters())
    for step in range(4):
        optimizer = wrapped(OPTIMIZERS["Adagrad"], mine)  # a notebook's cell that is run again
        step_on(mine, optimizer, ids_of(step))
        step_on(theirs, plain, ids_of(step))
    assert_equal_rows(mine, theirs)
    for other in (lambda: wrapped(SGD, mine), lambda: wrapped(
        OPTIMIZERS["Adagrad"], mine, mode=cairn.Async())):
        with pytest.raises(cairn.Error, match="is trained already.*make the model anew"):
            other()
