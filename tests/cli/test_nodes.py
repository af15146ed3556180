"""`cairn scheduler`, `server` and `status` as processes of their own; the environment's families."""
import contextlib
import json
import signal
import socket
import subprocess
import time

import pytest

from ports import free_port
from processes import CAIRN, SECONDS, Run, clean_environment


def cairn(*arguments, **variables):
    return subprocess.run([CAIRN, *map(str, arguments)], env=clean_environment(**variables), capture_output=True,
                          text=True, timeout=SECONDS)


@contextlib.contextmanager
def scheduler(*options, **variables):
    with Run("scheduler", *options, **variables) as run:
        run.port = int(run.wait_for(r"Bind to role=scheduler, id=1, ip=127.0.0.1, port=(\d+)")[1])
        yield run


def test_version_and_help():
    assert cairn("--version").stdout.startswith("cairn 0.")
    for words in ([], ["run"], ["scheduler"], ["server"], ["status"], ["top"], ["scale"], ["stop"]):
        done = cairn(*words, "--help")
        assert done.returncode == 0 and "cairn" in done.stdout
    assert cairn("dance").returncode != 0


def test_port_zero_and_a_taken_port():
    with scheduler("--port", 0) as first:
        second = cairn("scheduler", "--port", first.port)
        assert second.returncode == 1
        assert str(first.port) in second.stderr, second.stderr


@pytest.mark.parametrize("words, said", [
    (["--meta", "etcd://"], "--meta=etcd://"),
    (["--meta", "etcd:///x"], "--meta=etcd:///x"),
    (["--meta", "etcd://127.0.0.1:1/x", "--state-dir", "x", "--port", 1], "not in both"),
    (["--min-in-sync", 5], "in sync"),
    (["--dead-after-ms", 10], "--dead-after-ms"),
])
def test_wrong_usage_that_is_found_late_is_wrong_usage_too(words, said):
    done = cairn("scheduler", *words)
    assert done.returncode == 2 and said in done.stderr, done


def test_more_replicas_than_servers_is_said():
    with scheduler("--servers", 2, "--replicas", 3) as sched:
        sched.wait_for("--replicas 3: with 2 servers each partition has")


def test_another_number_of_replicas_on_a_log_is_said(tmp_path):
    for replicas in (2, 1):
        with scheduler("--servers", 2, "--state-dir", tmp_path / "log", "--replicas", replicas) as sched:
            if replicas == 1:
                sched.wait_for("each partition had 2 owners in the log, and is to have 1 from now on")
            sched.signal(signal.SIGKILL)
            sched.wait()


def test_a_servers_error_is_said_once():
    with scheduler("--cluster-id", "blue") as sched:
        done = cairn("server", "--scheduler", f"127.0.0.1:{sched.port}", "--cluster-id", "green")
        assert done.returncode == 1 and done.stderr.count("this is cluster blue, not green") == 1, done.stderr


def test_a_server_of_a_job_that_has_not_begun_goes_at_once_without_a_scheduler_too():
    with Run("scheduler", "--port", 0, "-w", 1) as scheduler:
        port = scheduler.wait_for(r"Bind to role=scheduler.*port=(\d+)")[1]
        with Run("server", "--scheduler", f"127.0.0.1:{port}") as server:
            server.wait_for("registered as server 0")
            scheduler.signal(signal.SIGTERM)
            assert scheduler.wait() == 128 + signal.SIGTERM, scheduler.text
            told = time.monotonic()
            server.signal(signal.SIGTERM)
            assert server.wait() == 128 + signal.SIGTERM, server.text
            assert "goes at once: the job has not begun" in server.text, server.text
            assert time.monotonic() - told < 30, server.text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_nodes_in_good_order(number):
    with scheduler() as sched, Run("server", "--scheduler", f"127.0.0.1:{sched.port}") as server:
        server.wait_for("registered as server 0")
        server.signal(number)
        assert server.wait() == 128 + number, server.text
        sched.signal(number)
        assert sched.wait() == 128 + number, sched.text


def test_status_as_table_and_as_json():
    with scheduler("--servers", 1, "--workers", 2, "--cluster-id", "blue") as sched:
        endpoint = f"127.0.0.1:{sched.port}"
        with Run("server", "--scheduler", endpoint, "--threads", 2) as server:
            server.wait_for("registered as server 0")
            table = cairn("status", endpoint)
            assert table.returncode == 0, table.stderr
            assert "cluster blue: forming" in table.stdout and "partitions" in table.stdout
            status = json.loads(cairn("status", "--json", CAIRN_SCHED_PORT=sched.port).stdout)
            assert status["phase"] == "forming"
            assert status["servers"][0]["threads"] == 2
            assert status["expected_workers"] == 2


def test_status_says_who_does_not_answer():
    port = free_port()
    done = cairn("status", f"127.0.0.1:{port}")
    assert done.returncode == 1 and f"127.0.0.1:{port}" in done.stderr
    with socket.create_server(("127.0.0.1", 0)) as silent:
        done = cairn("status", f"127.0.0.1:{silent.getsockname()[1]}", "--timeout-ms", 200)
        assert done.returncode == 1 and "in time" in done.stderr


def test_conflicts_name_both_variables():
    done = cairn("server", CAIRN_SCHED_PORT=9000, MS_SCHED_PORT=9001)
    assert done.returncode == 1
    assert "CAIRN_SCHED_PORT=9000" in done.stderr and "MS_SCHED_PORT=9001" in done.stderr
    done = cairn("server", DMLC_ROLE="worker", DMLC_PS_ROOT_PORT=9000)
    assert done.returncode == 1 and "DMLC_ROLE" in done.stderr


def test_mindspores_variables():
    port = free_port()
    job = dict(MS_SERVER_NUM=1, MS_WORKER_NUM=1, MS_SCHED_HOST="127.0.0.1", MS_SCHED_PORT=port)
    with Run("scheduler", MS_ROLE="MS_SCHED", **job) as sched:
        sched.wait_for(f"Bind to role=scheduler, id=1, ip=127.0.0.1, port={port}")
        with Run("server", MS_ROLE="MS_PSERVER", **job) as server:
            server.wait_for("registered as server 0")
            sched.wait_for("Assign rank=8 to node role=server, ip=127.0.0.1")


def test_paddles_first_server_hosts_the_scheduler():
    ports = [free_port(), free_port()]
    job = dict(PADDLE_PSERVERS_IP_PORT_LIST=",".join(f"127.0.0.1:{p}" for p in ports), TRAINING_ROLE="PSERVER",
               POD_IP="127.0.0.1", PADDLE_TRAINERS_NUM=1)
    # The second one comes first and waits.
    with Run("server", PADDLE_PORT=ports[1], **job) as second, Run("server", PADDLE_PORT=ports[0], **job) as first:
        first.wait_for("registered as server 0")
        second.wait_for("registered as server 1")
        status = json.loads(cairn("status", f"127.0.0.1:{ports[0]}", "--json").stdout)
        assert [s["endpoint"] for s in status["servers"]] == [f"127.0.0.1:{p}" for p in ports]
