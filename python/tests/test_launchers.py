"""Under torchrun, srun and mpirun, which know nothing of Cairn: rank 0 hosts a cluster for all, and no
two processes train apart in silence. torchrun is real here, and mpirun where it is installed; srun is
not: its variables are set by hand on plain processes."""
import dataclasses
import os
import shutil
import socket
import sys
import threading
import types

import pytest

import cairn
import scripts
from cairn import _core
from cairn._runtime import context, hosting, launchers
from ports import free_port

# Gradients of all ranks meet in one table, then torch's own processes meet too.
TOGETHER = """
    import os, torch, cairn, torch.distributed as dist
    context = cairn.init(connect_timeout=50)
    table = cairn.dense_table("w", 2, optimizer="sum")
    total = table.push_pull(torch.full((2,), 1.0 + cairn.rank())).result()
    assert int(os.environ["RANK"]) == cairn.rank(), os.environ["RANK"]
    dist.init_process_group("gloo")
    ranks = torch.tensor([dist.get_rank() + 1])
    dist.all_reduce(ranks)
    line = f"rank {cairn.rank()} of {cairn.world_size()} local {cairn.local_rank()} sum {int(total[0])} {int(ranks)}"
    os.write(1, f"{line}\\n".encode())  # in one piece: the processes share this output
    dist.destroy_process_group()
    """


def assert_together(texts, size):
    total = size * (size + 1) // 2
    said = sorted(line[line.index("rank "):] for text in texts for line in text.splitlines() if "rank " in line)
    assert said == [f"rank {r} of {size} local {r} sum {total} {total}" for r in range(size)], texts


def torchrun(job, script, *options, **variables):
    return job.start([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", *options, script],
                     OMP_NUM_THREADS=1, **variables)


@pytest.mark.parametrize("options", [["--standalone"], ["--master-port", "PORT"]])
def test_torchrun(job, tmp_path, options):
    options = [o.replace("PORT", str(free_port())) for o in options]
    code, text = job.wait(torchrun(job, scripts.write(tmp_path, TOGETHER), *options))
    assert code == 0, text
    assert_together([text], 2)


def test_an_exception_under_torchrun(job, tmp_path):
    script = scripts.write(tmp_path, """
        import cairn
        cairn.init(connect_timeout=50)
        if cairn.rank() == 1:
            raise ValueError("the data is bad")
        cairn.barrier()
        """)
    code, text = job.wait(torchrun(job, script, "--standalone"))
    assert code != 0 and "ValueError: the data is bad" in text, text


def start_ranks(job, script, size, variables):
    """Plain processes with the variables that a launcher would set."""
    return [job.python(script, **variables(rank)) for rank in reversed(range(size))]


def by_hand(size):
    port = free_port()
    return lambda rank: {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}


def as_on_two_hosts(size):
    """It listens on every interface then, and is told by the address that torch was given."""
    variables = by_hand(size)
    return lambda rank: {**variables(rank), "LOCAL_WORLD_SIZE": 1, "LOCAL_RANK": rank}


def like_srun(size):
    job = free_port()  # of the simulated job: some number that no other test has
    return lambda rank: {
        "SLURM_JOB_ID": job, "SLURM_STEP_ID": 0, "SLURM_PROCID": rank, "SLURM_LOCALID": rank, "SLURM_NTASKS": size,
        "SLURM_STEP_NUM_TASKS": size, "SLURM_NNODES": 1, "SLURM_STEP_NODELIST": "here", "SLURMD_NODENAME": "here"}


@pytest.mark.parametrize("variables", [by_hand, as_on_two_hosts, like_srun])
def test_ranks_find_each_other(job, tmp_path, variables):
    script = scripts.write(tmp_path, TOGETHER)
    done = [job.wait(child) for child in start_ranks(job, script, 2, variables(2))]
    assert [code for code, _ in done] == [0, 0], done
    assert_together([text for _, text in done], 2)


@pytest.mark.parametrize("failing", [0, 1])
def test_an_exception_where_the_launcher_kills_nobody(job, tmp_path, failing):
    """As under srun: the rank that fails tells the scheduler, so that the other does not wait for it."""
    script = scripts.write(tmp_path, f"""
        import cairn
        cairn.init(connect_timeout=50)
        if cairn.rank() == {failing}:
            raise ValueError("the data is bad")
        cairn.barrier()
        """)
    done = [job.wait(child) for child in start_ranks(job, script, 2, by_hand(2))]
    assert [code for code, _ in done] == [1, 1], done
    text = done[failing][1]  # of the other: they were started in reverse
    assert "JobFailedError: " in text and f"rank {failing} ended with ValueError: the data is bad" in text, text


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun here: it is not tested")
def test_mpirun(job, tmp_path):
    script = scripts.write(tmp_path, TOGETHER)
    code, text = job.wait(job.start(["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", sys.executable,
                                     script]))
    assert code == 0, text
    assert_together([text], 2)


def test_a_taken_port_is_told(job, tmp_path):
    """Rank 0's own error; the other would wait for it until its deadline."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        script = scripts.write(tmp_path, "import cairn; cairn.init(connect_timeout=5)")
        port = taken.getsockname()[1]
        child = job.python(script, RANK=0, WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=port - 1)
        code, text = job.wait(child)
    assert code == 1 and f"{port}" in text and "cairn" in text, text


def test_a_cluster_that_can_not_start_is_told_to_the_others():
    told = types.SimpleNamespace(tell=lambda text: lines.append(text))
    lines = []
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        launched = launchers.Launched("torchrun", 0, 2, 0, 2, "job", None, taken.getsockname()[1])
        with pytest.raises(cairn.Error):
            hosting.start(launched, 1, 1, told)
    assert len(lines) == 1 and lines[0].startswith("error "), lines


def test_a_host_that_could_not_connect_goes_on_with_its_cluster(monkeypatch):
    """The port is its own; and the next init() after a shutdown has a cluster of its own."""
    for name, value in by_hand(2)(0).items():
        monkeypatch.setenv(name, str(value))
    port = int(os.environ["MASTER_PORT"]) + 1
    cluster = hosting.cluster_id(launchers.find(os.environ))
    other = []

    def join():
        other.append(_core.connect("127.0.0.1", port, rank=1, cluster_id=cluster))

    for _ in range(2):
        with pytest.raises(cairn.DeadlineExceededError):
            cairn.init(connect_timeout=0.2)  # rank 1 is not there
    try:
        for _ in range(2):
            second = threading.Thread(target=join)
            second.start()
            found = cairn.init(connect_timeout=50, timeout=20)
            second.join(50)
            assert (found.rank, found.world_size, found._launcher) == (0, 2, "torch")
            assert found.call_timeout_s == 20.0 and not found.embedded and "under torch" in repr(found)
            other.pop().finish()
            cairn.shutdown()
    finally:
        context._hosted = None


def test_where_the_cluster_listens_and_where_others_look_for_it(monkeypatch):
    asked, told = [], []
    monkeypatch.setattr(hosting._core, "EmbeddedCluster",
                        lambda **options: asked.append(options) or types.SimpleNamespace(scheduler_host="::1",
                                                                                         scheduler_port=7))
    store = types.SimpleNamespace(tell=told.append)
    monkeypatch.setenv("MASTER_ADDR", "node1")
    monkeypatch.setattr(hosting, "own_address", lambda master: f"towards {master}")
    here = launchers.Launched("torchrun", 0, 2, 0, 2, "job", None, None)
    hosting.start(here, 3, 4, store)
    hosting.start(dataclasses.replace(here, local_size=1), 1, 0, store)
    hosting.start(dataclasses.replace(here, local_size=None, host="gpu07", port=9), 1, 0, None)
    found = [(a["host"], a["advertise_host"], a["port"], a["servers"], a["threads_per_server"]) for a in asked]
    assert found == [("", "", 0, 3, 4), ("0.0.0.0", "towards node1", 0, 1, 0),
                     ("0.0.0.0", "gpu07", 9, 1, 0)]
    assert told == ["at ::1:7", "at towards node1:7"]
    assert {(a["workers"], a["cluster_id"]) for a in asked} == {(2, "job")}
    monkeypatch.setenv("CAIRN_CLUSTER_ID", "mine")
    assert hosting.cluster_id(here) == "mine"


def test_the_address_for_other_machines(monkeypatch):
    ways = {"node1": "127.0.1.1", "192.0.2.1": "10.0.0.5"}
    monkeypatch.setattr(hosting, "_address_towards", lambda host: ways.get(host, "127.0.0.1"))
    monkeypatch.setenv("CAIRN_HOST", "0.0.0.0")  # where to listen, and no address
    assert hosting.own_address("node1") == "10.0.0.5"
    ways["node1"] = "10.1.0.5"
    assert hosting.own_address("node1") == "10.1.0.5"
    ways.clear()
    assert hosting.own_address("node1") == socket.gethostname()
    monkeypatch.setenv("CAIRN_HOST", "given")
    assert hosting.own_address("node1") == "given"


def test_what_rank_0_leaves_in_torchruns_store():
    def asked(text, timeout_s=5.0):
        store = hosting.AgentStore.__new__(hosting.AgentStore)
        store._key, store._timeout_s = "cairn/job/scheduler", timeout_s
        store._store = types.SimpleNamespace(check=lambda keys: text is not None, get=lambda key: text.encode())
        return store.ask()

    assert asked("at node1:7") == ("node1", 7) and asked("at fd00::1:7") == ("fd00::1", 7)
    with pytest.raises(cairn.UnavailableError, match="rank 0 could not start its cluster: port 7 is taken"):
        asked("error port 7 is taken")
    with pytest.raises(cairn.DeadlineExceededError, match=r"within 0 s: it must call cairn\.init\(\) too"):
        asked(None, 0.01)


TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_USE_AGENT_STORE": "True", "RANK": "3", "WORLD_SIZE": "4",
            "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "node1", "MASTER_PORT": "29500"}
SLURM = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "1", "SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4",
         "SLURM_NTASKS": "4", "SLURM_LOCALID": "1", "SLURM_STEP_NUM_NODES": "2",
         "SLURM_STEP_NODELIST": "gpu[07-08]", "SLURMD_NODENAME": "gpu08"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_NAMESPACE": "prte-12@1"}


def test_what_variables_say():
    assert launchers.find({}) is None
    found = launchers.find(TORCHRUN)
    assert (found.launcher, found.rank, found.size, found.local_rank, found.one_host) == ("torchrun", 3, 4, 1, False)
    assert found.host is None  # through the agent's store
    assert found.job != launchers.find(TORCHRUN | {"TORCHELASTIC_RESTART_COUNT": "1"}).job  # what is left of it
    found = launchers.find(TORCHRUN | {"TORCHELASTIC_USE_AGENT_STORE": "False"})
    assert (found.host, found.port) == ("node1", 29501)
    found = launchers.find(SLURM)
    assert (found.launcher, found.rank, found.size, found.local_rank, found.host) == ("srun", 3, 4, 1, "gpu07")
    assert found.port == launchers.job_port("slurm-77-1") != launchers.job_port("slurm-77-2")
    found = launchers.find(OPEN_MPI)
    assert (found.launcher, found.rank, found.size, found.one_host, found.host) == ("mpirun", 1, 2, True, "127.0.0.1")
    # One process is no job.
    assert launchers.find(TORCHRUN | {"RANK": "0", "WORLD_SIZE": "1"}) is None
    assert launchers.find(SLURM | {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}) is None
    assert launchers.find({"PMI_RANK": "0", "PMI_SIZE": "1"}) is None
    # A batch script is no step of srun, though it has most of its variables.
    assert launchers.find({k: v for k, v in SLURM.items() if "STEP" not in k}) is None
    # mpirun inside a Slurm job, whose daemons run in a step of their own.
    assert launchers.find(SLURM | OPEN_MPI).launcher == "mpirun"
    assert launchers.find(SLURM | TORCHRUN).launcher == "torchrun"


def test_where_variables_say_less():
    by_hand = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "node1", "MASTER_PORT": "65535"}
    found = launchers.find(by_hand)
    assert (found.local_rank, found.local_size, found.one_host, found.port) == (0, None, False, 65534)
    assert launchers.find(by_hand | {"MASTER_ADDR": "localhost"}).local_rank == 1
    assert launchers.find(by_hand | {"MASTER_ADDR": ""}) is None
    # mpirun's own id of the job before Slurm's; a batch system's where there is none.
    assert launchers.find(SLURM | OPEN_MPI).job == "PMIX_NAMESPACE-prte-12@1"
    hydra = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}
    found = launchers.find(hydra | {"PBS_JOBID": "9"})
    assert (found.job, found.local_rank, found.port) == ("PBS_JOBID-9", 0, launchers.job_port("PBS_JOBID-9"))
    # Rank 0 elsewhere matters only where there are several hosts, and nobody has said which.
    first = SLURM | {"SLURM_PROCID": "0"}
    assert launchers.find(first | {"SLURM_STEP_NUM_NODES": "1"}).host == "127.0.0.1"
    assert launchers.find(first | {"CAIRN_SCHED_HOST": "gpu08"}).host == "gpu08"
    assert launchers.find(SLURM | {"SLURM_STEP_NUM_NODES": "1"}).one_host and not launchers.find(SLURM).one_host


def test_hosts_and_ports_can_be_given():
    found = launchers.find(SLURM | {"CAIRN_SCHED_HOST": "gpu09", "CAIRN_SCHED_PORT": "9000"})
    assert (found.host, found.port) == ("gpu09", 9000)
    several = OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
    with pytest.raises(cairn.InvalidArgumentError, match="set CAIRN_SCHED_HOST"):
        launchers.find(several)
    assert launchers.find(several | {"CAIRN_SCHED_HOST": "a"}).host == "a"
    hydra = {"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"}
    with pytest.raises(cairn.InvalidArgumentError, match="set CAIRN_SCHED_PORT"):
        launchers.find(hydra)
    assert launchers.find(hydra | {"CAIRN_SCHED_PORT": "9000"}).port == 9000
    with pytest.raises(cairn.InvalidArgumentError, match="rank 0 runs on gpu08.*CAIRN_SCHED_HOST=gpu08"):
        launchers.find(SLURM | {"SLURM_PROCID": "0"})
    with pytest.raises(cairn.InvalidArgumentError, match="RANK=x is not a number"):
        launchers.find(TORCHRUN | {"RANK": "x"})


@pytest.mark.parametrize("hosts, first", [
    ("one", "one"), ("a,b", "a"), ("gpu[3-5]", "gpu3"), ("gpu[07,09-12],login", "gpu07"),
    ("r[1-2]n[01-03].site", "r1n01.site"), ("n1-[4,6]", "n1-4")])
def test_first_host(hosts, first):
    assert launchers.first_host(hosts) == first


def test_ports_of_jobs_are_below_the_kernels():
    ports = {launchers.job_port(f"slurm-{job}-0") for job in range(1000)}
    assert min(ports) >= 12_000 and max(ports) < 32_768 and len(ports) > 900
