"""A worker that dies in the middle of an all-reduce: dying.py FOLDER VICTIM
killed|stopped|early|at-once.

At step 5 the victim begins its all-reduces and, before it waits for them, kills or stops itself
(early: before it begins any). It is started again when the others have gone on for 10 steps without
it (at-once: before they have noticed, maybe), and joins them. Every worker that was there all the
time compares with one process that is given the batches of those who took part in each step.
"""
import os
import pathlib
import signal
import sys
import time

import torch

import cairn
from allreduce_workers.driver import (
    assert_close,
    backward,
    batch,
    digest,
    make_model,
    make_optimizer,
    reduce_all,
    small_buckets,
)
from cairn._allreduce import attempt as allreduce_attempt

folder, victim, how = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
end = time.monotonic() + 90
torch.set_num_threads(1)
small_buckets()
first = not (folder / "died").exists() or int(os.environ["RANK"]) != victim
while not first and how != "at-once" and not (folder / "alone").exists():
    assert time.monotonic() < end, "the others do not go on alone"
    time.sleep(0.01)
cairn.init()
rank = cairn.rank()
model = make_model(20 + rank)
optimizer = make_optimizer(model)
reduced = reduce_all(model, optimizer)
if first:
    assert reduced.joined_step is None and reduced.steps == 0
else:
    earliest = 5 if how == "at-once" else 15
    assert reduced.joined_step is not None and reduced.joined_step >= earliest, reduced.joined_step
    assert reduced.steps == reduced.joined_step + 1
    assert all("exp_avg" in optimizer.state[p] for p in model.parameters()), "it has the others' state"
    print(f"joined {reduced.joined_step} {digest(model, optimizer)}", flush=True)
taking_part = []
digests = {}


def die():
    (folder / "died").write_text(str(os.getpid()))
    os.kill(os.getpid(), signal.SIGSTOP if how == "stopped" else signal.SIGKILL)


def launch_and_die(attempt, group):
    if how != "early":
        launch(attempt, group)
    die()


launch = allreduce_attempt.Attempt._launch
alone = 0
back_at = None
while back_at is None or reduced.steps < back_at + 5:
    assert time.monotonic() < end, "the victim does not come back"
    if rank == victim and first and reduced.steps == 5:
        allreduce_attempt.Attempt._launch = launch_and_die
    number = reduced.steps
    optimizer.zero_grad()
    backward(model, *batch(number, rank))
    reduced.contribute(1.0)
    reduced.settle(reduced.vote())
    active = list(reduced.info.sums.active)
    reduced.apply()
    assert reduced.steps == number + 1
    taking_part.append(active)
    digests[number] = digest(model, optimizer)
    if len(active) == 2:
        alone += 1
    if alone == 10 and not (folder / "alone").exists():
        (folder / "alone").touch()
        if how == "stopped":
            os.kill(int((folder / "died").read_text()), signal.SIGCONT)
    if len(active) == 3 and (alone or not first) and back_at is None:
        back_at = number

for number, found in digests.items():
    print(f"step {number} {found}", flush=True)
if first:
    others = [r for r in range(3) if r != victim]
    assert taking_part[:6] == [[0, 1, 2]] * 5 + [others], taking_part
    assert taking_part[-5:] == [[0, 1, 2]] * 5, taking_part
    expected = make_model(20)
    plain = make_optimizer(expected)
    for number, ranks in enumerate(taking_part):
        plain.zero_grad()
        parts = [batch(number, r) for r in ranks]
        backward(expected, torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts]))
        plain.step()
    assert_close(model, expected)
print(f"ended {digest(model, optimizer)}", flush=True)
