"""Servers and the scheduler are killed while a model trains. With copies nobody notices: not a bit
of any loss is different. Without, the job ends and says why."""
import json
import pathlib
import re
import signal
import subprocess

import cairn
import mnist_patterns
from optimizer_workers.job import Job as EndedJob
from ports import free_port
from scripts import write

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
SECONDS = 120
FAILOVER = (r"^\[scheduler\] server (\d+) .* is lost: .*; "
            r"(\d+) partitions? of it went on at other owners$")


def lines_of(rank, text):
    return re.findall(rf"^\[worker {rank}\] (.*)$", text, re.M)


def assert_lost_and_gone_on(text, servers):
    """These servers were lost, in this order, and each was the primary of something."""
    found = re.findall(FAILOVER, text, re.M)
    assert [int(index) for index, _ in found] == servers, text
    assert all(int(partitions) > 0 for _, partitions in found), text


def test_lenet_has_the_same_losses_with_a_server_and_the_scheduler_killed(job, cairn_bin):
    """As a user starts the example; what it concludes is looked at again here."""
    mnist_patterns.write(job.folder, train=6400, test=300)
    child = job.python(EXAMPLES / "mnist_lenet_killed.py", "--data", job.folder, "--limit", 6400,
                       "--keep", job.folder, "--timeout", SECONDS, CAIRN_BIN=cairn_bin)
    code, told = job.wait(child, 2 * SECONDS)
    assert code == 0, told
    peace, killed = ((job.folder / f"{name}.log").read_text()
                     for name in ("in-peace", "with-kills"))
    for rank in (0, 1):
        found = re.findall(rf"^\[worker {rank}\] epoch: 1 step: (\d+), loss is (\S+)$", peace, re.M)
        assert [int(step) for step, _ in found] == list(range(1, 101)), peace
        first, last = found[0][1], found[-1][1]
        assert float(last) < 0.5 < float(first), peace
        assert repr(float(last)) == last and len(last) > 10, f"not all digits: {last}"
        # Every loss, the accuracy, and not a word more: the script has not noticed anything. What
        # the client says about it goes to standard error.
        by_client = f"[cairn worker {rank}] "
        said = lines_of(rank, killed)
        by_script, in_peace = ([line for line in lines_of(rank, log) if not line.startswith(by_client)]
                               for log in (killed, peace))
        assert by_script == in_peace, killed
        assert any(line.startswith(f"{by_client}server 0 is gone; its partitions are now on server")
                   for line in said), killed
    assert "was killed by" not in peace and " is lost: " not in peace
    assert_lost_and_gone_on(killed, [0])
    before, after = re.split(r"\[scheduler\] server 0 .* is lost: ", killed)
    for part in (before, after):
        assert any("loss is" in line for line in lines_of(0, part)), f"not in the middle:\n{killed}"
    # Nobody waits for the scheduler while it starts again: the last steps may come before it is back.
    at = [int(step) for step in re.findall(r"step (\d+): kill -9 the scheduler", told)]
    assert len(at) == 1 and 1 < at[0] < 100, told
    assert killed.count("[scheduler] started again, term 2: ") == 1, killed
    assert told.count("100 losses, from ") == told.count(": the same in both runs") == 2, told


def test_the_example_tells_a_loss_that_differs(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    import mnist_lenet_killed

    same = {0: ["0.5", "0.25"], 1: ["0.5", "0.125"]}
    assert not list(mnist_lenet_killed.differences(same, same))
    other = {0: ["0.5", "0.25"], 1: ["0.5", "0.12500000000000003"]}
    (line,) = mnist_lenet_killed.differences(same, other)
    assert line == "worker 1: step 2 has the loss 0.125 without kills, 0.12500000000000003 with"
    assert list(mnist_lenet_killed.differences(same, {0: ["0.5"], 1: ["0.5", "0.125"]})) == [
        "worker 0: 2 steps without kills, 1 with"]


def test_tables_of_rows_have_the_same_losses_with_two_servers_and_the_scheduler_killed(cairn_bin):
    jobs = [EndedJob(cairn_bin, "killed_servers.py", cairn_bin / "cairn", *more, servers=3,
                     options=["--no-progress"]) for more in ([], ["kills"])]
    for one in jobs:
        assert one.code == 0, one.output
        assert one.left_behind() == []
    peace, killed = jobs
    assert [found[0] for found in killed.of_worker(0, "^killed .*")] == [
        "killed server --rank 0", "killed scheduler", "killed server --rank 1"], killed.output
    assert_lost_and_gone_on(killed.output, [0, 1])
    assert "[scheduler] started again, term 2: " in killed.output and " is lost: " not in peace.output
    for rank in (0, 1):
        losses, others = ([found[0] for found in one.of_worker(rank, r"^(step \d+ loss|ended) \S+$")]
                          for one in jobs)
        assert len(losses) == 101, peace.output
        assert losses == others, killed.output
    assert peace.of_worker(0, "^ended")[0][0] == peace.of_worker(1, "^ended")[0][0]


TRAINS = """
    import torch, cairn
    cairn.init(timeout=60)
    model = torch.nn.Linear(300, 300)
    optimizer = cairn.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model)
    for step in range(1_000_000):
        model(torch.ones(4, 300)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 5:
            print("under way", flush=True)
"""


def test_without_copies_the_step_raises_and_says_what_was_lost(job, cairn_bin):
    """Started by hand, as over several machines: here nobody starts the server again."""
    variables = {"CAIRN_SCHED_PORT": free_port(), "CAIRN_NUM_SERVERS": 2, "CAIRN_NUM_WORKERS": 1,
                 "CAIRN_REPLICAS": 1, "CAIRN_HEARTBEAT_MS": 200, "CAIRN_DEAD_AFTER_MS": 3000,
                 "CAIRN_LOST_AFTER_MS": 4000}
    roles = [job.start([cairn_bin / "cairn", role], **variables)
             for role in ("scheduler", "server", "server")]
    worker = job.python(write(job.folder, TRAINS), CAIRN_ROLE="worker", **variables)
    job.wait_for_text(worker, "under way")
    roles[1].kill()
    code, text = job.wait(worker)
    assert code == 1 and text.count("Traceback") == 1, text
    assert re.fullmatch(r"cairn.JobFailedError: .*server \d .*is lost: not heard for .*had no other "
                        r"copy: start the job anew; with --replicas 2, .* would have survived this",
                        text.splitlines()[-1]), text
    assert [job.wait(role)[0] for role in roles] == [1, -signal.SIGKILL, 1]


def test_an_embedded_cluster_has_one_copy_whatever_the_environment_says(cairn_bin, monkeypatch):
    """More would die with the one process all the same."""
    monkeypatch.setenv("CAIRN_REPLICAS", "2")
    try:
        context = cairn.init(servers=3)
        address = f"127.0.0.1:{context._cluster.scheduler_port}"
        asked = subprocess.run([cairn_bin / "cairn", "status", "--json", address],
                               capture_output=True, timeout=SECONDS)
        status = json.loads(asked.stdout)
    finally:
        cairn.shutdown()
    assert len(status["servers"]) == 3 and status["replicas"] == 1
