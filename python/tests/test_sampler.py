"""cairn.data.Sampler: every sample once an epoch, whoever comes, goes or dies."""
import gc
import json
import os
import pathlib
import sys
import time
import types

import pytest
import torch
from torch.utils.data import DataLoader

import cairn
from cairn._data import epoch_claims
from cairn._data.epoch_claims import EpochBook, EpochClaims
from cairn._data.epoch_cut import EpochCut, epoch_order, left_over, merged
from cairn._data.epoch_pass import EpochPass
from long_tests import cases

CAIRN = pathlib.Path(os.environ["CAIRN_BIN"]) / "cairn"
WORKER = pathlib.Path(__file__).with_name("sampler_worker.py")


# Arithmetic.
@pytest.mark.parametrize("length, workers, chunk", [(0, 1, 1), (1, 3, 5), (400, 2, 10), (401, 3, 7), (1000, 4, None)])
def test_a_cut_has_each_position_once_and_equal_parts(length, workers, chunk):
    cut = EpochCut.make(length, [], workers, chunk)
    assert [c for part in cut.parts for c in part] == list(range(cut.chunks))
    positions = [p for c in range(cut.chunks) for bounds in cut.positions(c) for p in range(*bounds)]
    assert positions == list(range(length))
    sizes = [sum(end - start for c in part for start, end in cut.positions(c)) for part in cut.parts]
    assert sum(sizes) == length and max(sizes) - min(sizes) <= 1
    assert all(cut.part_of[c] == part for part in range(workers) for c in cut.parts[part])


def test_what_is_left_of_an_epoch_is_cut_again():
    used = [[40, 60], [0, 10], [90, 100], [50, 70]]
    cut = EpochCut.make(100, used, 3, 8)
    positions = [p for c in range(cut.chunks) for bounds in cut.positions(c) for p in range(*bounds)]
    assert positions == [*range(10, 40), *range(70, 90)]
    same = EpochCut.from_numbers(cut.numbers())
    assert [same.positions(c) for c in range(same.chunks)] == [cut.positions(c) for c in range(cut.chunks)]
    assert merged(used) == [(0, 10), (40, 70), (90, 100)] and left_over(5, [[0, 5]]) == []


@pytest.mark.parametrize("length, size", [(60_000, 469), (100, 32), (10_000_000, 4096)])
def test_chunks_are_of_a_sensible_size(length, size):
    assert EpochCut.make(length, [], 2, None).chunk == size


# One process.
def test_it_needs_init_only_when_it_is_used():
    sampler = cairn.data.Sampler(range(10))
    for use in (lambda: list(sampler), lambda: len(sampler), sampler.start_epoch):
        with pytest.raises(cairn.NotInitializedError, match=r"cairn\.init\(\)"):
            use()


def test_a_single_worker_gets_everything_in_an_order_by_seed_and_epoch(worker):
    data = range(1000)
    sampler, other = cairn.data.Sampler(data), cairn.data.Sampler(data, seed=1)
    assert len(sampler) == 1000
    first = list(sampler)
    assert sorted(first) == list(data) and first != list(data)
    sampler.set_epoch(1)
    second = list(sampler)
    assert sorted(second) == list(data) and second != first
    assert list(other) not in (first, second)
    assert list(cairn.data.Sampler(data)) == first
    assert list(cairn.data.Sampler(data, shuffle=False)) == list(data)


def test_an_epoch_may_be_run_again_also_after_a_break(worker):
    sampler = cairn.data.Sampler(range(200), chunk=16)
    whole = list(sampler)
    for _ in zip(range(50), sampler):
        pass
    assert list(sampler) == whole
    assert list(cairn.data.Sampler(range(200), name="twice")) == list(cairn.data.Sampler(range(200), name="twice"))


def test_a_new_cluster_starts_afresh():
    sampler = cairn.data.Sampler(range(50))
    for _ in range(2):
        cairn.init()
        assert len(list(sampler)) == 50
        cairn.shutdown()


@pytest.mark.parametrize("processes", [0, 2])
def test_in_a_loader(worker, processes):
    data = torch.arange(500)
    sampler = cairn.data.Sampler(data)
    loader = DataLoader(data, batch_size=32, sampler=sampler, num_workers=processes)
    assert len(loader) == 16
    for epoch in range(3):
        sampler.set_epoch(epoch)
        assert sorted(torch.cat(list(loader)).tolist()) == list(range(500))


def test_resumes_in_the_middle_to_the_sample(worker):
    sampler = cairn.data.Sampler(range(300), chunk=20, seed=5)
    sampler.set_epoch(3)
    before = [index for index, _ in zip(sampler, range(130))]
    # zip asked for one more than it used: a state counts what was given out.
    state = json.loads(json.dumps(sampler.state_dict()))
    assert state["used"] == [[0, 131]]
    resumed = cairn.data.Sampler(range(300), seed=5)
    resumed.load_state_dict(state)
    assert resumed.epoch == 3 == resumed.start_epoch() and len(resumed) == 169
    after = list(resumed)
    order = epoch_order(300, True, 5, 3).tolist()
    assert before == order[:130] and after == order[131:]
    assert resumed.state_dict()["used"] == [[0, 300]]
    resumed.set_epoch(4)
    assert resumed.state_dict()["used"] == [] and len(list(resumed)) == 300


def test_a_state_that_is_loaded_in_the_midst_of_its_epoch_counts_from_then_on(worker):
    sampler = cairn.data.Sampler(range(100), chunk=10, shuffle=False)
    given = iter(sampler)
    assert [next(given) for _ in range(30)] == list(range(30))
    sampler.load_state_dict(sampler.state_dict() | {"used": [[0, 95]]})
    assert sampler.state_dict()["used"] == [[0, 95]]
    assert list(sampler) == list(range(95, 100))


def test_a_state_of_another_epoch_hides_nothing_of_this_one(worker):
    sampler = cairn.data.Sampler(range(100), chunk=10, shuffle=False)
    sampler.load_state_dict(sampler.state_dict() | {"epoch": 3, "used": [[0, 95]]})
    sampler.set_epoch(0)
    given = iter(sampler)
    assert [next(given) for _ in range(25)] == list(range(25))
    assert sampler.state_dict()["used"] == [[0, 25]]
    sampler.set_epoch(3)
    assert list(sampler) == list(range(95, 100))


def test_a_state_within_a_chunk_of_several_ranges(worker):
    sampler = cairn.data.Sampler(range(100), chunk=20, shuffle=False)
    sampler.load_state_dict(sampler.state_dict() | {"used": [[5, 10], [12, 40]]})
    given = iter(sampler)
    assert [next(given) for _ in range(6)] == [0, 1, 2, 3, 4, 10]
    assert sampler.state_dict()["used"] == [[0, 11], [12, 40]]


@pytest.mark.parametrize("change, words", [
    ({"length": 301}, "length 301, this one has 300"), ({"seed": 7}, "seed 7"), ({"shuffle": False}, "shuffle False"),
    ({"used": [[0, 999]]}, "damaged")])
def test_a_state_of_something_else_is_refused(worker, change, words):
    sampler = cairn.data.Sampler(range(300))
    with pytest.raises(ValueError, match=words):
        sampler.load_state_dict(sampler.state_dict() | change)
    with pytest.raises(ValueError, match="used missing"):
        sampler.load_state_dict({k: v for k, v in sampler.state_dict().items() if k != "used"})


def test_wrong_arguments():
    with pytest.raises(TypeError, match="has no length"):
        cairn.data.Sampler(iter([1]))
    with pytest.raises(ValueError, match="chunk is 0"):
        cairn.data.Sampler([1], chunk=0)
    with pytest.raises(ValueError, match="seed is -1"):
        cairn.data.Sampler([1], seed=-1)
    with pytest.raises(ValueError, match="count from 0"):
        cairn.data.Sampler([1]).set_epoch(-1)


def is_there(name):
    """A table of this name: then another kind of table can't have it."""
    try:
        cairn.init().client.create_sparse(name, 3, dtype="int64", mode="async", optimizer="first")
    except cairn.AlreadyExistsError:
        return True
    return False


def test_tables_of_past_epochs_are_dropped(worker):
    sampler = cairn.data.Sampler(range(100), name="dropping")
    for epoch in range(4):
        sampler.set_epoch(epoch)
        list(sampler)
    assert [is_there(f"dropping/epoch-{epoch}") for epoch in range(4)] == [False, False, True, True]


def test_a_sampler_that_is_gone_leaves_no_tables_in_an_embedded_cluster(worker):
    sampler = cairn.data.Sampler(range(100), name="gone", chunk=10)
    for epoch in range(4):  # broken off: their tables are kept for whoever is still in them
        sampler.set_epoch(epoch)
        next(iter(sampler))
    names = ["gone/epochs", *(f"gone/epoch-{epoch}" for epoch in range(4))]
    assert all(is_there(name) for name in names)
    del sampler
    gc.collect()
    assert not any(is_there(name) for name in names)


def test_a_worker_far_behind_still_finishes_its_part(worker):
    """The others are many epochs ahead, and the first of them has dropped this one's table."""
    sampler = cairn.data.Sampler(range(100), chunk=10, name="behind")
    used = []
    for index in sampler:
        used.append(index)
        if len(used) == 35:
            worker.init().client.drop_table("behind/epoch-0")
    assert sorted(used) == list(range(100))
    assert sampler.state_dict()["used"] == [[0, 100]]


def test_the_first_worker_decides_how_an_epoch_is_cut(worker):
    """So a restarted worker that loads a newer state still cuts as the others did."""
    book = EpochBook(worker.init().client, "agreeing")
    for epoch, first in enumerate(([5], [5, 0], [1, 2, 3, 4, 0, 6, 7])):
        assert book.agree(epoch, 0, first) == (first, False)
        assert book.agree(epoch, 0, [9, 9, 9, 9]) == (first, False)
        assert book.agree(epoch, 1, [8]) == ([8], False)
    book.close(1, 0)
    assert book.agree(1, 0, [9]) == ([5, 0], True)
    assert book.over([(0, 0), (1, 0), (1, 1)]) == [False, True, False]
    assert book.start_epoch() == 2
    book.close(2, 0)
    assert book.start_epoch() == 3


def test_chunks_of_the_dead_are_claimed_again_in_the_next_generation(worker):
    context = worker.init()
    cut = EpochCut.make(100, [], 1, 10)
    claims = EpochClaims(context, "generations", cut.chunks)
    me, (dead, dead_too) = claims.me, (claims.me + 1000, claims.me + 1001)
    for claims.me, chunk, generation, done in [(dead, 3, 0, False), (dead, 4, 0, True), (dead_too, 5, 0, False),
                                               (dead, 5, 1, False), (dead_too, 5, 2, True)]:
        claims.claim(chunk, generation).owner()
        if done:
            claims.mark_done(chunk, generation)
    claims.me = me
    claims._seen |= {dead, dead_too}
    survey = claims.survey()
    assert survey.generation.tolist() == [0, 0, 0, 1, 0, 2, 0, 0, 0, 0]
    run = EpochPass(context, cut, range(100), claims, balance=False)
    assert list(run) == [i for i in range(100) if i // 10 not in (4, 5)]
    assert run.all_done


def test_one_that_joined_just_now_is_not_taken_for_dead(worker, monkeypatch):
    """Until news of it comes, an unknown owner is a live one; then the news decides."""
    context = worker.init()

    class Heard:
        incarnation = context.client.incarnation
        looks = 0
        create_sparse = context.client.create_sparse

        def live_incarnations(self):
            Heard.looks += 1
            return [self.incarnation, self.incarnation + 5] if Heard.looks > 3 else [self.incarnation]

    claims = EpochClaims(type("Context", (), {"client": Heard()})(), "unknown", 2)
    claims.me += 5
    claims.claim(0, 0).owner()
    claims.me -= 5
    Heard.looks = 0
    assert claims.survey().generation.tolist() == [0, 0]
    assert Heard.looks > 3


def test_an_owner_that_nobody_hears_of_is_dead_after_a_while(worker, monkeypatch):
    monkeypatch.setattr(epoch_claims, "NEWS_SECONDS", 0.0)
    claims = EpochClaims(worker.init(), "unheard", 2)
    claims.me += 5
    claims.claim(0, 0).owner()
    claims.me -= 5
    assert claims.survey().generation.tolist() == [1, 0] and claims.me + 5 in claims._seen


def test_marks_are_known_to_the_servers_after_a_flush(worker):
    claims = EpochClaims(worker.init(), "marks", 3)
    for chunk in range(3):
        assert claims.claim(chunk, 0).owner() == claims.me
        claims.mark_done(chunk, 0)
    claims.flush()
    assert claims._marks == [] and claims.survey().done.tolist() == [1, 1, 1]
    worker.init().client.drop_table("marks")
    assert claims.claim(0, 1).owner() == 0
    claims.mark_done(0, 0)
    claims.flush()  # everybody has gone on
    with pytest.raises(cairn.NotFoundError):
        claims.survey()


def test_the_newest_epoch_is_found_beyond_one_look(worker, monkeypatch):
    monkeypatch.setattr(epoch_claims, "EPOCHS_AT_ONCE", 4)
    book = EpochBook(worker.init().client, "looking")
    for epoch in range(9):
        assert book.start_epoch() == epoch
        book.agree(epoch, 0, [1, 2])
        assert book.start_epoch() == epoch
        book.close(epoch, 0)
    book.agree(9, 1, [1])  # a second run of an epoch is none that the job is in
    assert book.start_epoch() == 9


def test_tables_of_epochs_that_were_broken_off_are_kept_for_a_while(worker, monkeypatch):
    monkeypatch.setattr(cairn.data, "_KEPT", 2)
    sampler = cairn.data.Sampler(range(100), name="broken", chunk=10)
    for epoch in range(6):
        sampler.set_epoch(epoch)
        next(iter(sampler))
    assert [is_there(f"broken/epoch-{epoch}") for epoch in range(6)] == [False, False, True, True, True, True]
    sampler.set_epoch(5)
    assert len(list(sampler)) == 100 and is_there("broken/epoch-5.1")  # begun again: a table of its own


def test_the_share_of_one_that_joined(worker, monkeypatch):
    sampler = cairn.data.Sampler(range(100))
    here = cairn._runtime.context.current()
    client = types.SimpleNamespace(live_ranks=lambda: [0, 1, 5])
    joined = types.SimpleNamespace(rank=5, world_size=2, client=client)
    monkeypatch.setattr(cairn._runtime.context, "current", lambda: joined)
    assert len(sampler) == 33
    client.live_ranks = lambda: []
    assert len(sampler) == 100
    joined.rank = 1
    assert len(sampler) == 50
    monkeypatch.setattr(cairn._runtime.context, "current", lambda: here)
    assert len(sampler) == 100


def test_a_part_of_its_own_and_what_is_left_behind(worker):
    """Of four workers, as rank 1 sees them: 3 is dead, and rank 2 has not come to its last chunks."""
    context = worker.init()
    seen = types.SimpleNamespace(rank=1, client=types.SimpleNamespace(live_ranks=lambda: [0, 1, 2]))
    cut = EpochCut.make(80, [], 4, 10)
    survey = epoch_claims.Survey(torch.zeros(8, dtype=torch.int64), torch.tensor([7, 7, 7, 0, 7, 0, 0, 0]),
                                 torch.zeros(8, dtype=torch.int64))
    claims = EpochClaims(context, "left", cut.chunks)
    assert EpochPass(seen, cut, range(80), claims, balance=False)._left_behind(survey) == [(7, 0), (6, 0), (3, 0)]
    assert EpochPass(seen, cut, range(80), claims, balance=True)._left_behind(survey) == [
        (7, 0), (6, 0), (5, 0), (3, 0)]
    seen.rank = 4  # has joined
    assert len(EpochPass(seen, cut, range(80), claims, balance=False)._left_behind(survey)) == 4
    survey.generation[5] = 1  # its owner died
    seen.rank = 1
    assert (5, 1) in EpochPass(seen, cut, range(80), claims, balance=False)._left_behind(survey)


# Real workers.
class Result:
    def __init__(self, folder):
        self.lives = {}  # (rank, life) → list of (epoch, index)
        for path in sorted(folder.glob("used-*")):
            _, rank, life = path.name.split("-")
            self.lives[int(rank), int(life)] = [tuple(map(int, line.split())) for line in path.read_text().splitlines()]
        self.starts = {path.name: path.read_text() for path in folder.glob("start-*")}
        self.state = json.loads((folder / "state").read_text()) if (folder / "state").exists() else None

    def indices(self, rank, life=0, epoch=0):
        return [index for e, index in self.lives.get((rank, life), []) if e == epoch]


def run(job, workers, *arguments, restarts=0, code=0, folder=None):
    folder = folder or job.folder
    child = job.start([CAIRN, "run", "--no-logs", "-s", 1, "-w", workers, "--max-restarts",
                       restarts, "--", sys.executable, WORKER, folder, *arguments],
                      CAIRN_HEARTBEAT_MS=200)
    status, text = job.wait(child)
    assert status == code, text
    result = Result(folder)
    result.text = text
    return result


def part(length, workers, rank, epoch=0):
    return epoch_order(length, True, 0, epoch).tolist()[length * rank // workers:length * (rank + 1) // workers]


@pytest.mark.parametrize("workers, length", cases([(3, 100)], [(2, 401), (3, 2)]))
def test_workers_have_their_own_parts(job, workers, length):
    """Of a fixed set of workers, each has its part of the order and nothing else: every index once,
    the same in every run."""
    result = run(job, workers, "--length", length, "--epochs", 3)
    for rank in range(workers):
        assert result.starts[f"start-{rank}-0"].split()[1] == str(len(part(length, workers, rank)))
        for epoch in range(3):
            assert result.indices(rank, epoch=epoch) == part(length, workers, rank, epoch)
    everything = [i for rank in range(workers) for i in result.indices(rank)]
    assert sorted(everything) == list(range(length))


def test_a_late_worker_keeps_its_part(job):
    result = run(job, 2, "--late", "end-0")
    assert [result.indices(rank) for rank in (0, 1)] == [part(400, 2, 0), part(400, 2, 1)]


def test_with_balance_others_do_the_work_of_a_slow_worker(job):
    result = run(job, 2, "--late", "end-0", "--balance", "--chunk", 10)
    assert sorted(result.indices(0)) == list(range(400)) and result.indices(1) == []


def test_what_a_killed_worker_leaves_is_done_by_the_others(job):
    """Rank 1 dies after 35 samples, in its fourth chunk: three are done, the rest is given to rank 0,
    so that only the 5 samples of the fourth are used twice."""
    result = run(job, 2, "--chunk", 10, "--die-at", 35, "--pause-at", 200, "--pause-for", "alone", code=137)
    dead, survivor = result.indices(1), result.indices(0)
    assert dead == part(400, 2, 1)[:35]
    assert sorted(survivor + dead[:30]) == list(range(400))
    assert survivor[:200] == part(400, 2, 0)
    assert result.state["used"] == [[0, 400]]


def test_a_restarted_worker_goes_on_with_its_part(job):
    """It dies in the second epoch, and its second life finds the first one over."""
    result = run(job, 2, "--chunk", 10, "--die-at", 35, "--pause-at", 190, "--pause-for", "start-1-1", "--epochs", 2,
                 restarts=1)
    assert result.starts["start-1-1"].split()[0] == "1"
    assert result.indices(1, life=1, epoch=0) == []
    first, second, other = result.indices(1, 0, 1), result.indices(1, 1, 1), result.indices(0, 0, 1)
    assert first == part(400, 2, 1, epoch=1)[:35] and len(second) > 0
    assert sorted(first[:30] + second + other) == list(range(400))


def test_a_joining_worker_takes_its_share_from_the_end(job):
    child = job.start([CAIRN, "run", "--no-logs", "-s", 1, "-w", 1, "--", sys.executable,
                       WORKER, job.folder, "--chunk", 10, "--pause-at", 100, "--pause-for", "end-1"])
    end = time.monotonic() + 60
    while not (job.folder / "used-0-0").exists():
        assert time.monotonic() < end, child.log.read_text()
        time.sleep(0.01)  # between looks
    port = (job.folder / "port").read_text()
    joiner = job.python(WORKER, job.folder, "--chunk", 10, CAIRN_ROLE="worker", CAIRN_SCHED_HOST="127.0.0.1",
                        CAIRN_SCHED_PORT=port, CAIRN_NUM_WORKERS=1)
    assert job.wait(joiner)[0] == 0, job.wait(joiner)[1]
    assert job.wait(child)[0] == 0, job.wait(child)[1]
    result = Result(job.folder)
    order = epoch_order(400, True, 0, 0).tolist()
    first, joined = result.indices(0), result.indices(1)
    assert sorted(first + joined) == list(range(400))
    assert joined[:20] == order[390:] + order[380:390]
    assert first == order[:110]  # the chunk in use, and the one claimed ahead


def test_an_interrupted_epoch_goes_on_with_another_number_of_workers(job, tmp_path):
    result = run(job, 3, "--chunk", 10, "--stop-at", 35)
    state = result.state
    used = [i for start, end in state["used"] for i in epoch_order(400, True, 0, 0).tolist()[start:end]]
    expected = [i for rank in range(3) for i in result.indices(rank)[:30]] + result.indices(0)[30:36]
    # Rank 0 was asked for a 36th, which it dropped: it counts as used.
    assert len(used) == 96 and set(expected) < set(used)
    second = tmp_path / "second"
    second.mkdir()
    again = run(job, 2, "--chunk", 10, "--load", job.folder / "state", "--epochs", 2, folder=second)
    for rank in range(2):
        # Nobody waits here: the epoch may be the next one already for the one that came later.
        assert again.starts[f"start-{rank}-0"].split()[1] == "152"
        assert len(again.indices(rank)) == 152 and len(again.indices(rank, epoch=1)) == 200
    assert sorted(used + again.indices(0) + again.indices(1)) == list(range(400))


def test_workers_with_different_datasets_are_told(job):
    result = run(job, 2, "--length-of-rank-1", 300, code=1)
    assert 'the samplers "sampler-0" of the workers do not fit together: samples' in result.text
