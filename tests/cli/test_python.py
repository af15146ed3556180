"""`cairn run train.py`: which Python runs it, with which arguments and how many threads."""
import os
import shutil
import subprocess
import sys

import pytest

from processes import CAIRN, SECONDS, Run, clean_environment

SAY = "import os, sys; print('python', os.environ.get('WHICH', '-'), sys.argv[1:])\n"


def fake_python(folder, name):
    """A Python that says who it is."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "python"
    path.write_text(f"#!/bin/sh\nWHICH={name} exec {sys.executable} \"$@\"\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def script(tmp_path):
    """Executable, and with a first line that would pick the wrong one."""
    path = tmp_path / "train.py"
    path.write_text("#!/bin/false\n" + SAY)
    path.chmod(0o755)
    return path


def run(binary, *arguments, **variables):
    done = subprocess.run([binary, "run", "--no-progress", *map(str, arguments)], env=clean_environment(**variables),
                          capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout + done.stderr


def test_the_python_is_chosen_in_order(tmp_path, script):
    given = fake_python(tmp_path / "given", "given")
    fake_python(tmp_path / "venv" / "bin", "venv")
    fake_python(tmp_path / "bin", "beside")
    (tmp_path / "path").mkdir()
    fake_python(tmp_path / "path", "path").rename(tmp_path / "path" / "python3")
    cairn = tmp_path / "bin" / "cairn"
    cairn.symlink_to(CAIRN)
    variables = dict(CAIRN_PYTHON=given, VIRTUAL_ENV=tmp_path / "venv", PATH=f"{tmp_path}/path:{os.environ['PATH']}")
    for name, drop in (("given", "CAIRN_PYTHON"), ("venv", "VIRTUAL_ENV"), ("beside", None)):
        code, text = run(cairn, script, "--lr", "0.1 0.2", "--", "", **variables)
        assert code == 0 and f"[worker 0] python {name} ['--lr', '0.1 0.2', '--', '']" in text, text
        variables.pop(drop, None)
    code, text = run(CAIRN, script, **variables)
    assert code == 0 and "python path []" in text, text


def test_the_python_that_is_given_may_be_a_name_on_the_path(tmp_path, script):
    fake_python(tmp_path / "path", "named").rename(tmp_path / "path" / "python-mine")
    code, text = run(CAIRN, script, CAIRN_PYTHON="python-mine", PATH=f"{tmp_path}/path:{os.environ['PATH']}")
    assert code == 0 and "python named []" in text, text


def test_a_binary_inside_a_virtual_environment_uses_its_python(tmp_path, script):
    """A wheel may keep it in the package's folder."""
    fake_python(tmp_path / "venv" / "bin", "wheel")
    (tmp_path / "venv" / "pyvenv.cfg").write_text("")
    cairn = tmp_path / "venv" / "lib" / "python3" / "site-packages" / "cairn" / "bin" / "cairn"
    cairn.parent.mkdir(parents=True)
    shutil.copy(CAIRN, cairn)
    code, text = run(cairn, script)
    assert code == 0 and "python wheel []" in text, text


def test_no_python_is_a_clear_error(tmp_path, script):
    code, text = run(CAIRN, script, PATH=tmp_path)
    assert code == 127 and "no Python is found" in text and "CAIRN_PYTHON" in text, text
    code, text = run(CAIRN, script, CAIRN_PYTHON="/no/python")
    assert code == 2 and "CAIRN_PYTHON=/no/python" in text, text


def test_a_missing_script_is_named_before_anything_starts(tmp_path):
    code, text = run(CAIRN, tmp_path / "none.py")
    assert code == 127 and f"{tmp_path}/none.py: No such file or directory" in text and "scheduler" not in text, text


def test_modules_run_as_with_python_m(tmp_path):
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("")
    (tmp_path / "pack" / "train.py").write_text(SAY)
    code, text = run(CAIRN, "-w", 1, "-m", "pack.train", "-w", "9", "--help", CAIRN_PYTHON=sys.executable,
                     PYTHONPATH=tmp_path)
    assert code == 0 and "[worker 0] python - ['-w', '9', '--help']" in text, text


def test_threads_are_shared_among_the_workers():
    cores = len(os.sched_getaffinity(0))
    program = ("--", "sh", "-c", 'echo "omp $OMP_NUM_THREADS mkl $MKL_NUM_THREADS of $LOCAL_WORLD_SIZE"')
    code, text = run(CAIRN, "-w", 1, *program)
    share = int(text.split("[worker 0] omp ")[1].split()[0])
    assert code == 0 and 1 <= share <= cores, text
    assert text.count("OMP_NUM_THREADS=") == 1 and f"[worker 0] omp {share} mkl {share} of 1" in text, text
    code, text = run(CAIRN, "-w", 2, *program)
    assert text.count("OMP_NUM_THREADS=") == 1 and f"[worker 1] omp {max(1, share // 2)} mkl" in text, text
    code, text = run(CAIRN, "-w", 2, *program, OMP_NUM_THREADS=7)
    assert "OMP_NUM_THREADS=" not in text and "[worker 1] omp 7 mkl  of 2" in text, text


def test_threads_follow_the_affinity_mask(tmp_path):
    one = min(os.sched_getaffinity(0))
    done = subprocess.run([CAIRN, "run", "--", "sh", "-c", "echo omp $OMP_NUM_THREADS"], capture_output=True, text=True,
                          env=clean_environment(), timeout=SECONDS, preexec_fn=lambda: os.sched_setaffinity(0, {one}))
    assert "[worker 0] omp 1" in done.stdout, done.stdout + done.stderr


def test_servers_keep_their_threads(tmp_path):
    with Run("run", "--", "sh", "-c", "echo here; exec sleep 1000") as job:
        job.wait_for("here")
        servers = [p for p in os.listdir("/proc") if p.isdigit() and _is_server_of(p, job.process.pid)]
        assert len(servers) == 1
        with open(f"/proc/{servers[0]}/environ", "rb") as file:
            assert b"OMP_NUM_THREADS" not in file.read()


def _is_server_of(pid, launcher):
    try:
        with open(f"/proc/{pid}/stat") as stat, open(f"/proc/{pid}/cmdline", "rb") as command:
            return stat.read().rsplit(")", 1)[1].split()[1] == str(launcher) and b"\0server\0" in command.read()
    except OSError:
        return False
