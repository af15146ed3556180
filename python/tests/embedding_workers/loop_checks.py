"""Two workers: what loops do with tables besides plain steps."""
import copy

import torch
from torch import nn

import cairn
from embedding_workers.problems import DIM, ROWS, all_batches, batch, loss_of, pair, step, step_of_all
from optimizer_workers.checks import Checks
from optimizer_workers.problems import assert_close, copied

CHECKS = Checks()


def sgd(params):
    return torch.optim.SGD(params, lr=0.5)


def towers():
    mine, alone = pair()
    return mine, cairn.DistributedOptimizer(
        sgd(mine.parameters()), mine), alone, sgd(alone.parameters())


@CHECKS
def clipping_is_by_the_norm_of_the_mean_over_rows_and_dense(rank):
    mine, optimizer, alone, plain = towers()
    for number in range(4):
        optimizer.zero_grad()
        loss_of(mine, batch(rank, number)).backward()
        norm = optimizer.clip_grad_norm_(0.01)
        optimizer.step()
        plain.zero_grad()
        sum(loss_of(alone, one) for one in all_batches(number)).div(cairn.world_size()).backward()
        expected = nn.utils.clip_grad_norm_(alone.parameters(), 0.01)
        torch.testing.assert_close(norm, expected, rtol=1e-5, atol=0.0)
        assert norm > 0.01
        plain.step()
    assert_close(mine, alone)
    return mine


@CHECKS
def an_overflow_in_one_workers_rows_skips_the_step_on_all(rank):
    mine, optimizer, alone, plain = towers()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
    for number in range(4):
        optimizer.zero_grad()
        loss = loss_of(mine, batch(rank, number))
        if number == 2 and rank == 1:
            loss = loss + mine.user(torch.tensor([3])).sum() * torch.inf
        scaler.scale(loss).backward()
        before = copied(mine)
        scaler.step(optimizer)
        scaler.update()
        if number == 2:
            assert all(torch.equal(before[name], now) for name, now in mine.state_dict().items())
        else:
            step_of_all(alone, plain, all_batches(number))
    assert_close(mine, alone)
    return mine


@CHECKS
def a_worker_without_rows_takes_part(rank):
    """Now this worker uses a table, now that one, now none; then a whole step without gradients."""
    table = cairn.nn.Embedding(ROWS, DIM)
    alone = nn.Embedding(ROWS, DIM, sparse=True)
    alone.load_state_dict(table.state_dict())
    optimizer = cairn.DistributedOptimizer(torch.optim.SparseAdam(table.parameters(), lr=0.1))
    plain = torch.optim.SparseAdam(alone.parameters(), lr=0.1)
    for number in range(6):
        users = [(0,), (1,), (0, 1), (), (1,), (0,)][number]
        ids = [batch(r, number)[0] for r in range(2)]
        optimizer.zero_grad()
        plain.zero_grad()
        if rank in users:
            table(ids[rank]).sin().sum().backward()
        optimizer.step()
        for r in users:
            alone(ids[r]).sin().sum().div(2).backward()
        plain.step()
    assert_close(table, alone)
    return table


@CHECKS
def a_worker_without_rows_counts_with_its_samples(rank):
    table = cairn.nn.Embedding(ROWS, DIM)
    alone = nn.Embedding(ROWS, DIM, sparse=True)
    alone.load_state_dict(table.state_dict())
    optimizer, plain = cairn.DistributedOptimizer(sgd(table.parameters())), sgd(alone.parameters())
    sizes = [2, 6]
    for number in range(4):
        users = [(0,), (1,), (0, 1), ()][number]
        ids = [batch(r, number)[0] for r in range(2)]
        optimizer.zero_grad()
        plain.zero_grad()
        if rank in users:
            table(ids[rank]).sin().sum().backward()
        optimizer.step(samples=sizes[rank])
        for r in users:
            (alone(ids[r]).sin().sum() * (sizes[r] / sum(sizes))).backward()
        plain.step()
    assert_close(table, alone)
    return table


@CHECKS
def workers_that_run_out_of_data(rank):
    mine, optimizer, alone, plain = towers()
    lengths = [3, 5]
    with optimizer.join():
        for number in range(lengths[rank]):
            step(mine, optimizer, batch(rank, number))
    for number in range(5):
        left = [r for r in range(2) if number < lengths[r]]
        step_of_all(alone, plain, [batch(r, number) for r in left])
    assert_close(mine, alone)
    return mine


@CHECKS
def the_state_of_rows_is_saved_by_one_and_loaded_by_all(rank):
    """The root's wins, in one job and in the next."""
    make = lambda params: torch.optim.SparseAdam(params, lr=0.1)
    table, alone = cairn.nn.Embedding(ROWS, DIM), nn.Embedding(ROWS, DIM, sparse=True)
    alone.load_state_dict(table.state_dict())
    optimizer, plain = cairn.DistributedOptimizer(make(table.parameters())), make(alone.parameters())

    def train(numbers):
        for number in numbers:
            step(table_of(table), optimizer, batch(rank, number))
            step_of_all(table_of(alone), plain, all_batches(number))

    train(range(3))
    rows, state = table.state_dict(), optimizer.state_dict()
    for name in ("exp_avg", "exp_avg_sq"):
        torch.testing.assert_close(state["state"][0][name], plain.state_dict()["state"][0][name], rtol=1e-4, atol=1e-6)
    assert state["state"][0]["step"] == 3
    if rank == 1:
        state["state"][0]["exp_avg"] += 1.0
    table = cairn.nn.Embedding(ROWS, DIM)
    table.load_state_dict(rows)
    optimizer = cairn.DistributedOptimizer(make(table.parameters()))
    optimizer.load_state_dict(state)
    train(range(3, 5))
    assert_close(table, alone)
    return table


@CHECKS
def a_copy_of_a_table_is_a_table(rank):
    mine, optimizer, alone, plain = towers()
    step(mine, optimizer, batch(rank, 0))
    before = copied(mine)
    other = copy.deepcopy(mine)
    step(mine, optimizer, batch(rank, 1))
    assert all(torch.equal(before[name], now) for name, now in other.state_dict().items())
    assert not torch.equal(before["user.weight"], mine.state_dict()["user.weight"])
    alone.load_state_dict(before)
    step(other, cairn.DistributedOptimizer(sgd(other.parameters()), other), batch(rank, 2))
    step_of_all(alone, plain, all_batches(2))
    assert_close(other, alone)
    return other


@CHECKS
def the_roots_loaded_rows_win(rank):
    for root in (0, 1):
        torch.manual_seed(10 + rank)
        table = cairn.nn.Embedding.from_torch(nn.Embedding(ROWS, DIM))
        optimizer = cairn.DistributedOptimizer(sgd(table.parameters()), table, root_rank=root)
        torch.manual_seed(10 + root)
        expected = nn.Embedding(ROWS, DIM)
        assert torch.equal(table.state_dict()["weight"], expected.weight)
        step(table_of(table), optimizer, batch(rank, 0))
        torch.manual_seed(50 + rank)
        table.load_state_dict(nn.Embedding(ROWS, DIM).state_dict())
        optimizer.push_parameters()
        torch.manual_seed(50 + root)
        assert torch.equal(table.state_dict()["weight"], nn.Embedding(ROWS, DIM).weight)
    return table


def table_of(table):
    return lambda data: table(data[0])


@CHECKS
def one_worker_alone_may_read_and_save(rank):
    mine, optimizer, alone, plain = towers()
    step(mine, optimizer, batch(rank, 0))
    step_of_all(alone, plain, all_batches(0))
    if rank == 0:
        assert_close(mine, alone)
        keys, rows = mine.user.export()
        used = torch.cat([one[0] for one in all_batches(0)]).unique()
        assert torch.equal(keys, used) and torch.equal(rows, mine.state_dict()["user.weight"][used])
        with torch.inference_mode():
            mine(batch(5, 5))
    step(mine, optimizer, batch(rank, 1))
    step_of_all(alone, plain, all_batches(1))
    assert_close(mine, alone)
    return mine


@CHECKS
def async_pushes_of_all_workers_arrive(rank):
    table = cairn.nn.Embedding(None, DIM, init="zeros")
    plain = torch.optim.SGD(table.parameters(), lr=1.0)
    optimizer = cairn.DistributedOptimizer(plain, mode=cairn.Async())
    keys = torch.tensor([-1, 10 + rank])
    for data in cairn.prefetch([keys] * 10, lambda b: {table: b}):
        optimizer.zero_grad()
        table(data).sum().backward()
        optimizer.step()
    assert torch.equal(table(keys)[1], torch.full((DIM,), -10.0))  # its own are there at once
    cairn.barrier()
    assert torch.equal(table(torch.tensor([-1, 10, 11])),
                       torch.tensor([[-20.0], [-10.0], [-10.0]]).expand(3, DIM))
    return [table(torch.tensor([-1, 10, 11])).detach()]


@CHECKS
def named_tables_may_be_made_in_any_order(rank):
    """Tables are known by name: with names the order does not matter."""
    names = ["left", "right"] if rank == 0 else ["right", "left"]
    made = {name: cairn.nn.Embedding(None, DIM if name == "left" else 2, name=name)
            for name in names}
    ordered = nn.ModuleList([made["left"], made["right"]])
    optimizer = cairn.DistributedOptimizer(sgd(ordered.parameters()), ordered)
    optimizer.zero_grad()
    (made["left"](torch.tensor([1])).sum() + made["right"](torch.tensor([1])).sum()).backward()
    optimizer.step()
    return [module.export()[1] for module in ordered]


@CHECKS
def steps_that_only_some_workers_have_a_gradient_for_are_counted_alike(rank):
    """Rank 0 uses the table in every step, rank 1 in every second one; in every third nobody does."""
    mine = cairn.nn.Embedding(ROWS, DIM)
    alone = nn.Embedding(ROWS, DIM, sparse=True)
    alone.load_state_dict(mine.state_dict())
    make = lambda p: torch.optim.SparseAdam(p, lr=0.05)
    optimizer, plain = cairn.DistributedOptimizer(make(mine.parameters()), mine), make(alone.parameters())
    for number in range(12):
        ids = [torch.arange(3) + number + 5 * r for r in range(2)]
        uses = [number % 3 != 2, number % 3 != 2 and number % 2 == 0]
        optimizer.zero_grad()
        plain.zero_grad()
        if uses[rank]:
            mine(ids[rank]).sin().sum().backward()
        for r in range(2):
            if uses[r]:
                alone(ids[r]).sin().sum().div(2).backward()
        if number % 4 == 3:
            optimizer.clip_grad_norm_(1e9)
        optimizer.step()
        plain.step()
    torch.testing.assert_close(mine.state_dict()["weight"], alone.weight.detach(), rtol=1e-5, atol=1e-6)
    return mine


@CHECKS
def a_skip_while_a_worker_has_run_out_of_data_keeps_the_count(rank):
    mine = cairn.nn.Embedding(ROWS, DIM)
    optimizer = cairn.DistributedOptimizer(torch.optim.SparseAdam(mine.parameters(), lr=0.05), mine)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for epoch in range(2):
        with optimizer.join():
            for number in range(2 if rank else 4):
                optimizer.zero_grad()
                loss = mine(torch.arange(3) + number).sin().sum() * (torch.inf if number == 3 else 1.0)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
    return mine


@CHECKS
def rows_that_only_the_root_has_loaded_are_everybodys(rank):
    for loads in (0, 1):
        table = cairn.nn.Embedding(ROWS, DIM)
        initial = table.state_dict()["weight"]
        if rank == loads:
            table.load_rows(torch.arange(ROWS), torch.ones(ROWS, DIM))
        cairn.DistributedOptimizer(sgd(table.parameters()), table)
        with torch.no_grad():
            found = table(torch.arange(ROWS))
        assert torch.equal(found, torch.ones(ROWS, DIM) if loads == 0 else initial), loads
    return table
