"""Two workers, Sync(): a Ctrl-C reaches rank 0 while it waits for rank 1 in a step. It gets a
KeyboardInterrupt, and its next step works: what was interrupted has been applied by then, as rank 1
has applied it."""
import os
import signal
import sys
import threading
import time

import torch
from torch import nn

import cairn
from optimizer_workers.checks import Checks
from optimizer_workers.problems import assert_close, assert_same, copied
from optimizer_workers.step_checks import adam, sgd

CHECKS = Checks()
SECONDS = 30


def _waits(thread):
    frame = sys._current_frames().get(thread)
    while frame is not None:
        code = frame.f_code
        if code.co_name == "finish" and code.co_filename.endswith("calls_under_way.py"):
            return True
        frame = frame.f_back
    return False


def interrupted(call):
    """Runs `call` and sends a SIGINT to this process once it waits for the servers' answer."""
    main, stop = threading.get_ident(), threading.Event()

    def watch():
        end = time.monotonic() + SECONDS
        while time.monotonic() < end and not stop.wait(0.01):
            if _waits(main):
                os.kill(os.getpid(), signal.SIGINT)
                return

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        call()
    except KeyboardInterrupt:
        return
    finally:
        stop.set()
        watcher.join()
    raise AssertionError("the step did not wait for the other worker, or was not interrupted")


def model_of(layout):
    params = [nn.Parameter(torch.arange(24.0).reshape(1, 2, 3, 4) / 7), nn.Parameter(torch.ones(5))]
    if layout == "channels_last":  # staged: does not lie in memory as the servers send it
        params[0] = nn.Parameter(params[0].detach().to(memory_format=torch.channels_last))
    return params


def give(params, rank, step):
    for i, param in enumerate(params):
        param.grad = torch.full_like(param, 1.0 + i + 3 * step * (1 + rank))


def give_mean(params, step):
    for i, param in enumerate(params):
        param.grad = torch.full_like(param, 1.0 + i + 3 * step * 1.5)


def interrupt_a_step(rank, make, *, limit=None, layout="", again=False, amp=False, **options):
    """Four steps of both workers; rank 0 is interrupted in the second one."""
    params, alone = model_of(layout), model_of(layout)
    optimizer, plain = cairn.DistributedOptimizer(make(params), **options), make(alone)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, enabled=amp)

    def go():
        if limit is not None:
            optimizer.clip_grad_norm_(limit)
        scaler.step(optimizer)
        scaler.update()

    def step(number):
        optimizer.zero_grad()
        give(params, rank, number)
        factor = scaler.scale(torch.ones(()))  # as a loss would be
        for param in params:
            param.grad *= factor
        go()

    step(0)
    if rank == 0:
        before = copied(params)
        interrupted(lambda: step(1))
        assert_same(params, before)
        cairn.barrier()
        if again:  # the interrupted clip is taken up again, with the same gradients
            go()
    else:
        cairn.barrier()
        step(1)
    step(2)
    step(3)
    for number in range(4):
        give_mean(alone, number)
        if limit is not None:
            nn.utils.clip_grad_norm_(alone, limit)
        plain.step()
    assert_close(params, alone)
    return params


@CHECKS
def in_a_step(rank):
    interrupt_a_step(rank, sgd)
    return interrupt_a_step(rank, adam)


@CHECKS
def in_a_step_of_two_groups(rank):
    return interrupt_a_step(rank, lambda params: sgd([{"params": [p]} for p in params]))


@CHECKS
def in_a_step_with_staged_parameters(rank):
    return interrupt_a_step(rank, adam, layout="channels_last")


@CHECKS
def in_clipping(rank):
    return interrupt_a_step(rank, adam, limit=0.5)


@CHECKS
def in_clipping_which_is_called_again(rank):
    return interrupt_a_step(rank, adam, limit=0.5, again=True)


@CHECKS
def in_a_step_under_amp(rank):
    return interrupt_a_step(rank, adam, amp=True)


@CHECKS
def in_a_worker_update(rank):
    interrupt_a_step(rank, adam, update="worker", limit=0.5)
    return interrupt_a_step(rank, adam, update="worker")


@CHECKS
def in_join(rank):
    params, alone = model_of(""), model_of("")
    optimizer, plain = cairn.DistributedOptimizer(sgd(params)), sgd(alone)

    def joins():
        with optimizer.join():
            pass

    if rank == 0:
        interrupted(joins)
        cairn.barrier()
        joins()
    else:
        cairn.barrier()
        with optimizer.join():
            for step in range(3):
                give(params, 1, step)
                optimizer.step()
    for step in range(3):
        give(alone, 1, step)
        plain.step()
    assert_close(params, alone)
    return params
