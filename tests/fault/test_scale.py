"""A job of `cairn run` gets more servers and then fewer while it runs: exact sums, and every server has
its share."""
import json
import os
import re
import signal
import subprocess

import pytest

from cluster import BIN, SLOWER, Account, Cluster, wait_until


def cairn(environment, *words):
    return subprocess.run([BIN / "cairn", *words], env=environment, capture_output=True, text=True, timeout=120 * SLOWER)


def bytes_per_server(text):
    return [server["bytes"] for server in json.loads(text)["servers"]]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_servers_come_and_go_under_load(tmp_path, mode):
    stream = f"{mode} dense"
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("CAIRN_", "MS_", "PADDLE_", "DMLC_"))}
    environment |= {"XDG_RUNTIME_DIR": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    accounts, end, log = tmp_path / "accounts", tmp_path / "end", tmp_path / "run.log"
    with open(log, "wb") as out:
        run = subprocess.Popen(
            [BIN / "cairn", "run", "-s", "2", "-w", "2", "--no-progress", "--", BIN / "cairn-soak", "--dir", accounts,
             "--mode", mode, "--until", end, "--ballast-mb", "32", "--pause-us", "3000"],
            env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
    try:
        both = [Account(accounts, rank) for rank in range(2)]
        seen = log.read_text
        wait_until(lambda: all(a.acknowledged(stream) > 50 for a in both), "the load runs", logs=seen)
        for count in (4, 3):
            done = cairn(environment, "scale", "--servers", str(count))
            assert done.returncode == 0 and "done:" in done.stdout, f"{done.stdout}{done.stderr}\n{seen()}"
            status = cairn(environment, "status", "--json")
            held = bytes_per_server(status.stdout)
            assert len(held) == count, status.stdout
            mean = sum(held) / count
            assert mean > 0 and all(abs(one - mean) <= 0.1 * mean for one in held), held
            before = both[0].acknowledged(stream)
            wait_until(lambda: both[0].acknowledged(stream) > before + 20, "the load goes on", logs=seen)
        end.touch()
        assert run.wait(60 * SLOWER) == 0, seen()
    finally:
        if run.poll() is None:
            run.kill()
        run.wait()
    text = log.read_text()
    assert re.search(r"acknowledged: \d+  lost: 0  twice: 0", text), text
    assert "server 2" in text and "server 3" in text and "0 restarts" in text, text
    print(re.search(r"longest push: .*", text)[0])


def test_a_server_that_is_leaving_saves_the_job_if_the_other_one_dies(tmp_path):
    # So many partitions that they are handed over, a few at a time, long after server 0 is dead.
    with Cluster(tmp_path, servers=2, workers=1, environment={"CAIRN_SLOTS": "1024"}) as cluster:
        end = tmp_path / "end"
        cluster.start_all("--mode", "async", "--until", end, "--pause-us", "3000")
        cluster.wait_acknowledged([0], "async dense", 20)
        cluster.wait_copies()
        cluster.kill("server1", signal.SIGTERM)
        wait_until(lambda: " wants to leave" in cluster.log("scheduler"), "one of them leaves", logs=cluster.logs)
        cluster.kill("server0")
        before = cluster.account(0).acknowledged("async dense")
        cluster.wait_acknowledged([0], "async dense", before + 50)
        cluster.start_server(0)  # now it may go
        cluster.wait_exit(["server1"])
        before = cluster.account(0).acknowledged("async dense")
        cluster.wait_acknowledged([0], "async dense", before + 50)
        end.touch()
        cluster.expect_exact()


def test_the_last_server_leaves_though_all_others_were_asked_to_go(tmp_path):
    # So many partitions that the one which is asked to go has not gone by then.
    with Cluster(tmp_path, servers=2, workers=1, environment={"CAIRN_SLOTS": "1024"}) as cluster:
        end = tmp_path / "end"
        cluster.start_all("--mode", "async", "--until", end, "--pause-us", "3000")
        cluster.wait_acknowledged([0], "async dense", 20)
        cluster.wait_copies()
        last = next(s["endpoint"] for s in cluster.status()["servers"] if s["index"] == 0)
        last = next(f"server{index}" for index, port in cluster.ports.items() if last.endswith(f":{port}"))
        cluster.start("scale", [BIN / "cairn", "scale", f"127.0.0.1:{cluster.port}", "--servers", "1", "--no-wait"])
        wait_until(lambda: "server 1 goes" in cluster.log("scheduler"), "one is asked to go", logs=cluster.logs)
        cluster.kill(last, signal.SIGTERM)
        cluster.wait_exit([last])
        assert "server 1 was to go and stays" in cluster.log("scheduler"), cluster.logs()
        before = cluster.account(0).acknowledged("async dense")
        cluster.wait_acknowledged([0], "async dense", before + 50)
        end.touch()
        cluster.expect_exact()
