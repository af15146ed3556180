"""Several schedulers over a real etcd: whichever of them dies, stands still or is cut off, and with a
member of etcd missing, the job goes on, every sum is exact, and an old leader changes nothing."""
import signal
import subprocess

import pytest

from cluster import BIN, SLOWER, wait_until
from etcd import LEASE_S, Etcd, StandbyCluster

MODES = pytest.mark.parametrize("mode", ["sync", "async"])


def begin(cluster, mode):
    """Workers that go on until the test says so, each with some updates behind it."""
    cluster.mode = mode
    cluster.start_all(*flags(cluster))
    cluster.wait_acknowledged(range(3), f"{mode} dense", 50)


def flags(cluster):
    return "--mode", cluster.mode, "--until", cluster.folder / "enough", "--pause-us", "500"


def goes_on(cluster, more=100):
    """Every worker gets further than it is now."""
    stream = f"{cluster.mode} dense"
    wanted = {r: cluster.account(r).acknowledged(stream) + more // SLOWER for r in range(cluster.workers)}
    for rank, count in wanted.items():
        cluster.wait_acknowledged([rank], stream, count)


def expect_exact(cluster, lives=3):
    (cluster.folder / "enough").touch()
    cluster.expect_exact(lives=lives)


def forget(cluster, name):
    """A process that was killed, or ended with an error, is none of those that must end well."""
    return cluster.processes.pop(name)


@MODES
def test_the_leader_is_killed_and_a_standby_takes_over(tmp_path, mode):
    with Etcd(tmp_path / "etcd") as etcd, StandbyCluster(tmp_path / "job", etcd) as cluster:
        begin(cluster, mode)
        before = wait_until(cluster.status, "status before", logs=cluster.logs)
        wait_until(lambda: "standing by" in cluster.log("scheduler1"), "scheduler1 stands by", logs=cluster.logs)
        assert f"the leader is at 127.0.0.1:{cluster.scheduler_ports[0]}" in cluster.refusal(1)
        cluster.kill("scheduler0")
        forget(cluster, "scheduler0")
        cluster.wait_leader("scheduler1")
        after = wait_until(cluster.status, "status after", logs=cluster.logs)
        assert after["cluster_id"] == before["cluster_id"]
        assert after["term"] > before["term"]
        assert sorted(w["incarnation"] for w in after["workers"]) == sorted(
            w["incarnation"] for w in before["workers"])
        goes_on(cluster)
        # The first one again, as a standby. When the job is over, it finds that out too.
        cluster.start_one(0, "scheduler0-again")
        wait_until(lambda: "standing by" in cluster.log("scheduler0-again"), "it stands by", logs=cluster.logs)
        expect_exact(cluster)


def test_a_worker_joins_while_the_leader_is_killed(tmp_path):
    """A view change is taken over too, wherever it was."""
    with Etcd(tmp_path / "etcd") as etcd, StandbyCluster(tmp_path / "job", etcd) as cluster:
        begin(cluster, "sync")
        cluster.kill("worker2")
        cluster.start_worker(2, "--dir", cluster.folder / "accounts", *flags(cluster))
        cluster.kill("scheduler0")
        forget(cluster, "scheduler0")
        cluster.wait_acknowledged([2], "sync dense", 20, life=1)
        expect_exact(cluster, lives=4)


@MODES
def test_a_deposed_leader_changes_nothing(tmp_path, mode):
    """It stands still until another one leads, then wakes up: it ends, and its term is ignored."""
    with Etcd(tmp_path / "etcd") as etcd, StandbyCluster(tmp_path / "job", etcd) as cluster:
        begin(cluster, mode)
        cluster.kill("scheduler0", signal.SIGSTOP)
        cluster.wait_leader("scheduler1")
        goes_on(cluster)
        before = wait_until(cluster.status, "status of the new leader", logs=cluster.logs)
        leader = etcd.read("leader")
        cluster.kill("scheduler0", signal.SIGCONT)
        deposed = forget(cluster, "scheduler0")
        assert deposed.wait(timeout=30 * SLOWER) != 0
        assert "no longer leads" in cluster.log("scheduler0"), cluster.logs()
        assert etcd.read("leader") == leader
        goes_on(cluster)
        after = wait_until(cluster.status, "status later", logs=cluster.logs)
        assert after["term"] == before["term"]
        assert len(after["workers"]) == 3 and not any(w.get("lost") for w in after["servers"])
        expect_exact(cluster)


def test_one_of_three_members_of_etcd_dies_and_another_stands_still(tmp_path):
    """Two of three members are enough, whichever they are. With one of three nothing is decided, so that
    work may have to wait, but nothing is lost, and it goes on when there are two again."""
    with Etcd(tmp_path / "etcd", members=3) as etcd, StandbyCluster(tmp_path / "job", etcd, schedulers=3) as cluster:
        begin(cluster, "sync")
        cluster.kill("scheduler0")
        forget(cluster, "scheduler0")
        wait_until(lambda: cluster.status(1) or cluster.status(2), "another one leads", logs=cluster.logs)
        goes_on(cluster)
        # The one that leads etcd is the worst one to lose.
        lost = wait_until(lambda: etcd.leader() is not None and [etcd.leader()], "etcd has a leader",
                          logs=etcd.logs)[0]
        etcd.signal(lost, signal.SIGKILL)
        goes_on(cluster)
        # Now one of three is left, for as long as it takes until the schedulers notice.
        paused = next(i for i in range(3) if i != lost)
        etcd.signal(paused, signal.SIGSTOP)
        wait_until(lambda: any("etcd does not answer" in cluster.log(n) for n in ("scheduler1", "scheduler2")),
                   "a scheduler notices", logs=cluster.logs)
        etcd.signal(paused, signal.SIGCONT)
        wait_until(cluster.status, "somebody leads", seconds=60, logs=lambda: cluster.logs() + etcd.logs())
        goes_on(cluster)
        # A lease that ended meanwhile may have cost one of the two its leadership, never both.
        ended = [n for n in ("scheduler1", "scheduler2") if cluster.processes[n].poll() not in (None, 0)]
        assert len(ended) <= 1, cluster.logs()
        for name in ended:
            assert "leads" in cluster.log(name), cluster.logs()
            forget(cluster, name)
        expect_exact(cluster)


def test_etcd_is_away_for_longer_than_a_lease(tmp_path):
    """The leader stops answering when it may have been replaced, and goes on when it was not."""
    with Etcd(tmp_path / "etcd") as etcd, StandbyCluster(tmp_path / "job", etcd, schedulers=1) as cluster:
        begin(cluster, "sync")
        etcd.signal(0, signal.SIGSTOP)
        wait_until(lambda: "stops answering" in cluster.log("scheduler0"), "it notices", seconds=LEASE_S + 30,
                   logs=cluster.logs)
        assert "can't reach etcd" in cluster.refusal(0)
        goes_on(cluster)
        etcd.signal(0, signal.SIGCONT)
        # The lease may have ended in etcd's eyes or not: both are allowed, and the end is the same.
        process = cluster.processes["scheduler0"]
        wait_until(lambda: process.poll() is not None or cluster.status(), "it goes on, or ends", logs=cluster.logs)
        if process.poll() is not None:
            assert "no longer leads" in cluster.log("scheduler0"), cluster.logs()
            forget(cluster, "scheduler0")
            cluster.start_one(0, "scheduler0-again")
            cluster.wait_leader("scheduler0-again")
        goes_on(cluster)
        expect_exact(cluster)


def run(*command):
    return subprocess.run([BIN / "cairn", *command], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(("given", "says"), [
    (("--meta", "etcd://127.0.0.1:1", "--state-dir", "x"), "not in both"),
    (("--meta", "etcd://127.0.0.1"), "host:port"),
    (("--meta", "http://127.0.0.1:1"), "is not etcd://"),
    (("--meta", "etcd://127.0.0.1:1"), "--port"),
])
def test_mistakes_are_named(given, says):
    out = run("scheduler", *given)
    assert out.returncode != 0
    assert says in out.stderr, out.stderr


def test_a_state_that_is_too_large_for_etcd_names_the_flag_to_raise(tmp_path):
    """A record of 65,536 slots is above the 1.5 MB that etcd takes by default."""
    with Etcd(tmp_path / "etcd") as etcd, StandbyCluster(
            tmp_path / "job", etcd, schedulers=1, servers=1, workers=1, environment={"CAIRN_SLOTS": "65536"}) as cluster:
        cluster.start_scheduler()
        cluster.start_server(0)
        cluster.start_worker(0, "--dir", cluster.folder / "accounts", "--updates", "10")
        assert forget(cluster, "scheduler0").wait(timeout=60 * SLOWER) != 0
        assert "--max-request-bytes=" in cluster.log("scheduler0"), cluster.logs()
