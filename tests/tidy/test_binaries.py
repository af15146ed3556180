"""`cairn` contains none of the simulator's planted bugs."""
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("CAIRN_BIN", ROOT / "build" / "dev" / "bin"))


def symbols(program):
    return subprocess.run(["nm", "--demangle", program], capture_output=True, text=True, check=True).stdout


def bug_texts():
    text = (ROOT / "src" / "base" / "planted_bugs.inc").read_text()
    return [t.encode() for t in re.findall(r'^CAIRN_PLANTED\(\w+, "[^"]*", "([^"]*)"\)', text, re.M)]


@pytest.mark.parametrize("program", ["cairn", "cairn-soak", "softmax_mnist"])
def test_programs_have_no_planted_bugs(program):
    path = BIN / program
    if not path.exists():
        pytest.skip(f"{path} is not built")
    assert len(bug_texts()) >= 12
    assert "planted" not in symbols(path)
    content = path.read_bytes()
    assert not [text for text in bug_texts() if text in content]


def test_the_simulator_has_them_all():
    """Otherwise the test above would show nothing."""
    path = BIN / "cairn-sim"
    if not path.exists():
        pytest.skip(f"{path} is not built")
    assert "planted" in symbols(path)
    content = path.read_bytes()
    assert not [text for text in bug_texts() if text not in content]
