"""Others that do the same work, from registries, each in an environment of its own (build/peers)."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from . import jobs

HERE = jobs.ROOT / "benchmarks/peers"
FOLDER = jobs.ROOT / "build/peers"
INSTALL_TIMEOUT = 900
PADDLE = ["paddlepaddle==2.6.2", "protobuf==4.25.8", "numpy<2", "setuptools"]
REDIS = ["redis", "hiredis", "numpy"]
RAY = ["ray", "numpy"]
# Debian's redis-server and what it needs beyond a bare system, unpacked and not installed.
REDIS_PACKAGES = ["redis-server", "redis-tools", "libjemalloc2", "liblzf1", "libhiredis0.14",
                  "liblua5.1-0", "lua-cjson", "lua-bitop", "libatomic1"]


def free_ports(count):
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


def environment(name, packages, pythons=(sys.executable,)):
    """The Python of a virtual environment with these packages; made if it is not there."""
    folder = FOLDER / name
    stamp = folder / ".installed"
    python = folder / "bin/python"
    wanted = "\n".join(packages)
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    jobs.say(f"peers: installing {' '.join(packages)} (once)")
    base = next((found for found in map(shutil.which, map(str, pythons)) if found), None)
    if base is None:
        raise jobs.Failed(f"no {' or '.join(map(str, pythons))} here, which it needs")
    shutil.rmtree(folder, ignore_errors=True)
    jobs.output([base, "-m", "venv", folder], timeout=INSTALL_TIMEOUT)
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    jobs.output([*install, *packages], timeout=INSTALL_TIMEOUT)
    stamp.write_text(wanted)
    return python


# torch: gloo and rpc.
def torch_parts(options, what):
    """{figure: value} of two processes of torch_parts.py."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)[0]), "WORLD_SIZE": "2",
             "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", HERE / "torch_parts.py", what, "--seconds",
               options.seconds / 2, "--rows", options.rows, "--keys", options.keys]
    with jobs.process([*command, "--rank", 1], {**place, "RANK": "1"}, stdout=subprocess.DEVNULL,
                      stderr=subprocess.DEVNULL):
        said = jobs.output([*command, "--rank", 0], {**place, "RANK": "0"}, timeout=180,
                           errors=subprocess.PIPE)
    return json.loads(said.strip().splitlines()[-1])


# Redis.
def _redis_server():
    """(program, its environment): the system's, or Debian's packages unpacked."""
    if (found := shutil.which("redis-server")):
        return found, {}
    root = FOLDER / "redis"
    program, libraries = root / "usr/bin/redis-server", root / "usr/lib/x86_64-linux-gnu"
    if not program.exists():
        if not shutil.which("apt-get") or not shutil.which("dpkg"):
            raise jobs.Failed("no redis-server and no apt-get here: install redis-server")
        jobs.say("peers: fetching Debian's redis-server (once)")
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            there = ["env", "-C", folder]
            jobs.output([*there, "apt-get", "download", *REDIS_PACKAGES], timeout=INSTALL_TIMEOUT)
            for package in pathlib.Path(folder).glob("*.deb"):
                jobs.output(["dpkg", "-x", package, root])
    return program, {"LD_LIBRARY_PATH": str(libraries)}


def redis(options):
    """{figure: value}."""
    program, env = _redis_server()
    python = environment("redis-py", REDIS)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/socket"
        command = [program, "--port", 0, "--unixsocket", path, "--save", "", "--appendonly", "no",
                   "--dir", folder]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with jobs.process(command, env, **quiet) as server:
            end = time.monotonic() + 10
            while not os.path.exists(path):
                if server.poll() is not None or time.monotonic() > end:
                    raise jobs.Failed("redis-server did not start")
                time.sleep(0.02)
            said = jobs.output([python, HERE / "redis_rows.py", path, "--rows", options.redis_rows,
                                "--keys", options.keys, "--seconds", options.seconds],
                               timeout=240, errors=subprocess.PIPE)
    return {**json.loads(said), "rows": options.redis_rows}


# Ray.
def ray(options):
    """{figure: value}."""
    python = environment("ray", RAY)
    with tempfile.TemporaryDirectory(prefix="ray") as folder:  # short: its sockets are in it
        said = jobs.output([python, HERE / "ray_server.py", "--rows", options.rows,
                            "--keys", options.keys, "--seconds", options.seconds / 2, "--folder", folder],
                           timeout=180, errors=subprocess.PIPE)
    return json.loads(said.strip().splitlines()[-1])


# Paddle.
def _clicks():
    path = FOLDER / "clicks.npz"
    if not path.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        jobs.output([sys.executable, HERE / "clicks.py", path, 512 * 256])
    return path


def paddle(options, way, hidden, servers=1, workers=1):
    """Samples/s of all workers of one job of paddle_ctr.py; `plain`: one process, no servers."""
    python = environment("paddle", PADDLE, ("python3.11", "python3.10", "python3.9", "python3"))
    command = [python, HERE / "paddle_ctr.py", "--way", way, "--data", _clicks(),
               "--hidden", *hidden, "--steps", options.steps * (3 if way == "geo" else 1), "--warm-up", 20]
    one_thread = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CPU_NUM": "1"}
    if way == "plain":
        return _samples(jobs.output(command, one_thread, timeout=180))
    ports = free_ports(servers + workers)
    addresses = [f"127.0.0.1:{port}" for port in ports]
    place = {**one_thread, "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(addresses[:servers]),
             "PADDLE_TRAINER_ENDPOINTS": ",".join(addresses[servers:]), "POD_IP": "127.0.0.1",
             "PADDLE_TRAINERS_NUM": str(workers), "PADDLE_WITH_GLOO": "0"}
    return _job(command, place, ports, servers, workers)


def _job(command, place, ports, servers, workers):
    with contextlib.ExitStack() as ends, tempfile.TemporaryDirectory() as folder:
        started = []
        for i, port in enumerate(ports):
            role = ({"TRAINING_ROLE": "PSERVER"} if i < servers else
                    {"TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": str(i - servers)})
            log = ends.enter_context(open(f"{folder}/{i}", "w+"))
            child = ends.enter_context(
                jobs.process(command, {**place, **role, "PADDLE_PORT": str(port)}, stdout=log,
                             stderr=subprocess.STDOUT, cwd=folder))
            started.append((child, log))
        total, end = 0.0, time.monotonic() + 180
        for child, log in started[servers:]:
            try:
                child.wait(max(1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise jobs.Failed("Paddle's job took longer than 180 s") from None
            log.seek(0)
            total += _samples(log.read())
    return total


def _samples(text):
    found = re.findall(r"samples per second: (\S+)", text)
    if not found:
        last = [line for line in text.strip().splitlines() if line][-2:]
        raise jobs.Failed(f"Paddle gave no figure: {' / '.join(last)[-300:]}")
    return float(found[0])
