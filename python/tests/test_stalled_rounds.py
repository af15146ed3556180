"""A round that somebody is missing in is in `cairn status`, with the table and the ranks."""
import json
import re
import subprocess
import threading
import time

import pytest
import torch

from cairn import _core

SECONDS = 60


@pytest.fixture
def pair():
    """Two workers of one cluster in this process, and its scheduler's port."""
    cluster = _core.EmbeddedCluster(workers=2)
    clients = [None, None]

    def connect(rank):
        clients[rank] = _core.connect("127.0.0.1", cluster.scheduler_port, rank=rank)

    other = threading.Thread(target=connect, args=(1,))
    other.start()
    connect(0)
    other.join(SECONDS)
    yield *clients, cluster.scheduler_port
    for client in clients:
        client.close()
    cluster.stop()


def test_a_stalled_round_names_its_table_and_who_is_missing(pair, cairn_bin):
    first, second, port = pair

    def status(*options):
        return subprocess.run([cairn_bin / "cairn", "status", f"127.0.0.1:{port}", *options], capture_output=True,
                              text=True, timeout=SECONDS, check=True).stdout

    def until(found):
        end = time.monotonic() + SECONDS
        while not found(text := status()):
            assert time.monotonic() < end, text
            time.sleep(0.1)

    values = torch.ones(4)
    tables = [client.create_dense("w", 4, mode="sync", optimizer="sgd") for client in (first, second)]
    pushed = tables[0].push([values.data_ptr()], [4], keep=values)
    until(lambda text: re.search(r'^  round 0 of "w" has waited \d+ s for rank 1$', text, re.M))
    round_ = json.loads(status("--json"))["stalled_rounds"][0]
    assert (round_["table"], round_["round"], round_["missing_ranks"]) == ("w", 0, [1])
    assert round_["seconds"] >= 2
    tables[1].done().wait()
    pushed.wait()
    until(lambda text: "waits for rank" not in text)
