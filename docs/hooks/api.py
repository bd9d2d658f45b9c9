"""Pages of the Python reference: `__all__` or a stub names what is public; mkdocstrings reads the docstrings."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Packages whose names are documented, each on a page, and the page's first line.
PACKAGES = {
    "constrint.model": "State a problem: variables, conditions with reasons, objectives, and the text language.",
    "constrint.model.python.restrictions": "Read parameters with restrictions in Python's syntax.",
    "constrint.solve": "Solve, count, list and sample a problem, and explain why it has no solution.",
    "constrint.hwmodels": "Look up what a GPU has: limits, caches, rates, occupancy, the roofline.",
    "constrint.choose.explain": "Ask which program runs a product, a layer or a kernel, and why.",
    "constrint.choose.decision": "Read a decision: its program, launches, times, evidence, and what was passed over.",
    "constrint.select": "Rank the configurations of a kernel on a GPU; describe a kernel of your own.",
    "constrint.ranking": "Rank by plain names: a kernel, a GPU, sizes.",
    "constrint.kernels.registry": "Find kernels by name, and make yours known.",
    "constrint.kernels.gemm": "Multiply matrices by the kernel that the model picks.",
    "constrint.kernels.launch": "Describe and launch Triton kernels.",
    "constrint.kernels.launch.autotune": "Let a decorator choose the configuration of a Triton kernel.",
    "constrint.kernels.launch.pruning": "Prune the list of `triton.autotune`, and rank it.",
    "constrint.kernels.launch.cuda": "Describe, compile and launch kernels in CUDA C++, and those of Kernel Tuner.",
    "constrint.flashrnn": "Use recurrent layers in place of torch's, and see which kernel runs.",
    "constrint.launch": "Prepare cheap repeated launches of your own kernel.",
    "constrint.tune": "Compile a Triton kernel for a GPU that you do not have.",
    "constrint.tuning": "Tune from a program.",
    "constrint.answers": "Read and print results: tables, pages and formats of your own.",
    "constrint.export": "Write a ranking or a space for another tool.",
    "constrint.report": "Gather the facts about a kernel on GPUs, and draw them as one page.",
    "constrint.cache": "Set the folder of stored decisions and compiled kernels.",
    "constrint.errors": "Catch the errors that constrint raises on purpose.",
}


def pages() -> Iterator[tuple[str, str]]:
    """Each page's path and its text."""
    rows = [f"| [`{package}`]({package}.md) | {purpose} |" for package, purpose in PACKAGES.items()]
    # `constrint.solve` is a package, which is called like its function.
    names = ", ".join(f"[`{name}`][constrint.{name}]" for name in _public("constrint") if name != "solve")
    yield (
        "reference/api/index.md",
        "# Python reference\n\nHere you can look up every public name. The pages are made of the docstrings.\n\n"
        "| package | what you do with it |\n|---|---|\n" + "\n".join(rows) + "\n\n## Names of `constrint` itself\n\n"
        f"These can be imported from `constrint` directly: {names}.\n",
    )
    for package, purpose in PACKAGES.items():
        blocks = "\n\n".join(f"::: {package}.{name}" for name in _public(package))
        yield f"reference/api/{package}.md", f"# {package}\n\n{purpose}\n\n{blocks}\n"


def nav() -> list[str | dict[str, str]]:
    """The pages as MkDocs' navigation has them."""
    return ["reference/api/index.md", *({package: f"reference/api/{package}.md"} for package in PACKAGES)]


def _public(package: str) -> list[str]:
    """The names of `__all__`, or of the stub beside it; without either the functions and classes without `_`."""
    path = ROOT.joinpath(*package.split("."))
    stub = path / "__init__.pyi"
    if stub.is_file():
        lines = ast.parse(stub.read_text(encoding="utf-8")).body
        imports = (node for node in lines if isinstance(node, ast.ImportFrom))
        return sorted((alias.asname or alias.name for node in imports for alias in node.names), key=str.lower)
    tree = ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return sorted(ast.literal_eval(node.value), key=str.lower)
    defined = (node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef)))
    return [name for name in defined if not name.startswith("_")]
