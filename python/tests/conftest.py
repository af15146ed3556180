"""What the tests of the package share. They use the package of a build folder: PYTHONPATH and
CAIRN_BIN say which (ctest sets them); build/dev without them."""
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.setdefault("CAIRN_BIN", str(ROOT / "build" / "dev" / "bin"))).resolve()
PACKAGE = BIN.parent / "python"
# One thread each: many processes share few cores here.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["CAIRN_BIN"] = str(BIN)
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(PACKAGE), *(p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p)])
sys.path[:0] = [str(PACKAGE), str(ROOT / "tests")]  # the latter for ports.py

import pytest  # noqa: E402


@pytest.fixture(scope="session")
def cairn_bin():
    """The folder of the native programs of this build."""
    return BIN


@pytest.fixture
def worker():
    """This process as the only worker of an embedded cluster; leaves it afterwards."""
    import cairn

    cairn.init()
    yield cairn
    cairn.shutdown()


@pytest.fixture
def job(tmp_path):
    """Child processes of a test; what is left of them at its end is a failure."""
    import scripts

    job = scripts.Job(tmp_path)
    try:
        yield job
        job.assert_none_left()
    finally:
        job.kill()
