"""ruff over all Python files, mypy (strict) over the package: what they check is in pyproject.toml."""
import importlib.util
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def check(tool, *arguments):
    if importlib.util.find_spec(tool) is None:
        assert not (ROOT / ".venv").exists(), f"no {tool} in {sys.prefix}: script/bootstrap installs it"
        pytest.skip(f"no {tool}: script/bootstrap installs it")
    found = subprocess.run([sys.executable, "-m", tool, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, f"\n{found.stdout}{found.stderr}"


def test_ruff_finds_nothing():
    check("ruff", "check", "--output-format", "concise")


def test_mypy_finds_nothing():
    check("mypy", "--no-error-summary")


def test_what_mypy_is_to_ignore_has_a_reason():
    reasoned = re.compile(r"# type: ignore\[[\w, -]+\]  # \S")
    problems = [f"{path.relative_to(ROOT)}:{number}: write # type: ignore[its code]  # and why"
                for path in sorted((ROOT / "python" / "cairn").rglob("*.py*")) if path.suffix in (".py", ".pyi")
                for number, line in enumerate(path.read_text().split("\n"), 1)
                if "type: ignore" in line and not reasoned.search(line)]
    assert not problems, "\n" + "\n".join(problems)
