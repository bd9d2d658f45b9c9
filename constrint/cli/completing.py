"""The words of options that few commands have, for completion: columns, searches, engines, tasks, kernels of a file.

As in `completion`, nothing is asked, ranked or run: names come from registries, tables of names, and text of files.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import typer

from constrint.cli.completion import MAX_PROBLEM_BYTES, Words, begun, parameters_of, typed_gpu

#: What stands for the parameters of the typed kernel.
PARAMETERS: Final = "*"
#: Full names by the words of the command, in their order. A command that is not here states them in its `COLUMNS`.
_NAMES: Final[dict[str, str]] = {
    "solve": "place kernel * threads_per_block smem_bytes_per_block registers_per_thread registers_error_percent "
    "spill_chance spill_bytes blocks_per_sm limited_by predicted_s op_per_s bytes_per_s roofline_share bound_by "
    "num_variants figures problem",
    "compare": "gpu target sm_count kernel * predicted_s op_per_s bytes_per_s speed roofline_share bound_by "
    "registers_per_thread spill_chance smem_bytes_per_block blocks_per_sm occupancy limited_by num_valid refusal",
    "explain": "kernel name rule kind removes_alone removes_only because prunes",
    "sample": "kernel *",
    "verify": "place place_modelled kernel * smem_bytes_per_block modelled_smem_bytes_per_block registers_per_thread "
    "modelled_registers_per_thread spill_bytes_per_thread modelled_spill_chance blocks_per_sm modelled_blocks_per_sm "
    "predicted_s modelled_s instruction problem",
    "kernels": "kernel operation num_nvidia_gpus num_amd_gpus dtypes sizes options summary",
    "occupancy": "limit blocks_per_sm",
    "records list": "id gpu kernel dtype workload outcome median_s created run config message",
    "records proposals": "run round origin kind gpu kernel workload passed created config seconds because",
}
#: Where the columns of a command stand whose own module has none.
_ELSEWHERE: Final[dict[str, tuple[str, str]]] = {
    "tune": ("constrint.answers.trial", "TUNED"),
    "compile": ("constrint.answers.compiled", "FIGURES"),
    "prune": ("constrint.cli.prune", "FIGURES"),
}


def columns_of(command: str, parameters: Iterable[str]) -> list[str]:
    """The full names of a command's columns.

    Args:
        command: The command's words: `solve`, `records list`.
        parameters: The parameters of the typed kernel.
    """
    if command in _NAMES:
        names = _NAMES[command].split()
        at = names.index(PARAMETERS) if PARAMETERS in names else len(names)
        return [*names[:at], *(parameters if PARAMETERS in names else ()), *names[at + 1 :]]
    module, table = _ELSEWHERE.get(command, (f"constrint.cli.{command.replace('-', '_')}", "COLUMNS"))
    try:
        columns = getattr(import_module(module), table, ())
    except ImportError:
        return []
    return [column.key for column in columns]


def complete_columns(ctx: typer.Context, incomplete: str) -> Words:
    """Columns of the typed command's table, after the last comma; a `-` of `--sort` stays in front."""
    words = [] if ctx.parent is None else ctx.command_path.split()[1:]
    *before, last = incomplete.split(",")
    head = "".join(f"{word}," for word in before) + ("-" if last.startswith("-") else "")
    names = columns_of(" ".join(words), dict(parameters_of(ctx)))
    taken = {word.removeprefix("-") for word in before}
    return [f"{head}{name}" for name in begun(names, last.removeprefix("-")) if name not in taken]


def complete_over(ctx: typer.Context, incomplete: str) -> Words:
    """Parameters of the typed kernel, two with a comma between."""
    first, comma, last = incomplete.partition(",")
    names = dict(parameters_of(ctx))
    if not comma:
        return [(f"{name},", meaning) for name, (_, meaning) in names.items() if name.startswith(first)]
    return [f"{first},{name}" for name in begun(names, last) if name != first]


def complete_where(ctx: typer.Context, incomplete: str) -> Words:
    """The parameter that a rule begins with."""
    return [(name, meaning) for name, (_, meaning) in parameters_of(ctx) if name.startswith(incomplete)]


def one_of(*words: str) -> Callable[[str], Words]:
    """Completes one of some words."""

    def complete(incomplete: str) -> Words:
        return begun(words, incomplete.lower())

    return complete


def complete_dtype_name(incomplete: str) -> Words:
    """Types of elements, of any kernel."""
    from constrint.hwmodels import DTYPES

    return begun(DTYPES, incomplete.lower())


def complete_search(incomplete: str) -> Words:
    """Searches of the tuner; Optuna's samplers once its colon is typed."""
    from constrint.tune.search.registry import list_searches
    from constrint.tune.search.samplers import SAMPLERS

    return begun((*list_searches(), *(f"optuna:{name}" for name in SAMPLERS)), incomplete)


def complete_engine(incomplete: str) -> Words:
    """Engines of the tuner."""
    from constrint.tune.engine.registry import list_engines

    return begun(list_engines(), incomplete)


def complete_outcome(incomplete: str) -> Words:
    """Outcomes of a trial, as records name them."""
    from constrint.tune.trial import Outcome

    return begun((outcome.name.lower() for outcome in Outcome), incomplete.lower())


def complete_records_format(incomplete: str) -> Words:
    """Formats of `records export` and `import`."""
    from constrint.answers.registry import RECORDS

    return begun(RECORDS.names(), incomplete.lower())


def complete_operation(incomplete: str) -> Words:
    """Names of operations."""
    from constrint.kernels.registry import list_kernels

    return begun(list_kernels(), incomplete.lower())


def complete_task(incomplete: str) -> Words:
    """Tasks for which a kernel can be written."""
    from constrint.propose.task import list_tasks

    return begun(list_tasks(), incomplete)


def complete_activation(incomplete: str) -> Words:
    """Activations of a product."""
    from constrint.kernels.gemm.implementations import ACTIVATIONS

    return begun(ACTIVATIONS, incomplete)


def complete_access(ctx: typer.Context, incomplete: str) -> Words:
    """Accesses of shared memory that the typed GPU has, after the last comma."""
    from constrint.hwmodels.bank_accesses import access_names

    *before, last = incomplete.split(",")
    head = "".join(f"{word}," for word in before)
    return [f"{head}{name}" for name in begun(access_names(typed_gpu(ctx), ctx.params.get("dtype") or "bf16"), last)]


def complete_kernel_of_file(incomplete: str) -> Words:
    """Python files and folders; after FILE.py and a colon the decorated functions of the file, which is only read."""
    name, colon, first = incomplete.partition(":")
    if colon:
        return [f"{name}:{kernel}" for kernel in begun(_decorated(Path(name)), first)]
    folder = Path(name) if name.endswith("/") else Path(name).parent
    prefix = "" if str(folder) == "." and not name.startswith("./") else f"{folder}/"
    if not folder.is_dir():
        return []
    found = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    words = [f"{prefix}{path.name}/" for path in found if path.is_dir()]
    words += [f"{prefix}{path.name}:" for path in found if path.suffix == ".py"]
    return begun(words, name)


def _decorated(path: Path) -> list[str]:
    """Names of functions of a small file that have a decorator, as kernels have."""
    if not path.is_file() or path.stat().st_size > MAX_PROBLEM_BYTES:
        return []
    tree: Any = ast.parse(path.read_text(encoding="utf-8"))
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.decorator_list]
