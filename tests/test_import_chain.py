"""Who may import whom, read from the source; the table is the one of CONTRIBUTING.md."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "constrint"

#: Part of the package -> (own parts it may import, third-party packages it may import).
ALLOWED: dict[str, tuple[set[str], set[str]]] = {
    "errors": (set(), set()),
    "hwmodels": (set(), {"numpy", "yaml", "msgspec"}),
    "core": (set(), set()),
    "model": ({"core"}, {"numpy", "msgspec"}),
    "solve": ({"model", "core"}, {"numpy", "ortools", "constraint"}),
    "select": ({"model", "solve", "hwmodels"}, {"numpy"}),
    "tune": ({"select", "hwmodels"}, {"numpy", "msgspec", "platformdirs", "torch", "triton"}),
    "kernels.registry": ({"select"}, set()),
    "kernels.spec": ({"model", "select", "hwmodels"}, {"numpy"}),
    "kernels.resources": ({"model", "select", "hwmodels"}, {"numpy", "msgspec", "scipy", "triton"}),
    "kernels.sample": ({"kernels", "solve", "select", "model", "hwmodels"}, set()),
    "kernels.choose": ({"kernels", "solve", "select", "model", "hwmodels"}, {"numpy"}),
    "kernels.code": ({"kernels", "tune", "select", "hwmodels"}, {"numpy", "torch", "triton", "cuda"}),
    "flashrnn": ({"kernels", "tune", "hwmodels"}, {"torch"}),
    "cli": (
        {"hwmodels", "model", "solve", "select", "tune", "kernels", "flashrnn", "cli"},
        {"typer", "rich", "msgspec", "numpy"},
    ),
}
#: Packages that may only be imported inside a function, except by the code of kernels and layers.
HEAVY = {"torch", "triton", "cuda", "ortools", "constraint", "rich", "scipy"}
#: Modules of an operation folder that hold device code.
KERNEL_CODE = ("kernel_", "op", "reference", "build", "launch", "dispatch", "pack", "alignment")


def part_of(path: Path) -> str:
    names = path.relative_to(PACKAGE).with_suffix("").parts
    if names[0] != "kernels":
        return names[0]
    if len(names) == 2:
        return "kernels.registry"
    if names[1] == "resources":
        return "kernels.resources"
    if names[-1] in ("choose", "sample"):
        return f"kernels.{names[-1]}"
    return "kernels.code" if names[-1].startswith(KERNEL_CODE) else "kernels.spec"


def imports_of(path: Path) -> Iterator[tuple[str, bool, int]]:
    """(imported module, whether at module level, line) for every import but those for type checking."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }
    in_function = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) not in in_function, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import; import by full name"
            yield node.module or "", id(node) not in in_function, node.lineno


def standard_library() -> set[str]:
    import sys

    return set(sys.stdlib_module_names)


FILES = sorted(p for p in PACKAGE.rglob("*.py") if p.name != "__init__.py" or p.parent != PACKAGE)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_follow_the_chain(path: Path) -> None:
    part = part_of(path)
    own, third_party = ALLOWED[part.removesuffix(".py")]
    base = part.split(".")[0]
    for module, at_top, line in imports_of(path):
        where = f"{path.relative_to(ROOT)}:{line}: {module}"
        top = module.split(".")[0]
        if top == "constrint":
            target = module.split(".")[1] if "." in module else "__init__"
            assert target in {*own, base, "errors", "__init__"}, f"{where}: {part} may not import {target}"
        elif top in ("hwmodels", "kernels", "flashrnn"):
            pytest.fail(f"{where}: import constrint.{top} by its full name")
        elif top not in standard_library():
            # Detecting a device may look for the vendors' libraries, inside a function.
            lazily = third_party | ({"torch", "pynvml"} if path.name == "detect.py" else set())
            assert top in (third_party if at_top else lazily), f"{where}: {part} may not import {top}"
            if top in HEAVY and part not in ("kernels.code", "flashrnn"):
                assert not at_top, f"{where}: import it inside the function that uses it"


def test_spec_files_never_reach_torch_or_triton() -> None:
    specs = [p for p in FILES if p.name == "spec.py" and p.parent.parent.name == "kernels"]
    assert specs
    for path in specs:
        assert not {m.split(".")[0] for m, _, _ in imports_of(path)} & {"torch", "triton"}


def test_top_level_links_point_into_the_package() -> None:
    for name in ("hwmodels", "kernels", "flashrnn"):
        link = ROOT / name
        if not link.is_symlink():
            pytest.skip(f"{name} is no symbolic link in this checkout (links are not supported here)")
        assert link.resolve() == PACKAGE / name
