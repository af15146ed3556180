"""Links in the docs lead somewhere: to a file of the project, and to a heading of that page."""
import os
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = {".git", ".venv", "build", ".cache", "node_modules", ".pytest_cache"}


def pages():
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(f for f in folders if f not in SKIPPED)
        found += [pathlib.Path(folder) / name for name in sorted(names) if name.endswith(".md")]
    return found


def without_code(text):
    return re.sub(r"```.*?```", "", text, flags=re.S)


def anchors(page):
    """The names by which a page's headings are linked to, as GitHub makes them."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", without_code(page.read_text(encoding="utf-8")), re.M):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "").strip().lower()
        found.add(re.sub(r"[^\w\- ]", "", shown).replace(" ", "-"))
    return found


def test_links_lead_to_files_and_headings_that_exist():
    problems = []
    for page in pages():
        for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text(encoding="utf-8"))):
            if re.match(r"[a-z]+:", link):
                continue
            name, _, anchor = link.partition("#")
            target = (page.parent / name).resolve() if name else page
            if not target.exists():
                problems.append(f"{page.relative_to(ROOT)}: no file {link}")
            elif anchor and target.suffix == ".md" and anchor not in anchors(target):
                problems.append(f"{page.relative_to(ROOT)}: no heading {link}")
    assert not problems, "\n" + "\n".join(problems)
