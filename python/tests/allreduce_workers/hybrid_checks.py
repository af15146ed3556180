"""Checks of DistributedOptimizer with parameters that are all-reduced, on three workers in one job:
hybrid_checks.py [NAME …]."""
import hashlib
import os
import signal
import sys
import time

import torch
from torch import nn

import cairn
from allreduce_workers.driver import common_folder, small_buckets
from allreduce_workers.hybrid_problem import ROWS, all_rows, batch, dense_bits, loss_of, plain_net, served_net
from optimizer_workers.checks import Checks, run_all

WORLD = 3
check = Checks()
numbers = iter(range(1000))


def adagrad(params):
    return torch.optim.Adagrad(params, lr=0.1)


class Job:
    """A model that is trained by all workers, and the same in one process."""

    def __init__(self, make=adagrad, mode=None, model=None, assign=None, **options):
        self.rank = cairn.rank()
        self.net = served_net(40 + self.rank, **options)
        if assign is None:
            cairn.assign(self.net, "auto")
        else:
            assign(self.net)
        self.optimizer = cairn.DistributedOptimizer(make(self.net.parameters()), self.net,
                                                    mode=mode or cairn.Sync())
        self.expected = plain_net(40, all_rows(self.net))
        self.plain = make(self.expected.parameters())

    def one_process(self, number, sizes=(6, 6, 6), active=range(WORLD), clip=None):
        self.plain.zero_grad()
        total = sum(sizes[r] for r in active)
        for r in active:
            (loss_of(self.expected, *batch(number, r, sizes[r])) * (sizes[r] / total)).backward()
        norm = None
        if clip is not None:
            norm = torch.linalg.vector_norm(torch.stack([
                (p.grad.coalesce().values() if p.grad.is_sparse else p.grad).norm()
                for p in self.expected.parameters()]))
            for p in self.expected.parameters():
                p.grad.mul_(min(1.0, clip / (float(norm) + 1e-6)))
        self.plain.step()
        return norm

    def backward(self, number, size=6):
        self.optimizer.zero_grad()
        loss_of(self.net, *batch(number, self.rank, size)).backward()

    def compare(self):
        torch.testing.assert_close(all_rows(self.net), self.expected.table.weight, rtol=0, atol=1e-5)
        mine = dict(self.net.named_parameters())
        for name, p in self.expected.named_parameters():
            if not name.startswith("table"):
                torch.testing.assert_close(mine[name], p, rtol=0, atol=1e-5)
        same_bits(self.net)


def same_bits(net):
    bits = int(hashlib.sha256(dense_bits(net)).hexdigest()[:15], 16)
    table = cairn.dense_table(f"bits-{next(numbers)}", WORLD, mode=cairn.Async(), optimizer="first", dtype="int64")
    values = torch.zeros(WORLD, dtype=torch.int64)
    values[cairn.rank()] = bits
    table.push(values).wait()
    cairn.barrier()
    found = table.pull().result().tolist()
    assert len(set(found)) == 1, found


@check
def asynchronous_tables_and_uneven_data(rank):
    job = Job(mode=cairn.Async())
    with job.optimizer.join():
        for number in range(2 + 2 * job.rank):
            job.backward(number)
            job.optimizer.step()
    same_bits(job.net)


@check
def gradients_that_are_changed_behind_torchs_back_are_sent_as_they_are(rank):
    """unscale_() and .data leave version counters alone, and buckets have left by then."""
    job = Job()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for number in range(4):
        job.optimizer.zero_grad()
        loss = loss_of(job.net, *batch(number, job.rank))
        if number % 2:
            (loss * 8).backward()
            for p in job.net.parameters():
                p.grad.data.div_(8)
            job.optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.unscale_(job.optimizer)
            scaler.step(job.optimizer)
            scaler.update()
        job.one_process(number)
    job.compare()


@check
def sync_equals_one_process(rank):
    job = Job()
    [reduced] = job.optimizer._served.reduced
    assert len(reduced.params) == 6 and len(job.optimizer._served.tables) == 1
    assert reduced._group is not None and reduced._group.size == WORLD
    for number in range(50):
        job.backward(number)
        job.optimizer.step()
        job.one_process(number)
    job.compare()


@check
def unequal_batches_and_accumulation(rank):
    job = Job(lambda params: torch.optim.SGD(params, lr=0.1))
    for number in range(8):
        sizes = [3 + (number + r) % 4 for r in range(WORLD)]
        job.backward(number, sizes[rank])
        job.optimizer.step(samples=sizes[rank])
        job.one_process(number, sizes)
    for number in range(8, 14):
        job.optimizer.zero_grad()
        job.plain.zero_grad()
        for i in range(2):
            loss_of(job.net, *batch(100 * number + i, rank)).backward()
            for r in range(WORLD):
                (loss_of(job.expected, *batch(100 * number + i, r)) / WORLD).backward()
        job.optimizer.step()
        job.plain.step()
    job.compare()


@check
def clipping_over_tables_and_dense_together(rank):
    job = Job()
    for number in range(10):
        job.backward(number)
        norm = job.optimizer.clip_grad_norm_(0.3)
        job.optimizer.step()
        expected = job.one_process(number, clip=0.3)
        torch.testing.assert_close(norm, expected, rtol=1e-5, atol=1e-6)
        assert float(norm) > 0.3 or number > 5
    job.compare()


@check
def some_dense_parameters_on_the_servers(rank):
    def place(net):
        cairn.assign(net, "auto", server=[net.head, net.tower[0].bias])

    job = Job(assign=place)
    served = job.optimizer._served
    assert len(served.reduced[0].params) == 3 and sum(len(g.params) for g in served.groups) == 3
    for number in range(10):
        job.backward(number)
        if number % 2:
            job.optimizer.clip_grad_norm_(0.5)
        job.optimizer.step()
        job.one_process(number, clip=0.5 if number % 2 else None)
    job.compare()
    state = job.optimizer.state_dict()["state"]
    theirs = job.plain.state_dict()["state"]
    for index in (1, 2, 3, 4, 5, 6):
        torch.testing.assert_close(state[index]["sum"], theirs[index]["sum"], rtol=1e-4, atol=1e-5)
        assert int(state[index]["step"]) == 10


@check
def a_scaler_skips_on_all(rank):
    job = Job(lambda params: torch.optim.SGD(params, lr=0.1))
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=1000)
    for number in range(6):
        job.optimizer.zero_grad()
        scaler.scale(loss_of(job.net, *batch(number, rank))).backward()
        if number == 3 and rank == 1:
            job.net.head.weight.grad[0, 0] = float("inf")
        scaler.step(job.optimizer)
        scaler.update()
        if number != 3:
            job.one_process(number)
    job.compare()


@check
def workers_that_run_out_of_data(rank):
    job = Job()
    counts = [3, 8, 5]
    with job.optimizer.join():
        for number in range(counts[rank]):
            job.backward(number)
            job.optimizer.clip_grad_norm_(0.3)
            job.optimizer.step()
    for number in range(max(counts)):
        job.one_process(number, active=[r for r in range(WORLD) if number < counts[r]], clip=0.3)
    job.compare()


@check
def two_optimizers_that_run_out_of_data(rank):
    first, second = Job(), Job()
    counts = [2, 5, 3]
    with cairn.join(first.optimizer, second.optimizer):
        for number in range(counts[rank]):
            for _ in range(2):
                first.backward(number)
                first.optimizer.step()
            second.backward(number)
            second.optimizer.step()
    for number in range(max(counts)):
        active = [r for r in range(WORLD) if number < counts[r]]
        first.one_process(number, active=active)
        first.one_process(number, active=active)
        second.one_process(number, active=active)
    first.compare()
    second.compare()


@check
def asynchronous_tables_beside_it(rank):
    job = Job(mode=cairn.Async())
    initial = dense_bits(job.net)
    for number in range(10):
        job.backward(number)
        job.optimizer.step()
    assert job.optimizer._served.reduced[0].steps == 10 and dense_bits(job.net) != initial
    same_bits(job.net)


@check
def values_and_state_from_outside(rank):
    job = Job()
    for number in range(3):
        job.backward(number)
        job.optimizer.step()
        job.one_process(number)
    with torch.no_grad():
        job.net.head.weight.fill_(float(rank))
        job.expected.head.weight.fill_(0.0)
    job.optimizer.push_parameters()
    job.backward(4)
    job.optimizer.step()
    job.one_process(4)
    job.compare()
    # State: the root's wins.
    state = job.optimizer.state_dict()
    for entry in state["state"].values():
        if rank != 0 and "sum" in entry:
            entry["sum"] = entry["sum"] + 1
    job.optimizer.load_state_dict(state)
    job.backward(5)
    job.optimizer.step()
    job.one_process(5)
    job.compare()


@check
def state_that_the_root_does_not_have_is_forgotten_by_all(rank):
    torch.manual_seed(rank)
    net, expected = nn.Linear(4, 2), nn.Linear(4, 2)
    cairn.assign(net, "auto")

    def make(module):
        return torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)

    def train(numbers):
        for number in numbers:
            x = torch.randn(WORLD, 3, 4, generator=torch.Generator().manual_seed(number))
            for optimizer, loss in ((served, net(x[rank])), (plain, expected(x.reshape(-1, 4)))):
                optimizer.zero_grad()
                loss.square().mean().backward()
                optimizer.step()
        torch.testing.assert_close(net.weight, expected.weight, rtol=0, atol=1e-5)
        same_bits(net)

    served = cairn.DistributedOptimizer(make(net), net)
    expected.load_state_dict(net.state_dict())
    plain = make(expected)
    train(range(3))
    state = served.state_dict()
    served.load_state_dict(state | {"state": {}} if rank == 0 else state)
    plain = make(expected)
    train(range(3, 6))


@check
def dense_only_and_an_optimizer_that_servers_lack(rank):
    torch.manual_seed(rank)
    net, expected = nn.Linear(4, 2), nn.Linear(4, 2)
    cairn.assign(net, "auto")
    optimizer = cairn.DistributedOptimizer(torch.optim.NAdam(net.parameters(), lr=0.01), net)
    expected.load_state_dict(net.state_dict())
    plain = torch.optim.NAdam(expected.parameters(), lr=0.01)
    for number in range(5):
        optimizer.zero_grad()
        plain.zero_grad()
        generator = torch.Generator().manual_seed(number)
        x = torch.randn(WORLD, 3, 4, generator=generator)
        net(x[rank]).square().mean().backward()
        expected(x.reshape(-1, 4)).square().mean().backward()
        optimizer.step()
        plain.step()
    torch.testing.assert_close(net.weight, expected.weight, rtol=0, atol=1e-5)
    same_bits(net)


class DenseOnly:
    """No server has a say in it."""

    def __init__(self):
        torch.manual_seed(5)
        self.net = nn.Linear(4, 2)
        cairn.assign(self.net, "auto")
        self.optimizer = cairn.DistributedOptimizer(torch.optim.SGD(self.net.parameters(), lr=0.1), self.net)

    def backward(self, number):
        self.optimizer.zero_grad()
        self.net(torch.full((3, 4), 1.0 + number + cairn.rank())).square().mean().backward()


def error_of(call):
    try:
        call()
    except cairn.Error as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def clipped_step(job):
    job.optimizer.clip_grad_norm_(0.1)
    job.optimizer.step()


def samples_at_the_step_alone(job):
    job.optimizer.clip_grad_norm_(0.1)
    job.optimizer.step(samples=5)


def other_limit(job):
    job.optimizer.clip_grad_norm_(0.2)
    job.optimizer.step()


def no_clip(job):
    job.optimizer.step()


def other_rate_after_the_clip(job):
    job.optimizer.clip_grad_norm_(0.1)
    group = job.optimizer.param_groups[0]
    group["lr"], before = 0.5, group["lr"]
    try:
        job.optimizer.step()
    finally:
        group["lr"] = before


def samples_at_the_clip(job):
    job.optimizer.clip_grad_norm_(0.1, samples=5)
    job.optimizer.step(samples=5)


@check
def a_step_that_one_worker_makes_differently_is_made_by_nobody(rank):
    ways = {samples_at_the_step_alone: ("Error: give samples= to clip_grad_norm_()", "rank 1 skips"),
            other_limit: ("HyperMismatchError: ", "rank"), no_clip: ("HyperMismatchError: ", "clips"),
            other_rate_after_the_clip: ("HyperMismatchError: ", "rank"),
            samples_at_the_clip: ("HyperMismatchError: ", "rank 1 gives samples=")}
    for job in (DenseOnly(), Job()):
        for number, (way, (own, others)) in enumerate(ways.items()):
            before = dense_bits(job.net)
            job.backward(number)
            said = error_of(lambda: (way if rank == 1 else clipped_step)(job))
            assert own in said if rank == 1 else others in said and "HyperMismatch" in said, (way, said)
            assert dense_bits(job.net) == before, way
            same_bits(job.net)
            job.backward(number)
            clipped_step(job)
            assert dense_bits(job.net) != before, way
            same_bits(job.net)
            job.backward(number)
            job.optimizer.step()
            same_bits(job.net)


@check
def a_clip_without_its_step_on_one_worker_is_a_step_of_nobody(rank):
    for job in (DenseOnly(), Job()):
        before = dense_bits(job.net)
        job.backward(0)
        job.optimizer.clip_grad_norm_(0.1)
        if rank != 1:  # which comes to its next batch before its step
            said = error_of(job.optimizer.step)
            assert "rank 1 skips" in said and dense_bits(job.net) == before, said
        job.backward(1)
        clipped_step(job)
        assert dense_bits(job.net) != before
        same_bits(job.net)


@check
def a_rate_may_change_between_clip_and_step_on_all(rank):
    """Also where a worker is joined, which knows of the old one."""
    job = DenseOnly()
    with job.optimizer.join():
        for number in range(1 + rank):
            job.backward(number)
            job.optimizer.clip_grad_norm_(0.1)
            job.optimizer.param_groups[0]["lr"] = 0.1 / (2 + number)
            job.optimizer.step()
    same_bits(job.net)


@check
def an_interrupted_step_can_be_called_again(rank):
    job = Job()
    end = time.monotonic() + 60
    with common_folder("hybrid") as folder:
        for number in range(4):
            while number == 2 and rank != 0 and not (folder / "interrupted").exists():
                assert time.monotonic() < end
                time.sleep(0.005)
            job.backward(number)
            if number == 2 and rank == 0:
                signal.setitimer(signal.ITIMER_REAL, 0.3)
                try:
                    job.optimizer.step()
                    raise AssertionError("the others are late: it can't end")
                except KeyboardInterrupt:
                    (folder / "interrupted").touch()
            job.optimizer.step()
            job.one_process(number)
    job.compare()


def on_alarm(*_):
    os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, on_alarm)
    small_buckets()
    assert ROWS == 50
    wanted = sys.argv[1:]
    run_all({name: function for name, function in check.items() if not wanted or name in wanted})
