"""The C++ package as a trainer outside this tree uses it: `cmake --install`, then the softmax example built
against the installed files by find_package and by pkg-config, and run."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from mnist_data import write_mnist  # noqa: E402
from processes import clean_environment  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CAIRN_BIN", ROOT / "build" / "dev" / "bin")).parent
EXAMPLE = ("softmax_mnist.cc", "mnist_idx.h")
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(trainer LANGUAGES CXX)
find_package(cairn 0.2 REQUIRED)
add_executable(softmax_mnist softmax_mnist.cc)
target_link_libraries(softmax_mnist PRIVATE cairn::cairn)
"""


def run(*command, **variables):
    done = subprocess.run([str(c) for c in command], env=clean_environment(**variables), capture_output=True, text=True,
                          timeout=240)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The package, moved after it was installed: nothing in it may know where it was put."""
    first = tmp_path_factory.mktemp("first") / "cairn"
    run("cmake", "--install", BUILD, "--prefix", first)
    moved = tmp_path_factory.mktemp("second") / "moved"
    first.rename(moved)
    yield moved
    shutil.rmtree(moved)


@pytest.fixture
def trainer(tmp_path):
    """A project of somebody else: the example, copied out of this tree."""
    folder = tmp_path / "trainer"
    folder.mkdir()
    for name in EXAMPLE:
        shutil.copy(ROOT / "examples" / name, folder)
    return folder


def train(installed, program, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    text = run(installed / "bin" / "cairn", "run", "-s", 2, "-w", 2, "--", program, "--data", write_mnist(data),
               "--epochs", 2, "--batch", 20, "--lr", 0.02)
    accuracy = re.search(r"test accuracy: (\S+)$", text, re.M)
    assert accuracy and float(accuracy[1]) >= 0.9, text


def test_only_what_is_public_is_installed(installed):
    headers = {path.relative_to(installed / "include").as_posix() for path in (installed / "include").rglob("*.*")}
    public = {path.relative_to(ROOT / "include").as_posix() for path in (ROOT / "include").rglob("*.h")}
    assert headers == public | {"cairn/version.h"}
    libraries = {path.name for path in installed.rglob("*.a")} | {path.name for path in installed.rglob("*.so")}
    assert libraries == {"libcairn.a"}
    for path in installed.rglob("*"):
        if path.suffix in {".cmake", ".pc", ".h"}:
            assert str(ROOT) not in path.read_text(), f"{path} names the tree that it was built from"


def test_one_version_everywhere(installed):
    stated = re.search(r"project\(cairn VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    assert f'#define CAIRN_VERSION "{stated}"' in (installed / "include/cairn/version.h").read_text()
    assert f"Version: {stated}\n" in next(installed.rglob("cairn.pc")).read_text()
    assert run(installed / "bin" / "cairn", "--version") == f"cairn {stated}\n"


def test_a_trainer_finds_it_by_cmake(installed, trainer, tmp_path):
    (trainer / "CMakeLists.txt").write_text(PROJECT)
    run("cmake", "-G", "Ninja", "-S", trainer, "-B", trainer / "build", f"-DCMAKE_PREFIX_PATH={installed}", "-DCMAKE_BUILD_TYPE=Release")
    run("cmake", "--build", trainer / "build")
    train(installed, trainer / "build" / "softmax_mnist", tmp_path)


def test_a_trainer_finds_it_by_pkg_config(installed, trainer, tmp_path):
    folder = next(installed.rglob("cairn.pc")).parent
    flags = run("pkg-config", "--cflags", "--libs", "cairn", PKG_CONFIG_PATH=folder).split()
    run("g++", "-O2", "-o", trainer / "softmax_mnist", trainer / "softmax_mnist.cc", *flags)
    train(installed, trainer / "softmax_mnist", tmp_path)


def test_another_minor_version_is_refused(installed, trainer):
    (trainer / "CMakeLists.txt").write_text(PROJECT.replace("cairn 0.2", "cairn 0.1"))
    done = subprocess.run(["cmake", "-G", "Ninja", "-S", trainer, "-B", trainer / "build", f"-DCMAKE_PREFIX_PATH={installed}"],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode != 0 and "0.1" in done.stderr, done.stderr
