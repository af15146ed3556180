"""The wheel as users get it: built, looked into, installed into a fresh virtual environment, used there. It compiles
everything once more, so it runs in script/check; script/demo builds and installs the wheel as well.
Only torch comes from the environment of these tests: it is large."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile

import pytest

import scripts

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(*command, seconds=900, **variables):
    env = scripts.environment(**{"CAIRN_BIN": None, "PYTHONPATH": None, **variables})
    done = subprocess.run([str(c) for c in command], env=env, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory, cairn_bin):
    """Built beside this build, in a folder that is kept: the next run compiles only what has changed.
    Without optimisation, which halves the time; script/demo builds it as users do."""
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", ROOT, "--no-deps", "--no-build-isolation", "--wheel-dir", out,
        f"--config-settings=build-dir={cairn_bin.parent / 'wheel'}",
        "--config-settings=cmake.define.CMAKE_CXX_FLAGS_RELEASE=-O0 -DNDEBUG")
    (path,) = out.iterdir()
    return path


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """The interpreter of a fresh environment with the wheel."""
    home = tmp_path_factory.mktemp("fresh") / "venv"
    venv.create(home, with_pip=True)
    run(home / "bin" / "pip", "install", "--no-index", "--no-deps", wheel)
    (site,) = home.glob("lib/python*/site-packages")
    (site / "torch-of-the-tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home / "bin" / "python"


def test_what_is_in_it(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = ROOT / "python"
    package = {str(p.relative_to(sources)) for p in (sources / "cairn").rglob("*")
               if p.suffix in (".py", ".pyi") or p.name == "py.typed"}
    assert package <= names and "cairn/py.typed" in names
    others = {n for n in names - package if ".dist-info/" not in n}
    extension = {n for n in others if re.fullmatch(r"cairn/_core\..*\.so", n)}
    program = {n for n in others if re.fullmatch(r"cairn_ps-[\d.]+\.data/scripts/cairn", n)}
    assert len(extension) == len(program) == 1
    assert others == extension | program, "something was left over from the build"


def test_metadata(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
    text = archive.read(name).decode()
    version = re.search(r"project\(cairn VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    for line in (f"Version: {version}", "License-Expression: Apache-2.0", "Requires-Dist: torch>=2.4",
                 "Description-Content-Type: text/markdown"):
        assert line in text.splitlines()
    assert (ROOT / "README.md").read_text().strip() in text


def test_it_needs_nothing_that_is_not_everywhere(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    for path in [*tmp_path.glob("cairn/*.so"), *tmp_path.glob("*/scripts/cairn")]:
        needed = re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", path))
        allowed = {"libstdc++.so.6", "libgcc_s.so.1", "libm.so.6", "libc.so.6", "ld-linux-x86-64.so.2", "libpthread.so.0"}
        assert set(needed) <= allowed, path


def test_embedded(python, tmp_path):
    script = scripts.write(tmp_path, """
        import sys, torch, cairn
        assert cairn.__file__.startswith(sys.prefix), cairn.__file__
        cairn.init()
        print(cairn.dense_table("w", 2, mode="async", init=1.0).pull().result().tolist())
        """)
    assert run(python, script) == "[1.0, 1.0]\n"


def test_the_program_is_on_the_path(python, tmp_path):
    """As an activated environment has it; servers and scheduler are that program too."""
    script = scripts.write(tmp_path, """
        import shutil, sys, cairn
        from cairn._runtime import serving
        assert serving.program().startswith(sys.prefix), serving.program()
        cairn.init()
        cairn.barrier()
        print("rank", cairn.rank(), "of", cairn.world_size())
        """)
    path = os.pathsep.join([str(python.parent), os.environ["PATH"]])
    assert shutil.which("cairn", path=path) == str(python.parent / "cairn")
    text = run(python.parent / "cairn", "run", "--no-logs", "-s", "2", "-w", "2", script, PATH=path, seconds=100)
    assert "rank 0 of 2" in text and "rank 1 of 2" in text
