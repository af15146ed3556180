"""One job over two machines: two launchers on loopback, and between two network namespaces."""
import contextlib
import pathlib
import re
import shutil
import signal
import socket
import subprocess

import pytest

from mnist_data import write_mnist
from namespaces import two_namespaces
from ports import free_port
from processes import BIN, Run, children_of, wait_gone


def two_ports():
    """The scheduler's; the one after it is torch.distributed's."""
    while True:
        port = free_port()
        with socket.socket() as after:
            try:
                after.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
        return port


def node(rank, port, *rest, address="127.0.0.1", nodes=2, **variables):
    return Run("run", "--nnodes", nodes, "--node-rank", rank, "--master-addr", address, "--master-port", port, *rest,
               **variables)


def trainer(data, **flags):
    settings = {"epochs": 2, "batch": 20, "lr": 0.02} | flags
    return ["--", BIN / "softmax_mnist", "--data", data, *[w for k, v in settings.items() for w in (f"--{k}", v)]]


def test_two_nodes_train_together(tmp_path):
    job = ["-s", 2, "-w", 2, *trainer(write_mnist(tmp_path))]
    port = two_ports()
    # The second one comes first and waits.
    with node(1, port, *job) as second:
        second.wait_for(f"waiting for node 0 at 127.0.0.1:{port}")
        with node(0, port, *job) as first:
            assert first.wait() == 0, first.text
            assert second.wait() == 0, second.text
    assert "the scheduler is connected to 4 workers and 4 servers" in first.text
    assert re.search(r"^\[worker 0\] test accuracy: 0\.9|1\.0", first.text, re.M), first.text
    assert {line.split("]")[0] for line in second.lines} == {"[cairn", "[server 2", "[server 3", "[worker 2", "[worker 3"}
    assert re.search(r"finished in \S+ s: 2 workers done, 0 restarts, \d+ rounds", first.lines[-1]), first.text
    assert re.search(r"finished in \S+ s: 2 workers done, 0 restarts", second.lines[-1]), second.text


def test_workers_get_torchs_variables_of_the_whole_job():
    script = 'echo "$RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT"'
    port = two_ports()
    with node(0, port, "-w", 2, "--", "sh", "-c", script) as first, \
            node(1, port, "-w", 2, "--", "sh", "-c", script) as second:
        first.wait_for(rf"\[worker 1\] 1 of 4, 1 of 2 at 127.0.0.1:{port + 1}$")
        second.wait_for(rf"\[worker 2\] 2 of 4, 0 of 2 at 127.0.0.1:{port + 1}$")
        # Programs that don't use Cairn end well here too.
        assert first.wait() == 0, first.text
        assert second.wait() == 0, second.text


def test_a_failure_on_one_node_ends_both_and_is_named():
    port = two_ports()
    script = '[ $RANK = 1 ] && { echo "no such data"; exit 42; }; exec sleep 1000'
    with node(0, port, "--", "sh", "-c", script) as first, node(1, port, "--", "sh", "-c", script) as second:
        assert second.wait() == 42, second.text
        assert first.wait() == 1, first.text
        assert "node 1: worker 1 exited with code 42" in first.lines[-1], first.text


def test_ctrl_c_on_node_0_ends_both():
    port = two_ports()
    waits = ("--", "sh", "-c", "echo here; exec sleep 1000")
    with node(0, port, *waits) as first, node(1, port, *waits) as second:
        for run in (first, second):
            run.wait_for("here")
            run.wait_for("registered as server")
        children = children_of(first.process.pid) | children_of(second.process.pid)
        assert len(children) == 5
        first.signal(signal.SIGINT)
        assert first.wait() == 130, first.text
        assert second.wait() == 1, second.text
        assert "node 0: interrupted" in second.lines[-1], second.text
        wait_gone(children)


def test_nodes_that_disagree_are_told_so():
    port = two_ports()
    waits = ("--", "sh", "-c", "echo here; exec sleep 1000")
    with node(0, port, "-w", 2, *waits) as first:
        first.wait_for("here", count=2)
        with node(1, port, "-w", 1, *waits) as second:
            assert second.wait() == 2, second.text
            assert "waits for 2 servers and 4 workers, and here it would be 2 and 2" in second.text
        with node(1, port, "-w", 2, "--job-id", "other", *waits) as second:
            assert second.wait() == 2, second.text
            assert "has the job 'job-127.0.0.1:" in second.text and "'other'" in second.text
        first.signal()
        assert first.wait() == 130, first.text


def test_nobody_waits_for_ever():
    with node(1, two_ports(), "--join-timeout", 1, "true") as second:
        assert second.wait() == 1, second.text
        assert "has not answered for 1 s" in second.lines[-1]


@pytest.mark.parametrize("after,whose", [(0, "the scheduler's"), (1, "torch.distributed's")])
def test_a_taken_port_is_named(after, whose):
    port = two_ports()
    with socket.create_server(("127.0.0.1", port + after)), node(0, port, "true") as first:
        assert first.wait() == 1, first.text
        assert f"port {port + after}" in first.text and whose in first.text and "--master-port" in first.text
        assert "[scheduler]" not in first.text


@pytest.fixture
def namespaces():
    """(words to run there, address) of each of two namespaces."""
    addresses = ["10.213.77.1", "10.213.77.2"]
    with two_namespaces(addresses) as words:
        yield list(zip(words, addresses))


def test_two_network_namespaces_are_two_machines(tmp_path, namespaces):
    (here, address), (there, other_address) = namespaces
    job = ["-s", 1, "-w", 1, *trainer(write_mnist(tmp_path))]
    with node(0, 29500, *job, address=address, before=here) as first, \
            node(1, 29500, *job, address=address, before=there) as second:
        assert first.wait() == 0, first.text
        assert second.wait() == 0, second.text
    assert f"Bind to role=scheduler, id=1, ip={address}, port=29500" in first.text
    for host in (address, other_address):
        assert re.search(rf"role=server, ip={re.escape(host)},", first.text), first.text


@contextlib.contextmanager
def names_of(words):
    """The hosts file of a namespace alone: names can be added while processes run there."""
    folder = pathlib.Path("/etc/netns") / words[-1]
    folder.mkdir(parents=True)
    hosts = folder / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")
    (folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")
    try:
        yield hosts
    finally:
        shutil.rmtree(folder)
        with contextlib.suppress(OSError):
            folder.parent.rmdir()


@pytest.mark.parametrize("host", [[], ["--host", "0.0.0.0"]])
def test_a_name_that_is_known_late_is_said_and_waited_for(namespaces, host):
    (here, address), (there, other_address) = namespaces
    with names_of(there) as hosts, Run("scheduler", "--host", address, "--port", 9000, before=here) as scheduler:
        with Run("server", "--scheduler", "scheduler.test:9000", *host, before=there) as server:
            server.wait_for("unknown host scheduler.test")
            assert "listening" not in server.text
            with hosts.open("a") as file:
                file.write(f"{address} scheduler.test\n")
            server.wait_for("registered as server 0")
            scheduler.wait_for(rf"role=server, ip={re.escape(other_address)},")


def test_a_name_that_is_never_known_is_no_reason_to_ignore_signals(namespaces):
    _, (there, _) = namespaces
    with names_of(there), Run("server", "--scheduler", "scheduler.test:9000", before=there) as server:
        server.wait_for("unknown host scheduler.test")
        server.signal(signal.SIGTERM)
        assert server.wait() == 128 + signal.SIGTERM, server.text
    with names_of(there), Run("server", "--scheduler", "scheduler.test:9000", "--host", "127.0.0.1", before=there) as server:
        server.wait_for("unknown host scheduler.test")  # told by the transport, where nothing has to be chosen
    with names_of(there), Run("server", "--scheduler", "scheduler.test:9000", before=there,
                              CAIRN_CONNECT_TIMEOUT_MS=600) as server:
        assert server.wait() == 1 and "for 0.6 s" in server.lines[-1], server.text


def test_a_loopback_address_from_another_machine_is_refused(namespaces):
    (here, address), (there, _) = namespaces
    with Run("scheduler", "--host", "0.0.0.0", "--port", 9000, before=here) as scheduler:
        scheduler.wait_for("Bind to role=scheduler")
        with Run("server", "--scheduler", f"{address}:9000", "--host", "127.0.0.1", before=there) as server:
            assert server.wait() == 1 and "nobody else can reach a loopback address" in server.text, server.text
            assert "--host" in server.lines[-1], server.text
        with Run("server", "--scheduler", f"{address}:9000", "--host", "127.0.0.1", before=here) as server:
            server.wait_for("registered as server 0")  # on the scheduler's machine it may be as it is


def test_a_name_for_loopback_from_another_machine_is_refused_too(namespaces):
    """As Debian's installer writes it: the machine's own name is 127.0.1.1."""
    (here, address), (there, _) = namespaces
    with names_of(there) as hosts, Run("scheduler", "--host", address, "--port", 9000, "-s", 3, before=here) as scheduler:
        hosts.write_text("127.0.0.1 localhost\n127.0.1.1 machine.test\n")
        scheduler.wait_for("Bind to role=scheduler")
        with Run("server", "--scheduler", f"{address}:9000", "--host", "machine.test", before=there) as server:
            assert server.wait() == 1 and "nobody else can reach a loopback address" in server.text, server.text
            assert "machine.test is 127.0.1.1 on this machine" in server.text, server.text
        # Others may know these by another address: it is said, and not refused.
        for name, said in (("machine.test", "machine.test is 127.0.1.1"), ("proxy.test", "this machine doesn't know")):
            with Run("server", "--scheduler", f"{address}:9000", "--advertise", name, before=there) as server:
                server.wait_for(said)
                server.wait_for("registered as server")
                server.signal(signal.SIGINT)
                server.wait()
        with Run("server", "--scheduler", f"{address}:9000", "--advertise", "0.0.0.0", before=there) as server:
            assert server.wait() == 2 and "no address that others can reach" in server.text, server.text


def test_a_machine_without_a_network_yet_is_waited_for(namespaces):
    (here, address), (there, other_address) = namespaces
    interface = subprocess.run([*there, "ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    interface = re.search(r"(cn\w+b)@", interface)[1]
    subprocess.run([*there, "ip", "link", "set", interface, "down"], check=True)
    with Run("scheduler", "--host", address, "--port", 9000, before=here) as scheduler, \
            Run("server", "--scheduler", f"{address}:9000", before=there) as server:
        server.wait_for(rf"no network of this machine leads to {address}:9000")
        subprocess.run([*there, "ip", "link", "set", interface, "up"], check=True)
        scheduler.wait_for(rf"role=server, ip={re.escape(other_address)},")


def test_a_machine_with_ipv6_alone(tmp_path, namespaces):
    (here, _), _ = namespaces
    subprocess.run([*here, "ip", "addr", "del", "127.0.0.1/8", "dev", "lo"], check=True)
    job = ["-s", 2, "-w", 2, "--slots", 64, *trainer(write_mnist(tmp_path))]
    with Run("run", *job, before=here) as run:
        assert run.wait() == 0, run.text
        assert "Bind to role=scheduler, id=1, ip=::1" in run.text
    with Run("run", "--", "sh", "-c", "echo at $MASTER_ADDR", before=here) as run:
        assert run.wait() == 0 and "[worker 0] at ::1" in run.lines, run.text
    with Run("run", "--master-port", 29500, *job, before=here) as run:
        assert run.wait() == 0 and "ip=::1, port=29500" in run.text, run.text
    with Run("doctor", before=here) as doctor:
        doctor.wait()
        assert "ok    loopback: listens and connects, by IPv6 alone" in doctor.text, doctor.text


def test_two_machines_that_meet_by_ipv6(tmp_path, namespaces):
    (here, _), (there, _) = namespaces
    addresses = ["fd00:213::1", "fd00:213::2"]
    for words, address in zip((here, there), addresses):
        interface = re.search(r"(cn\w+)@", subprocess.run([*words, "ip", "-o", "link"], capture_output=True, text=True,
                                                          check=True).stdout)[1]
        subprocess.run([*words, "ip", "addr", "add", f"{address}/64", "dev", interface, "nodad"], check=True)
        subprocess.run([*words, "ip", "-4", "addr", "flush", "dev", interface], check=True)
    job = ["-s", 1, "-w", 1, *trainer(write_mnist(tmp_path))]
    with node(0, 29500, *job, address=addresses[0], before=here) as first, \
            node(1, 29500, *job, address=addresses[0], before=there) as second:
        assert first.wait() == 0, first.text
        assert second.wait() == 0, second.text
