"""Checks of AllReduced calls that are interrupted, late, or left in the middle. step_checks.py runs
them."""
import os
import signal
import time

import pytest

import cairn
from allreduce_workers.driver import assert_close, backward, batch, common_folder, step
from allreduce_workers.reduced_problem import WORLD, one_process, same_bits, start
from cairn._allreduce import allreduced, group as allreduce_group
from optimizer_workers.checks import Checks

check = Checks()


@check
def interrupts_anywhere(rank):
    """Every wait for the others is interrupted once, and a real SIGINT hits a vote."""
    model, inner, reduced, expected, plain = start()
    turn, seen = allreduce_group.Patience.turn, []

    def interrupted(patience):
        if not any(patience is s for s in seen):
            seen.append(patience)
            raise KeyboardInterrupt
        turn(patience)

    with common_folder("interrupts") as folder:
        _interrupts(rank, folder, model, inner, reduced, expected, plain, turn, interrupted)
    same_bits(model, inner)
    return model


@check
def a_ctrl_c_while_the_means_are_taken_does_not_vote_again(rank):
    model, inner, reduced, expected, plain = start()
    mean_gradients = allreduced.mean_gradients

    def interrupted(*arguments):
        os.kill(os.getpid(), signal.SIGINT)
        return mean_gradients(*arguments)

    for number in range(3):
        inner.zero_grad()
        backward(model, *batch(number, rank))
        reduced.contribute(1.0)
        pending = reduced.vote()
        if number == 1 and rank == 0:
            allreduced.mean_gradients = interrupted
            with pytest.raises(KeyboardInterrupt):
                reduced.settle(pending)
            allreduced.mean_gradients = mean_gradients
        reduced.settle(pending)
        reduced.apply()
        one_process(expected, plain, [(batch(number, r), 1.0) for r in range(WORLD)])
    assert_close(model, expected)
    same_bits(model, inner)
    return model


def _interrupts(rank, folder, model, inner, reduced, expected, plain, turn, interrupted):
    end = time.monotonic() + 60

    def others_wait_for(name):
        """Ranks 1 and 2 are late until rank 0 has said so."""
        while rank != 0 and not (folder / name).exists():
            assert time.monotonic() < end
            time.sleep(0.005)

    def until_it_ends(call, name):
        """Calls it again after each interrupt; returns how many there were."""
        for count in range(1000):
            try:
                call()
                return count
            except KeyboardInterrupt:
                if rank == 0:
                    (folder / name).touch()
        raise AssertionError("it is interrupted for ever")

    for number in range(3):
        inner.zero_grad()
        backward(model, *batch(number, rank))
        if number == 1:  # in contribute()
            others_wait_for("contribute")
            allreduce_group.Patience.turn = interrupted
            count = until_it_ends(lambda: reduced.contribute(1.0), "contribute")
            allreduce_group.Patience.turn = turn
            assert rank != 0 or count == 1
        else:
            reduced.contribute(1.0)
        if number == 2:  # in settle()
            others_wait_for("settle")
            pending = reduced.vote()
            if rank == 0:
                signal.setitimer(signal.ITIMER_REAL, 0.3)
            count = until_it_ends(lambda: reduced.settle(pending), "settle")
            assert rank != 0 or count == 1
        else:
            reduced.settle(reduced.vote())
        reduced.apply()
        one_process(expected, plain, [(batch(number, r), 1.0) for r in range(WORLD)])
        assert_close(model, expected)
    # Making a group anew.
    make = allreduce_group.Meeting._make
    others_late = [] if rank == 0 else [1]

    def late(meeting, *arguments):
        if others_late:
            others_wait_for("group")
        make(meeting, *arguments)

    allreduce_group.Meeting._make = late
    allreduce_group.Patience.turn = interrupted
    count = until_it_ends(reduced.give_from_root, "group")
    allreduce_group.Meeting._make, allreduce_group.Patience.turn = make, turn
    assert rank != 0 or count >= 1
    inner.zero_grad()
    backward(model, *batch(5, rank))
    step(reduced)
    one_process(expected, plain, [(batch(5, r), 1.0) for r in range(WORLD)])
    assert_close(model, expected)


@check
def a_deadline_can_be_followed_by_the_same_call(rank):
    model, inner, reduced, expected, plain = start()
    backward(model, *batch(0, rank))
    end = time.monotonic() + 60
    with common_folder("deadline") as folder:
        if rank == 0:
            before, reduced._control.deadline_s = reduced._control.deadline_s, 0.3
            who = "rank 0 waits for ranks 1, 2 in an all-reduce of"
            with pytest.raises(cairn.DeadlineExceededError, match=who):
                reduced.contribute(1.0)
            reduced._control.deadline_s = before
            (folder / "late").touch()
        while not (folder / "late").exists():
            assert time.monotonic() < end
            time.sleep(0.005)
        step(reduced)
    one_process(expected, plain, [(batch(0, r), 1.0) for r in range(WORLD)])
    assert_close(model, expected)
    same_bits(model, inner)
    return model


@check
def a_step_that_was_left_in_the_middle(rank):
    """An exception after clip_grad_norm_(): what was settled is skipped by the next step."""
    model, inner, reduced, expected, plain = start()
    backward(model, *batch(0, rank))
    reduced.contribute(1.0)
    reduced.settle(reduced.vote())
    assert reduced.stage == "settled" and reduced.under_way
    inner.zero_grad()
    backward(model, *batch(1, rank))
    step(reduced)
    assert reduced.steps == 2 and not reduced.under_way
    one_process(expected, plain, [(batch(1, r), 1.0) for r in range(WORLD)])
    assert_close(model, expected)
    return model


def on_alarm(*_):
    os.kill(os.getpid(), signal.SIGINT)
