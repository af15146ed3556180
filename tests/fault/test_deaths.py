"""Kills and cuts under load: the others go on, and every sum is exact."""
import signal

import pytest

from cluster import DEAD_AFTER_MS, SLOWER, Cluster, wait_until

FLAGS = ("--updates", str(4000 // SLOWER), "--pause-us", "500")


def test_quiet_run_is_exact(tmp_path):
    with Cluster(tmp_path, servers=2, workers=3, threads=2) as cluster:
        cluster.start_all("--updates", "500")
        cluster.expect_exact(lives=3)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_killed_worker_does_not_stop_the_others(tmp_path, mode):
    """Worker 2 is killed in mid-round and never comes back: the others finish."""
    stream = f"{mode} dense"
    # Its rank is given up when the others are done and it has not come back for so long.
    with Cluster(tmp_path, environment={"CAIRN_REJOIN_GRACE_MS": "3000"}) as cluster:
        cluster.start_all("--mode", mode, *FLAGS)
        cluster.wait_acknowledged(range(3), stream, 50)
        cluster.kill("worker2")
        before = cluster.account(0).acknowledged(stream)
        # The others go on after the detection time.
        cluster.wait_acknowledged([0, 1], stream, before + 200, seconds=DEAD_AFTER_MS / 1000 + 30)
        del cluster.processes["worker2"]
        wait_until(lambda: "dead" in cluster.log("scheduler"), "the scheduler says who died", logs=cluster.logs)
        cluster.expect_exact(lives=3)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_restarted_worker_joins_again(tmp_path, mode):
    stream = f"{mode} sparse"
    with Cluster(tmp_path) as cluster:
        cluster.start_all("--mode", mode, *FLAGS)
        cluster.wait_acknowledged(range(3), stream, 50)
        cluster.kill("worker1")
        cluster.start_worker(1, "--dir", cluster.folder / "accounts", "--mode", mode, *FLAGS)
        cluster.wait_acknowledged([1], stream, 20, life=1)
        cluster.expect_exact(lives=4)


def test_scheduler_killed_and_started_again(tmp_path):
    """The same cluster goes on: same id, same incarnations, exact sums, orderly end."""
    with Cluster(tmp_path) as cluster:
        cluster.start_all("--mode", "both", *FLAGS)
        cluster.wait_acknowledged(range(3), "async dense", 50)
        before = wait_until(cluster.status, "status before", logs=cluster.logs)
        cluster.kill("scheduler")
        acknowledged = cluster.account(0).acknowledged("async dense")
        cluster.wait_acknowledged([0], "async dense", acknowledged + 50)  # goes on without it
        cluster.start_scheduler()
        after = wait_until(cluster.status, "status after", logs=cluster.logs)
        assert after["cluster_id"] == before["cluster_id"]
        assert after["term"] > before["term"]
        assert sorted(w["incarnation"] for w in after["workers"]) == sorted(w["incarnation"] for w in before["workers"])
        cluster.expect_exact(lives=3)


def test_scheduler_killed_while_a_worker_joins(tmp_path):
    """A view change survives the scheduler's death, wherever it was."""
    with Cluster(tmp_path) as cluster:
        cluster.start_all("--mode", "sync", *FLAGS)
        cluster.wait_acknowledged(range(3), "sync dense", 50)
        cluster.kill("worker2")
        cluster.start_worker(2, "--dir", cluster.folder / "accounts", "--mode", "sync", *FLAGS)
        cluster.kill("scheduler")
        cluster.start_scheduler()
        cluster.wait_acknowledged([2], "sync dense", 20, life=1)
        cluster.expect_exact(lives=4)


def test_paused_worker_is_fenced(tmp_path):
    """A worker that stands still beyond the detection time is taken for dead; when it wakes up,
    nothing that it sends counts under its old incarnation, and it goes on as a new one."""
    with Cluster(tmp_path) as cluster:
        cluster.start_all("--mode", "sync", *FLAGS)
        cluster.wait_acknowledged(range(3), "sync dense", 50)
        cluster.kill("worker1", signal.SIGSTOP)
        wait_until(lambda: "dead" in cluster.log("scheduler"), "rank 1 is taken for dead", logs=cluster.logs)
        cluster.kill("worker1", signal.SIGCONT)
        cluster.wait_acknowledged([1], "sync dense", 20, life=1)
        cluster.expect_exact(lives=4)
