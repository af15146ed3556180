"""Barriers that time out."""
import threading

import pytest

import cairn
from cairn import _core


@pytest.fixture
def workers():
    """Rank 0 waits for half a second at most, rank 1 for a minute."""
    cluster = _core.EmbeddedCluster(workers=2)
    clients = [None, None]

    def connect(rank):
        clients[rank] = _core.connect("127.0.0.1", cluster.scheduler_port, rank=rank,
                                      call_timeout_ms=500 if rank == 0 else 60_000)

    other = threading.Thread(target=connect, args=(1,))
    other.start()
    connect(0)
    other.join(60)
    yield clients
    for client in clients:
        client.close()
    cluster.stop()


def test_a_barrier_that_timed_out_is_the_same_when_it_is_entered_again(workers):
    first, second = workers
    for _ in range(2):
        with pytest.raises(cairn.DeadlineExceededError, match="barrier 1 .*rank 1"):
            first.barrier()
    second.barrier()  # rank 0 counts as being there
    first.barrier()  # were it the second one, rank 1 would be missing
    with pytest.raises(cairn.DeadlineExceededError, match="barrier 2 .*rank 1"):
        first.barrier()
