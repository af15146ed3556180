"""Cairn's own figures: bench_cluster in several jobs and over both transports, and the limits."""
import json
import os
import pathlib
import subprocess
import tempfile

from . import jobs

TRANSPORTS = ("shm", "tcp")
# name: servers, shard threads of each, workers, copies of a partition
SHAPES = {
    "1 server": (1, 1, 1, 1),
    "1 server, 2 threads": (1, 2, 1, 1),
    "2 servers": (2, 1, 1, 1),
    "2 servers, 2 copies": (2, 1, 1, 2),
    "2 × 2": (2, 1, 2, 1),
    "2 × 2, 2 copies": (2, 1, 2, 2),
}


def limits(options):
    """{name: value} of this machine, now."""
    found = json.loads(jobs.output([jobs.BIN / "limits", "--json"], errors=subprocess.PIPE))
    tables = [jobs.BIN / "in_process", "--rows", options.rows, "--keys", options.keys,
              "--seconds", options.seconds]
    found.update(json.loads(jobs.output(tables, timeout=300, errors=subprocess.PIPE)))
    return found


def job(shape, transport, arguments, env=None, timeout=240):
    """One job: {id: figure}, rates of several workers added, times of several averaged."""
    servers, threads, workers, copies = shape
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "figures"
        jobs.output([jobs.BIN / "cairn", "run", "--no-logs", "--no-progress", "-s", servers,
                     "-w", workers, "--threads", threads, "--replicas", copies, "--",
                     jobs.BIN / "bench_cluster", "--json", path, *arguments],
                    env={"CAIRN_TRANSPORT": transport, **(env or {})}, timeout=timeout)
        files = [path, *(pathlib.Path(f"{path}.{rank}") for rank in range(1, workers))]
        written = [json.loads(file.read_text())["figures"] for file in files]
    figures = {}
    for of_all in zip(*written):
        one = dict(of_all[0])
        is_time = one["unit"] in ("us", "ms/s")
        for key in ("value", "least", "most"):
            total = sum(figure[key] for figure in of_all)
            one[key] = total / len(of_all) if is_time else total
        figures[one["id"]] = one
    return figures


def full(options, transport):
    """One server with one thread, one worker: everything."""
    return job(SHAPES["1 server"], transport,
               ["--rows", options.rows, "--keys", options.keys, "--seconds", options.seconds])


def shape(options, name, transport):
    """The same few figures in each shape, on a smaller table: their ratios count."""
    groups = "dense,sparse,sync" if SHAPES[name][2] > 1 else "dense,sparse"
    return job(SHAPES[name], transport,
               ["--only", groups, "--optimizers", "sgd", "--rows", options.shape_rows,
                "--keys", options.keys, "--seconds", options.seconds / 2])


def worker(options):
    """What a worker does with the 13,312 ids of a batch before anything is sent: {benchmark: µs}."""
    told = json.loads(jobs.output([jobs.BIN / "micro_worker", "--benchmark_format=json",
                                   f"--benchmark_min_time={options.seconds / 4}"],
                                  errors=subprocess.PIPE))
    return {one["name"]: one["real_time"] for one in told["benchmarks"]}


def allocations(options, transport):
    """Heap allocations of an operation, once warm, in the worker and in the server."""
    library = jobs.BIN / "libcairn_count_allocations.so"
    with tempfile.NamedTemporaryFile() as counters:
        os.truncate(counters.name, 8192)
        return job(SHAPES["1 server"], transport,
                   ["--only", "small,dense,sparse,sync", "--optimizers", "sgd",
                    "--rows", min(options.shape_rows, 1_000_000),
                    "--keys", options.keys, "--seconds", 0.05],
                   env={"LD_PRELOAD": str(library), "CAIRN_BENCH_ALLOCATIONS": counters.name})


def idle(options, transport):
    """ms of CPU a second, of all processes of 2 servers and 2 workers that do nothing."""
    arguments = ["--only", "idle", "--idle-seconds", options.idle_seconds]
    found = job(SHAPES["2 × 2"], transport, arguments)
    return found["idle"]["value"]
