"""What `wire=` does between two workers and their servers, over TCP: values, and bytes on the wire.

Run by `cairn run` as a worker, as run_checks.py is.
"""
import json
import os
import pathlib
import subprocess
import time

import torch

import cairn
from cairn._runtime import context
from optimizer_workers.checks import Checks, run_all

CHECKS = Checks()
ELEMENTS = 40_000
STEPS = 4
_SECONDS = 30


class Bytes:
    """What this worker sends and receives while it is a context, in bytes as they travel."""

    def __enter__(self):
        self._before = context.current().client.traffic()
        return self

    def __exit__(self, *_):
        after = context.current().client.traffic()
        self.sent, self.received = (now - then for now, then in zip(after, self._before))


def _server_bytes():
    """What the servers have received and what they have passed on to each other. They report about once
    a second; rows that are new with them say that they have."""
    program = pathlib.Path(os.environ["CAIRN_BIN"]) / "cairn"

    def stats():
        said = subprocess.run([program, "status", "--json"], capture_output=True, text=True, timeout=_SECONDS,
                              check=True)
        return [server["stats"] for server in json.loads(said.stdout)["servers"]]

    rows = [s["rows"] for s in stats()]
    marks = cairn.sparse_table("wire-marks", 1, mode=cairn.Async(), optimizer="sum")
    marks.push(torch.arange(64), torch.ones(64, 1)).wait()
    end = time.monotonic() + _SECONDS
    while not all(s["rows"] > before for s, before in zip(stats(), rows)):
        assert time.monotonic() < end, "the servers do not report"
        time.sleep(0.05)
    return sum(s["bytes_in"] for s in stats()), sum(s["replicated_bytes"] for s in stats())


def _table(name, mode, **options):
    return cairn.dense_table(f"wire-{name}-{type(mode).__name__}", ELEMENTS, mode=mode, optimizer="sum", **options)


def _gradient():
    return torch.arange(ELEMENTS, dtype=torch.float32).remainder(7) - 3


def _each_mode(check):
    for mode in (cairn.Sync(), cairn.Async()):
        check(mode)


def _push(table, gradient, mode):
    """A few pushes of all workers, then what all read."""
    for _ in range(STEPS):
        table.push(gradient).wait()
    if isinstance(mode, cairn.Async):
        cairn.barrier()
    return table.pull().result()


_plain = {}


@CHECKS
def plain(rank):
    def check(mode):
        with Bytes() as used:
            got = _push(_table("plain", mode), _gradient(), mode)
        assert torch.equal(got, 2 * STEPS * _gradient())
        assert used.sent > 4 * ELEMENTS * STEPS, used.sent
        assert used.received > 4 * ELEMENTS, used.received
        _plain[type(mode)] = used
    _each_mode(check)


@CHECKS
def lz4_is_exact_and_smaller(rank):
    def check(mode):
        noise = torch.manual_seed(rank + 5) and torch.randn(ELEMENTS)
        exact = _table("lz4-noise", mode, wire="lz4")
        exact.push(noise).wait()
        cairn.barrier()
        mine = torch.manual_seed(5) and torch.randn(ELEMENTS)
        other = torch.manual_seed(6) and torch.randn(ELEMENTS)
        assert torch.equal(exact.pull().result(), mine + other)
        with Bytes() as used:
            got = _push(_table("lz4", mode, wire="lz4"), _gradient(), mode)
        assert torch.equal(got, 2 * STEPS * _gradient())
        assert used.received < 0.5 * _plain[type(mode)].received, used.received
        assert used.sent < 0.5 * _plain[type(mode)].sent, used.sent
    _each_mode(check)


def _halves(wire, dtype, rank):
    def check(mode):
        gradient = _gradient() * 0.1
        rounded = gradient.to(dtype).float()
        assert not torch.equal(gradient, rounded)
        with Bytes() as used:
            got = _push(_table(wire, mode, wire=wire), gradient, mode)
        once = torch.zeros(ELEMENTS)
        for _ in range(STEPS):  # sums of a round, or one by one: the same here, all pushes are equal
            once += 2 * rounded if isinstance(mode, cairn.Sync) else rounded
            if isinstance(mode, cairn.Async):
                once += rounded
        assert torch.equal(got, once.to(dtype).float())
        assert used.received < 0.55 * _plain[type(mode)].received, used.received
        assert used.sent < 0.55 * _plain[type(mode)].sent, used.sent
    _each_mode(check)


@CHECKS
def bf16(rank):
    _halves("bf16", torch.bfloat16, rank)


@CHECKS
def f16(rank):
    _halves("f16", torch.float16, rank)


@CHECKS
def topk(rank):
    def check(mode):
        table = _table("topk", mode, wire="topk", wire_topk=0.02)
        with Bytes() as used:
            table.push(_gradient()).wait()
            for _ in range(STEPS - 1):
                table.push(torch.zeros(ELEMENTS)).wait()
        assert used.sent < 0.08 * _plain[type(mode)].sent, used.sent
        for _ in range(50 - STEPS):  # until nothing is held back
            table.push(torch.zeros(ELEMENTS)).wait()
        cairn.barrier()
        assert torch.equal(table.pull().result(), 2 * _gradient())
    _each_mode(check)


@CHECKS
def f16_that_is_too_large_is_refused(rank):
    table = _table("f16-large", cairn.Async(), wire="f16")
    gradient = torch.zeros(ELEMENTS)
    gradient[5] = 1e6
    try:
        table.push(gradient).wait()
    except cairn.NotFiniteError as error:
        assert "element 5" in str(error) and "65504" in str(error), error
    else:
        raise AssertionError("it was taken")


@CHECKS
def workers_must_agree(rank):
    cairn.barrier()
    if rank == 0:
        cairn.dense_table("wire-agree", 10, wire="bf16")
    cairn.barrier()
    if rank == 1:
        try:
            cairn.dense_table("wire-agree", 10, wire="lz4")
        except cairn.AlreadyExistsError as error:
            assert "wire" in str(error), error
        else:
            raise AssertionError("it was taken")


def _least_squares(rank, wire, steps, **options):
    torch.manual_seed(1)
    truth, inputs = torch.randn(50, 8), torch.randn(512, 50)
    targets = inputs @ truth
    inputs, targets = inputs[rank::2], targets[rank::2]
    torch.manual_seed(2)
    model = torch.nn.Linear(50, 8, bias=False)
    optimizer = cairn.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.4), model, wire=wire, **options)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
    return model, loss.item()


@CHECKS
def topk_converges(rank):
    """With a twentieth of the gradient in each step. Without the rest of earlier gradients the loss would
    still be above 1."""
    model, loss = _least_squares(rank, "topk", 150, wire_topk=0.05)
    assert loss < 1e-3, loss
    return model


@CHECKS
def bf16_converges(rank):
    model, loss = _least_squares(rank, "bf16", 100)
    assert loss < 1e-2, loss  # as near as weights of 8 bits can be
    return model


@CHECKS
def rows_in_two_bytes(rank):
    table = cairn.nn.Embedding(None, 64, wire="bf16", init="zeros")
    optimizer = cairn.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=1.0))
    ids = torch.arange(100)
    with Bytes() as used:
        for _ in range(3):
            optimizer.zero_grad()
            (table(ids) * 0.1).sum().backward()
            optimizer.step()
    want = torch.full((100, 64), -3 * torch.tensor(0.1).bfloat16().float()).bfloat16().float()
    assert torch.allclose(table(ids), want, atol=2e-3), table(ids)
    assert torch.equal(table(ids).bfloat16().float(), table(ids))
    assert used.sent < 0.75 * 3 * 100 * 64 * 4, used.sent
    return table


@CHECKS
def servers_count_what_travelled(rank):
    """In all of this: less than half of what both workers pushed, were it plain."""
    cairn.barrier()
    if rank == 0:
        received, passed_on = _server_bytes()
        pushes = 2 * (5 * STEPS + 2 + 50) * 2
        assert received - passed_on < 0.5 * pushes * 4 * ELEMENTS, (received, passed_on)
        assert received > 2 * 2 * STEPS * 4 * ELEMENTS, received
    cairn.barrier()


if __name__ == "__main__":
    run_all(CHECKS)
