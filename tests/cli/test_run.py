"""`cairn run`: exit codes, restarts, Ctrl-C, and that nothing is left behind."""
import os
import re
import signal
import subprocess

import pytest

from processes import CAIRN, Run, child_with, children_of, clean_environment, wait_for_children, wait_gone

WAITS = "echo here; exec sleep 1000"  # a worker that waits to be killed


def launch(*options, script, **variables):
    return Run("run", *options, "--", "sh", "-c", script, **variables)


def test_workers_that_never_connect_end_well():
    with launch("-s", 2, "-w", 2, script='echo "rank $RANK of $WORLD_SIZE"') as run:
        assert run.wait() == 0, run.text
        assert "[worker 0] rank 0 of 2" in run.lines
        assert "[worker 1] rank 1 of 2" in run.lines


def test_the_dashes_are_optional_and_the_programs_own_flags_stay_its_own():
    with Run("run", "-s", 1, "-w1", "echo", "-s", "7", "--", "x") as run:
        assert run.wait() == 0, run.text
        assert "[worker 0] -s 7 -- x" in run.lines


def test_workers_get_their_environment_and_nobody_elses():
    script = 'echo "$CAIRN_ROLE $CAIRN_RANK $CAIRN_NUM_SERVERS $LOCAL_RANK $MASTER_ADDR ${MASTER_PORT:+port} <$MS_ROLE>"'
    with launch(script=script, MS_ROLE="MS_SCHED", MS_SCHED_PORT=1, CAIRN_RANK=7) as run:
        assert run.wait() == 0, run.text
        assert "[worker 0] worker 0 1 0 127.0.0.1 port <>" in run.lines


def test_a_failing_worker_ends_the_job_with_its_code_and_its_last_lines():
    with launch("-w", 2, script='[ $RANK = 0 ] && exec sleep 1000; echo "no such data"; exit 42') as run:
        assert run.wait() == 42, run.text
        assert run.lines[-2] == "[worker 1] no such data"
        assert re.match(r"\[cairn\] failed after \S+ s: worker 1 exited with code 42; logs in /", run.lines[-1])
        assert any("worker 1 exited with code 42" in line for line in run.lines)


def test_a_program_that_is_not_there():
    with Run("run", "/no/such/program") as run:
        assert run.wait() == 127, run.text
        assert "/no/such/program: No such file or directory" in run.text


def test_a_killed_worker_is_started_again_with_its_rank(tmp_path):
    script = f'echo "rank $CAIRN_RANK"; [ -e {tmp_path}/once ] || {{ touch {tmp_path}/once; kill -9 $$; }}'
    with launch(script=script) as run:
        assert run.wait() == 0, run.text
        assert run.lines.count("[worker 0] rank 0") == 2
        assert "[cairn] worker 0 was killed by signal 9 (Killed): starting it again (1 of 3 within 10 min)" in run.lines


def test_a_worker_that_is_killed_too_often_is_given_up():
    with launch("--max-restarts", 1, "-w", 2, script="[ $RANK = 0 ] || kill -9 $$") as run:
        assert run.wait() == 128 + 9, run.text
        assert any("worker 1" in line and "given up" in line for line in run.lines)


def test_a_rate_of_restarts_and_nonsense():
    with launch("--max-restarts", "1/1h", script="kill -9 $$") as run:
        assert run.wait() == 128 + 9, run.text
        assert "worker 0 was killed by signal 9 (Killed) and is given up: 1 restart within 1 h is used up" in run.text
    with launch("--max-restarts", "3/10m", script="true") as run:
        assert run.wait() == 2 and "3/10min" in run.text, run.text


def test_a_killed_server_ends_the_job_and_is_named():
    with launch(script=WAITS) as run:
        run.wait_for("here")
        os.kill(child_with(run.process.pid, "cairn server"), signal.SIGKILL)
        assert run.wait() == 128 + 9, run.text
        assert "server 0 was killed by signal 9" in run.text


def test_the_schedulers_last_words_are_in_the_summary():
    # Nothing can be written to a file: its log can't be begun.
    full = ["sh", "-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "sh"]
    with Run("run", "--no-logs", "--", "sh", "-c", WAITS, before=full) as run:
        assert run.wait() == 1, run.text
        said = next(line for line in run.lines if line.startswith("[scheduler] cairn: "))
        assert run.lines[-1].endswith(": scheduler exited with code 1: " + said.split("cairn: ", 1)[1]), run.text


def test_a_killed_scheduler_is_started_again_on_its_port():
    with launch(script=WAITS) as run:
        run.wait_for("here")
        run.wait_for("registered as server 0")
        port = run.wait_for(r"Bind to role=scheduler.*port=(\d+)")[1]
        os.kill(child_with(run.process.pid, "cairn scheduler"), signal.SIGKILL)
        assert run.wait_for(r"Bind to role=scheduler.*port=(\d+)", count=2)[1] == port
        run.signal()
        assert run.wait() == 130, run.text


@pytest.mark.parametrize("number,code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_ends_all(number, code):
    with launch("-s", 2, "-w", 2, script=WAITS) as run:
        run.wait_for("here", count=2)
        children = wait_for_children(run.process.pid, 5)
        run.signal(number)
        assert run.wait() == code, run.text
        wait_gone(children)


def test_python_sees_a_keyboard_interrupt_also_in_the_background(tmp_path):
    (tmp_path / "train.py").write_text(
        "import signal, time\n"
        "try:\n"
        "    print('here', signal.getsignal(signal.SIGINT) is signal.default_int_handler, flush=True)\n"
        "    time.sleep(1000)\n"
        "except KeyboardInterrupt:\n"
        "    print('saved', flush=True)\n")
    # A shell without job control starts what is in the background with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run = Run("run", "-w", 2, tmp_path / "train.py")
    finally:
        signal.signal(signal.SIGINT, before)
    with run:
        run.wait_for("here True", count=2)
        run.signal()
        assert run.wait() == 130, run.text
        assert run.lines.count("[worker 0] saved") == 1 and run.lines.count("[worker 1] saved") == 1


def test_a_second_ctrl_c_kills():
    with launch(script="trap '' INT TERM; echo here; while :; do sleep 1; done") as run:
        run.wait_for("here")
        children = children_of(run.process.pid)
        run.signal()
        run.wait_for("interrupted")
        run.signal()
        assert run.wait() == 130, run.text
        wait_gone(children)


def test_nothing_outlives_a_killed_launcher():
    with launch("-s", 2, "-w", 2, script=WAITS) as run:
        run.wait_for("here", count=2)
        children = children_of(run.process.pid)
        run.signal(signal.SIGKILL)
        run.process.wait()
        wait_gone(children)


SESSIONS = '''
# Each in a session of its own: a grandchild, and one whose parent is gone at once; the last starts others.
setsid sh -c 'echo $$ > {0}/plain; exec sleep 1000' &
(setsid sh -c 'echo $$ > {0}/orphan; while :; do sleep 0.05; done' &)
# A launcher below this one, whose guard and processes go too. Without --wait its worker would be over at once.
{1} run --no-logs -- setsid --wait sh -c 'echo $$ > {0}/below; exec sleep 1000' &
while ! [ -s {0}/plain -a -s {0}/orphan -a -s {0}/below ]; do sleep 0.02; done
echo here; wait
'''


def test_not_even_sessions_of_their_own_outlive_a_killed_launcher(tmp_path):
    with launch(script=SESSIONS.format(tmp_path, CAIRN)) as run:
        run.wait_for("here")
        started = [int((tmp_path / name).read_text()) for name in ("plain", "orphan", "below")]
        run.signal(signal.SIGKILL)
        run.process.wait()
        wait_gone(started)


def test_nothing_is_left_behind(tmp_path):
    with launch(script=f"sleep 1000 & echo $! > {tmp_path}/pid", TMPDIR=tmp_path) as run:
        assert run.wait() == 0, run.text
    wait_gone([int((tmp_path / "pid").read_text())])
    assert [p.name for p in tmp_path.iterdir()] == ["pid"]  # the scheduler's log is gone


def test_slots():
    with launch("--slots", 1024, script=WAITS) as run:
        run.wait_for("here")
        port = run.wait_for(r"Bind to role=scheduler.*port=(\d+)")[1]
        done = subprocess.run([CAIRN, "status", f"127.0.0.1:{port}"], env=clean_environment(), capture_output=True, text=True,
                              timeout=60)
        assert "1024 partitions" in done.stdout, done
        run.signal()
        assert run.wait() == 130, run.text


def test_log_dir(tmp_path):
    with Run("run", "-w", 2, "--log-dir", tmp_path / "logs", "--", "sh", "-c", "echo rank $RANK") as run:
        assert run.wait() == 0, run.text
    assert (tmp_path / "logs" / "worker-1.log").read_text() == "rank 1\n"
    assert "Bind to role=scheduler" in (tmp_path / "logs" / "scheduler.log").read_text()


def test_no_reader_no_job():
    """`cairn run … | head -1` ends."""
    read, write = os.pipe()
    process = subprocess.Popen([CAIRN, "run", "--", "sh", "-c", "while :; do echo y; done"], stdout=write,
                               stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=clean_environment(), text=True)
    os.close(write)
    os.read(read, 100)
    os.close(read)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == 128 + signal.SIGPIPE
    assert "nobody reads the output" in errors and "interrupted" not in errors
