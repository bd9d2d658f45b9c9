"""Who may import whom, read from the source; the table is the one of CONTRIBUTING.md."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "constrint"

#: Part of the package -> (own parts it may import, third-party packages it may import).
ALLOWED: dict[str, tuple[set[str], set[str]]] = {
    "errors": (set(), set()),
    "lazy": (set(), set()),
    "plugins": (set(), set()),
    "frames": (set(), {"pandas", "polars"}),
    "cache": (set(), {"platformdirs"}),
    "hwmodels": (set(), {"numpy", "yaml", "msgspec"}),
    "core": (set(), set()),
    "model": ({"core"}, {"numpy", "msgspec"}),
    "solve": ({"model", "core"}, {"numpy", "ortools", "constraint"}),
    "select": ({"model", "solve", "hwmodels"}, {"numpy", "msgspec"}),
    "choose": ({"model", "solve", "select", "hwmodels", "kernels"}, {"numpy"}),
    "answers": ({"model", "solve", "select", "hwmodels", "tune"}, {"msgspec", "rich"}),
    "export": ({"answers", "solve", "select"}, set()),
    "tune": (
        {"select", "hwmodels"},
        {"numpy", "msgspec", "platformdirs", "sqlalchemy", "torch", "triton", "ray", "optuna"},
    ),
    "kernels.registry": ({"select"}, set()),
    "kernels.resources": ({"model", "select"}, {"msgspec"}),
    "kernels.launch": (
        {"model", "select", "choose", "tune", "hwmodels"},
        {"numpy", "msgspec", "torch", "triton", "cuda"},
    ),
    "kernels.plan": ({"core", "select", "tune"}, {"msgspec", "numpy", "torch", "triton"}),
    "launch": ({"kernels"}, set()),
    "ranking": ({"kernels", "select", "hwmodels"}, set()),
    "tuning": ({"kernels", "tune", "select", "hwmodels"}, set()),
    "tune.__main__": ({"cli"}, set()),
    "kernels.rules": ({"model", "select", "hwmodels"}, {"numpy", "msgspec"}),
    "kernels.choice": ({"model", "solve", "select", "choose", "hwmodels"}, {"numpy", "msgspec", "torch"}),
    "kernels.code": ({"tune", "select", "choose", "hwmodels"}, {"numpy", "torch", "triton", "cuda"}),
    "flashrnn": ({"kernels", "choose", "tune", "hwmodels"}, {"torch"}),
    "nn": ({"kernels"}, {"torch"}),
    "patch": ({"nn", "flashrnn"}, {"torch"}),
    "tune.llm": ({"model", "solve", "select", "hwmodels"}, {"numpy", "msgspec", "openai"}),
    "propose": ({"model", "select", "hwmodels", "tune", "kernels"}, {"numpy", "msgspec", "torch", "triton"}),
    "propose.candidates": (set(), {"torch", "triton"}),
    "report": (
        {"hwmodels", "model", "solve", "select", "tune", "answers", "report"},
        {"numpy", "msgspec", "plotly", "jinja2"},
    ),
    "__main__": ({"cli"}, set()),
    "cli": (
        {"core", "hwmodels", "model", "solve", "select", "answers", "export", "tune", "tuning", "kernels", "flashrnn"}
        | {"choose", "propose", "report", "cli"},
        {"typer", "rich", "msgspec", "numpy", "yaml"},
    ),
}
#: Parts that every part may import, and the package itself.
EVERYWHERE = {"cache", "errors", "frames", "lazy", "plugins", "__init__"}
#: Packages that may only be imported inside a function, except by the code of kernels and layers.
HEAVY = {"torch", "triton", "cuda", "ortools", "constraint", "rich", "scipy", "optuna", "ray", "openai"}
HEAVY |= {"plotly", "jinja2"}
#: Parts whose files may import these at the top.
LOADS_HEAVY = {"kernels.code", "kernels.plan", "flashrnn", "nn", "patch", "propose.candidates"}
#: Parts of `kernels` that no operation owns.
SHARED = ("launch", "resources")
#: Files of an operation that solve spaces, or choose from them.
CHOOSING = ("candidates", "tables", "correction")


def part_of(path: Path) -> str:
    """The part that a file belongs to.

    Of an operation's files those are rules that a `spec.py` loads; whatever else there is runs or launches kernels.
    """
    names = path.relative_to(PACKAGE).with_suffix("").parts
    if names == ("tune", "__main__"):
        return "tune.__main__"
    if names[:3] == ("tune", "search", "llm"):
        return "tune.llm"
    if names[:2] == ("propose", "candidates"):
        return "propose.candidates"
    if names[0] != "kernels":
        return names[0]
    if len(names) == 2:
        return "kernels.registry"
    if names[1:3] == ("launch", "plan"):
        return "kernels.plan"
    if names[1] in SHARED:
        return f"kernels.{names[1]}"
    if names[-1] in CHOOSING:
        return "kernels.choice"
    return "kernels.rules" if path in loaded_by_specs() else "kernels.code"


@cache
def file_of(module: str) -> Path | None:
    """The file of a module of the package, if it is one."""
    base = ROOT.joinpath(*module.split("."))
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


@cache
def loaded_by_specs() -> set[Path]:
    """Files of `kernels` that are executed when a `spec.py` is imported, those files included."""
    reached = {path for path in FILES if path.name == "spec.py" and path.is_relative_to(PACKAGE / "kernels")}
    waiting = list(reached)
    while waiting:
        for module, at_top, _ in imports_of(waiting.pop()):
            path = file_of(module) if at_top else None
            if path is not None and path.is_relative_to(PACKAGE / "kernels") and path not in reached:
                reached.add(path)
                waiting.append(path)
    return reached


@cache
def imports_of(path: Path) -> list[tuple[str, bool, int]]:
    """(imported module, whether at module level, line) for every import but those for type checking."""
    return list(_imports_in(path))


def _imports_in(path: Path) -> Iterator[tuple[str, bool, int]]:
    waiting: list[tuple[ast.AST, bool]] = [(ast.parse(path.read_text()), True)]
    while waiting:
        node, at_top = waiting.pop()
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, at_top, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import; import by full name"
            module = node.module or ""
            for alias in node.names:
                # `from package import name` imports the file `package/name.py` where there is one.
                below = f"{module}.{alias.name}"
                is_file = module.startswith("constrint") and file_of(below) is not None
                yield below if is_file else module, at_top, node.lineno
        elif isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            waiting += [(below, at_top) for below in node.orelse]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting += [(below, False) for below in ast.iter_child_nodes(node)]
        elif not isinstance(node, ast.expr):
            waiting += [(below, at_top) for below in ast.iter_child_nodes(node)]


FILES = sorted(p for p in PACKAGE.rglob("*.py") if p.name != "__init__.py" or p.parent != PACKAGE)
#: Files by the folders that lie in the package, and in its rooms.
FOLDERS: dict[str, list[Path]] = {}
for file in FILES:
    FOLDERS.setdefault("/".join(file.relative_to(PACKAGE).parent.parts[:2]) or "constrint", []).append(file)


@pytest.mark.parametrize("folder", FOLDERS)
def test_imports_follow_the_chain(folder: str) -> None:
    assert not [found for path in FOLDERS[folder] for found in violations(path)]


def violations(path: Path) -> Iterator[str]:
    """Place and mistake of every import of a file that the table does not allow."""
    part = part_of(path)
    own, third_party = ALLOWED[part.removesuffix(".py")]
    base = part.split(".")[0]
    for module, at_top, line in imports_of(path):
        where = f"{path.relative_to(ROOT)}:{line}: {module}"
        top = module.split(".")[0]
        if top == "constrint":
            target = module.split(".")[1] if "." in module else "__init__"
            if target not in {*own, base, *EVERYWHERE}:
                yield f"{where}: {part} may not import {target}"
        elif top in ("hwmodels", "kernels", "flashrnn"):
            yield f"{where}: import constrint.{top} by its full name"
        elif top not in sys.stdlib_module_names:
            # Detecting a device may look for the vendors' libraries, inside a function.
            lazily = third_party | ({"torch", "pynvml"} if path.name == "detection.py" else set())
            if top not in (third_party if at_top else lazily):
                yield f"{where}: {part} may not import {top}"
            if top in HEAVY and at_top and part not in LOADS_HEAVY:
                yield f"{where}: import it inside the function that uses it"


def test_specs_and_choices_load_neither_torch_nor_triton() -> None:
    """Whatever a `spec.py` or `first_choice.py` executes when it is imported, however far away."""
    assert len([path for path in loaded_by_specs() if path.name == "spec.py"]) >= 5
    choosing = {path for path in FILES if path.stem in CHOOSING}
    assert choosing
    for path in loaded_by_specs() | choosing:
        at_top = {module.split(".")[0] for module, is_at_top, _ in imports_of(path) if is_at_top}
        assert not at_top & HEAVY, path


def implementations() -> dict[Path, Path]:
    """Folder of every implementation of an operation -> the operation's folder."""
    specs = (path.parent for path in loaded_by_specs() if path.name == "spec.py")
    return {folder: folder.parent for folder in specs if folder.parent.parent.name == "kernels"}


#: Implementations that are made of others: they multiply by its kernel, or share its instructions, walk or clusters.
#: `cdna` prices the order of tiles by the pointer kernel's model of caches; `wgmma_partial` is `wgmma`'s backward
#: kernel with another exchange.
MADE_OF = {
    "gemm/cdna": {"pointer"},
    "gemm/prepared": {"cuda"},
    "gemm/fp32": {"cuda"},
    "gemm/scaled": {"cuda"},
    "gemm/quantised": {"cuda"},
    "gemm/gated": {"cuda", "pointer"},
    "rnn/wgmma_partial": {"wgmma"},
}


def test_no_implementation_knows_another() -> None:
    folders = implementations()
    assert len(folders) >= 5
    for folder, operation in folders.items():
        made_of = MADE_OF.get(f"{operation.name}/{folder.name}", set())
        others = [other for other in folders if other != folder and other.name not in made_of]
        others += [other for other in set(folders.values()) if other != operation]
        for path in folder.rglob("*.py"):
            for module, _, line in imports_of(path):
                target = file_of(module)
                known = [other for other in others if target is not None and target.is_relative_to(other)]
                assert not known, f"{path.relative_to(ROOT)}:{line}: {module} is of another implementation"


def test_top_level_links_point_into_the_package() -> None:
    for name in ("hwmodels", "kernels", "flashrnn"):
        link = ROOT / name
        if not link.is_symlink():
            pytest.skip(f"{name} is no symbolic link in this checkout (links are not supported here)")
        assert link.resolve() == PACKAGE / name
