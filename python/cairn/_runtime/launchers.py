"""What torchrun, srun and mpirun say about this process: pure functions of their variables.

Such a launcher knows nothing of Cairn. Rank 0 then hosts scheduler and servers for all; this module
finds out which rank this process has, and where the others will look for rank 0.
"""
from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Mapping

from ..errors import InvalidArgumentError

LOOPBACK = "127.0.0.1"
# Ports derived from a job's id: below those that the kernel hands out by itself.
_FIRST_PORT, _PORTS = 12_000, 20_000


@dataclasses.dataclass(frozen=True)
class Launched:
    """A process of a job of `size` processes that some launcher started."""

    launcher: str  # "torchrun", "torch" (its variables, set by hand), "mpirun" or "srun"
    rank: int
    size: int
    local_rank: int
    local_size: int | None  # None: not known
    job: str  # the same in all processes of this job and in no other
    # Where rank 0's scheduler is. None: rank 0 tells it through torch's store (torchrun).
    host: str | None
    port: int | None

    @property
    def one_host(self) -> bool:
        return self.local_size == self.size


def _number(environ: Mapping[str, str], *names: str) -> int | None:
    """The first of these variables that is set."""
    for name in names:
        text = environ.get(name, "")
        if not text:
            continue
        if not text.isdigit():
            raise InvalidArgumentError(f"{name}={text} is not a number")
        return int(text)
    return None


def job_port(job: str) -> int:
    """A port that all processes of a job derive from its id."""
    return _FIRST_PORT + zlib.crc32(job.encode()) % _PORTS


def first_host(hosts: str) -> str:
    """The first of Slurm's short form: "gpu[03-05,9],login" is gpu03."""
    out, i = "", 0
    while i < len(hosts) and hosts[i] != ",":
        if hosts[i] == "[":
            end = hosts.index("]", i)
            out += hosts[i + 1 : end].split(",")[0].split("-")[0]
            i = end
        else:
            out += hosts[i]
        i += 1
    return out


def _torch(environ: Mapping[str, str]) -> Launched | None:
    elastic = "TORCHELASTIC_RUN_ID" in environ
    if not elastic and not all(environ.get(n) for n in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")):
        return None
    rank, size = _number(environ, "RANK"), _number(environ, "WORLD_SIZE")
    master, port = environ.get("MASTER_ADDR", ""), _number(environ, "MASTER_PORT")
    if rank is None or size is None or not master or port is None:
        return None
    local_rank, local_size = _number(environ, "LOCAL_RANK"), _number(environ, "LOCAL_WORLD_SIZE")
    agent = elastic and environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    run = environ.get("TORCHELASTIC_RUN_ID", "")
    attempt = environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if local_size is None and master in ("localhost", LOOPBACK, "::1"):
        local_size = size
    return Launched(
        launcher="torchrun" if elastic else "torch",
        rank=rank,
        size=size,
        local_rank=local_rank if local_rank is not None else (rank if local_size == size else 0),
        local_size=local_size,
        job=f"torch-{run}-{master}-{port}-{attempt}",
        # Without an agent's store rank 0 will have torch's own at this port: ours is the next one.
        host=None if agent else master,
        port=None if agent else (port + 1 if port < 65_535 else port - 1),
    )


def _slurm_id(environ: Mapping[str, str]) -> str:
    job, step = environ.get("SLURM_JOB_ID", ""), environ.get("SLURM_STEP_ID", "")
    return f"slurm-{job}-{step}" if job else ""


def _slurm_host(environ: Mapping[str, str]) -> str:
    for name in ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"):
        if environ.get(name):
            return first_host(environ[name])
    return ""


def _fixed(launcher: str, environ: Mapping[str, str], rank: int, size: int, local_rank: int | None,
           local_size: int | None, job: str, host: str) -> Launched:
    """A job whose processes find rank 0 at a host and port that all of them can work out."""
    if size == 1:
        return Launched(launcher, rank, size, 0, 1, job, LOOPBACK, 0)
    given_host, given_port = environ.get("CAIRN_SCHED_HOST", ""), _number(environ, "CAIRN_SCHED_PORT")
    where = given_host or (LOOPBACK if local_size == size else host)
    if not where:
        raise InvalidArgumentError(
            f"{launcher} has started {size} processes on several hosts, and its variables don't say where "
            "rank 0 is: set CAIRN_SCHED_HOST to that host, on all of them"
        )
    if given_port is None and not job:
        raise InvalidArgumentError(
            f"{launcher}'s variables have no id of the job from which a port could be derived: set "
            "CAIRN_SCHED_PORT to one that is free on rank 0's host, on all processes"
        )
    return Launched(launcher, rank, size, rank if local_rank is None else local_rank, local_size,
                    job or f"{launcher}-{where}-{given_port}", where,
                    given_port if given_port is not None else job_port(job))


def _mpi(environ: Mapping[str, str]) -> Launched | None:
    rank = _number(environ, "OMPI_COMM_WORLD_RANK", "PMI_RANK")
    size = _number(environ, "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
    if rank is None or size is None:
        return None
    job = _slurm_id(environ)
    for name in ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PBS_JOBID", "LSB_JOBID"):
        if environ.get(name):
            job = f"{name}-{environ[name]}"
            break
    return _fixed(
        "mpirun", environ, rank, size,
        _number(environ, "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"),
        _number(environ, "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"),
        job, _slurm_host(environ))


def _srun(environ: Mapping[str, str]) -> Launched | None:
    # A batch script has SLURM_PROCID and SLURM_NTASKS too, but only srun makes steps.
    rank = _number(environ, "SLURM_PROCID")
    size = _number(environ, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
    if rank is None or size is None or not environ.get("SLURM_STEP_ID"):
        return None
    host = _slurm_host(environ)
    nodes = _number(environ, "SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES")
    here = environ.get("SLURMD_NODENAME", "")
    elsewhere = here and host and here != host and not environ.get("CAIRN_SCHED_HOST")
    if rank == 0 and size > 1 and nodes != 1 and elsewhere:
        raise InvalidArgumentError(
            f"rank 0 runs on {here}, but the others will look for it on {host}, the first host of the "
            f"step: set CAIRN_SCHED_HOST={here}, on all processes"
        )
    return _fixed("srun", environ, rank, size, _number(environ, "SLURM_LOCALID"),
                  size if nodes == 1 else None, _slurm_id(environ), host)


def find(environ: Mapping[str, str]) -> Launched | None:
    """What a launcher says in these variables; None without one, or if it started one process.

    Innermost first: torchrun may run under srun; mpirun under Slurm leaves the variables of the step
    in which its own daemons run.
    """
    for read in (_torch, _mpi, _srun):
        launched = read(environ)
        if launched is not None:
            return launched if launched.size > 1 else None
    return None
