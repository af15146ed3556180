"""The package as such: its names, its stubs, its version, what the extension shows to others."""
import ast
import inspect
import pathlib
import re
import subprocess

import pytest

import cairn
from cairn import _core, errors

ROOT = pathlib.Path(__file__).resolve().parents[2]
STUB = ROOT / "python" / "cairn" / "_core.pyi"


def arguments_of_stub(function):
    a = function.args
    return [x.arg for x in a.args], [x.arg for x in a.kwonlyargs]


def arguments_of_module(function):
    """From the signature that nanobind writes into the docstring's first line."""
    signature = function.__nb_signature__[0][0]
    text = re.sub(r"\\\d+", "0", signature)  # defaults are numbered
    node = ast.parse(text + ": ...").body[0]
    return arguments_of_stub(node)


def members(node):
    return {n.name: n for n in node.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}


def test_the_stubs_say_what_the_extension_has():
    tree = ast.parse(STUB.read_text())
    stub = members(tree)
    constants = {n.target.id for n in tree.body if isinstance(n, ast.AnnAssign)}
    module = {n for n in dir(_core) if not n.startswith("__")}
    assert module == set(stub) | constants
    compared = 0
    for name, node in stub.items():
        there = getattr(_core, name)
        if isinstance(node, ast.FunctionDef):
            assert arguments_of_module(there) == arguments_of_stub(node), name
            continue
        inside = members(node)
        public = {n for n in vars(there) if not n.startswith("_")}
        assert public == {n for n in inside if not n.startswith("_")}, name
        for method, function in inside.items():
            if any(decorator.id == "property" for decorator in function.decorator_list):
                assert isinstance(vars(there)[method], property), f"{name}.{method}"
            else:
                assert arguments_of_module(vars(there)[method]) == arguments_of_stub(function), f"{name}.{method}"
                compared += 1
    assert compared > 20


def test_one_version():
    cmake = re.search(r"project\(cairn VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    assert cairn.__version__ == _core.version == cmake


def test_every_status_code_has_an_exception():
    header = (ROOT / "include" / "cairn" / "status.h").read_text()
    codes = re.findall(r"^  k(\w+) = \d+,", header, re.M)
    assert len(codes) > 10
    for code in codes:
        if code == "Ok":
            continue
        kind = getattr(errors, f"{code}Error")
        assert issubclass(kind, cairn.Error) and getattr(cairn, kind.__name__) is kind
        assert kind.__name__ in cairn.__all__
        assert str(kind("what happened")) == "what happened"


@pytest.mark.parametrize("kind, python", [
    (errors.InvalidArgumentError, ValueError), (errors.NotFoundError, LookupError),
    (errors.NotFiniteError, ArithmeticError), (errors.DeadlineExceededError, TimeoutError),
    (errors.IoError, OSError), (errors.Error, RuntimeError)])
def test_exceptions_are_pythons_too(kind, python):
    assert issubclass(kind, python)


def test_all_names_exist_and_have_a_docstring():
    for name in cairn.__all__:
        thing = getattr(cairn, name)
        assert inspect.getdoc(thing), f"{name} has no docstring"


def test_the_extension_shows_nothing_but_its_entry():
    names = subprocess.run(["nm", "-D", "--defined-only", _core.__file__], capture_output=True, text=True,
                           check=True).stdout.split("\n")
    shown = [line.split()[-1] for line in names if line]
    assert shown == ["PyInit__core"]


def test_the_extension_needs_nothing_of_torch():
    # Names only: ldd also prints load addresses, and a random address may well contain "c10".
    listing = subprocess.run(["ldd", _core.__file__], capture_output=True, text=True, check=True).stdout
    needed = [line.split()[0] for line in listing.splitlines() if line.strip()]
    assert any("libc.so" in name for name in needed), listing
    assert not [name for name in needed if re.search(r"torch|c10", name)], listing


def test_dir_shows_what_is_public():
    shown = {name for name in dir(cairn) if not name.startswith("__")}
    assert shown == set(cairn.__all__)
    # What people import stays where it is, shown or not.
    from cairn import assign, compat, modes, optimizer, tables  # noqa: F401
    assert cairn.optimizer.DistributedOptimizer is cairn.DistributedOptimizer


def test_a_star_import_brings_what_is_public_and_nothing_else():
    names = {}
    exec("from cairn import *", names)
    assert {name for name in names if not name.startswith("__")} == set(cairn.__all__)


FAILS = """
    import os, sys
    import torch, cairn
    cairn.init()
    model = torch.nn.Linear(2, 1)
    optimizer = cairn.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model)
    table = cairn.nn.Embedding(3, 2)


    def closure():
        raise ValueError("of the user's own")


    def step():
        (model(torch.ones(1, 2)).sum() * torch.nan).backward()
        optimizer.step()


    def verbose_step():
        os.environ["CAIRN_VERBOSE"] = "1"
        step()


    def bug():
        optimizer._steps = None
        optimizer.step()


    for call in (step, lambda: table(torch.tensor([7])), lambda: cairn.dense_table("t", 0),
                 lambda: optimizer.step(closure), verbose_step, bug):
        os.environ.pop("CAIRN_VERBOSE", None)
        try:
            call()
        except Exception:
            sys.excepthook(*sys.exc_info())  # as if nobody had caught it
            print("====", file=sys.stderr, flush=True)
    """


def test_a_traceback_ends_in_the_users_program(job, tmp_path):
    """One that may be a mistake of ours, or of code that we call back, is shown whole."""
    import scripts

    _, text = job.wait(job.python(scripts.write(tmp_path, FAILS)))
    *said, _ = text.split("====\n")
    shown = [re.findall(r'^  File ".*/(.*?)", line', traceback, re.M) for traceback in said]
    ends = ["cairn.NotFiniteError: the gradient of weight is NaN", "IndexError: index out of range",
            'cairn.InvalidArgumentError: table "t" has shape', "ValueError: of the user's own",
            "cairn.NotFiniteError", "AttributeError"]
    assert len(said) == len(ends) and all(t.count("Traceback") == 1 for t in said), text
    assert all(t.splitlines()[-1].startswith(end) for t, end in zip(said, ends)), text
    assert shown[:3] == [["script.py"] * 2] * 3, text
    assert all("optimizer.py" in files for files in shown[3:]), text
