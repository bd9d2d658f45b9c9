"""Words of the package: a class name stands for one class, and docstrings begin with what the thing does.

Both rules have exceptions from before they were written. Their lists shrink: they are there to be emptied, and nothing
is added to them.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "constrint"
#: Class names that stand for several classes, and how many: left to rename.
SHARED_NAMES: dict[str, int] = {}
#: Docstrings that begin with "What" or "Of", by folder: left to reword.
RIDDLES = {
    "tune": 1,
}
#: Docstrings that say "so many", by folder: left to reword.
SO_MANY: dict[str, int] = {}
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@cache
def nodes() -> list[tuple[Path, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every module, class and function of the package, with its file."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found += [(path, node) for node in ast.walk(tree) if isinstance(node, DOCUMENTED)]
    return found


def docstrings() -> Iterator[tuple[Path, int, str]]:
    """File, line and text of every docstring."""
    for path, node in nodes():
        if text := ast.get_docstring(node):
            yield path, node.body[0].lineno, text


def folder_of(path: Path) -> str:
    """The folder of a file, two levels deep under `kernels`; `.` for the package's own files."""
    folders = path.relative_to(PACKAGE).parts[:-1]
    return "/".join(folders[: 2 if folders[:1] == ("kernels",) else 1]) or "."


def assert_within(allowed: dict[str, int], found: list[tuple[Path, int, str]]) -> None:
    """No folder has more of them than it is allowed; the error lists what is found there, and the list as it is now."""
    counts = Counter(folder_of(path) for path, _, _ in found)
    over = {folder for folder, number in counts.items() if number > allowed.get(folder, 0)}
    lines = [f"{path}:{line}: {text.splitlines()[0]}" for path, line, text in found if folder_of(path) in over]
    assert not over, "\n".join([*lines, f"now: {dict(sorted(counts.items()))}"])


def test_a_class_name_is_used_once() -> None:
    where: dict[str, list[str]] = {}
    for path, node in nodes():
        if isinstance(node, ast.ClassDef):
            where.setdefault(node.name, []).append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    over = {name: places for name, places in where.items() if len(places) > SHARED_NAMES.get(name, 1)}
    assert not over


def test_no_docstring_begins_with_what_or_of() -> None:
    assert_within(RIDDLES, [found for found in docstrings() if found[2].split(maxsplit=1)[0] in ("What", "Of")])


def test_no_docstring_says_so_many() -> None:
    assert_within(SO_MANY, [found for found in docstrings() if "so many" in " ".join(found[2].lower().split())])
