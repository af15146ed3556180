"""accelerate, transformers.Trainer and Lightning, embedded and under `cairn run`: they train what one
process trains, with every sample once an epoch. `script/check --only trainers` runs it, in an environment
that has them."""
import pathlib
import subprocess
import sys

import pytest

import scripts
from optimizer_workers.job import Job

HERE = pathlib.Path(__file__).resolve().parent / "trainers"
KINDS = {"by_accelerate.py": [["cairn"], ["shuffle"]], "by_transformers.py": [[]], "by_lightning.py": [[]]}
CASES = [(script, arguments) for script, all_arguments in KINDS.items() for arguments in all_arguments]


def arguments_for(script, arguments, folder):
    return arguments if script == "by_accelerate.py" else [folder, *arguments]


@pytest.mark.parametrize(("script", "arguments"), CASES)
def test_embedded(script, arguments, tmp_path):
    environment = scripts.environment(PYTHONPATH=f"{HERE.parent}:{scripts.environment().get('PYTHONPATH', '')}")
    # As people run it: without a word of Cairn in the environment, and with none of adapt().
    for way in ([], ["plain"]):
        if script == "by_lightning.py" and way:
            continue
        done = subprocess.run([sys.executable, str(HERE / script), *map(str, arguments_for(script, arguments, tmp_path)),
                               *way], env=environment, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0 and "trained 32 steps on 1 workers" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(("script", "arguments"), CASES)
def test_two_workers(cairn_bin, script, arguments, tmp_path):
    job = Job(cairn_bin, HERE / script, *arguments_for(script, arguments, tmp_path))
    assert job.code == 0, job.output
    for rank in range(2):
        assert job.of_worker(rank, "^trained 16 steps on 2 workers$"), job.output
    assert job.left_behind() == []


@pytest.mark.parametrize(("script", "arguments"), [("by_accelerate.py", ["shuffle", "plain"]),
                                                   ("by_transformers.py", ["plain"])])
def test_without_adapt_two_workers_are_told_what_to_do(cairn_bin, script, arguments, tmp_path):
    job = Job(cairn_bin, HERE / script, *arguments_for(script, arguments, tmp_path))
    assert job.code != 0
    assert "cairn.compat.accelerate.adapt(" in job.output and "ParametersChangedError" in job.output, job.output


def test_data_is_not_split_twice(cairn_bin):
    job = Job(cairn_bin, HERE / "by_accelerate.py", "cairn", "plain")
    assert job.code != 0
    assert "BatchSamplerShard deals out the samples of cairn.data.Sampler among 2 workers once more" in job.output
