"""cache_rows= and cache_steps=: a row is used for so many steps after it was read, and no longer."""
import pytest
import torch
from torch import nn

import cairn
from cairn import InvalidArgumentError, _core
from cairn._tables.optimizer_settings import NO_HYPER
from cairn.nn import Embedding, EmbeddingBag
from optimizer_workers.job import Job
from round_trips import RoundTrips

_made = 0


class Cached:
    """A table that this process trains, and that "another worker" writes to behind its back."""

    def __init__(self, rows=100, steps=3, mode=cairn.Async(), dim=2):
        global _made
        _made += 1
        self.module = Embedding(None, dim, name=f"cached-{_made}", init="zeros", cache_rows=rows,
                                cache_steps=steps)
        self.optimizer = cairn.DistributedOptimizer(
            torch.optim.SGD(self.module.parameters(), lr=1.0), self.module, mode=mode)

    def written_by_another(self, key, value):
        keys = torch.tensor([key])
        row = torch.full((1, self.module.embedding_dim), float(value))
        self.module._rows.table.push(keys.data_ptr(), 1, row.data_ptr(), NO_HYPER, op=_core.OP_ASSIGN,
                                     keep=(keys, row)).wait()

    @torch.no_grad()
    def read(self, *keys):
        return self.module(torch.tensor(keys))[:, 0].tolist()

    def make_hot(self, *keys):
        self.read(*keys)
        self.read(*keys)
        assert self.module.cache_stats().rows >= len(keys)

    def step(self, key=999, gradient=0.0):
        self.optimizer.zero_grad()
        (self.module(torch.tensor([key])) * gradient).sum().backward()
        self.optimizer.step()


@pytest.mark.parametrize("steps", [1, 2, 8])
def test_anothers_update_is_seen_after_so_many_steps_and_never_later(worker, steps):
    table = Cached(steps=steps)
    table.make_hot(7)
    table.written_by_another(7, 5)
    for _ in range(steps):
        assert table.read(7) == [0]
        table.step()
    assert table.read(7) == [0]
    table.step()
    assert table.read(7) == [5]


def test_own_updates_are_seen_no_sooner(worker):
    table = Cached(steps=2)
    table.make_hot(7)
    seen = []
    for _ in range(7):
        seen += table.read(7)
        table.step(7, gradient=-1.0)
    # Read before steps 0, 3 and 6, each time with all steps so far in it.
    assert seen == [0, 0, 0, 3, 3, 3, 6]
    assert table.module.export()[1][0, 0] == 7


def test_a_step_on_other_rows_counts_too_and_so_does_one_without_a_gradient(worker):
    table = Cached(steps=1)
    table.make_hot(7)
    table.written_by_another(7, 5)
    table.step()
    assert table.read(7) == [0]
    table.optimizer.zero_grad()
    table.optimizer.step()
    assert table.read(7) == [5]


@pytest.mark.parametrize("what", ["pull", "load"])
def test_what_makes_all_rows_new(worker, what):
    table = Cached(steps=1000)
    table.make_hot(7, 8)
    table.written_by_another(7, 5)
    assert table.read(7, 8) == [0, 0]
    if what == "pull":
        table.optimizer.pull()
        assert table.read(7, 8) == [5, 0]
    else:
        table.module.load_rows([8], torch.full((1, 2), 3.0))
        assert table.read(7, 8) == [5, 3]
        table.optimizer.push_parameters()
        assert table.read(7, 8) == [5, 3]


def test_export_and_saving_are_never_from_the_cache(worker):
    table = Cached(steps=1000)
    table.make_hot(7)
    table.written_by_another(7, 5)
    assert table.module.export()[1].tolist() == [[5, 5]]
    assert table.read(7) == [0]


def test_hot_rows_are_read_from_nobody(worker):
    table = Cached(steps=1000)
    table.make_hot(1, 2, 3)
    trips = RoundTrips()
    before = table.module.cache_stats()
    for _ in range(10):
        assert table.read(1, 2, 3) == [0, 0, 0]
    assert trips.taken() == [0]
    after = table.module.cache_stats()
    assert after.hits - before.hits == 30 and after.misses == before.misses
    assert 0 < after.hit_rate < 1


def test_rows_and_memory_are_bounded(worker):
    table = Cached(rows=64, steps=1000)
    before = table.module.cache_stats()
    for first in range(0, 2000, 50):
        for _ in range(2):
            table.read(*range(first, first + 50))
    stats = table.module.cache_stats()
    assert stats.rows <= stats.capacity <= 64 and stats.evicted > 1000
    assert stats.bytes == before.bytes < 64 * 2 * 4 + 64 * 16 + 4096


def test_prefetch_reads_before_the_step_and_within_the_bound(worker):
    table = Cached(rows=0, steps=1)
    batches = [torch.tensor([7])] * 5
    seen = []
    for ids in cairn.prefetch(batches, lambda ids: {table.module: ids}):
        table.optimizer.zero_grad()
        out = table.module(ids)
        seen.append(out[0, 0].item())
        (-out).sum().backward()
        table.optimizer.step()
    assert seen == [0, 0, 1, 2, 3]  # one step behind
    assert table.module.export()[1][0, 0] == 5


@pytest.mark.parametrize("steps", [1, 2, 8])
@pytest.mark.parametrize("a_batch", [1, 2])
def test_rows_of_the_cache_that_are_prefetched_keep_the_bound(worker, steps, a_batch):
    """What is written before step c has ended is in all forward passes that begin after step c + the bound."""
    table = Cached(steps=steps)
    ended, written = 0, [0]
    for ids in cairn.prefetch([torch.tensor([7])] * 30, lambda ids: {table.module: ids}):
        assert table.read(7)[0] >= max([value for value in written if value <= ended - steps], default=0)
        written.append(ended + 1)
        table.written_by_another(7, ended + 1)
        for _ in range(a_batch):
            table.step(key=7)
            ended += 1
    assert table.module.cache_stats().hits > 0 or steps == 1


def test_prefetched_rows_that_are_too_old_are_read_anew(worker):
    """Two steps on each batch, and the bound is one."""
    table = Cached(rows=0, steps=1)
    seen = []
    for ids in cairn.prefetch([torch.tensor([7])] * 3, lambda ids: {table.module: ids}):
        for _ in range(2):
            table.optimizer.zero_grad()
            out = table.module(ids)
            seen.append(out[0, 0].item())
            (-out).sum().backward()
            table.optimizer.step()
    assert seen == [0, 1, 2, 3, 4, 5]


def test_prefetched_rows_after_a_pull_are_new(worker):
    table = Cached(rows=0, steps=1000)
    seen = []
    for ids in cairn.prefetch([torch.tensor([7])] * 3, lambda ids: {table.module: ids}):
        seen += table.read(7)
        table.written_by_another(7, len(seen))
        table.optimizer.pull()
    assert seen == [0, 1, 2]


def test_a_bag_trains_with_a_cache(worker):
    torch.manual_seed(1)
    bag = EmbeddingBag(None, 4, mode="sum", init=("normal", 0, 0.1), cache_rows=50, cache_steps=4)
    top = nn.Linear(4, 1)
    model = nn.ModuleList([bag, top])
    optimizer = cairn.DistributedOptimizer(torch.optim.Adagrad(model.parameters(), lr=0.1), model,
                                           mode=cairn.Async())
    ids = torch.randint(40, (64, 3))
    wanted = (ids.sum(1, keepdim=True) % 2).float()
    losses = []
    for _ in cairn.prefetch(range(60), lambda _: {bag: ids}):
        optimizer.zero_grad()
        loss = (top(bag(ids)) - wanted).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert bag.cache_stats().hit_rate > 0.5


# Pushes that a step does not wait for.
def under_way(table):
    return table.module._rows.source._unacknowledged


@pytest.mark.parametrize("settles", ["barrier", "export", "pull", "step"])
def test_who_waits_for_what_a_step_has_left_under_way(worker, settles):
    table = Cached()
    table.step(7, gradient=-1.0)
    (push,) = under_way(table)
    {"barrier": cairn.barrier, "export": table.module.export, "pull": table.optimizer.pull,
     "step": table.optimizer.step}[settles]()
    assert push.ready() and push not in under_way(table)


def test_what_went_wrong_with_it_is_raised_by_the_next_call_once(worker):
    class Failed:
        def wait(self):
            raise cairn.UnavailableError("the server is gone")

    table = Cached()
    under_way(table).append(Failed())
    with pytest.raises(cairn.UnavailableError, match="the server is gone"):
        table.step()
    table.step()


def test_nan_is_refused_at_once(worker):
    table = Cached()
    with pytest.raises(cairn.NotFiniteError, match="is NaN on this worker"):
        table.step(7, gradient=float("nan"))
    table.step(7, gradient=-1.0)
    assert table.module.export()[1].tolist() == [[1, 1]]


# Refusals.
def test_sync_refuses_it(worker):
    with pytest.raises(InvalidArgumentError, match=r"Sync\(\) promises .* use Async\(\)"):
        Cached(mode=cairn.Sync())


@pytest.mark.parametrize("rows, steps", [(10, 0), (-1, 1), (10, -1)])
def test_numbers_that_mean_nothing(rows, steps):
    with pytest.raises(InvalidArgumentError, match="cache_rows="):
        Embedding(None, 2, cache_rows=rows, cache_steps=steps)


def test_modules_that_share_a_table_share_its_cache():
    one = Embedding(None, 2, name="shared cache", cache_rows=10, cache_steps=2)
    same = Embedding(None, 2, name="shared cache", cache_rows=10, cache_steps=2)
    assert one.table is same.table
    with pytest.raises(InvalidArgumentError, match="the same cache_rows and cache_steps"):
        Embedding(None, 2, name="shared cache")


def test_a_table_without_one_has_no_statistics():
    with pytest.raises(InvalidArgumentError, match="has no cache: give its module cache_rows="):
        Embedding(None, 2).cache_stats()


# Two workers, and a server that dies.
def test_the_bound_holds_between_workers_and_over_a_servers_death(cairn_bin):
    job = Job(cairn_bin, "cached_rows.py", options=["--no-progress"])
    assert job.code == 0, job.output
    assert job.of_worker(0, "^killed server"), job.output
    (found,) = job.of_worker(0, r"^(\d+) reads within the bound, (\d+) of them older than the newest$")
    assert int(found[1]) > 100 and int(found[2]) > 10, job.output
    assert " is lost: " in job.output and job.left_behind() == []
