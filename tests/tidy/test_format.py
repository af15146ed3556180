"""All C++ is as script/format leaves it."""
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_cpp_is_formatted():
    done = subprocess.run([ROOT / "script" / "format", "--check"], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, "run script/format\n" + done.stderr[-4000:]
