"""The simulator repeats itself: the same seed gives the same trace, byte for byte, and a planted bug is reported."""
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("CAIRN_BIN", ROOT / "build" / "dev" / "bin"))


def sim(*args):
    return subprocess.run([BIN / "cairn-sim", *args], capture_output=True, text=True, timeout=240)


def trace_hash(text):
    return re.search(r"trace hash ([0-9a-f]{16})", text).group(1)


@pytest.mark.parametrize("seed", ["3", "11", "42"])
def test_same_seed_same_trace(seed):
    first, second = sim("--seed", seed, "--trace"), sim("--seed", seed, "--trace")
    assert first.returncode == 0, first.stdout[-2000:]
    assert first.stdout == second.stdout
    assert trace_hash(sim("--seed", seed).stdout) == trace_hash(first.stdout)


def test_the_hashes_of_many_seeds_are_those_of_each():
    run = sim("--seeds", "3", "--start", "41", "--trace-hashes")
    assert run.returncode == 0, run.stdout
    hashes = dict(re.findall(r"^seed (\d+)  trace hash ([0-9a-f]{16})$", run.stdout, re.M))
    assert list(hashes) == ["41", "42", "43"]
    assert hashes["42"] == trace_hash(sim("--seed", "42").stdout)


def test_different_seeds_differ():
    assert trace_hash(sim("--seed", "1").stdout) != trace_hash(sim("--seed", "2").stdout)


def test_seeds_end_with_the_totals():
    run = sim("--seeds", "20", "--start", "500")
    assert run.returncode == 0, run.stdout
    assert run.stdout.splitlines()[-1] == "seeds: 20  violations: 0  stuck: 0"


@pytest.mark.parametrize("bug, checker", [
    ("kDivisorByGradient", "divisor"),
    ("kFrozenDivisorLost", "divisor"),
    ("kDecideEarly", "decisions"),
    ("kReportForgotten", "reports"),
    ("kAssignOnceAgain", "(assigned|reference-model)"),
    ("kJoinedByOne", "joined"),
    ("kAckUncommitted", "early-ack"),
    ("kDuplicateUncommitted", "early-ack"),
    ("kPullUncommitted", "reads-committed"),
    ("kCaughtUpNotWaited", "waits-for"),
    ("kCaughtUpEarly", "promotion"),
    ("kPromoteNotInSync", "promotion"),
    ("kApplyUncommitted", "applied-committed"),
    ("kNumbersNotReplicated", "(applied-once|equal-numbers)"),
    ("kCopyWithoutRefusals", "equal-numbers"),
    ("kEpochIgnored", "(early-ack|reads-committed)"),
    ("kHoldNotInherited", "(contributors|reports|outcomes)"),
    ("kRefusedSlotCounts", "(early-ack|reads-committed)"),
    ("kHashNotCompared", "placement"),
    ("kGradientNotRounded", "gradients"),
    ("kAnswerNotRounded", "reference-model"),
    ("kRestTwice", "gradients"),
    ("kRestForgotten", "gradients"),
    ("kWrongBase", "views-durable"),
])
def test_a_planted_bug_is_named_with_its_checker(bug, checker):
    run = sim("--planted-bugs", "--bug", bug)
    assert run.returncode == 0, run.stdout
    assert re.search(rf"{bug}\s*\|.*\|\s*{checker}\s*\|", run.stdout)


def test_what_two_phases_assigns_and_joining_do_is_counted():
    totals = sim("--seeds", "60").stdout
    for deed in ("closed as decided", "decided to skip", "parts with a mask", "round of assigns", "all joined"):
        assert int(re.search(rf"^{deed}\s+(\d+)$", totals, re.MULTILINE).group(1)) > 0, deed


def test_what_owners_do_is_counted():
    totals = sim("--seeds", "60").stdout
    for deed in ("slots promoted", "slots handed over", "backups copied", "uncommitted part lost", "server crash",
                 "memory fault", "damaged copy found", "frames wait for answers", "push waits for backups",
                 "copy waits for pieces", "log is compacted"):
        assert int(re.search(rf"^{deed}\s+(\d+)$", totals, re.MULTILINE).group(1)) > 0, deed


def test_what_goes_in_fewer_bytes_is_counted():
    totals = sim("--seeds", "60").stdout
    for deed in ("frames in 16 bits", "frames without zeros", "frames in lz4", "top-k: the rest sent",
                 "top-k: push refused", "states told as differences"):
        assert int(re.search(rf"^{deed}\s+(\d+)$", totals, re.MULTILINE).group(1)) > 0, deed


def test_an_unknown_bug_is_an_error():
    run = sim("--seed", "1", "--bug", "kNoSuchBug")
    assert run.returncode == 2
    assert "kNoSuchBug" in run.stderr
