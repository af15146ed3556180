"""The table of script/bench from made-up figures: nothing is measured here."""
import json
import pathlib
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "benchmarks"))
from suite import jobs, report, rows  # noqa: E402


def of_round(dense, ring):
    return {"limits": {"ring_sum_gb_per_s": ring, "ring_ping_us": 2.0},
            "full": {"shm": {"dense_push_16mb_sgd": {"value": dense},
                             "small_push": {"value": 10.0}}}}


def row_of(results, work):
    return next(row for row in rows.all_rows(results) if row.work == work)


def test_a_ratio_is_formed_within_its_round():
    # One slow round, for both: the ratios agree although the rates don't.
    results = {"rounds": [of_round(8.0, 10.0), of_round(2.0, 2.5), of_round(8.0, 10.0)]}
    row = row_of(results, "dense push 16 MB, shm")
    assert (row.ours, row.least, row.most) == (8.0, 2.0, 8.0)
    assert row.ratio == pytest.approx(0.8) and row.met is True


def test_a_missed_goal_is_said():
    row = row_of({"rounds": [of_round(6.0, 10.0)]}, "dense push 16 MB, shm")
    assert row.met is False
    assert report.cells(row)[-2:] == ("of limit ≥ 0.7", "NO")


def test_a_time_is_held_to_the_limit_the_other_way_round():
    row = row_of({"rounds": [of_round(6.0, 10.0)]}, "dense push 4 KB, back to back, shm")
    assert row.ratio == pytest.approx(0.2)  # 2 µs are possible, 10 were taken
    assert row.met is False  # at most 8


def test_what_was_not_measured_makes_no_row():
    assert rows.all_rows({"rounds": []}) == []
    # A round without its limits, because they failed: a figure, no ratio and no goal of one.
    row = row_of({"rounds": [{**of_round(6.0, 10.0), "limits": {}}]}, "dense push 16 MB, shm")
    assert (row.ratio, row.limit, row.met) == (None, None, None)


def test_peers_are_in_the_unit_of_the_row():
    results = {"rounds": [of_round(6.0, 10.0)],
               "peers": {"rpc": {"push_16384kb_us": 16777.216}, "ray": {}}}
    assert row_of(results, "dense push 16 MB, shm").peers == {"torch RPC": pytest.approx(1.0)}


def test_a_goal_of_another_machine_is_held_to_its_memcpy():
    def of(rate, memcpy):
        return {"limits": {"memcpy_gb_per_s": memcpy}, "full": {"tcp": {"sparse_push_sgd": {"value": rate}}}}
    row = row_of({"rounds": [of(10.0, 10.0), of(20.0, 20.0)]}, "sparse push 100 k keys of 16, tcp")
    assert row.met and str(row.goals[0]) == "15.0 where memcpy is 15 GB/s ≥ 12"
    assert not row_of({"rounds": [of(10.0, 15.0)]}, row.work).met


def test_the_ids_of_a_batch_are_held_to_a_time():
    results = {"rounds": [{"worker": {"Push/dim:1/servers:1/repeats:1": us}} for us in (150.0, 210.0, 220.0)]}
    row = row_of(results, "13,312 ids: by slot, equal ids found and summed")
    assert row.ours == 210 and row.met is False


def test_training_is_held_to_plain_torch_and_to_ddp():
    results = {"models": {"ctr": {"32": {"plain": [100.0], "async1": [60.0, 80.0, 75.0]}},
                          "lenet": {"ddp2": [2.0], "cairn2": [1.9]}},
               "peers": {"paddle": {"32": {"async 1x1": [21.0]}}}}
    ctr = row_of(results, "click model, MLP 32, Async 1 × 1")
    assert ctr.ratio == pytest.approx(0.75) and ctr.met and ctr.peers == {"Paddle async": 21.0}
    lenet = row_of(results, "LeNet, 2 workers, Sync, 2 servers, 2 copies")
    assert lenet.met is False and "0.95 of DDP's" in str(lenet.goals[0])


def test_the_table_has_every_row_in_both_forms():
    results = {"rounds": [of_round(6.0, 10.0)], "idle": {"shm": 7.0}}
    made = rows.all_rows(results)
    assert len(made) == 3
    for markdown in (False, True):
        text = report.text(made, markdown)
        assert all(row.work in text for row in made)
    json.dumps([report.cells(row) for row in made])


def test_a_command_that_fails_says_why():
    with pytest.raises(jobs.Failed, match="ended with 3: no such luck"):
        jobs.output(["sh", "-c", "echo no such luck; exit 3"])


def runs(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_a_command_that_hangs_ends_with_what_it_has_started(tmp_path):
    started = tmp_path / "pid"
    with pytest.raises(jobs.Failed, match="longer than 2 s"):
        jobs.output(["sh", "-c", f"sleep 300 & echo $! > {started}; wait"], timeout=2)
    end = time.monotonic() + 20
    while runs(int(started.read_text())):
        assert time.monotonic() < end, "the sleep was left behind"
        time.sleep(0.01)
