"""Training: the click model and LeNet on Cairn, beside plain torch and DistributedDataParallel."""
import json
import pathlib
import sys
import tempfile

from . import jobs

MODELS = jobs.ROOT / "benchmarks/models"
MLPS = {"400-400-400": ["400", "400", "400"], "32": ["32"]}


def _python():
    """The package of the build, or the one that is installed where the environment says so."""
    python = jobs.BIN.parent / "python"
    return {"CAIRN_BIN": str(jobs.BIN), **({"PYTHONPATH": str(python)} if python.is_dir() else {})}


def _run(script, arguments, timeout):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "figures.json"
        jobs.output([sys.executable, MODELS / script, "--json", path, *arguments], env=_python(),
                    timeout=timeout, errors=None)
        return json.loads(path.read_text())["figures"]


def clicks(options, mlp, ways):
    """{way: samples/s, one of each repetition}; the ways take turns."""
    return _run("ctr_throughput.py",
                ["--hidden", *MLPS[mlp], "--steps", options.steps,
                 "--repetitions", options.repetitions, "--only", *ways], timeout=600)


def lenet(options, ways):
    """{way: ms per step}."""
    return _run("lenet_steps.py",
                ["--steps", 3 * options.steps, "--repetitions", options.repetitions, "--only", *ways],
                timeout=600)
