"""No import circle among the files of the package, imports inside functions included.

A file that can only be imported after another one, which needs it in turn, can be read, tested and moved only together
with it. Imports under `TYPE_CHECKING` do not count: they are not executed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "constrint"
#: Circles that stand today and are to go: the files of each.
KNOWN: list[set[str]] = []


def module_name(path: Path) -> str:
    """The name under which a file is imported; a package is its `__init__.py`."""
    names = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def executed(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node of a file but those under `if TYPE_CHECKING:`."""
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            stack.extend(node.orelse)
        else:
            stack.extend(ast.iter_child_nodes(node))


def imported(source: str) -> set[str]:
    """The files of the package that some source imports."""
    names: set[str] = set()
    for node in executed(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            for alias in node.names:
                # `from package import name` imports the file `package/name.py` where there is one.
                below = f"{module}.{alias.name}"
                names.add(below if below in MODULES else module)
    return names & MODULES.keys()


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The groups of files that import each other, by Tarjan's algorithm; each group in alphabetical order."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    groups: list[list[str]] = []

    def visit(name: str) -> None:
        number[name] = lowest[name] = len(number)
        path.append(name)
        for other in sorted(edges[name]):
            if other not in number:
                visit(other)
            if other in path:
                lowest[name] = min(lowest[name], lowest[other])
        if lowest[name] == number[name]:
            at = path.index(name)
            group = sorted(path[at:])
            del path[at:]
            if len(group) > 1 or name in edges[name]:
                groups.append(group)

    for name in sorted(edges):
        if name not in number:
            visit(name)
    return groups


def shortest(edges: dict[str, set[str]], group: list[str]) -> list[str]:
    """One circle within a group, as short as possible, for the message."""
    best: list[str] = []
    for start in group:
        queue = [[start]]
        seen: set[str] = set()
        while queue:
            way = queue.pop(0)
            if start in edges[way[-1]]:
                if not best or len(way) < len(best):
                    best = way
                break
            for other in sorted(edges[way[-1]] & set(group) - seen):
                seen.add(other)
                queue.append([*way, other])
    return [*best, best[0]]


def test_no_file_imports_itself_through_others() -> None:
    # A package that imports something compiled from its own folder is no circle.
    edges = {name: imported(path.read_text()) - {name} for name, path in MODULES.items()}
    unknown = [group for group in circles(edges) if set(group) not in KNOWN]
    assert not unknown, "\n".join(" -> ".join(shortest(edges, group)) for group in unknown)


def test_errors_import_nothing_of_the_package() -> None:
    source = (PACKAGE / "errors.py").read_text()
    assert "constrint" not in {
        alias.name.split(".")[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in ([ast.alias(node.module or "")] if isinstance(node, ast.ImportFrom) else node.names)
    }


def test_a_circle_is_named() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"e"}}
    assert circles(edges) == [["a", "b", "c"], ["e"]]
    assert shortest(edges, ["a", "b", "c"]) == ["a", "b", "c", "a"]


def test_imports_inside_functions_count_and_imports_for_types_do_not() -> None:
    source = """
if TYPE_CHECKING:
    from constrint.solve.solution import Solution
def later():
    from constrint.model import expr
    import constrint.errors
"""
    assert imported(source) == {"constrint.model.expr", "constrint.errors"}
