"""The rooms of the Python package: which may import which, and that no module imports itself by a detour.
What is imported for type checkers alone counts as well."""
import ast
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "cairn"

# Each with what it may import, besides _core and itself. What stands below may know what stands above.
MAY_IMPORT = {
    "errors": "",
    "modes": "",
    "optim": "",
    "assign": "errors",
    "_runtime": "errors",
    "_tables": "errors optim",
    "_data": "errors _runtime _tables",
    "_allreduce": "errors _runtime _tables",
    "_rows": "errors modes _runtime _tables",
    "tables": "errors modes _runtime _tables",
    "nn": "errors _runtime _tables _rows tables",
    "_train": "errors modes assign _runtime _tables _allreduce _rows",
    "optimizer": "errors modes _runtime _tables _rows _train",
    "data": "errors _runtime _data",
    "metrics": "errors _runtime _data",
    "compat": "errors modes assign _runtime data optimizer",
}
ALONE = {"_core", "__init__"}  # the extension knows no other; what everybody imports knows all


def modules():
    """Their names within the package: a.b; a package's own is a.__init__."""
    return {".".join(path.relative_to(PACKAGE).with_suffix("").parts): path for path in sorted(PACKAGE.rglob("*.py"))}


MODULES = modules()


def imports(name):
    """The modules of the package that a module imports: (line, module)."""
    folder = name.split(".")[:-1]
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.Import):
            found = [alias.name.split(".")[1:] for alias in node.names if alias.name.split(".")[0] == "cairn"]
        elif isinstance(node, ast.ImportFrom) and node.level:
            origin = folder[:len(folder) - node.level + 1] + (node.module.split(".") if node.module else [])
            found = [[*origin, alias.name] for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "cairn":
            found = [[*node.module.split(".")[1:], alias.name] for alias in node.names]
        else:
            continue
        for parts in found:
            yield node.lineno, resolved(parts)


def resolved(parts):
    """The module that a name is, or that it is from."""
    for length in (len(parts), len(parts) - 1):
        whole = ".".join(parts[:length])
        for module in (whole, f"{whole}.__init__" if whole else "__init__"):
            if module in MODULES or module == "_core":
                return module
    raise AssertionError(f"cairn.{'.'.join(parts)} is no module of the package, nor in one")


def room(module):
    return module.split(".")[0]


def report(problems):
    assert not problems, "\n" + "\n".join(problems)


def test_rooms_are_known_and_in_order():
    rooms = list(MAY_IMPORT)
    problems = [f"python/cairn/{name} has no place in MAY_IMPORT" for name in sorted(set(map(room, MODULES)))
                if name not in rooms and name not in ALONE]
    problems += [f"MAY_IMPORT: {name} stands above {other} and may not know it" for name, others in MAY_IMPORT.items()
                 for other in others.split() if rooms.index(other) >= rooms.index(name)]
    report(problems)


def test_rooms_import_only_what_they_may():
    problems, used = [], set()
    for name, path in MODULES.items():
        if room(name) in ALONE:
            continue
        for line, module in imports(name):
            pair = room(name), room(module)
            used.add(pair)
            if pair[0] != pair[1] and pair[1] != "_core" and pair[1] not in MAY_IMPORT[pair[0]].split():
                problems.append(f"{path.relative_to(ROOT)}:{line}: {pair[0]} must not know {pair[1]}")
    problems += [f"MAY_IMPORT: {name} imports nothing of {other}: leave it out" for name, others in MAY_IMPORT.items()
                 for other in others.split() if (name, other) not in used]
    report(problems)


def test_no_module_imports_itself_by_a_detour():
    graph = {name: {module for _, module in imports(name)} & set(MODULES) - {name} for name in MODULES}
    problems, done = [], set()

    def visit(name, path):
        if name in path:
            problems.append(" imports ".join([*path[path.index(name):], name]))
        elif name not in done:
            for other in sorted(graph[name]):
                visit(other, [*path, name])
            done.add(name)

    for name in graph:
        visit(name, [])
    report(problems)
