"""`cairn run` with copies of every partition, `cairn scale`, `cairn top`, and a server that is told to go."""
import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import time

from processes import BIN, CAIRN, SECONDS, Run, child_with, clean_environment


def soak(tmp_path, *options, **variables):
    """A job whose workers push until `end` exists."""
    return Run("run", *options, "--no-logs", "--", BIN / "cairn-soak", "--dir", tmp_path / "accounts", "--mode", "async",
               "--until", tmp_path / "end", "--pause-us", 2000, **variables)


def status_of(run):
    port = run.wait_for(r"Bind to role=scheduler.*port=(\d+)")[1]
    done = subprocess.run([CAIRN, "status", f"127.0.0.1:{port}", "--json"], env=clean_environment(), capture_output=True,
                          text=True, timeout=SECONDS)
    return json.loads(done.stdout)


def wait_copied(run, servers):
    end = time.monotonic() + 2 * SECONDS
    while True:
        status = status_of(run)
        slots = status["slots"]
        if len(status["servers"]) == servers and slots["in_sync"] == slots["total"]:
            return
        assert time.monotonic() < end, f"{slots}\n{run.text}"
        time.sleep(0.2)  # between polls of a condition


def wait_running(run):
    run.wait_for("the scheduler is connected to")
    run.wait_for("soak.async.sparse")


def test_a_killed_server_is_started_again_and_no_worker_notices(tmp_path):
    with soak(tmp_path, "-s", 2, "-w", 2) as run:
        wait_running(run)
        before = status_of(run)["servers"]
        os.kill(child_with(run.process.pid, "cairn server --port 0 --rank 1"), signal.SIGKILL)
        run.wait_for(r"server 1 was killed by signal 9 \(Killed\): starting it again \(1 of 3 within 10 min\); others have copies")
        run.wait_for("every partition has all its copies again")
        after = status_of(run)["servers"]
        assert [s["endpoint"] for s in after] == [s["endpoint"] for s in before]
        assert after[1]["incarnation"] > before[1]["incarnation"]
        (tmp_path / "end").touch()
        assert run.wait() == 0, run.text
        assert run.lines[-1].startswith("[cairn] finished") and "1 restart" in run.lines[-1]
        run.wait_for(r"lost: 0  twice: 0")


def test_with_one_copy_a_killed_server_ends_the_job(tmp_path):
    with soak(tmp_path, "-s", 2, "--replicas", 1) as run:
        wait_running(run)
        os.kill(child_with(run.process.pid, "cairn server --port 0 --rank 1"), signal.SIGKILL)
        assert run.wait() == 128 + 9, run.text
        assert "server 1 was killed by signal 9 (Killed): its part of the tables is lost" in run.text


def test_two_servers_that_die_at_once_are_named_and_not_the_workers(tmp_path):
    with soak(tmp_path, "-s", 2, "-w", 2) as run:
        wait_running(run)
        servers = [child_with(run.process.pid, f"cairn server --port 0 --rank {rank}") for rank in (0, 1)]
        for server in servers:
            os.kill(server, signal.SIGKILL)
        assert run.wait() != 0, run.text
        assert "servers 0 and 1 died before" in run.lines[-1] and "--replicas 3" in run.lines[-1], run.text
        assert "worker" not in run.lines[-1], run.text


NEVER_MS = 3_600_000


def test_partitions_of_a_killed_server_go_on_elsewhere_without_waiting_for_its_silence(tmp_path):
    """It is not started again, and silence alone would take an hour to be noticed."""
    with soak(tmp_path, "-s", 2, "--max-restarts", 0, CAIRN_DEAD_AFTER_MS=NEVER_MS) as run:
        wait_running(run)
        os.kill(child_with(run.process.pid, "cairn server --port 0 --rank 1"), signal.SIGKILL)
        run.wait_for("server 1 .* is lost: its process has ended; [0-9]+ partitions of it went on at other owners")
        (tmp_path / "end").touch()
        assert run.wait() == 0, run.text
        run.wait_for(r"lost: 0  twice: 0")


def test_partitions_whose_last_owner_was_killed_end_the_job_without_waiting_for_its_silence(tmp_path):
    with soak(tmp_path, "-s", 3, "--max-restarts", 0, CAIRN_DEAD_AFTER_MS=NEVER_MS, CAIRN_LOST_AFTER_MS=NEVER_MS) as run:
        wait_running(run)
        servers = [child_with(run.process.pid, f"cairn server --port 0 --rank {rank}") for rank in (0, 1)]
        for server in servers:
            os.kill(server, signal.SIGKILL)
        assert run.wait() != 0, run.text
        assert "servers 0 and 1 died before" in run.lines[-1], run.text
        assert "is lost: its process has ended; no other owner of partitions" in run.lines[-1], run.text


def test_a_job_that_waits_for_a_server_that_was_given_up_says_so(tmp_path):
    with soak(tmp_path, "-s", 2, "--min-in-sync", 2, "--max-restarts", 0) as run:
        wait_running(run)
        os.kill(child_with(run.process.pid, "cairn server --port 0 --rank 1"), signal.SIGKILL)
        command = run.wait_for("the job stands still: .*1 server was given up.*: cairn (server --scheduler .*)")[1]
        with Run(*command.split()):
            run.wait_for("the job goes on")
            (tmp_path / "end").touch()
            run.wait_for(r"lost: 0  twice: 0")


def test_a_server_that_leaves_for_long_waits_for_a_scheduler_that_is_away_for_a_moment(tmp_path):
    """How long none has answered counts from its last answer, not from the beginning."""
    with soak(tmp_path, "-s", 2, "--min-in-sync", 2, CAIRN_LOST_AFTER_MS=1) as run:
        wait_running(run)
        wait_copied(run, 2)
        os.kill(child_with(run.process.pid, "cairn server --port 0 --rank 1"), signal.SIGTERM)
        run.wait_for("can't leave yet: 1 other server would stay")
        time.sleep(5.5)  # longer than it does without a scheduler: CAIRN_LOST_AFTER_MS and 5 s
        scheduler = child_with(run.process.pid, "cairn scheduler")
        os.kill(scheduler, signal.SIGSTOP)
        time.sleep(2.5)  # it asks twice a second, and waits a second for each answer
        os.kill(scheduler, signal.SIGCONT)
        assert len(status_of(run)["servers"]) == 2, run.text
        (tmp_path / "end").touch()
        assert run.wait() == 0, run.text
        assert "goes at once" not in run.text and "lost: 0  twice: 0" in run.text, run.text


def test_more_in_sync_than_there_are_copies_is_refused():
    with Run("run", "-s", 1, "--min-in-sync", 2, "true") as run:
        assert run.wait() == 2 and "nothing would ever be acknowledged" in run.text, run.text


@contextlib.contextmanager
def nodes_by_hand(tmp_path):
    """A scheduler, a server and a worker that pushes, none of them started by a launcher."""
    with Run("scheduler", "--port", 0) as scheduler:
        port = scheduler.wait_for(r"Bind to role=scheduler.*port=(\d+)")[1]
        job = dict(CAIRN_SCHED_HOST="127.0.0.1", CAIRN_SCHED_PORT=port)
        with Run("server", **job) as server:
            worker = subprocess.Popen(
                [BIN / "cairn-soak", "--dir", tmp_path / "accounts", "--until", tmp_path / "end", "--pause-us", "2000"],
                env=clean_environment(CAIRN_ROLE="worker", **job), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                scheduler.wait_for("soak.async.sparse")
                yield f"127.0.0.1:{port}", server, scheduler
            finally:
                worker.kill()
                worker.wait()


def test_the_only_server_goes_at_once(tmp_path):
    """Nobody could take what it holds, so a launcher or Kubernetes is not kept waiting."""
    with nodes_by_hand(tmp_path) as (_, server, _):
        server.signal(signal.SIGTERM)
        assert server.wait() == 128 + signal.SIGTERM, server.text
        assert "goes at once: no other server is there" in server.text


def test_the_only_server_goes_at_once_without_a_scheduler_too(tmp_path):
    with nodes_by_hand(tmp_path) as (_, server, scheduler):
        scheduler.signal(signal.SIGKILL)
        scheduler.wait()
        server.signal(signal.SIGTERM)
        assert server.wait() == 128 + signal.SIGTERM, server.text
        assert "goes at once: no other server is there" in server.text, server.text


def test_a_scheduler_without_its_log_is_another_cluster(tmp_path):
    """Started again on its port: nobody waits for ever."""
    with Run("scheduler", "--port", 0) as scheduler:
        port = scheduler.wait_for(r"Bind to role=scheduler.*port=(\d+)")[1]
        job = dict(CAIRN_SCHED_HOST="127.0.0.1", CAIRN_SCHED_PORT=port)
        with Run("server", **job) as server:
            worker = subprocess.Popen([BIN / "cairn-soak", "--dir", tmp_path / "accounts", "--mode", "sync", "--until",
                                       tmp_path / "end"], env=clean_environment(CAIRN_ROLE="worker", **job),
                                      stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            try:
                scheduler.wait_for("soak.sync.sparse")
                scheduler.signal(signal.SIGKILL)
                scheduler.wait()
                with Run("scheduler", "--port", port):
                    assert server.wait() == 1 and "is a new cluster" in server.text, server.text
                    said = next(line for line in worker.stderr if "is a new cluster" in line)  # a deadline is ctest's
                    assert f"the scheduler at 127.0.0.1:{port} is another one now" in said
            finally:
                worker.kill()
                worker.wait()


def test_a_server_that_min_in_sync_needs_says_why_it_stays(tmp_path):
    with soak(tmp_path, "-s", 2, "--min-in-sync", 2) as run:
        wait_running(run)
        os.kill(child_with(run.process.pid, "cairn server --port 0 --rank 1"), signal.SIGTERM)
        run.wait_for(r"\[server 1\] can't leave yet: 1 other server would stay, and --min-in-sync 2 wants 2")


def test_a_server_that_is_told_to_go_gives_its_partitions_away_first(tmp_path):
    with nodes_by_hand(tmp_path) as (address, server, _), Run("server", "--scheduler", address) as second:
        second.wait_for("registered as server 1")
        server.signal(signal.SIGTERM)
        assert server.wait() == 0, server.text
        assert "leaving: still primary of" in server.text


def test_a_server_that_dies_while_it_leaves_stays_away_and_one_that_stays_comes_back(tmp_path):
    with soak(tmp_path, "-s", 3, "-w", 2) as run:
        wait_running(run)
        servers = [child_with(run.process.pid, f"cairn server --port 0 --rank {rank}") for rank in range(3)]
        job = run.wait_for(r"registered as server 0 of cluster (\S+)")[1]

        def scale(servers):
            done = subprocess.run([CAIRN, "scale", job, "--servers", str(servers), "--no-wait"], env=clean_environment(),
                                  capture_output=True, text=True, timeout=SECONDS)
            assert done.returncode == 0, done.stderr

        scale(2)
        os.kill(servers[0], signal.SIGKILL)  # while server 2 is on its way out
        run.wait_for(r"server 0 was killed by signal 9 \(Killed\): starting it again")
        run.wait_for("server 2 has left")
        wait_copied(run, servers=2)
        scale(1)
        os.kill(servers[1], signal.SIGKILL)
        run.wait_for(r"server 1 was killed by signal 9 \(Killed\) while it was leaving: it is not started again")
        run.wait_for("server 1 .* is lost: its process has ended")
        (tmp_path / "end").touch()
        assert run.wait() == 0, run.text
        assert "1 restart," in run.lines[-1], run.text
        assert run.text.count("[server 1] Server listening") == 1, run.text


def test_scale_sends_workers_away_and_calls_them_back(tmp_path):
    with soak(tmp_path, "-s", 2, "-w", 3) as run:
        wait_running(run)
        with Run("scale", "--workers", 1) as scale:
            assert scale.wait() == 0, scale.text
            assert scale.lines[-1] == "done: 1 worker in the job", scale.text
        run.wait_for("the job is to have 1 worker: workers 1 and 2 are told to go")
        for rank in (1, 2):
            run.wait_for(f"worker {rank} has gone, as it was told to")
        with Run("scale", "--workers", 2) as scale:
            assert scale.wait() == 0, scale.text
        run.wait_for("the job is to have 2 workers: starting worker 1")
        assert sorted(worker["rank"] for worker in status_of(run)["workers"]) == [0, 1]
        (tmp_path / "end").touch()
        assert run.wait() == 0, run.text
        assert "2 workers done, 0 restarts" in run.lines[-1], run.text


def test_scale_starts_more_workers_than_the_job_began_with():
    script = 'echo "rank $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE"; exec sleep 1000'
    with Run("run", "--no-logs", "-w", 2, "--", "sh", "-c", script) as run:
        run.wait_for("rank 1 of 2, 1 of 2")
        with Run("scale", "--workers", 4, "--no-wait") as scale:
            assert scale.wait() == 0, scale.text
        run.wait_for("the job is to have 4 workers: starting workers 2 and 3")
        for rank in (2, 3):
            run.wait_for(f"rank {rank} of 4, {rank} of 4")
        run.signal()
        assert run.wait() == 130, run.text


def test_scale_ends_with_the_job(tmp_path):
    """It waits for a server that was given up, and would go on for ten minutes."""
    with soak(tmp_path, "-s", 2, "--max-restarts", 0) as run:
        wait_running(run)
        os.kill(child_with(run.process.pid, "cairn server --port 0 --rank 1"), signal.SIGKILL)
        run.wait_for("server 1 .* is lost")
        with Run("scale", "--servers", 2) as scale:
            scale.wait_for("1 server has not come yet")
            (tmp_path / "end").touch()
            assert run.wait() == 0, run.text
            assert scale.wait() == 1, scale.text
            assert scale.lines[-1].startswith("cairn: scale: the job is over"), scale.text


def test_scale_says_how_to_start_a_server_where_nobody_does(tmp_path):
    with nodes_by_hand(tmp_path) as (address, _, _), Run("scale", "--servers", 2, "--scheduler", address) as scale:
        with Run("scale", address, "--workers", 2) as workers:
            assert workers.wait() == 1 and "start and stop workers by hand" in workers.text, workers.text
        command = scale.wait_for("^  cairn (server --scheduler .*)")[1]
        with Run(*command.split()):
            assert scale.wait() == 0, scale.text
            assert scale.lines[-1].startswith("done: 2 servers; 256 of 256 partitions have all their copies"), scale.text


def test_scale_without_a_job_and_with_nonsense():
    for words, code, text in ((["--servers", "2"], 1, "no job runs here"), (["--servers", "0"], 2, "--servers"),
                              ([], 2, "--servers or --workers is required"), (["--workers", "0"], 2, "--workers")):
        done = subprocess.run([CAIRN, "scale", *words], env=clean_environment(), capture_output=True, text=True,
                              timeout=SECONDS)
        assert done.returncode == code and text in done.stdout + done.stderr, done


def test_top_prints_blocks_where_there_is_no_terminal():
    with Run("scheduler", "--port", 0, "--cluster-id", "blue") as scheduler:
        address = f"127.0.0.1:{scheduler.wait_for(r'Bind to role=scheduler.*port=([0-9]+)')[1]}"
        with Run("top", address, "--once") as once:
            assert once.wait() == 0 and once.text.count("cluster blue: forming") == 1, once.text
        with Run("top", address, "--interval", 0.1) as top:
            top.wait_for("cluster blue: forming", count=3)
            top.signal()
            assert top.wait() == 0 and "\033" not in top.text, top.text


def test_top_takes_the_terminal_and_gives_it_back():
    with Run("scheduler", "--port", 0, "--cluster-id", "blue") as scheduler:
        address = f"127.0.0.1:{scheduler.wait_for(r'Bind to role=scheduler.*port=([0-9]+)')[1]}"
        for end in ("q", "ctrl-c"):
            pid, terminal = pty.fork()
            if pid == 0:
                os.execve(CAIRN, [str(CAIRN), "top", address, "--interval", "0.1"], clean_environment(TERM="xterm"))
            shown, deadline = b"", time.monotonic() + SECONDS
            while shown.count(b"\033[H") < 3:
                assert time.monotonic() < deadline, shown
                if select.select([terminal], [], [], 0.5)[0]:
                    shown += os.read(terminal, 65536)
            assert shown.startswith(b"\033[?1049h\033[?25l") and b"cluster blue: forming" in shown
            os.write(terminal, b"q" if end == "q" else b"\x03")
            try:
                while piece := os.read(terminal, 65536):
                    shown += piece
            except OSError:
                pass  # its other end is closed
            os.close(terminal)
            assert os.waitpid(pid, 0)[1] == 0
            assert b"\033[?25h\033[?1049l" in shown and b"cluster blue: forming" in shown.rsplit(b"\033[?1049l", 1)[1]
