"""Guards the shape of the tree, so that people need not: layers, rooms, headers, stray tests,
whitespace. CMakeLists.txt is the one place that orders the layers. Run by ctest, or with pytest."""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CAIRN_BIN", ROOT / "build" / "dev" / "bin")).parent
# Rooms of a layer, in the order in which they may include each other.
ROOMS = {
    "table": ["memory", "sparse", "dense"],
    "scheduler": ["rules", "placement", "metastore", "core", "node"],
    "server": ["slots", "replication", "pull", "push", "round", "shard", "control", "node"],
    "client": ["partition", "links", "protocol", "cache", "runtime", "api"],
}
WITHOUT_HEADER = {"src/transport/tcp/asio.cc"}  # compiles a library's own code
ROLES = {"scheduler", "server", "client"}
SKIPPED = {".git", ".venv", "build", ".cache", "__pycache__", ".pytest_cache"}
CODE = {".h", ".cc", ".py", ".sh", ".inc", ".cmake", ".fbs"}
TEXT = CODE | {".md", ".txt", ".json"}


def tree():
    """Every file of the project, relative to its root."""
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(f for f in folders if f not in SKIPPED)
        found += [(pathlib.Path(folder) / name).relative_to(ROOT) for name in sorted(names)]
    return found


FILES = tree()


def is_script(path):
    return path.parent in (pathlib.Path("script"), pathlib.Path(".ci")) and not path.suffix


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def layers():
    return re.findall(r"^cairn_layer\((\w+)\)", read("CMakeLists.txt"), re.M)


def includes(path):
    return re.findall(r'^\s*#\s*include\s+"([^"]+)"', read(path), re.M)


def report(problems):
    assert not problems, "\n" + "\n".join(problems)


def test_layers_include_only_downwards():
    order = layers()
    assert len(order) > 5
    problems = []
    for path in FILES:
        if path.parts[0] != "src" or path.suffix not in {".h", ".cc"}:
            continue
        layer = path.parts[1]
        if layer not in order:
            problems.append(f"{path}: src/{layer} is no layer of CMakeLists.txt")
            continue
        for include in includes(path):
            other = include.split("/")[0]
            if other not in order or other == layer:
                continue
            if order.index(other) > order.index(layer):
                problems.append(f"{path}: {layer} is below {other} and must not include {include}")
            elif {layer, other} <= ROLES:
                problems.append(f"{path}: the roles {layer} and {other} must not know each other ({include})")
    report(problems)


def test_public_headers_and_examples_use_only_the_public_api():
    problems = []
    for path in FILES:
        if path.suffix not in {".h", ".cc"} or path.parts[0] not in {"include", "examples"}:
            continue
        for include in includes(path):
            if not include.startswith("cairn/") and not (ROOT / path.parent / include).exists():
                problems.append(f"{path}: includes {include}, which users do not have")
    report(problems)


def test_every_source_has_its_header_beside_it():
    """What a .cc has is declared in the header of its name: no header is implemented in several files, and nobody
    has to search."""
    problems = []
    for path in FILES:
        if path.parts[0] != "src" or path.suffix != ".cc" or path.stem.endswith("_test"):
            continue
        public = ROOT / "include" / "cairn" / f"{path.stem}.h"
        if path.with_suffix(".h") not in FILES and not public.exists() and path.as_posix() not in WITHOUT_HEADER:
            problems.append(f"{path}: no {path.stem}.h beside it or in include/cairn")
    report(problems)


def test_planted_bugs_name_rules_that_are_there():
    rules = re.findall(r"^(\d+)\. \*\*", read("docs/internals/consistency.md"), re.M)
    bugs = re.findall(r'^CAIRN_PLANTED\((\w+), "(\d[^"]*)"', read("src/base/planted_bugs.inc"), re.M)
    assert bugs
    report([f"{bug}: consistency.md has no rule {rule}" for bug, rule in bugs if rule not in rules])


def room(path):
    """The folder that a file of src lies in, without its layer. At the layer's top: empty."""
    return "/".join(path.parts[2:-1])


def test_rooms_include_only_downwards():
    """Within a layer: a room includes the rooms that stand before it in ROOMS, and itself. What lies at the top of a
    layer is for all its rooms, and may know them; tests may include all."""
    problems = []
    for path in FILES:
        if path.parts[0] != "src" or path.suffix not in {".h", ".cc"} or path.parts[1] not in ROOMS:
            continue
        if re.search(r"_(test|testing|harness)\.|fake_cluster", path.name):
            continue
        order = ROOMS[path.parts[1]]
        if not room(path):
            continue
        if room(path) not in order:
            problems.append(f"{path}: ROOMS in this test does not know {room(path)}")
            continue
        for include in includes(path):
            other = pathlib.PurePosixPath("src") / include
            if other.parts[1] != path.parts[1] or room(other) not in order:
                continue
            if order.index(room(other)) > order.index(room(path)):
                problems.append(f"{path}: {room(path)} must not know {room(other)} ({include})")
    report(problems)


def test_mutexes_are_those_that_clang_can_follow():
    """base/mutex.h: what it guards is checked by script/check --only clang. The standard library's own are not."""
    unchecked = re.compile(r"\bstd::((\w+_)*mutex|condition_variable\w*|lock_guard|unique_lock|scoped_lock|shared_lock)\b")
    problems = []
    for path in FILES:
        if path.suffix not in {".h", ".cc", ".inc"} or path == pathlib.Path("src/base/mutex.h"):
            continue
        problems += [f"{path}:{number}: {found[0]}: use Mutex, MutexLock and Condition of base/mutex.h"
                     for number, line in enumerate(read(path).split("\n"), 1) if (found := unchecked.search(line))]
    report(problems)


def test_names_say_what_a_file_is_about():
    vague = re.compile(r"(^|[_-])(utils?|common|helpers?|manager|misc|wrapper)([_.-]|$)")
    report([f"{path}: the name says nothing" for path in FILES if vague.search(path.name)])


def test_whitespace():
    problems = []
    for path in FILES:
        if path.suffix not in TEXT and not is_script(path) or path.is_relative_to("tests/golden"):
            continue
        text = read(path)
        for number, line in enumerate(text.split("\n"), 1):
            if "\t" in line:
                problems.append(f"{path}:{number}: a tab")
            if line != line.rstrip():
                problems.append(f"{path}:{number}: spaces at the end of the line")
        if text and not text.endswith("\n"):
            problems.append(f"{path}: no newline at the end")
    report(problems)


def test_scripts_are_executable_and_explain_themselves():
    problems = []
    for path in filter(is_script, FILES):
        if not os.access(ROOT / path, os.X_OK):
            problems.append(f"{path}: not executable")
        if not read(path).startswith("#!/bin/sh\n# "):
            problems.append(f"{path}: no comment after #!/bin/sh that is its help")
        if path.parts[0] == "script":
            shown = subprocess.run([ROOT / path, "--help"], capture_output=True, text=True, timeout=30)
            if shown.returncode != 0 or not shown.stdout.startswith(f"script/{path.name}"):
                problems.append(f"{path}: --help shows no help")
    report(problems)


def compiled():
    path = BUILD / "compile_commands.json"
    if not path.exists():
        pytest.skip(f"no {path}: build first")
    return json.loads(path.read_text())


def test_every_test_is_built_and_run():
    built = {pathlib.Path(entry["file"]) for entry in compiled()}
    for together in [path for path in built if path.parent.name == "Unity"]:
        built |= {pathlib.Path(name) for name in re.findall(r'#include "([^"]+)"', together.read_text())}
    cmake = read("tests/CMakeLists.txt")
    python_folders = set(re.findall(r"^\s*cairn_python_tests\((\w+)", cmake, re.M))
    problems = []
    for path in FILES:
        if path.name.endswith("_test.cc"):
            if path.parts[0] not in {"src", "tests"}:
                problems.append(f"{path}: tests lie beside their code in src/, or in tests/")
            elif ROOT / path not in built:
                problems.append(f"{path}: no target builds it")
        if re.fullmatch(r"test_\w+\.py|\w+_test\.py", path.name):
            known = path.parts[0] == "tests" and path.parts[1] in python_folders or path.parts[:2] == ("python", "tests")
            if not known or len(path.parts) != 3 or not path.name.startswith("test_"):
                problems.append(f"{path}: ctest does not run it (tests/CMakeLists.txt, python/CMakeLists.txt)")
    report(problems)


def is_first_in_its_source(path):
    """Its own .cc includes it before anything else: builds without precompiled headers, as script/check makes
    them, show that it stands alone."""
    source = ROOT / path.with_suffix(".cc")
    first = source.exists() and re.search(r'^\s*#\s*include\s+["<]([^">]+)[">]', source.read_text(), re.M)
    return bool(first) and (first[1] == path.name or path.as_posix().endswith("/" + first[1]))


def test_headers_compile_alone():
    """Headers of src that are the first of their .cc, behind the precompiled headers of the standard library,
    as they are built here (many files as one, so that this build itself shows nothing); others from nothing."""
    base = "CMakeFiles/cairn_base.dir"
    some = next(e for e in compiled() if base in (e.get("output") or e["command"]))
    words = some.get("arguments") or some["command"].split()
    compiler = next(word for word in words if "ccache" not in word)
    flags = [w for w in words if re.match(r"-(I|D|std|f(?!sanitize))", w)] + [f"-I{ROOT / 'tools'}"]
    flags += [w for at, word in enumerate(words) if word == "-isystem" for w in words[at:at + 2]]
    precompiled = BUILD / base / "cmake_pch.hxx"
    behind = [w for w in words if re.match(r"-[Og]", w)] + ["-include", str(precompiled)]

    def check(path):
        shown = path.parts[:2] != ("tools", "cairn") and is_first_in_its_source(path)
        if shown and not precompiled.exists():
            return ""  # by this very build
        # The simulator is built with the planted bugs.
        planted = ["-DCAIRN_WITH_PLANTED_BUGS"] if "cairn-sim" in path.parts else []
        done = subprocess.run([compiler, *flags, *planted, *(behind if shown else []), f"-I{ROOT / path.parent}", "-fsyntax-only",
                               "-x", "c++", "-"], input=f'#include "{ROOT / path}"\n', capture_output=True, text=True)
        return "" if done.returncode == 0 else f"{path}: does not compile alone\n{done.stderr[:1000]}"

    headers = [p for p in FILES if p.suffix == ".h" and p.parts[0] in {"include", "src", "tools"}]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        report([problem for problem in pool.map(check, headers) if problem])
