"""cairn.init() and cairn.shutdown(): embedded, in every role of every family of variables, and how a
process ends."""
import os
import subprocess
import sys
import types

import pytest

import cairn
import scripts
from cairn._runtime import context
from namespaces import two_namespaces
from ports import free_port

HELLO = """
    import cairn
    context = cairn.init(connect_timeout=50)
    assert cairn.is_worker() and not cairn.is_server()
    table = cairn.dense_table("w", 4, optimizer="sum")
    import torch
    total = table.push_pull(torch.full((4,), 1.0 + cairn.rank())).result()
    print("rank", cairn.rank(), "of", cairn.world_size(), "local", cairn.local_rank(), "sum", int(total[0]))
    import os
    print({k: os.environ.get(k) for k in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")})
    cairn.barrier()
    """


def test_init_twice_gives_the_same_context(worker):
    first = cairn.init()
    assert cairn.init() is first is context.current()
    assert (first.rank, first.world_size, first.local_rank, first.embedded) == (0, 1, 0, True)
    assert (cairn.rank(), cairn.world_size(), cairn.local_rank()) == (0, 1, 0)
    assert cairn.is_worker() and not cairn.is_server()
    cairn.barrier()


def test_a_fresh_cluster_after_shutdown():
    assert not context.initialised()
    first = cairn.init().client.cluster_id
    cairn.dense_table("w", 3)
    cairn.shutdown()
    cairn.shutdown()  # does nothing
    with pytest.raises(cairn.NotInitializedError, match=r"cairn\.init\(\)"):
        cairn.rank()
    second = cairn.init(servers=2, threads=2)
    assert second.client.cluster_id != first and second.client.server_count == 2
    cairn.dense_table("w", 5)  # no trace of the other
    cairn.shutdown()


def test_calls_after_shutdown_say_so():
    cairn.init()
    table = cairn.dense_table("w", 3, mode="async")
    cairn.shutdown()
    with pytest.raises(cairn.CancelledError, match="finished|closed"):
        table.pull().wait()


def test_callbacks_at_shutdown(worker):
    context = cairn.init()
    assert context.first_rank() == 0
    order = []
    context.on_shutdown(lambda: order.append(1))
    context.on_shutdown(lambda: order.append(2))
    cairn.shutdown()
    assert order == [2, 1]


def test_wrong_arguments():
    for wrong in ({"servers": 0}, {"threads": -1}, {"timeout": 0}, {"connect_timeout": -1.0}):
        with pytest.raises(cairn.InvalidArgumentError):
            cairn.init(**wrong)
    with pytest.raises(TypeError):
        cairn.init(port=3)
    assert not context.initialised()


def test_torchs_variables_are_set_and_taken_back(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MASTER_ADDR", "here")
    cairn.init()
    assert (os.environ["RANK"], os.environ["WORLD_SIZE"]) == ("0", "1")
    assert "LOCAL_RANK" not in os.environ  # accelerate and others take that for a job of several processes
    assert os.environ["MASTER_ADDR"] == "here" and int(os.environ["MASTER_PORT"]) > 0
    cairn.shutdown()
    assert "RANK" not in os.environ and os.environ["MASTER_ADDR"] == "here"


def test_of_what_was_there_nothing_is_left_after_shutdown(monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "")  # as if it were not set
    monkeypatch.delenv("MASTER_PORT", raising=False)
    hook, leave = sys.excepthook, sys.exit
    context = cairn.init()
    assert "embedded" in repr(context) and sys.excepthook != hook and sys.exit != leave
    assert os.environ["MASTER_ADDR"] == "127.0.0.1"
    monkeypatch.setenv("MASTER_PORT", "5")  # the user's word, which stays
    cairn.shutdown()
    assert sys.excepthook == hook and sys.exit == leave
    assert "CAIRN_OWNER" not in os.environ and "MASTER_ADDR" not in os.environ and os.environ["MASTER_PORT"] == "5"


class Connected:
    """What init() asks the extension for, and a client that connects to nobody."""

    def __init__(self, monkeypatch, rank=1, world_size=3):
        self.rank, self.world_size, self.asked = rank, world_size, []
        monkeypatch.setattr(context._core, "connect", self.connect)
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
            monkeypatch.delenv(name, raising=False)

    def connect(self, host, port, **options):
        self.asked.append((host, port, options))
        return types.SimpleNamespace(rank=self.rank, world_size=self.world_size, finish=lambda: None,
                                     close=lambda: None)


def test_what_the_variables_and_the_arguments_ask_for(monkeypatch):
    connected = Connected(monkeypatch)
    for name, value in {"CAIRN_ROLE": "worker", "CAIRN_SCHEDULER": "node-a:65535,node-b:7", "CAIRN_RANK": "0",
                        "CAIRN_CLUSTER_ID": "this job", "CAIRN_CALL_TIMEOUT_MS": "4000"}.items():
        monkeypatch.setenv(name, value)
    found = cairn.init(connect_timeout=2.5)
    host, port, options = connected.asked[0]
    assert (host, port, options["rank"], options["cluster_id"]) == ("node-a", 65535, 0, "this job")
    assert [tuple(other) for other in options["more_schedulers"]] == [("node-b", 7)]
    assert (options["connect_timeout_ms"], options["call_timeout_ms"]) == (2500, 4000)
    assert found.call_timeout_s == 4.0  # for calls that wait for others outside the extension too
    # The others are not known to be on this machine, and torch's port is beside ours.
    assert found.local_rank == 0 and "LOCAL_WORLD_SIZE" not in os.environ and "worker" in repr(found)
    assert (os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]) == ("node-a", "65534")
    cairn.shutdown()
    monkeypatch.setenv("CAIRN_SCHEDULER", "localhost:7")
    monkeypatch.delenv("CAIRN_RANK")
    found = cairn.init(timeout=0.25)
    host, port, options = connected.asked[1]
    assert (host, port, options["rank"], options["call_timeout_ms"], found.call_timeout_s) == (
        "localhost", 7, -1, 250, 0.25)
    assert found.local_rank == 1 and os.environ["LOCAL_WORLD_SIZE"] == "3" and os.environ["MASTER_PORT"] == "8"
    cairn.shutdown()
    monkeypatch.delenv("CAIRN_CALL_TIMEOUT_MS")
    assert cairn.init().call_timeout_s == 1800.0
    cairn.shutdown()
    monkeypatch.delenv("CAIRN_SCHEDULER")
    with pytest.raises(cairn.InvalidArgumentError, match="where is the scheduler"):
        cairn.init()


@pytest.mark.parametrize("role, worker, server", [("worker", True, False), ("server", False, True),
                                                  ("scheduler", False, False), (None, True, False)])
def test_the_role_is_known_before_init(monkeypatch, role, worker, server):
    if role is not None:
        monkeypatch.setenv("CAIRN_ROLE", role)
        monkeypatch.setenv("CAIRN_SCHED_PORT", "7")
    assert (cairn.is_worker(), cairn.is_server()) == (worker, server)


def test_at_a_prompt_an_exception_ends_nothing(monkeypatch):
    watch = context.ExitWatch()
    watch._hook = lambda *_: None
    error = ValueError("a slip of the finger")
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    watch._on_exception(ValueError, error, None)
    assert watch.failure() is None and not watch.retired
    monkeypatch.delattr(sys, "ps1")
    watch._on_exception(ValueError, error, None)
    assert watch.failure() == "ValueError: a slip of the finger"


def test_half_a_launcher_is_an_error(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(cairn.InvalidArgumentError, match="WORLD_SIZE=2 says that there are more processes"):
        cairn.init()


def test_variables_that_contradict_each_other(monkeypatch):
    monkeypatch.setenv("CAIRN_SCHED_PORT", "9000")
    monkeypatch.setenv("MS_SCHED_PORT", "9001")
    with pytest.raises(cairn.InvalidArgumentError, match="contradict each other"):
        cairn.init()


def test_nobody_there(monkeypatch):
    monkeypatch.setenv("CAIRN_SCHED_PORT", str(free_port()))
    with pytest.raises(cairn.DeadlineExceededError):
        cairn.init(connect_timeout=0.3)
    assert not context.initialised()


def test_embedded_prints_nothing_and_takes_part_in_torch_distributed(job, tmp_path):
    script = scripts.write(tmp_path, """
        import torch, time
        begun = time.monotonic()
        import cairn
        cairn.init()
        assert time.monotonic() - begun < 20  # far more than it takes; a hang would be longer
        import torch.distributed as dist
        dist.init_process_group("gloo")
        assert dist.get_rank() == 0
        dist.destroy_process_group()
        """)
    assert job.wait(job.python(script)) == (0, "")


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is only one core: nothing to leave")
def test_torch_leaves_a_core_to_the_server(job, tmp_path):
    script = scripts.write(tmp_path, """
        import sys, torch, cairn
        if sys.argv[1] == "chosen":
            torch.set_num_threads(1)
        before = torch.get_num_threads()
        cairn.init()
        print(before - torch.get_num_threads())
        """)
    cores = len(os.sched_getaffinity(0))
    cases = (("default", None, 1), ("chosen", None, 0), ("default", cores, 0))
    children = [job.python(script, how, OMP_NUM_THREADS=threads, MKL_NUM_THREADS=None)
                for how, threads, _ in cases]
    for child, (how, threads, less) in zip(children, cases):
        assert job.wait(child) == (0, f"{less}\n"), (how, threads)


FAMILIES = {
    "cairn": lambda port: (
        {"CAIRN_SCHED_PORT": port, "CAIRN_NUM_SERVERS": 2, "CAIRN_NUM_WORKERS": 2},
        [{"CAIRN_ROLE": "scheduler"}, {"CAIRN_ROLE": "server"}, {"CAIRN_ROLE": "server"},
         {"CAIRN_ROLE": "worker", "CAIRN_RANK": 1}, {"CAIRN_ROLE": "worker", "CAIRN_RANK": 0}]),
    "mindspore": lambda port: (
        {"MS_SCHED_HOST": "127.0.0.1", "MS_SCHED_PORT": port, "MS_SERVER_NUM": 1, "MS_WORKER_NUM": 2},
        [{"MS_ROLE": "MS_WORKER"}, {"MS_ROLE": "MS_WORKER"}, {"MS_ROLE": "MS_PSERVER"}, {"MS_ROLE": "MS_SCHED"}]),
    "ps-lite": lambda port: (
        {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": port, "DMLC_NUM_SERVER": 1, "DMLC_NUM_WORKER": 2},
        [{"DMLC_ROLE": "scheduler"}, {"DMLC_ROLE": "server"}, {"DMLC_ROLE": "worker"}, {"DMLC_ROLE": "worker"}]),
    "paddle": lambda port: (
        {"PADDLE_PSERVERS_IP_PORT_LIST": f"127.0.0.1:{port}", "PADDLE_TRAINERS_NUM": 2},
        [{"TRAINING_ROLE": "PSERVER", "POD_IP": "127.0.0.1", "PADDLE_PORT": port},
         {"TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": 0}, {"TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": 1}]),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_script_in_every_role(job, tmp_path, family):
    script = scripts.write(tmp_path, HELLO)
    shared, roles = FAMILIES[family](free_port())
    children = [job.python(script, **shared, **role) for role in roles]
    texts = [job.wait(child) for child in children]
    assert [code for code, _ in texts] == [0] * len(roles), texts
    said = sorted(line for _, text in texts for line in text.splitlines() if line.startswith("rank "))
    # A server or scheduler says nothing of the script's: nothing after init() runs there.
    assert said == ["rank 0 of 2 local 0 sum 3", "rank 1 of 2 local 1 sum 3"]
    assert str({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}) in "".join(
        text for _, text in texts)


def cairn_run(job, cairn_bin, script, *options, arguments=(), **variables):
    return job.start([cairn_bin / "cairn", "run", "--no-logs", *options, script, *arguments],
                     CAIRN_PYTHON=sys.executable, **variables)


def test_cairn_run_and_torch_distributed(job, tmp_path, cairn_bin):
    script = scripts.write(tmp_path, HELLO + """
    import torch.distributed as dist
    dist.init_process_group("gloo")
    together = torch.ones(1)
    dist.all_reduce(together)
    print("together", int(together), flush=True)
    dist.destroy_process_group()  # without it torch itself aborts at exit, two times in fifty
    """)
    code, text = job.wait(cairn_run(job, cairn_bin, script, "-s", "2", "-w", "2"))
    assert code == 0 and text.count("together 2") == 2, text
    assert "rank 0 of 2 local 0 sum 3" in text and "rank 1 of 2 local 1 sum 3" in text


def test_an_exception_in_one_worker_ends_the_job(job, tmp_path, cairn_bin):
    """The other one waits for it at a barrier, and must not do so for ever."""
    script = scripts.write(tmp_path, """
        import cairn
        context = cairn.init()
        context.on_shutdown(lambda: print("callback", flush=True))
        if cairn.rank() == 1:
            raise ValueError("the data is bad")
        cairn.barrier()
        """)
    code, text = job.wait(cairn_run(job, cairn_bin, script, "-w", "2"))
    assert code != 0 and "ValueError: the data is bad" in text, text
    assert "callback" not in text


def test_a_script_on_a_machine_with_ipv6_alone(job, tmp_path):
    script = scripts.write(tmp_path, """
        import os, cairn
        cairn.init(servers=2)
        cairn.barrier()
        print("meets at", os.environ["MASTER_ADDR"], flush=True)
        """)
    with two_namespaces(["10.213.7.1", "10.213.7.2"]) as (here, _):
        subprocess.run([*here, "ip", "addr", "del", "127.0.0.1/8", "dev", "lo"], check=True)
        code, text = job.wait(job.start([*here, sys.executable, script]))
    assert code == 0 and "meets at ::1" in text, text


def test_scale_does_not_wait_for_a_worker_that_is_done(job, tmp_path, cairn_bin):
    script = scripts.write(tmp_path, """
        import subprocess, sys, time, cairn
        context = cairn.init()
        if cairn.rank() == 0:
            while context.client.live_ranks() != [0]:
                time.sleep(0.02)  # between looks at what the client has heard
            sys.exit(subprocess.run([sys.argv[1], "scale", "--workers", "2", "--timeout", "20"]).returncode)
        """)
    code, text = job.wait(cairn_run(job, cairn_bin, script, "-w", "2", arguments=[cairn_bin / "cairn"]))
    assert code == 0 and "done: 1 worker in the job" in text, text


def test_scale_waits_for_a_worker_that_left_in_good_order_and_is_wanted_again(job, tmp_path, cairn_bin):
    """The scheduler has it as done from before, and it takes its time to come back."""
    script = scripts.write(tmp_path, """
        import os, pathlib, signal, subprocess, sys, time, cairn
        tool, left, come = (pathlib.Path(word) for word in sys.argv[1:])
        scale = lambda workers: [tool, "scale", "--workers", workers, "--timeout", "60"]
        again = os.environ["RANK"] == "1" and left.exists()
        while again and not come.exists():
            time.sleep(0.02)  # between looks at a file
        context = cairn.init()
        if cairn.rank() == 1 and not again:
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
            left.touch()
            cairn.shutdown()
            while True:
                signal.pause()
        if cairn.rank() == 0:
            while context.client.live_ranks() != [0]:
                time.sleep(0.02)  # between looks at what the client has heard
            subprocess.run(scale("1"), check=True)
            with subprocess.Popen(scale("2"), stdout=subprocess.PIPE, text=True) as waiting:
                for line in waiting.stdout:
                    print("seen:", line, flush=True)
                    if "1 to come" in line:
                        come.touch()
            print("scale:", waiting.returncode, flush=True)
            come.touch()
        cairn.barrier()
        """)
    code, text = job.wait(cairn_run(job, cairn_bin, script, "-w", "2",
                                    arguments=[cairn_bin / "cairn", tmp_path / "left", tmp_path / "come"]))
    assert code == 0 and "1 worker in the job, 1 to come" in text and "scale: 0" in text, text
    assert "seen: done: 2 workers in the job" in text, text


# How a script ends, its exit code, whether the worker leaves in good order.
ENDS = [
    ("pass", 0, True),
    ("sys.exit()", 0, True),
    ("sys.exit(0)", 0, True),
    ("sys.exit(3)", 3, False),
    ("sys.exit('wrong')", 1, False),
    ("raise ValueError('bad')", 1, False),
    ("raise KeyboardInterrupt", -2, False),
    ("threading.Thread(target=sys.exit, args=(3,)).start()", 0, True),
    ("caught()", 0, True),
]


def test_ends(tmp_path, job):
    children = []
    for number, (last_line, _, _) in enumerate(ENDS):
        script = scripts.write(tmp_path, f"""
            import sys, threading, cairn
            def caught():
                try:
                    sys.exit(4)
                except SystemExit:
                    pass
            cairn.init().on_shutdown(lambda: print("callback", flush=True))
            {last_line}
            """, f"script{number}.py")
        children.append(job.python(script))
    for child, (last_line, code, finishes) in zip(children, ENDS):
        got, text = job.wait(child)
        assert got == code, (last_line, text)
        assert ("callback" in text) == finishes, (last_line, text)


def test_a_shutdown_that_fails_shows_in_the_exit_code(job, tmp_path):
    script = scripts.write(tmp_path, """
        import cairn
        cairn.init().on_shutdown(lambda: 1 / 0)
        """)
    code, text = job.wait(job.python(script))
    assert code == 1 and "ZeroDivisionError" in text


def test_a_worker_that_was_declared_dead_asks_to_be_started_again(job, tmp_path):
    """`cairn run` does so at this exit code; any other error would end the job."""
    script = scripts.write(tmp_path, """
        import cairn
        cairn.init()
        raise cairn.RetiredError("worker 0 was not heard for 5 s and declared dead")
        """)
    code, text = job.wait(job.python(script))
    assert code == 75 and "RetiredError" in text
