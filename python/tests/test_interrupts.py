"""Ctrl-C: every call that waits for others raises KeyboardInterrupt, and the next one still works."""
import os
import signal
import threading
import time

import pytest
import torch

import cairn
import scripts
from cairn import _core
from ports import free_port


class interrupted:
    """Sends SIGINT to this process while the block waits, and swallows the KeyboardInterrupt."""

    def __enter__(self):
        self._begun = time.monotonic()
        # Late enough that the block waits by then; were it early, it would be interrupted earlier.
        self._timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        self._timer.start()

    def __exit__(self, kind, value, trace):
        self._timer.cancel()
        assert kind is KeyboardInterrupt, f"not interrupted, but {value!r}"
        assert time.monotonic() - self._begun < 30
        return True


@pytest.fixture
def pair():
    """Two workers of one cluster in this process; both are needed for anything to go on."""
    cluster = _core.EmbeddedCluster(workers=2)
    clients = [None, None]

    def connect(rank):
        clients[rank] = _core.connect("127.0.0.1", cluster.scheduler_port, rank=rank, call_timeout_ms=60_000)

    other = threading.Thread(target=connect, args=(1,))
    other.start()
    connect(0)
    other.join(60)
    yield clients
    for client in clients:
        client.close()
    cluster.stop()


class Behind:
    """Runs a call on another thread."""

    def __init__(self, call):
        self._error = None
        self._thread = threading.Thread(target=self._run, args=(call,))
        self._thread.start()

    def _run(self, call):
        try:
            call()
        except BaseException as error:
            self._error = error

    def done(self):
        return not self._thread.is_alive()

    def join(self):
        self._thread.join(60)
        assert self.done()
        if self._error is not None:
            raise self._error


def test_a_barrier_is_entered_once(pair):
    first, second = pair
    with interrupted():
        first.barrier()
    # The other one comes: it passes, because the first is still in the barrier that it left waiting.
    second.barrier()
    first.barrier()  # the same one; open already
    again = Behind(second.barrier)
    time.sleep(0.3)
    assert not again.done()  # it would pass alone if the first had entered twice
    first.barrier()
    again.join()


def test_a_barrier_can_be_waited_for_again(pair):
    first, second = pair
    with interrupted():
        first.barrier()
    with interrupted():
        first.barrier()
    other = Behind(second.barrier)
    first.barrier()
    other.join()


def test_a_round(pair):
    first, second = (c.create_dense("w", 2, optimizer="sgd", init=("constant", 1.0, 0.0, 0)) for c in pair)
    gradient, out, hyper = torch.ones(2), torch.zeros(2), (1.0, 0, 0, 0, 0, 0)
    pending = first.push_pull([gradient.data_ptr()], [2], [out.data_ptr()], [2], hyper, keep=(gradient, out))
    with interrupted():
        pending.wait()
    assert not pending.ready()
    second.push([gradient.data_ptr()], [2], hyper, keep=gradient).wait()
    pending.wait()
    assert out.tolist() == [0, 0]


def test_an_interrupted_wait_is_not_waited_for_by_its_destructor(pair):
    first = pair[0].create_dense("w", 2, optimizer="sgd")
    gradient = torch.ones(2)

    def step():
        first.push([gradient.data_ptr()], [2], keep=gradient).wait()

    begun = time.monotonic()
    with interrupted():
        step()
    assert time.monotonic() - begun < 20  # the call's own deadline is 60 s


def test_connecting():
    port = free_port()
    with interrupted():
        _core.connect("127.0.0.1", port, rank=0)
    cluster = _core.EmbeddedCluster(port=port)
    client = _core.connect("127.0.0.1", port, rank=0)  # the one that went on trying
    assert client.rank == 0 and client.live_ranks() == [0]
    client.finish()
    assert cluster.wait(30_000)


def test_finishing(pair):
    first, second = pair
    table = first.create_dense("w", 2, optimizer="sgd")
    gradient = torch.ones(2)
    pending = table.push([gradient.data_ptr()], [2], keep=gradient)
    with interrupted():
        first.finish()  # waits until its push is acknowledged, for which the other is needed
    second.create_dense("w", 2, optimizer="sgd").done().wait()
    first.finish()
    pending.wait()
    second.finish()


def test_a_handler_of_ones_own(pair):
    seen = []
    previous = signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
    try:
        other = Behind(lambda: (time.sleep(0.5), pair[1].barrier()))
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        pair[0].barrier()  # goes on after the handler
        other.join()
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert seen == [1]


def test_init_and_the_users_calls(job, tmp_path):
    """The same through the public functions, in a process of its own, with a real signal."""
    port = free_port()
    script = scripts.write(tmp_path, """
        import os, cairn
        def interrupted(call):
            try:
                print("waits", flush=True); call()
            except KeyboardInterrupt:
                print("interrupted", flush=True)
        interrupted(cairn.init)
        assert cairn.init().rank == 0
        interrupted(cairn.barrier)
        cairn.barrier()
        cairn.shutdown()
        print("over", flush=True)
        """)
    where = {"CAIRN_SCHED_PORT": port, "CAIRN_NUM_WORKERS": 2, "CAIRN_ROLE": "worker", "CAIRN_RANK": 0}
    child = job.python(script, **where)
    job.wait_for_text(child, "waits")
    child.send_signal(signal.SIGINT)
    job.wait_for_text(child, "interrupted")
    cluster = _core.EmbeddedCluster(port=port, workers=2)
    other = _core.connect("127.0.0.1", port, rank=1)
    job.wait_for_text(child, "interrupted\nwaits")
    child.send_signal(signal.SIGINT)
    job.wait_for_text(child, "interrupted\nwaits\ninterrupted")
    other.barrier()
    other.finish()
    assert job.wait(child)[1].splitlines()[-1] == "over"
    assert cluster.wait(30_000)


def test_a_push_that_waits_for_room():
    """Unacknowledged bytes are bounded; a server that does not answer makes the next push wait."""
    cluster = _core.EmbeddedCluster()
    client = _core.connect("127.0.0.1", cluster.scheduler_port, rank=0)
    table = client.create_dense("w", 8 << 20, mode="async", optimizer="sum")
    gradient = torch.ones(8 << 20)  # 32 MiB; the bound is 64
    push = lambda: table.push([gradient.data_ptr()], [gradient.numel()])  # noqa: E731
    push().wait()
    cluster.stop()
    with interrupted():
        for _ in range(4):
            push()
    client.close()
    with pytest.raises(cairn.CancelledError):
        push().wait()
