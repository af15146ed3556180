"""script/chaos itself: what it takes in turn, how a leg is repeated, and that a training which differs from
one in peace is noticed. The runs themselves are script/check's."""
import os
import struct
import time
import types

import pytest

import chaos
import chaos_legs
from chaos_at_once import run_at_once
from chaos_legs import INTERRUPTED, LegResult
from chaos_loads import Failed, Training
from chaos_times import Failover, report


def chosen(monkeypatch, words):
    monkeypatch.setattr(chaos_legs, "missing", lambda leg: None)
    options = chaos.parse(words.split())
    return [(leg.name, leg.kills) for leg in chaos_legs.legs(options)[0]]


@pytest.mark.parametrize(("words", "legs"), [
    ("--kills 10 --load soak --schedulers one --no-scaling", [("async", 5), ("sync", 5)]),
    ("--kills 3 --load soak --mode sync --scaling", [("sync-scaling", 1), ("sync-etcd-scaling", 2)]),
    ("--kills 4 --load ctr", [("ctr-scaling", 4)]),
    ("--kills 2 --load lenet --schedulers etcd --scaling", [("lenet-etcd-scaling", 2)]),
    ("--kills 1", [("async", 1)]),
])
def test_options_choose(monkeypatch, words, legs):
    assert chosen(monkeypatch, words) == legs


def test_the_default_takes_everything_in_turn(monkeypatch):
    legs = chosen(monkeypatch, "--kills 40")
    assert sum(kills for _, kills in legs) == 40
    assert all(kills >= 5 for _, kills in legs)
    for part in ("async", "sync", "lenet", "ctr", "etcd", "scaling"):
        assert any(part in name for name, _ in legs), part


def test_a_leg_is_repeated_by_its_own_words(monkeypatch):
    monkeypatch.setattr(chaos_legs, "missing", lambda leg: None)
    options = chaos.parse("--kills 40 --replicas 3".split())
    for leg in chaos_legs.legs(options)[0]:
        again = chaos.parse(leg.repeat(7, options).split()[1:])
        assert again.seed == 7 and again.replicas == 3
        same, = chaos_legs.legs(again)[0]
        assert (same.name, same.kills) == (leg.name, leg.kills)
        assert same.choices(7).random() == leg.choices(7).random()


@pytest.mark.parametrize(("losses", "answer", "says"), [
    ([1.0, 2.0], "0x1p+0", None),
    ([1.0, 2.0000000000000004], "0x1p+0", "step 2 has the loss"),
    ([1.0], "0x1p+0", "has made 2 steps, 1 in peace"),
    ([1.0, 2.0], "0x1p+1", "answers otherwise"),
])
def test_a_training_that_differs_is_noticed(monkeypatch, tmp_path, losses, answer, says):
    training = Training(chaos.parse(["--kills", "1", "--workers", "2"]), "lenet")

    def write(folder, losses, answer):
        folder.mkdir()
        for rank in range(2):
            (folder / f"losses-{rank}").write_bytes(struct.pack(f"<{len(losses)}d", *losses))
        (folder / "answer").write_text(answer)

    monkeypatch.setattr(training, "train_in_peace", lambda steps, folder: write(folder, losses, answer))
    write(tmp_path / "training", [1.0, 2.0], "0x1p+0")
    if says is None:
        assert training.result(tmp_path, "")[:3] == (4, 0, 0)
    else:
        with pytest.raises(Failed, match=says):
            training.result(tmp_path, "")


def named(*names):
    return [types.SimpleNamespace(name=name) for name in names]


def test_legs_run_side_by_side_and_their_results_come_in_order(tmp_path):
    """Two wait for each other: alone, neither would end."""
    def run(leg):
        (tmp_path / leg.name).touch()
        end = time.monotonic() + 60
        while leg.name in "ab" and not all((tmp_path / name).exists() for name in "ab") and time.monotonic() < end:
            time.sleep(0.01)  # between two looks
        return LegResult(leg.name, lost=os.getpid(), twice=len(list(tmp_path.iterdir())))

    results = run_at_once(named("a", "b", "c"), 2, run)
    assert [result.name for result in results] == ["a", "b", "c"]
    assert len({os.getpid(), *(result.lost for result in results)}) == 4, "each in a process of its own"
    assert all(result.twice >= 2 and result.failure is None for result in results)


@pytest.mark.parametrize(("end", "says"), [(lambda: os._exit(1), "its process has died"), (lambda: 1 / 0, "ZeroDivisionError")])
def test_a_leg_that_fails_ends_the_others(tmp_path, end, says):
    def run(leg):
        if leg.name == "bad":
            while not (tmp_path / "other").exists():
                time.sleep(0.01)  # until it is in the middle of its work
            end()
        try:
            (tmp_path / leg.name).touch()
            time.sleep(60)  # ended long before
        except KeyboardInterrupt:
            (tmp_path / "cleaned up").touch()
            raise

    bad, other, never = run_at_once(named("bad", "other", "never"), 2, run)
    assert says in bad.failure
    assert other.failure == INTERRUPTED and (tmp_path / "cleaned up").exists()
    assert never.failure == INTERRUPTED and not (tmp_path / "never").exists()


def test_what_was_lost_in_any_leg_fails_the_run(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(chaos_legs, "missing", lambda leg: None)
    options = chaos.parse("--kills 6 --load soak --schedulers one --no-scaling".split())
    chosen = chaos_legs.legs(options)[0]

    def result(leg, **other):
        return LegResult(leg.name, done=chaos.collections.Counter(scheduler=1, server=1, worker=1), fewest=1000, **other)

    def code(*results):
        tmp_path.mkdir(exist_ok=True)
        return chaos.summary(options, chosen, results, tmp_path, 7)

    assert code(*map(result, chosen)) == 0
    assert code(result(chosen[0]), result(chosen[1], lost=1)) == 1
    assert f"this leg again: {chosen[1].repeat(7, options)}" in capsys.readouterr().out
    assert code(result(chosen[0], twice=1), result(chosen[1])) == 1
    assert code(result(chosen[0], failure="stands still"), result(chosen[1], failure=INTERRUPTED)) == 1
    assert "FAILED after 6 kills (seed 7): stands still" in capsys.readouterr().out
    assert code(result(chosen[0], failure=INTERRUPTED), result(chosen[1])) == 130
    few = LegResult(chosen[1].name, done=chaos.collections.Counter(scheduler=1, server=1, worker=1), fewest=999)
    assert code(result(chosen[0]), few) == 1
    assert "this run does not count: sync: fewer than 1000 acknowledged between two kills" in capsys.readouterr().out


class OneServer:
    """What a failover looks at: no workers, and one server as it is told."""

    accounts = ()

    def __init__(self, incarnation, heard):
        self.server = {"incarnation": incarnation, "connected": heard < 1, "seconds_since_heard": heard}

    def status(self):
        return {"servers": [self.server]}


@pytest.mark.parametrize(("incarnation", "heard", "spared_after", "done", "spared"), [
    (7, 0.2, 0, True, True),       # as it was before, and its time is up
    (7, 0.2, 60, False, False),    # it may still be declared dead
    (7, 3.0, 0, False, False),     # not heard yet
    (7, 0.2, None, False, False),  # its process was killed: the scheduler has not noticed
    (8, 0.2, 0, True, False),      # another one stands there
])
def test_a_server_that_is_heard_again_in_time_has_no_failover(incarnation, heard, spared_after, done, spared):
    failover = Failover(OneServer(incarnation, heard), "server 1", False, 7, spared_after)
    assert failover.look() == done
    assert failover.spared == spared
    lines = "\n".join(report([failover.times()] if done else [], 1.5))
    assert ("heard again" in lines) == spared
    assert ("failover goal" in lines) == (done and not spared)
