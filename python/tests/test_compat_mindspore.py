"""cairn.compat.mindspore: the tutorial's three scripts in every order of starting, its log lines, and
what each call does and refuses."""
import copy
import re
import signal

import pytest
import torch

import cairn
import scripts
from cairn._runtime import context as worker_context, serving, variables
from cairn.assign import placement_of
from compat_jobs import EXAMPLES, MindSpore, accuracy, write_mnist
from long_tests import cases
from namespaces import two_namespaces
from ports import free_port

MS = ("MS_ROLE", "MS_SCHED_HOST", "MS_SCHED_PORT", "MS_SERVER_NUM", "MS_WORKER_NUM")
SMALL = ("--epoch_size", 1, "--batch_size", 20, "--lr", 0.02)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_mnist(tmp_path_factory.mktemp("mnist"))


@pytest.fixture
def ms(monkeypatch):
    """The module, as a script has it after importing it; its traces are removed afterwards."""
    for name in MS:
        monkeypatch.delenv(name, raising=False)
    from cairn.compat import mindspore
    from cairn.compat.mindspore import placement

    mindspore.context.hold_variables_back()
    placement.add_set_param_ps()
    yield mindspore
    mindspore.reset_ps_context()
    cairn.shutdown()
    variables.let_through(mindspore.context.VARIABLES)
    del torch.nn.Module.set_param_ps, torch.nn.Parameter.set_param_ps


@pytest.fixture
def served(monkeypatch):
    """The roles that this process was made to serve in, which it survives here."""
    roles = []

    def serve(role):
        roles.append((role, variables.in_effect().get("MS_ROLE")))
        raise SystemExit(0)

    monkeypatch.setattr(serving, "serve", serve)
    return roles


def set_variables(monkeypatch, **values):
    given = {"MS_ROLE": "MS_WORKER", "MS_SCHED_HOST": "127.0.0.1", "MS_SCHED_PORT": "8118", "MS_SERVER_NUM": "1",
             "MS_WORKER_NUM": "1"} | values
    for name, value in given.items():
        if value is not None:
            monkeypatch.setenv(name, value)


# The start.
# check_other_starts.py has the other orders.
@pytest.mark.parametrize("order", cases([("worker", "server", "scheduler")],
                                        [("scheduler", "server", "worker"), ("server", "scheduler", "worker")]),
                         ids="-".join)
def test_the_three_scripts_in_any_order(job, data, order):
    """With the tutorial's own device, which PyTorch does not have: the worker says where it trains instead."""
    started = MindSpore(job, EXAMPLES / "mnist_lenet_mindspore.py", "--device_target=Ascend", f"--data_path={data}",
                        *SMALL)
    started.start_in_order(order)
    texts = started.finish()
    # What the tutorial shows of scheduler.log …
    log = texts["scheduler"].splitlines()
    assert log[0] == f"Bind to role=scheduler, id=1, ip=127.0.0.1, port={started.port}", log
    server, worker, together = (
        next(i for i, line in enumerate(log) if re.match(pattern, line))
        for pattern in (r"Assign rank=8 to node role=server, ip=127\.0\.0\.1, port=\d+",
                        r"Assign rank=9 to node role=worker, ip=127\.0\.0\.1, port=\d+",
                        r"the scheduler is connected to 1 workers and 1 servers$"))
    assert max(server, worker) < together
    # … and of worker.log.
    losses = re.findall(r"^epoch: 1 step: (\d+), loss is (\d\.\d{6})$", texts["worker"], re.M)
    assert [int(step) for step, _ in losses] == list(range(1, 61)), texts["worker"]
    assert 2.2 < float(losses[0][1]) < 2.5
    assert accuracy(texts["worker"]) > 0.9, texts["worker"]
    assert "loss is" not in texts["server"] + texts["scheduler"]
    said = "--device_target=Ascend: PyTorch knows Ascend only through torch_npu"
    assert said in texts["worker"] and "this worker trains on the CPU" in texts["worker"], texts["worker"]


def test_two_workers_have_ranks_and_train_together(job, tmp_path):
    script = scripts.write(tmp_path, """
        import torch
        from cairn.compat.mindspore import context, distributed_optimizer
        from cairn.compat.mindspore.communication import get_group_size, get_rank, init
        context.set_ps_context(enable_ps=True)
        init("nccl")
        network = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.constant_(network.weight, 1.0 + get_rank())
        network.set_param_ps()
        optimizer = distributed_optimizer(torch.optim.SGD(network.parameters(), lr=1.0), network)
        network(torch.tensor([[1.0 + 2 * get_rank()]])).sum().backward()   # gradients 1 and 3
        optimizer.step()
        print(f"rank {get_rank()} of {get_group_size()}: {network.weight.item()}")
        """)
    started = MindSpore(job, script, workers=2)
    for name in ("worker1", "server", "worker2", "scheduler"):
        started.start(name)
    texts = started.finish()
    said = sorted(re.findall("^rank .*$", texts["worker1"] + texts["worker2"], re.M))
    assert said == ["rank 0 of 2: -1.0", "rank 1 of 2: -1.0"]  # the first one's 1, less the mean of 1 and 3
    assert "Assign rank=11 to node role=worker" in texts["scheduler"]


def test_a_server_listens_on_the_interface_that_routes_to_the_scheduler(job, tmp_path):
    script = scripts.write(tmp_path, """
        import cairn
        from cairn.compat.mindspore import communication, context
        context.set_ps_context(enable_ps=True)
        communication.init()
        cairn.dense_table("w", 4).pull().wait()
        """)
    addresses = ["10.213.78.1", "10.213.78.2"]
    with two_namespaces(addresses) as (here, there):
        started = MindSpore(job, script, host=addresses[0], before={"scheduler": here, "worker": here, "server": there})
        started.start_in_order(("server", "worker", "scheduler"))
        texts = started.finish()
    assert f"Bind to role=scheduler, id=1, ip={addresses[0]}, port={started.port}" in texts["scheduler"]
    assert f"Assign rank=8 to node role=server, ip={addresses[1]}, port=" in texts["scheduler"]
    assert f"Assign rank=9 to node role=worker, ip={addresses[0]}, port=" in texts["scheduler"]


def test_ctrl_c_leaves_nothing(job, tmp_path):
    script = scripts.write(tmp_path, """
        from cairn.compat.mindspore import communication, context
        context.set_ps_context(enable_ps=True)
        communication.init()
        """)
    started = MindSpore(job, script, workers=2)  # the second one never comes
    started.start_in_order(("scheduler", "server", "worker1"))
    codes = {}
    for name in ("worker1", "server", "scheduler"):
        started.children[name].send_signal(signal.SIGINT)
        codes[name], text = job.wait(started.children[name])
        assert ("KeyboardInterrupt" in text) == (name == "worker1"), text
    assert codes["server"] == codes["scheduler"] == 130 and codes["worker1"] in (130, -signal.SIGINT)


# The switch.
def test_variables_have_no_effect_without_set_ps_context(job, tmp_path):
    script = scripts.write(tmp_path, """
        import os, torch, cairn
        assert not hasattr(torch.nn.Module, "set_param_ps") and not hasattr(torch.nn.Parameter, "set_param_ps")
        from cairn.compat import mindspore
        assert hasattr(torch.nn.Module, "set_param_ps") and hasattr(torch.nn.Parameter, "set_param_ps")
        assert os.environ["MS_ROLE"]                     # the script's own code still sees it
        assert cairn.is_worker() and not cairn.is_server()
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
        assert mindspore.distributed_optimizer(optimizer, torch.nn.Linear(1, 1)) is optimizer
        mindspore.communication.init()
        print("embedded" if cairn.init().embedded else "joined", mindspore.communication.get_group_size())
        """)
    children = [job.python(script, MS_ROLE=role, MS_SCHED_HOST="127.0.0.1", MS_SCHED_PORT=port, MS_SERVER_NUM=1,
                           MS_WORKER_NUM=3)
                for role, port in (("MS_SCHED", free_port()), ("MS_WORKER", free_port()), ("nonsense", "none"))]
    for child in children:
        code, text = job.wait(child)
        assert code == 0 and "embedded 1" in text, text
        assert "MS_ROLE is set, but has no effect without context.set_ps_context(enable_ps=True)" in text


@pytest.mark.parametrize("role, word", [("MS_SCHED", "scheduler"), ("MS_PSERVER", "server")])
def test_the_other_roles_serve_inside_set_ps_context(ms, served, monkeypatch, role, word):
    set_variables(monkeypatch, MS_ROLE=role)
    ms.set_ps_context(enable_ps=False)
    assert served == []
    with pytest.raises(SystemExit):
        ms.set_ps_context(enable_ps=True)
    assert served == [(word, role)]


def test_the_context_is_told_set_and_reset(ms, served, monkeypatch):
    set_variables(monkeypatch)
    assert ms.get_ps_context("enable_ps") is False
    ms.context.set_ps_context(enable_ps=True)
    ms.context.set_ps_context(enable_ps=True, enable_ssl=False)
    assert ms.context.get_ps_context("enable_ps") is True and ms.get_ps_context("enable_ssl") is False
    assert variables.read()["scheduler_port"] == 8118
    ms.context.reset_ps_context()
    assert ms.get_ps_context("enable_ps") is False and variables.read()["scheduler_port"] is None
    ms.set_ps_context(enable_ps=True)
    ms.set_ps_context(enable_ps=False)
    assert ms.get_ps_context("enable_ps") is False and variables.read()["role"] is None
    assert served == [] and not worker_context.initialised()


@pytest.mark.parametrize("wrong, words", [
    *(({name: None}, f"{name} is not set") for name in MS),
    ({"MS_ROLE": None, "MS_SCHED_PORT": None}, "MS_ROLE, MS_SCHED_PORT are not set"),
    ({"MS_ROLE": ""}, "MS_ROLE is not set"),
    ({"MS_ROLE": "MS_SERVER"}, "MS_ROLE=MS_SERVER is not one of MS_SCHED, MS_PSERVER, MS_WORKER"),
    ({"MS_SCHED_PORT": "81l8"}, "MS_SCHED_PORT=81l8 is not a number"),
    ({"MS_SCHED_PORT": "0"}, "MS_SCHED_PORT=0"),
    ({"MS_WORKER_NUM": "0"}, "MS_WORKER_NUM=0 is not a number from 1"),
    ({"MS_SCHED_HOST": "a b"}, "MS_SCHED_HOST=a b is not a host name"),
    ({"CAIRN_SCHED_PORT": "9"}, "CAIRN_SCHED_PORT=9 and MS_SCHED_PORT=8118 contradict each other"),
])
def test_wrong_variables_are_named(ms, served, monkeypatch, wrong, words):
    set_variables(monkeypatch, **wrong)
    with pytest.raises(cairn.InvalidArgumentError, match=re.escape(words)):
        ms.set_ps_context(enable_ps=True)
    assert ms.get_ps_context("enable_ps") is False and served == []
    monkeypatch.delenv("CAIRN_SCHED_PORT", raising=False)
    assert variables.read()["role"] is None  # out of effect again


@pytest.mark.parametrize("wrong", [
    {}, {"enable": True}, {"enable_ps": True, "enable_ssl": True}, {"enable_ps": True, "client_password": "x"}])
def test_wrong_arguments(ms, wrong):
    with pytest.raises(cairn.InvalidArgumentError):
        ms.set_ps_context(**wrong)
    assert ms.get_ps_context("enable_ps") is False


def test_wrong_words_elsewhere(ms):
    with pytest.raises(TypeError, match="True or False"):
        ms.set_ps_context(enable_ps=1)
    with pytest.raises(cairn.InvalidArgumentError, match="enable_ps"):
        ms.get_ps_context("worker_num")
    with pytest.raises(cairn.InvalidArgumentError, match="hccl, nccl, mccl"):
        ms.communication.init("gloo")
    for call in (ms.communication.get_rank, ms.communication.get_group_size):
        with pytest.raises(cairn.NotInitializedError, match=r"communication\.init\(\) first"):
            call()
        with pytest.raises(cairn.InvalidArgumentError, match="only the group of all workers"):
            call("1-2")


def test_the_switch_comes_before_init(ms):
    ms.communication.init()
    with pytest.raises(cairn.Error, match=r"must come before communication\.init\(\)"):
        ms.set_ps_context(enable_ps=True)
    assert (ms.communication.get_rank(), ms.communication.get_group_size("nccl_world_group")) == (0, 1)
    ms.communication.release()
    assert not worker_context.initialised()


# One process, without any variable.
def test_alone_with_the_servers_inside(ms, capfd):
    ms.set_ps_context(enable_ps=True)
    assert "no MS_* variable is set" in capfd.readouterr().err
    network = torch.nn.Linear(2, 1)
    network.set_param_ps()
    optimizer = ms.distributed_optimizer(torch.optim.SGD(network.parameters(), lr=0.5), network)
    assert isinstance(optimizer, cairn.DistributedOptimizer) and ms.communication.get_rank() == 0
    before = network.weight.detach().clone()
    network(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert torch.equal(network.weight, before - 0.5)
    ms.reset_ps_context()
    assert not worker_context.initialised()


# set_param_ps.
def names_on_servers(network):
    from cairn.compat.mindspore.placement import on_servers

    chosen = {id(p) for p in on_servers(network)}
    return {name for name, p in network.named_parameters() if id(p) in chosen}


def two_layers():
    return torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Sequential(torch.nn.Linear(3, 1)))


def test_marks(ms):
    ms.set_ps_context(enable_ps=True)
    network = two_layers()
    assert names_on_servers(network) == set()
    network.set_param_ps(recurse=False)
    assert names_on_servers(network) == set()  # it has none of its own
    network[1].set_param_ps()
    network[0].bias.set_param_ps()
    assert names_on_servers(network) == {"0.bias", "1.0.weight", "1.0.bias"}
    copied = copy.deepcopy(network)
    assert {"1.0.weight", "1.0.bias"} <= names_on_servers(copied)
    network[1].register_parameter("late", torch.nn.Parameter(torch.ones(1)))
    assert "1.late" not in names_on_servers(network)
    network.set_param_ps()
    assert names_on_servers(network) == {n for n, _ in network.named_parameters()}
    network[0].weight = network[1][0].weight  # tied: once
    assert len(names_on_servers(network)) == len(list(network.parameters()))


def test_marks_need_the_switch(ms):
    for thing in (torch.nn.Linear(1, 1), torch.nn.Parameter(torch.ones(1))):
        with pytest.raises(cairn.Error, match=r"set_ps_context\(enable_ps=True\)"):
            thing.set_param_ps()
    ms.set_ps_context(enable_ps=True)
    for thing in (torch.nn.Linear(1, 1), torch.nn.Parameter(torch.ones(1))):
        with pytest.raises(cairn.Error, match="init_in_server"):
            thing.set_param_ps(init_in_server=True)


def test_what_is_not_marked_is_all_reduced(ms):
    ms.set_ps_context(enable_ps=True)
    for marked in (lambda network: None, lambda network: network[1].set_param_ps(), lambda network: network.set_param_ps()):
        network = two_layers()
        marked(network)
        served = names_on_servers(network)
        ms.distributed_optimizer(torch.optim.SGD(network.parameters(), lr=1.0), network)
        assert placement_of(network) == {
            name: "server" if name in served else "allreduce" for name, _ in network.named_parameters()}
    network = two_layers()
    cairn.assign(network, allreduce=["0.*"])  # in Cairn's own words, and no mark: it stays so
    ms.distributed_optimizer(torch.optim.SGD(network.parameters(), lr=1.0), network)
    assert placement_of(network) == {"0.weight": "allreduce", "0.bias": "allreduce"}


def test_hybrid_over_two_workers(job, tmp_path):
    """One layer on the server, the other by all-reduce: the same as one process on both batches."""
    script = scripts.write(tmp_path, """
        import torch
        from cairn.compat.mindspore import communication, context, distributed_optimizer
        context.set_ps_context(enable_ps=True)
        communication.init()
        torch.manual_seed(3)
        network = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Linear(5, 1))
        x = torch.randn(3, 8, 4)
        network[1].set_param_ps()
        if communication.get_rank() == 1:
            torch.nn.init.zeros_(network[0].weight)         # the first one's count
        optimizer = distributed_optimizer(torch.optim.SGD(network.parameters(), lr=0.1), network)
        for batch in x:
            optimizer.zero_grad()
            network(batch[communication.get_rank()::2]).square().mean().backward()
            optimizer.step()
        torch.manual_seed(3)
        alone = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Linear(5, 1))
        plain = torch.optim.SGD(alone.parameters(), lr=0.1)
        for batch in x:
            plain.zero_grad()
            alone(batch).square().mean().backward()
            plain.step()
        for ours, theirs in zip(network.parameters(), alone.parameters()):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
        print("equal")
        """)
    started = MindSpore(job, script, workers=2)
    for name in ("worker1", "server", "worker2", "scheduler"):
        started.start(name)
    texts = started.finish()
    assert "equal" in texts["worker1"] and "equal" in texts["worker2"]
    assert re.search(r'"optimizer-0/0": dense sync sgd, 6 float32 elements', texts["scheduler"]), texts["scheduler"]


# The loss lines.
def test_loss_lines(ms, capsys):
    monitor = ms.train.LossMonitor()
    monitor(1, 1, torch.tensor(2.302287, requires_grad=True))
    monitor(2, 7, 0.5)
    assert capsys.readouterr().out == "epoch: 1 step: 1, loss is 2.302287\nepoch: 2 step: 7, loss is 0.500000\n"
    monitor = ms.train.callback.LossMonitor(per_print_times=3)
    for step in range(1, 8):
        monitor(1, step, 1.0)
    assert re.findall(r"step: (\d)", capsys.readouterr().out) == ["3", "6"]
    ms.train.LossMonitor(0)(1, 1, 1.0)
    assert capsys.readouterr().out == ""


def test_a_loss_that_is_none(ms):
    for loss in (float("nan"), torch.tensor(float("inf"))):
        with pytest.raises(cairn.NotFiniteError, match="epoch: 1 step: 2"):
            ms.train.LossMonitor()(1, 2, loss)
    for wrong in (-1, 1.5, True):
        with pytest.raises(cairn.InvalidArgumentError, match="per_print_times"):
            ms.train.LossMonitor(wrong)
