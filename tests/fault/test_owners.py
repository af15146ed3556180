"""Servers die under load, and others have copies of what they held: nothing is lost, nothing is applied
twice, and no worker notices."""
import signal

import pytest

from cluster import DEAD_AFTER_MS, Cluster, wait_until

AFTER_DEATH = DEAD_AFTER_MS / 1000 + 30  # seconds


def start(cluster, mode):
    cluster.start_all("--mode", mode, "--until", cluster.folder / "end", "--pause-us", "1000")
    for stream in (f"{mode} dense", f"{mode} sparse"):
        cluster.wait_acknowledged(range(cluster.workers), stream, 30)


def wait_more(cluster, mode, count=50):
    """Every worker goes on, with pushes that it submits from now on."""
    for stream in (f"{mode} dense", f"{mode} sparse"):
        for rank in range(cluster.workers):
            before = cluster.account(rank).acknowledged(stream)
            # More than can have been on their way: in flight are 16.
            cluster.wait_acknowledged([rank], stream, before + count, seconds=AFTER_DEATH)


def finish(cluster, lives):
    (cluster.folder / "end").touch()
    cluster.expect_exact(lives=lives)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_killed_server_is_replaced_and_nobody_notices(tmp_path, mode):
    with Cluster(tmp_path, servers=2, workers=2) as cluster:
        start(cluster, mode)
        cluster.kill("server1")
        wait_more(cluster, mode)  # the other one goes on, alone
        assert cluster.status()["slots"]["single"] == 256
        cluster.start_server(1)
        cluster.wait_copies()
        # Now the first one may go: what it held is on the new one.
        cluster.kill("server0")
        cluster.start_server(0)
        wait_more(cluster, mode)
        cluster.wait_copies()
        assert cluster.status()["failovers"] > 0
        finish(cluster, lives=2)


def test_server_and_scheduler_killed_together(tmp_path):
    with Cluster(tmp_path, servers=2, workers=2) as cluster:
        start(cluster, "sync")
        cluster.kill("server1")
        cluster.kill("scheduler")
        cluster.start_scheduler()
        wait_more(cluster, "sync")
        cluster.start_server(1)
        cluster.wait_copies()
        finish(cluster, lives=2)


def test_paused_server_is_replaced_and_may_come_back_as_a_new_one(tmp_path):
    """While it stands still it is taken for dead; when it wakes up it holds nothing any more, says so with
    a code of its own, and the next one is welcome."""
    with Cluster(tmp_path, servers=2, workers=2) as cluster:
        start(cluster, "async")
        cluster.kill("server0", signal.SIGSTOP)
        wait_until(lambda: "is lost" in cluster.log("scheduler"), "the scheduler says who is lost", logs=cluster.logs)
        wait_more(cluster, "async")
        cluster.kill("server0", signal.SIGCONT)
        cluster.wait_exit(["server0"])
        assert cluster.processes["server0"].returncode == 75, cluster.logs()
        cluster.start_server(0)
        cluster.wait_copies()
        finish(cluster, lives=2)


def test_drained_server_leaves_and_the_job_goes_on(tmp_path):
    with Cluster(tmp_path, servers=3, workers=2) as cluster:
        start(cluster, "async")
        cluster.kill("server2", signal.SIGTERM)
        cluster.wait_exit(["server2"])
        assert cluster.processes["server2"].returncode == 0, cluster.logs()
        assert "leaving: still primary of" in cluster.log("server2"), cluster.logs()
        wait_more(cluster, "async")
        status = cluster.status()
        assert status["servers_wanted"] == len(status["servers"]) == 2 and status["failovers"] == 0
        finish(cluster, lives=2)


def test_without_copies_a_lost_server_ends_the_job_and_is_named(tmp_path):
    with Cluster(tmp_path, environment={"CAIRN_REPLICAS": "1", "CAIRN_LOST_AFTER_MS": "4000"}) as cluster:
        start(cluster, "async")
        cluster.kill("server1")
        cluster.wait_exit(["worker0", "worker1", "worker2", "server0", "scheduler"], seconds=60)
        for rank in range(3):
            assert cluster.processes[f"worker{rank}"].returncode == 1
            assert "server 1" in cluster.log(f"worker{rank}") or "server 0" in cluster.log(f"worker{rank}"), cluster.logs()
        assert cluster.processes["server0"].returncode != 0
