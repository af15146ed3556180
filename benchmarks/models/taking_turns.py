"""What benchmarks of training share: ways of training that take turns in one run, each as real
processes, so that they meet the same machine."""
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys


def cairn_program():
    beside = str(pathlib.Path(sys.executable).parent)
    folders = [os.environ.get("CAIRN_BIN"), beside, os.environ.get("PATH")]
    found = shutil.which("cairn", path=os.pathsep.join(filter(None, folders)))
    if found is None:
        raise SystemExit("no `cairn` on the path: pip install . or set CAIRN_BIN")
    return found


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def figures(script, run, options, pattern, more=()):
    """One start of one way: the numbers that its processes print. `run`: "cairn -s 1 -w 1 WAY", or
    a list of ways, a process each; `pattern` has one group; `more`: further arguments."""
    me = [sys.executable, script, "--steps", str(options.steps), "--warm-up", str(options.warm_up),
          *more, "--work"]
    environment = dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    if isinstance(run, str):
        _, *counts, way = run.split()
        commands = [[cairn_program(), "run", "--no-logs", "--no-progress", *counts, "--", *me, way]]
    else:
        commands = [[*me, way] for way in run]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
             "WORLD_SIZE": str(len(commands))}
    children = []
    try:
        for rank, command in enumerate(commands):
            ddp = {**place, "RANK": str(rank), "LOCAL_RANK": str(rank)} if "ddp" in run else {}
            children.append(subprocess.Popen(command, env=environment | ddp, stdout=subprocess.PIPE,
                                             stderr=subprocess.STDOUT, text=True))
        texts = [child.communicate(timeout=options.timeout)[0] for child in children]
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
                child.wait()
    for child, text in zip(children, texts):
        if child.returncode != 0:
            raise SystemExit(f"{text}\n{' '.join(child.args)} ended with {child.returncode}")
    return [float(figure) for text in texts for figure in re.findall(pattern, text)]


def write_json(path, found, unit, settings):
    """{way: its figures}, for programs."""
    if path:
        text = json.dumps({"unit": unit, "settings": settings, "figures": found}, indent=1)
        pathlib.Path(path).write_text(text + "\n")


def take_turns(ways, options, measure, unit):
    """{way: its figures}, one a repetition."""
    found = {way: [] for way in ways if way in options.only}
    for repetition in range(options.repetitions):
        for way in found:
            found[way].append(measure(ways[way][1]))
            print(f"{repetition + 1}/{options.repetitions} {way}: {found[way][-1]:.6g} {unit}",
                  file=sys.stderr, flush=True)
    return found
