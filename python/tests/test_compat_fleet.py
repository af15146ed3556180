"""cairn.compat.fleet: the tutorial's 2 × 2 start in several orders, its log lines, the ports it needs,
how it ends, and what each call does and refuses."""
import re
import signal
import subprocess
import sys
import time

import pytest
import torch

import cairn
import scripts
from cairn._runtime import context as worker_context, serving, variables
from cairn.compat import fleet as module
from cairn.compat.fleet import DistributedStrategy, Fleet, Role, StrategyFactory, readiness, role_maker
from compat_jobs import EXAMPLES, Paddle, accuracy, sockets_of, write_mnist
from long_tests import cases, longer
from namespaces import two_namespaces
from ports import free_port

PADDLE = ("PADDLE_PSERVERS_IP_PORT_LIST", "TRAINING_ROLE", "PADDLE_TRAINERS_NUM", "PADDLE_TRAINER_ID", "POD_IP",
          "PADDLE_PORT")
SMALL = ("--is_cloud=1", "--epochs", 1, "--batch_size", 10, "--lr", 0.01, "--every", 10)
# A trainer that waits, in the middle of the job, for a file; then it goes on.
WAITING = """
    import pathlib, sys, time, torch
    from cairn.compat import fleet
    fleet.init()
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(model.weight, 1.0 + fleet.worker_index())
    strategy = fleet.StrategyFactory.create_sync_strategy()
    optimizer = fleet.distributed_optimizer(torch.optim.SGD(model.parameters(), lr=1.0), strategy, model)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
        print("run_server has returned")
    if fleet.is_worker():
        fleet.init_worker()
        print("begins with", model.weight.item())
        model(torch.tensor([[1.0 + 2 * fleet.worker_index()]])).sum().backward()   # gradients 1 and 3
        optimizer.step()
        print("trained", model.weight.item())
        until = time.monotonic() + 100
        while not pathlib.Path(sys.argv[1]).exists() and time.monotonic() < until:
            time.sleep(0.01)
        fleet.stop_worker()
    """


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_mnist(tmp_path_factory.mktemp("mnist"))


@pytest.fixture
def clean(monkeypatch):
    """No variable of Paddle's, and what a test says is forgotten afterwards."""
    for name in PADDLE:
        monkeypatch.delenv(name, raising=False)
    yield monkeypatch
    cairn.shutdown()
    variables.say({})


def set_variables(monkeypatch, **values):
    for name, value in values.items():
        if value is not None:
            monkeypatch.setenv(name, value)


SERVER = {"TRAINING_ROLE": "PSERVER", "PADDLE_PSERVERS_IP_PORT_LIST": "10.0.0.1:36000,10.0.0.2:36000",
          "PADDLE_TRAINERS_NUM": "3", "POD_IP": "10.0.0.2", "PADDLE_PORT": "36000"}
TRAINER = {"TRAINING_ROLE": "TRAINER", "PADDLE_PSERVERS_IP_PORT_LIST": "10.0.0.1:36000,10.0.0.2:36000",
           "PADDLE_TRAINERS_NUM": "3", "PADDLE_TRAINER_ID": "2"}


# The start. check_other_starts.py has the other orders.
@pytest.mark.parametrize("order", cases(
    [("trainer1", "server1", "trainer0", "server0")],
    [("server0", "server1", "trainer0", "trainer1")],
), ids="-".join)
def test_two_servers_and_two_trainers_in_any_order(job, data, order):
    started = Paddle(job, EXAMPLES / "mnist_lenet_fleet.py", f"--data={data}", *SMALL)
    started.start_in_order(order)
    texts = started.finish()
    for number, endpoint in enumerate(started.endpoints):
        port = started.ports[number]
        assert f"Server listening on {endpoint} selected port: {port}" in texts[f"server{number}"].splitlines()
    for number in (0, 1):
        text = texts[f"trainer{number}"]
        lines = text.splitlines()
        begun = lines.index("Communicator start")
        assert lines[begun + 1] == f"init rpc client with trainer_id {number}"
        missing = [e for i, e in enumerate(started.endpoints)
                   if order.index(f"server{i}") > order.index(f"trainer{number}")]
        # Who is there when it starts is not waited for; who comes next is not named again.
        assert ("server not ready, wait 3 sec to retry..." in lines) == bool(missing), text
        if missing:
            assert lines[0] == "server not ready, wait 3 sec to retry..."
            assert lines[1] == f"not ready endpoints:{missing}"
        assert re.findall(r"epoch: 1 step: (\d+), loss", text) == ["1", "11", "21", "31", "41", "51"]
    assert accuracy(texts["trainer0"]) > 0.9 and "accuracy" not in texts["trainer1"]


@longer
def test_async_trains_too(job, data):
    started = Paddle(job, EXAMPLES / "mnist_lenet_fleet.py", f"--data={data}", *SMALL, "--strategy", "async")
    for name in Paddle.NAMES:
        started.start(name)
    texts = started.finish()
    assert accuracy(texts["trainer0"]) > 0.5, texts["trainer0"]  # another run every time; chance has 0.1
    assert re.search(r'"optimizer-0/0": dense async sgd', texts["server0"]), texts["server0"]


@longer
def test_roles_that_the_script_says_itself(job, data):
    """UserDefinedRoleMaker: no variables at all."""
    ports = [free_port(), free_port()]
    common = ["--is_cloud=0", "--endpoints", ",".join(f"127.0.0.1:{p}" for p in ports), "--trainers", 2, *SMALL[1:],
              f"--data={data}"]
    children = [job.python(EXAMPLES / "mnist_lenet_fleet.py", "--role", role, "--id", number, *common)
                for role in ("pserver", "trainer") for number in (0, 1)]
    texts = []
    for child in children:
        code, text = job.wait(child, 120)
        assert code == 0, text
        texts.append(text)
    assert f"Server listening on 127.0.0.1:{ports[1]}" in texts[1] and accuracy(texts[2]) > 0.9


def test_under_cairn_run(job, data, cairn_bin):
    """The same script, with nothing of Paddle's set."""
    child = job.start([cairn_bin / "cairn", "run", "--no-logs", "-s", 2, "-w", 2, EXAMPLES / "mnist_lenet_fleet.py",
                       f"--data={data}", *SMALL], CAIRN_PYTHON=sys.executable)
    code, text = job.wait(child, 120)
    assert code == 0 and accuracy(text) > 0.9, text


# Ports, and the end.
def test_only_the_listed_ports(job, tmp_path):
    """Only these are open between people's machines: nobody listens or connects elsewhere, the scheduler
    that the first server hosts included. And servers end when the trainers have stopped."""
    go = tmp_path / "go"
    started = Paddle(job, scripts.write(tmp_path, WAITING), go)
    for name in Paddle.NAMES:
        started.start(name, CAIRN_SERVER_THREADS=2, CAIRN_TRANSPORT="tcp")
    for name in ("trainer0", "trainer1"):
        job.wait_for_text(started.children[name], "trained")
    pairs = sockets_of(job.left())
    listening = sorted(local for local, remote in pairs if remote == 0)
    assert listening == sorted(started.ports)
    connected = [pair for pair in pairs if pair[1] != 0]
    # Each trainer has a connection to the scheduler and one to each thread of each server, at least.
    assert sum(pair[1] in started.ports for pair in connected) >= 2 * (1 + 2 * 2)
    assert [pair for pair in connected if not set(pair) & set(started.ports)] == []
    assert all(started.children[name].poll() is None for name in Paddle.NAMES)
    go.touch()
    texts = started.finish()
    for name in ("server0", "server1"):
        assert texts[name].splitlines()[-1] == "run_server has returned"
    for name in ("trainer0", "trainer1"):
        # init_worker has the first one's parameters; then the mean of 1 and 3.
        assert "begins with 1.0\ntrained -1.0" in texts[name]


def test_two_machines_with_one_port_number(job, tmp_path):
    """The tutorial's own setting: a server and a trainer on each, all servers at port 36000."""
    addresses = ["10.213.79.1", "10.213.79.2"]
    go = tmp_path / "go"
    go.touch()
    with two_namespaces(addresses) as (here, there):
        before = {"server0": here, "trainer0": here, "server1": there, "trainer1": there}
        started = Paddle(job, scripts.write(tmp_path, WAITING), go, hosts=addresses, ports=[36000, 36000], before=before)
        started.start_in_order(("server1", "trainer0", "trainer1", "server0"))
        texts = started.finish()
    for number, address in enumerate(addresses):
        assert f"Server listening on {address}:36000 selected port: 36000" in texts[f"server{number}"]
        assert "trained -1.0" in texts[f"trainer{number}"]
    assert f"not ready endpoints:['{addresses[0]}:36000']" in texts["trainer0"]


def test_a_waiting_trainer_does_not_take_its_servers_port(tmp_path):
    """A port in the range of outgoing connections: sooner or later the probe is given it, and meets itself."""
    script = scripts.write(tmp_path, """
        import pathlib, socket
        from cairn.compat.fleet import readiness
        pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").write_text("36000 36015")
        for _ in range(40):
            assert not readiness._listens("10.213.79.1:36000")
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("10.213.79.1", 36000))
            server.listen()
            assert readiness._listens("10.213.79.1:36000")
        """)
    with two_namespaces(["10.213.79.1", "10.213.79.2"]) as (here, _):
        done = subprocess.run([*here, sys.executable, script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_ctrl_c_leaves_nothing(job, tmp_path):
    started = Paddle(job, scripts.write(tmp_path, WAITING), tmp_path / "never")
    for name in Paddle.NAMES:
        started.start(name)
    for name in ("trainer0", "trainer1"):
        job.wait_for_text(started.children[name], "trained")
    for name in ("trainer1", "trainer0", "server1", "server0"):
        started.children[name].send_signal(signal.SIGINT)
        code, text = job.wait(started.children[name])
        assert code in (130, -signal.SIGINT) and "KeyboardInterrupt" in text, (name, code, text)
        assert "run_server has returned" not in text


@pytest.mark.parametrize("number", cases([signal.SIGKILL], [signal.SIGTERM]))
def test_a_killed_server_script_takes_its_server_with_it(job, tmp_path, number):
    started = Paddle(job, scripts.write(tmp_path, WAITING), tmp_path / "never")
    started.start_in_order(["server0"])
    assert len(job.left()) == 2  # the script, and the server inside run_server()
    started.children["server0"].send_signal(number)
    assert job.wait(started.children["server0"])[0] == -number
    job.assert_none_left()


def test_a_port_that_is_taken_is_told(job, tmp_path):
    started = Paddle(job, scripts.write(tmp_path, WAITING), tmp_path / "never")
    started.start_in_order(["server0"])
    second = Paddle(job, started.script, tmp_path / "never", ports=started.ports)
    second.start("server0")
    code, text = job.wait(second.children["server0"])
    assert code == 1 and str(started.ports[0]) in text and "JobFailedError" in text, text
    started.children["server0"].send_signal(signal.SIGINT)
    job.wait(started.children["server0"])


def test_servers_that_never_come(job, tmp_path):
    started = Paddle(job, scripts.write(tmp_path, WAITING), tmp_path / "never")
    started.start("trainer0", CAIRN_CONNECT_TIMEOUT_MS=300)
    code, text = job.wait(started.children["trainer0"])
    assert code == 1, text
    assert text.splitlines()[:2] == ["server not ready, wait 3 sec to retry...",
                                     f"not ready endpoints:{started.endpoints}"]
    assert re.search(r"DeadlineExceededError: not ready endpoints:\[.*start these servers", text), text


def test_the_line_comes_every_three_seconds(monkeypatch, capfd):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda s: now.__setitem__(0, now[0] + s))
    monkeypatch.setattr(readiness, "_listens", lambda endpoint: endpoint == "b:1" and now[0] >= 104 or now[0] >= 108)
    readiness.wait(["a:1", "b:1"], 1000.0)
    said = re.findall(r"endpoints:(.*)", capfd.readouterr().err)
    assert said == ["['a:1', 'b:1']", "['a:1', 'b:1']", "['a:1']"]


# Roles.
def test_a_servers_variables(clean):
    set_variables(clean, **SERVER)
    fleet = Fleet()
    fleet.init(role_maker.PaddleCloudRoleMaker())
    assert fleet.is_server() and not fleet.is_worker() and not fleet.is_first_worker()
    assert (fleet.server_index(), fleet.worker_index()) == (1, -1)
    assert (fleet.server_num(), fleet.worker_num()) == (2, 3)
    assert fleet.server_endpoints() == ["10.0.0.1:36000", "10.0.0.2:36000"]
    assert fleet.server_endpoints(to_string=True) == SERVER["PADDLE_PSERVERS_IP_PORT_LIST"]
    fleet.init_server()
    with pytest.raises(cairn.InvalidArgumentError, match="Load the model in every trainer"):
        fleet.init_server("model")
    for call in (fleet.init_worker, fleet.stop_worker, fleet.barrier_worker):
        with pytest.raises(cairn.Error, match=r"in a server: ask fleet\.is_worker\(\) first"):
            call()


def test_a_trainers_variables(clean):
    set_variables(clean, **TRAINER)
    fleet = Fleet()
    fleet.init()
    assert fleet.is_worker() and not fleet.is_server() and not fleet.is_first_worker()
    assert (fleet.worker_index(), fleet.worker_num(), fleet.server_index(), fleet.server_num()) == (2, 3, -1, 2)
    for call in (fleet.init_server, fleet.run_server):
        with pytest.raises(cairn.Error, match=r"in a trainer: ask fleet\.is_server\(\) first"):
            call()


@pytest.mark.parametrize("family, wrong, words", [
    *((SERVER, {name: None}, f"{name} is not set") for name in SERVER),
    *((TRAINER, {name: None}, f"{name} is not set") for name in TRAINER),
    (SERVER, {"PADDLE_PORT": ""}, "PADDLE_PORT is not set"),
    (SERVER, {"POD_IP": "10.0.0.3"}, "POD_IP=10.0.0.3 and PADDLE_PORT=36000 match no entry"),
    (SERVER, {"PADDLE_PORT": "36001"}, "match no entry of PADDLE_PSERVERS_IP_PORT_LIST"),
    (SERVER, {"TRAINING_ROLE": "SERVER"}, "TRAINING_ROLE=SERVER is not one of PSERVER, TRAINER"),
    (SERVER, {"PADDLE_PSERVERS_IP_PORT_LIST": "10.0.0.2"}, "is not host:port"),
    (SERVER, {"PADDLE_PSERVERS_IP_PORT_LIST": "10.0.0.2:36000,10.0.0.2:36000"}, "twice"),
    (TRAINER, {"PADDLE_TRAINER_ID": "3"}, "PADDLE_TRAINER_ID=3, but PADDLE_TRAINERS_NUM=3"),
    (TRAINER, {"PADDLE_TRAINER_ID": "one"}, "PADDLE_TRAINER_ID=one is not a number"),
    (TRAINER, {"PADDLE_TRAINERS_NUM": "0"}, "PADDLE_TRAINERS_NUM=0 is not a number from 1"),
])
def test_wrong_variables_are_named(clean, family, wrong, words):
    set_variables(clean, **(family | wrong))
    with pytest.raises(cairn.InvalidArgumentError, match=re.escape(words)):
        Fleet().init(role_maker.PaddleCloudRoleMaker())


def test_user_defined_roles(clean):
    endpoints = ["10.0.0.1:36000", "[::1]:36001"]
    fleet = Fleet()
    fleet.init(role_maker.UserDefinedRoleMaker(current_id=1, role=Role.SERVER, worker_num=2, server_endpoints=endpoints))
    assert fleet.is_server() and fleet.server_index() == 1 and fleet.server_endpoints() == endpoints
    said = variables.in_effect()
    assert (said["POD_IP"], said["PADDLE_PORT"], said["TRAINING_ROLE"]) == ("::1", "36001", "PSERVER")
    assert variables.read()["role"] == "server" and variables.read()["rank"] == 1
    fleet.init(role_maker.UserDefinedRoleMaker(current_id=1, role=Role.WORKER, worker_endpoints=["a:1", "b:1"],
                                               server_endpoints=endpoints, init_gloo=False))
    assert fleet.is_worker() and (fleet.worker_index(), fleet.worker_num()) == (1, 2)
    assert "POD_IP" not in variables.in_effect()
    fleet.init(role_maker.UserDefinedRoleMaker(current_id=2, role=Role.WORKER, worker_num=3, server_endpoints=endpoints,
                                               worker_endpoints=["a:1", "b:1"]))
    assert (fleet.worker_index(), fleet.worker_num()) == (2, 3), "a number that is given counts before a list"


@pytest.mark.parametrize("wrong, words", [
    ({"role": 3}, "Role.WORKER or Role.SERVER"),
    ({"server_endpoints": []}, "server_endpoints is a list"),
    ({"server_endpoints": "10.0.0.1:36000"}, "server_endpoints is a list"),
    ({"server_endpoints": ["10.0.0.1"]}, "is not host:port"),
    ({"role": Role.SERVER, "server_endpoints": ["10.0.0.1:x"]}, "is not host:port"),
    ({"current_id": 2}, "current_id is 2, and there are 2 workers"),
    ({"current_id": -1}, "current_id is -1"),
    ({"worker_num": 0}, "there are 0 workers"),
    ({"is_collective": True}, "training without servers"),
    ({"init_gloo": True}, "init_gloo=True has no counterpart"),
    ({"path": "x"}, "path='x' has no counterpart"),
])
def test_wrong_user_defined_roles(clean, wrong, words):
    right = {"current_id": 0, "role": Role.WORKER, "worker_num": 2, "server_endpoints": ["10.0.0.1:36000"]}
    with pytest.raises(cairn.InvalidArgumentError, match=re.escape(words)):
        role_maker.UserDefinedRoleMaker(**(right | wrong))


def test_a_scheduler_of_another_family_serves_in_init(clean):
    roles = []
    clean.setattr(serving, "serve", roles.append)
    set_variables(clean, CAIRN_ROLE="scheduler", CAIRN_SCHED_PORT="9000")
    Fleet().init()
    assert roles == ["scheduler"]


# Alone.
def test_one_process_without_variables(clean, capfd):
    fleet = Fleet()
    for call in (fleet.is_worker, fleet.worker_num, lambda: fleet.distributed_optimizer(None)):
        with pytest.raises(cairn.Error, match=r"fleet\.init\(\) first"):
            call()
    fleet.init(is_collective=False)
    assert fleet.is_first_worker() and fleet.worker_num() == 1 and fleet.server_endpoints() == []
    model = torch.nn.Linear(2, 1)
    optimizer = fleet.distributed_optimizer(torch.optim.SGD(model.parameters(), lr=0.5),
                                            StrategyFactory.create_sync_strategy())
    assert not worker_context.initialised()  # the wrap has contacted nobody
    fleet.init_worker()
    fleet.init_worker()
    assert capfd.readouterr().err == "Communicator start\ninit rpc client with trainer_id 0\n"
    before = model.weight.detach().clone()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert torch.equal(model.weight, before - 0.5)
    with pytest.raises(cairn.Error, match=r"fleet\.init\(\) comes first"):
        fleet.init()
    fleet.barrier_worker()
    fleet.stop_worker()
    assert not worker_context.initialised()


def test_wrong_arguments(clean):
    with pytest.raises(cairn.InvalidArgumentError, match="without servers"):
        Fleet().init(is_collective=True)
    with pytest.raises(TypeError, match="role maker"):
        Fleet().init("worker")
    with pytest.raises(TypeError, match="strategy"):
        Fleet().init(strategy="sync")


def test_the_modules_functions_are_one_objects(clean):
    public = [name for name in vars(Fleet) if not name.startswith("_")]
    assert len(public) > 12
    for name in public:
        assert getattr(module, name) == getattr(module.fleet, name) and name in module.__all__
    for name in module.__all__:
        assert hasattr(module, name)


# Strategies.
def test_strategies_are_modes(clean):
    assert StrategyFactory.create_sync_strategy().mode() == cairn.Sync()
    assert StrategyFactory.create_async_strategy().mode() == cairn.Async()
    assert StrategyFactory.create_half_async_strategy().mode() == cairn.Async()
    strategy = DistributedStrategy()
    assert strategy.a_sync is True and strategy.mode() == cairn.Async()
    strategy.a_sync_configs = {"k_steps": 0}
    strategy.a_sync = False
    assert strategy.mode() == cairn.Sync() and strategy.a_sync_configs == {"k_steps": 0}


def test_the_strategy_of_init_counts_unless_another_is_given(clean):
    fleet = Fleet()
    inner = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    fleet.init()
    assert fleet.distributed_optimizer(inner).mode == cairn.Async()
    fleet.init(strategy=StrategyFactory.create_sync_strategy())
    assert fleet.distributed_optimizer(inner).mode == cairn.Sync()
    assert fleet.distributed_optimizer(inner, StrategyFactory.create_async_strategy()).mode == cairn.Async()
    assert fleet.distributed_optimizer(inner, None, None, update="worker").mode == cairn.Sync()


def test_geo_is_refused_until_it_exists(clean):
    with pytest.raises(NotImplementedError, match="create_async_strategy"):
        StrategyFactory.create_geo_strategy(100)
    strategy = DistributedStrategy()
    with pytest.raises(NotImplementedError, match="k_steps=100 is GEO"):
        strategy.a_sync_configs = {"k_steps": 100}
    assert strategy.a_sync_configs == {"k_steps": 0}


@pytest.mark.parametrize("name, value, error", [
    ("dgc", True, cairn.InvalidArgumentError), ("a_synk", True, cairn.InvalidArgumentError),
    ("a_sync", 1, TypeError), ("a_sync_configs", {"k_steps": True}, TypeError),
    ("a_sync_configs", {"send_queue_size": 32}, cairn.InvalidArgumentError)])
def test_what_a_strategy_has_not_is_refused(clean, name, value, error):
    with pytest.raises(error):
        setattr(DistributedStrategy(), name, value)
