"""What `cairn run` leaves for others to find: its logs, and the job for `cairn status`."""
import json
import pathlib
import re
import signal
import stat
import subprocess
import time

import pytest

from processes import CAIRN, SECONDS, Run, children_of, clean_environment, wait_gone

WAITS = ("--", "sh", "-c", "echo here; exec sleep 1000")


def status(*arguments, **variables):
    return subprocess.run([CAIRN, "status", *map(str, arguments)], env=clean_environment(**variables),
                          capture_output=True, text=True, timeout=SECONDS)


def job(folder, *options):
    run = Run("run", *options, *WAITS, XDG_RUNTIME_DIR=folder)
    run.wait_for("here")
    run.wait_for("registered as server 0")
    run.port = int(run.wait_for(r"Bind to role=scheduler.*port=(\d+)")[1])
    run.id = run.wait_for(r"registered as server 0 of cluster (\S+)")[1]
    return run


def test_status_finds_the_job_that_runs_here(tmp_path):
    nothing = status(XDG_RUNTIME_DIR=tmp_path)
    assert nothing.returncode == 1 and "no job runs here" in nothing.stderr and "cairn run" in nothing.stderr
    with job(tmp_path) as run:
        found = status("--json", XDG_RUNTIME_DIR=tmp_path)
        assert found.returncode == 0, found.stderr
        assert json.loads(found.stdout)["cluster_id"] == run.id
        for level in ("cairn", "cairn/jobs"):
            assert stat.S_IMODE((tmp_path / level).stat().st_mode) == 0o700
        run.signal()
        run.wait()
    assert status(XDG_RUNTIME_DIR=tmp_path).returncode == 1
    assert not list((tmp_path / "cairn" / "jobs").iterdir())


def test_of_several_jobs_one_is_chosen_by_address_or_name(tmp_path):
    with job(tmp_path) as first, job(tmp_path, "--job-id", "second-job") as second:
        both = status(XDG_RUNTIME_DIR=tmp_path)
        assert both.returncode == 1 and "2 jobs run here" in both.stderr
        places = [both.stderr.index(f"127.0.0.1:{run.port}  {run.id}") for run in (second, first)]
        assert places == sorted(places), "newest first\n" + both.stderr
        for word in (f"127.0.0.1:{first.port}", first.id[:8]):
            assert f"cluster {first.id}" in status(word, XDG_RUNTIME_DIR=tmp_path).stdout
        assert "cluster second-job" in status("sec", XDG_RUNTIME_DIR=tmp_path).stdout
        assert "begins with 'third'" in status("third", XDG_RUNTIME_DIR=tmp_path).stderr
        # What the environment names comes first.
        found = status("--json", XDG_RUNTIME_DIR=tmp_path, CAIRN_SCHED_PORT=first.port)
        assert json.loads(found.stdout)["cluster_id"] == first.id


def test_stop_ends_a_job_in_good_order(tmp_path):
    (tmp_path / "train.py").write_text(
        "import signal, sys, time\n"
        "def save(*_):\n"
        "    print('saved', flush=True)\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "print('here', flush=True)\n"
        "time.sleep(1000)\n")
    with Run("run", "-s", 2, "-w", 2, "--job-id", "mine", tmp_path / "train.py", XDG_RUNTIME_DIR=tmp_path) as run:
        run.wait_for("here", count=2)
        run.wait_for("registered as server 1")
        children = children_of(run.process.pid)
        with Run("stop", "mi", XDG_RUNTIME_DIR=tmp_path) as stop:
            assert stop.wait() == 0 and stop.lines[-1].startswith("stopped, after"), stop.text
        assert run.wait() == 143, run.text
        assert run.text.count("] saved") == 2, run.text
        assert re.match(r"\[cairn\] stopped after \S+ s, by `cairn stop`; logs in", run.lines[-1]), run.text
        wait_gone(children)
    with Run("stop", "mi", XDG_RUNTIME_DIR=tmp_path) as stop:
        assert stop.wait() == 1 and "no job that runs here begins with 'mi'" in stop.text


def test_stop_without_a_launcher_and_without_patience(tmp_path):
    with Run("scheduler", "--cluster-id", "blue", XDG_RUNTIME_DIR=tmp_path) as scheduler:
        port = scheduler.wait_for(r"Bind to role=scheduler.*port=(\d+)")[1]
        with Run("server", "--scheduler", f"127.0.0.1:{port}") as server:
            server.wait_for("registered as server 0")
            with Run("stop", f"127.0.0.1:{port}", XDG_RUNTIME_DIR=tmp_path) as stop:
                assert stop.wait() == 0, stop.text
            assert server.wait() == 1 and "stopped by `cairn stop`" in server.text, server.text
            assert scheduler.wait() == 1
    with job(tmp_path) as run:
        with Run("stop", "--now", XDG_RUNTIME_DIR=tmp_path) as stop:
            assert stop.wait() == 0, stop.text
        assert run.wait() == 143 and "stopped after" in run.lines[-1], run.text


def test_a_killed_launcher_is_no_job_and_leaves_no_folder(tmp_path):
    with Run("run", "--", "sh", "-c", "sleep 1000 & echo child $!; wait", XDG_RUNTIME_DIR=tmp_path,
             TMPDIR=tmp_path) as run:
        child = int(run.wait_for(r"child (\d+)")[1])
        assert list((tmp_path / "cairn" / "jobs").iterdir())
        run.signal(signal.SIGKILL)
        run.process.wait()
        wait_gone([child])
    assert "no job runs here" in status(XDG_RUNTIME_DIR=tmp_path).stderr
    assert not list((tmp_path / "cairn" / "jobs").iterdir())
    # The guard removes the temporary folder; the next run would, if the guard had been killed too.
    left = tmp_path / "cairn-run-dead00"
    left.mkdir()
    (left / "lock").write_text("")
    with Run("run", "true", XDG_RUNTIME_DIR=tmp_path, TMPDIR=tmp_path) as run:
        assert run.wait() == 0
    assert not list(tmp_path.glob("cairn-run-*"))


def test_schedulers_by_themselves_are_found_too(tmp_path):
    with Run("scheduler", "--cluster-id", "blue", XDG_RUNTIME_DIR=tmp_path) as scheduler:
        end = time.monotonic() + SECONDS
        while (found := status(XDG_RUNTIME_DIR=tmp_path)).returncode != 0:
            assert time.monotonic() < end, found.stderr
        assert "cluster blue: forming" in found.stdout, found.stderr
        scheduler.signal()
        scheduler.wait()
    assert status(XDG_RUNTIME_DIR=tmp_path).returncode == 1


def test_a_folder_of_somebody_else_is_not_trusted(tmp_path):
    (tmp_path / "cairn").mkdir()
    (tmp_path / "cairn").chmod(0o777)
    with Run("run", "true", XDG_RUNTIME_DIR=tmp_path) as run:
        assert run.wait() == 0
        assert "not a folder of this user alone" in run.text


def logs_of(run):
    return pathlib.Path(re.search(r"logs in (\S+)$", run.lines[-1])[1])


def test_each_run_has_its_folder_and_old_ones_go(tmp_path):
    runs = tmp_path / "cairn" / "runs"
    runs.mkdir(parents=True)
    for day in range(10, 31):
        (runs / f"202001{day}-120000-abcdef").mkdir()
        (runs / f"202001{day}-120000-abcdef" / "worker-0.log").write_text("old\n")
    (runs / "mine").mkdir()
    with Run("run", "-w", 2, "--", "sh", "-c", "echo rank $RANK", XDG_STATE_HOME=tmp_path) as run:
        assert run.wait() == 0, run.text
    folder = logs_of(run)
    assert folder.parent == runs and (folder / "worker-1.log").read_text() == "rank 1\n"
    assert {"cairn.log", "scheduler.log", "server-0.log", "worker-0.log"} <= {p.name for p in folder.iterdir()}
    assert "finished in" in (folder / "cairn.log").read_text()
    names = sorted(p.name for p in runs.iterdir())
    assert len(names) == 21 and "mine" in names and "20200111-120000-abcdef" not in names, names


def test_a_folder_that_can_not_be_written_is_an_error_only_if_it_was_given(tmp_path):
    (tmp_path / "file").write_text("")
    with Run("run", "true", XDG_STATE_HOME=tmp_path / "file") as run:
        assert run.wait() == 0
        assert "no logs are kept" in run.text and "logs in" not in run.lines[-1]
    with Run("run", "--log-dir", tmp_path / "file" / "logs", "true") as run:
        assert run.wait() == 1
        assert "--log-dir" in run.text and "scheduler" not in run.text


def test_no_logs(tmp_path):
    with Run("run", "--no-logs", "true", XDG_STATE_HOME=tmp_path) as run:
        assert run.wait() == 0 and "logs in" not in run.text
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [["run"], ["run", "--bogus"], ["run", "-s", "0", "true"], ["run", "-s"], ["dance"], [],
                                   ["server", "--port", "x"], ["run", "--nnodes", "2", "true"],
                                   ["run", "--nnodes", "2", "--node-rank", "2", "--master-addr", "127.0.0.1", "true"],
                                   ["run", "--no-logs", "--log-dir", "x", "true"]])
def test_wrong_usage_is_exit_code_2(words):
    done = subprocess.run([CAIRN, *words], env=clean_environment(), capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr or done.stdout


def test_the_doctor_says_what_to_do(tmp_path):
    broken = tmp_path / "cairn.py"
    broken.write_text("raise OSError('no such library')\n")
    done = subprocess.run([CAIRN, "doctor"], env=clean_environment(PYTHONPATH=tmp_path), capture_output=True, text=True,
                          timeout=150)
    assert done.returncode == 1, done.stdout
    assert re.search(r"^FAIL  cairn in Python: the import fails: OSError: no such library\n      → ", done.stdout, re.M)
    assert re.search(r"^ok    loopback: ", done.stdout, re.M)
    broken.write_text("__version__ = '9.9.9'\n")
    (tmp_path / "torch.py").write_text("__version__ = '2.0.0'\n")
    done = subprocess.run([CAIRN, "doctor", "--json"], env=clean_environment(PYTHONPATH=tmp_path), capture_output=True,
                          text=True, timeout=150)
    found = json.loads(done.stdout)
    assert done.returncode == 0 and found["ok"] is True
    checks = {check["name"]: check for check in found["checks"]}
    assert checks["cairn in Python"]["result"] == "warn" and "9.9.9" in checks["cairn in Python"]["text"]
    assert checks["torch in Python"] == {"name": "torch in Python", "result": "ok", "text": "2.0.0", "advice": ""}
    assert {"cairn", "Python", "ports", "cores", "memory", "open files", "shared memory", "huge pages", "clock", "logs",
            "jobs"} <= checks.keys()
    assert all(check["advice"] for check in found["checks"] if check["result"] != "ok")


def test_the_doctor_sees_a_bad_folder_and_a_python_that_is_none(tmp_path):
    done = subprocess.run([CAIRN, "doctor", "--json"], capture_output=True, text=True, timeout=150,
                          env=clean_environment(TMPDIR=tmp_path / "none", CAIRN_PYTHON="/bin/true"))
    checks = {check["name"]: check["result"] for check in json.loads(done.stdout)["checks"]}
    assert done.returncode == 1 and checks["temporary folder"] == "fail" and checks["Python"] == "fail"
