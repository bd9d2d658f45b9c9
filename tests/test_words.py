"""Words of the package: a class name stands for one class, and docstrings begin with what the thing does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "constrint"
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


def test_a_class_name_is_used_once() -> None:
    where: dict[str, list[str]] = {}
    for path, node in nodes():
        if isinstance(node, ast.ClassDef):
            where.setdefault(node.name, []).append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    over = {name: places for name, places in where.items() if len(places) > 1}
    assert not over


def test_no_docstring_begins_with_what_or_of() -> None:
    assert not [found for found in docstrings() if found[2].split(maxsplit=1)[0] in ("What", "Of")]


def test_no_docstring_says_so_many() -> None:
    assert not [found for found in docstrings() if "so many" in " ".join(found[2].lower().split())]
