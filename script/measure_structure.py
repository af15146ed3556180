"""How a checkout is cut into files and classes, as a Markdown table: script/measure-structure.

The numbers are rough, and counted in the same way for every checkout:

- Classes: definitions of classes and structs in src, include and tools, without tests, by regular
  expressions. A method is a declaration with parentheses, defined there or not; constructors and operators
  count, deleted and defaulted functions don't. A member is any other declaration, except for types, aliases,
  friends and static constants.
- Files on a way: the sources that the section of architecture.md about it links to. x.h and x.cc count as
  one. People wrote that page by following the code, so this is a count by hand.
- Modules of a hybrid step: the modules of the package in which a function runs during the fourth step, from
  zero_grad() to the end of step(), on worker 0 of 2. sys.setprofile sees the training loop's thread only.
- Sources without a header: x.cc in src without an x.h beside it or in include/cairn. Tests don't count.
- Repeated code: lines of a run of at least 6 lines that is there twice or more. Comments, empty lines,
  includes, imports and lines without a letter don't count, tests neither. Names are compared as they are.
- Words: of all Markdown files but the recorded runs.
"""
import argparse
import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
RUN = 6  # lines that must be equal, one after the other, to count as repeated
ROLES = ("scheduler", "server", "client")
WAYS = {  # what the table calls it: the title of its section of architecture.md
    "a push, dense or sparse": "The life of a push",
    "a pull": "The life of a pull",
    "a failover": "The life of a failover",
}
TEST = re.compile(r"_test\.cc$|_testing\.h$|_harness\.h$|fake_cluster\.|(^|/)tests?/|golden")


# ---- files

def sources(checkout, folders, endings):
    found = []
    for folder in folders:
        for path in sorted((checkout / folder).rglob("*")):
            name = path.relative_to(checkout).as_posix()
            if path.suffix in endings and path.is_file() and not TEST.search(name):
                found.append(path)
    return found


def without_comments(text):
    """C++ without comments, strings and preprocessor lines: what braces and semicolons are left is code."""
    pattern = r'//[^\n]*|/\*.*?\*/|R"\((?:.*?)\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\''
    text = re.sub(pattern, lambda found: '""' if found[0][0] in '"R' else "0" if found[0][0] == "'" else " ",
                  text, flags=re.S)
    return re.sub(r"^\s*#(?:[^\n]*\\\n)*[^\n]*", "", text, flags=re.M)


# ---- classes

TYPE = re.compile(r"(?:using|typedef|friend|enum|class|struct|union|static_assert"
                  r"|template\s*<[^>]*>\s*(?:class|struct))\b")
CLASS = re.compile(r"\b(?:class|struct)\s+(?:alignas\([^)]*\)\s*|\[\[[^]]*\]\]\s*)*([A-Za-z_]\w*)"
                   r"(?:\s+final)?\s*(?::\s*[^;{}()]*)?\{")


def closing(text, at):
    """The place of the brace that closes the one at `at`."""
    depth = 0
    for found in re.finditer(r"[{}]", text[at:]):
        depth += 1 if found[0] == "{" else -1
        if depth == 0:
            return at + found.start()
    return len(text)


def declarations(body):
    """The declarations of a class, each as text in which what stands in braces is {}."""
    body = re.sub(r"\b(?:public|private|protected)\s*:(?!:)", "", body)
    found, current, at = [], "", 0
    for stop in re.finditer(r"[{;]", body):
        if stop.start() < at:
            continue  # in braces
        current += body[at:stop.start()]
        at = stop.end()
        if stop[0] == "{":
            current += "{}"
            at = closing(body, stop.start()) + 1
            initialises = re.search(r"=\s*\{\}$", current) or re.match(r"\s*[,{;(]", body[at:])
            if initialises or ")" not in current:
                continue  # a value, a type: the semicolon is still to come
        found.append(" ".join(current.split()))
        current = ""
    return [declared for declared in found if declared]


def count_class(body):
    """(methods, members)"""
    methods = members = 0
    for declared in declarations(body):
        if TYPE.match(declared) and not re.search(r"\}\s*\w+", declared):
            continue
        if re.search(r"=\s*(?:delete|default)$", declared):
            continue
        plain = re.sub(r"\b(?:alignas|CAIRN_\w+|noexcept|decltype|explicit)\s*\([^()]*\)", "", declared)
        while (shorter := re.sub(r"<[^<>]*>", "", plain)) != plain:
            plain = shorter
        head = re.split(r"(?<![=!<>])=(?!=)", plain)[0] if "operator" not in plain else plain
        if "(" in head.split("{}")[0]:
            methods += 1
        elif not re.match(r"static\s+constexpr\b", declared):
            members += 1 + re.sub(r"\([^()]*\)", "", plain).count(",")
    return methods, members


def classes(checkout):
    """(methods, members, name, file), the largest first."""
    found = []
    for path in sources(checkout, ("src", "include", "tools"), {".h", ".cc"}):
        text = without_comments(path.read_text(encoding="utf-8"))
        for match in CLASS.finditer(text):
            brace = match.end() - 1
            methods, members = count_class(text[brace + 1:closing(text, brace)])
            if methods:
                found.append((methods, members, match[1], path.relative_to(checkout).as_posix()))
    return sorted(found, key=lambda each: (-each[0] - each[1], each[2]))


# ---- ways through the code

def architecture_page(checkout):
    pages = ("docs/internals/architecture.md", "docs/architecture.md")
    return next(page for page in pages if (checkout / page).exists())


def files_of_way(checkout, title):
    page = checkout / architecture_page(checkout)
    text = page.read_text(encoding="utf-8")
    section = re.search(rf"^## {re.escape(title)}.*?(?=^## |\Z)", text, re.M | re.S)
    files = set()
    for target in re.findall(r"\]\(([^)#]+)", section[0] if section else ""):
        path = pathlib.Path(os.path.normpath(page.parent / target))
        name = path.relative_to(checkout).as_posix() if path.is_relative_to(checkout) else ""
        if re.match(r"(?:src|include)/.*\.(?:h|cc)$", name):
            files.add(name.rsplit(".", 1)[0])
    return files


def profile_hybrid_step(out):
    """A worker of `cairn run`: writes the modules of its fourth step to `out`."""
    import torch

    import cairn

    cairn.init()
    model = torch.nn.Module()
    model.table, model.mlp = cairn.nn.Embedding(1000, 4), torch.nn.Linear(4, 1)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    cairn.assign(model, "auto")
    optimizer = cairn.DistributedOptimizer(optimizer, model, mode=cairn.Sync())
    ids = torch.arange(8) + cairn.rank()
    package = os.path.dirname(cairn.__file__) + os.sep
    modules = set()

    def note(frame, event, argument):
        name = frame.f_code.co_filename
        if name.startswith(package):
            modules.add(name[len(package):])

    for step in range(4):
        if step == 3:
            sys.setprofile(note)
        optimizer.zero_grad()
        model.mlp(model.table(ids)).mean().backward()
        optimizer.step()
    sys.setprofile(None)
    if cairn.rank() == 0:
        pathlib.Path(out).write_text("\n".join(sorted(modules)) + "\n", encoding="utf-8")


def modules_of_hybrid_step(checkout):
    """None: it can't be run."""
    built = ROOT / "build" / "dev"
    extension = next((built / "python" / "cairn").glob("_core*.so"), None)
    if extension is None or not (checkout / "python" / "cairn").exists():
        return None
    with tempfile.TemporaryDirectory() as folder:
        package, out = pathlib.Path(folder) / "cairn", pathlib.Path(folder) / "modules"
        package.mkdir()
        for entry in (checkout / "python" / "cairn").iterdir():
            (package / entry.name).symlink_to(entry)
        own = next((checkout / "build" / "dev" / "python" / "cairn").glob("_core*.so"), extension)
        (package / own.name).symlink_to(own)
        environment = {**os.environ, "PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1",
                       "CAIRN_PYTHON": str(ROOT / ".venv" / "bin" / "python")}
        done = subprocess.run([built / "bin" / "cairn", "run", "--no-logs", "-s", "1", "-w", "2", __file__,
                               "--profile-hybrid-step", out], env=environment, capture_output=True, text=True)
        if not out.exists():
            print(f"{checkout}: no hybrid step\n{done.stdout[-2000:]}{done.stderr[-2000:]}", file=sys.stderr)
            return None
        return out.read_text(encoding="utf-8").split()


# ---- headers, repetition, words

def without_header(checkout, layers=None):
    """(those without, all)"""
    alone = [path for path in sources(checkout, ("src",), {".cc"})
             if layers is None or path.relative_to(checkout).parts[1] in layers]
    missing = [path for path in alone if not path.with_suffix(".h").exists()
               and not (checkout / "include" / "cairn" / f"{path.stem}.h").exists()]
    return len(missing), len(alone)


def code_lines(path):
    """(number, line without spaces at its ends) of what counts."""
    python = path.suffix == ".py"
    comment = "#" if python else "//"
    skipped = r"(?:import|from)\b" if python else r"#\s*include\b|using\b|namespace\b"
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        line = " ".join(re.split(rf"\s{comment}|^{comment}", line)[0].split())
        if re.search(r"[A-Za-z]", line) and not re.match(skipped, line):
            yield number, line


def repeated(checkout):
    """(lines that are part of a repeated run, all lines, places by run)"""
    folders = ("src", "include", "tools", "python/bindings", "python/cairn")
    lines = {path: list(code_lines(path)) for path in sources(checkout, folders, {".h", ".cc", ".py"})}
    runs = collections.defaultdict(list)
    for path, found in lines.items():
        for at in range(len(found) - RUN + 1):
            runs[tuple(text for _, text in found[at:at + RUN])].append((path, at))
    repetitions = [found for found in runs.values() if len(found) > 1]
    marked = {(path, at + i) for found in repetitions for path, at in found for i in range(RUN)}
    places = [[f"{path.relative_to(checkout)}:{lines[path][at][0]}" for path, at in found]
              for found in repetitions]
    return len(marked), sum(map(len, lines.values())), places


def words(checkout, names=None):
    total = 0
    for path in checkout.rglob("*.md"):
        name = path.relative_to(checkout).as_posix()
        skipped = re.match(r"(?:build|\.)", name) or name.endswith("recorded-runs.md")
        if not skipped and (names is None or re.match(names, name)):
            total += len(path.read_text(encoding="utf-8").split())
    return total


# ---- the table

def commit_of(checkout):
    done = subprocess.run(["git", "-C", checkout, "log", "-1", "--format=%h"], capture_output=True, text=True)
    return done.stdout.strip() or checkout.name


def rows_of(checkout, options):
    largest = classes(checkout)
    text = {"methods + members, largest classes": ""}
    for place, (methods, members, name, _) in enumerate(largest[:options.classes], 1):
        text[f"… {place}."] = f"`{name}` {methods} + {members}"
    text["classes with more than 40 of both"] = str(sum(a + b > 40 for a, b, _, _ in largest))
    for way, title in WAYS.items():
        text[f"files: {way}"] = str(len(files_of_way(checkout, title)) or "not written down")
    if options.hybrid:
        modules = modules_of_hybrid_step(checkout)
        text["modules: a hybrid step"] = "not measured" if modules is None else str(len(modules))
    text["`.cc` without header, roles"] = "{} of {}".format(*without_header(checkout, ROLES))
    text["`.cc` without header, `src`"] = "{} of {}".format(*without_header(checkout))
    marked, lines, places = repeated(checkout)
    text["repeated lines of code"] = f"{marked} of {lines}"
    text["words: README"] = str(words(checkout, r"README\.md"))
    text["words: all docs"] = str(words(checkout))
    if options.repeated:
        for each in sorted(places):
            print(f"{commit_of(checkout)}: {'  '.join(each)}", file=sys.stderr)
    return text


def main():
    parser = argparse.ArgumentParser(prog="script/measure-structure")
    parser.add_argument("checkouts", nargs="*", type=pathlib.Path, metavar="CHECKOUT")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--hybrid", action="store_true")
    parser.add_argument("--repeated", action="store_true")
    parser.add_argument("--profile-hybrid-step", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.profile_hybrid_step:
        return profile_hybrid_step(options.profile_hybrid_step)
    checkouts = [path.resolve() for path in options.checkouts] or [ROOT]
    columns = [rows_of(checkout, options) for checkout in checkouts]
    print("| | " + " | ".join(commit_of(checkout) for checkout in checkouts) + " |")
    print("|---" * (len(checkouts) + 1) + "|")
    for row in columns[0]:
        print(f"| {row} | " + " | ".join(column.get(row, "") for column in columns) + " |")
    return None


if __name__ == "__main__":
    main()
