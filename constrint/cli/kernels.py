"""`constrint kernels`: all kernels with their sizes, operand types and GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any

import typer

from constrint.answers.table import EXTRA, Column, Page, Table
from constrint.answers.terminal import say, wrap
from constrint.cli.completion import complete_kernel
from constrint.cli.output import Output, printing
from constrint.cli.question import takes
from constrint.hwmodels import GpuModel, load_all
from constrint.kernels.registry import DEFAULT_KERNEL, list_kernels, load_kernel
from constrint.select import Operation, Size, Workload
from constrint.select.spec import KernelSpec

SCHEMA = "constrint.kernels/1"


@printing
def kernels(
    name: Annotated[
        str | None,
        typer.Argument(help="Only this one; all if none is named.", autocompletion=complete_kernel),
    ] = None,
    *,
    output: Output,
) -> None:
    """List the kernels: what they compute, their sizes with defaults, operand types, and the GPUs they run on."""
    operations = [load_kernel(named) for named in ((name,) if name is not None else list_kernels())]
    gpus = load_all()
    table = _table(operations, gpus)

    def document(_: object) -> dict[str, Any]:
        return {"schema": SCHEMA, "kernels": [_document(operation, gpus) for operation in operations]}

    def drawn(draw: Callable[[Table], None]) -> None:
        draw(table.sorted_by(output.sort) if output.sort else table)
        _print_sizes(operations, draw)

    output.show(Page(table, document, draw=drawn))


def _table(operations: Sequence[Operation], gpus: Sequence[GpuModel]) -> Table:
    """A row per implementation."""
    vendors = list(dict.fromkeys(gpu.maker.title for gpu in gpus))
    every = {title: sum(gpu.maker.title == title for gpu in gpus) for title in vendors}
    columns = (
        Column("kernel", is_text=True, importance=100),
        Column("operation", is_text=True, importance=EXTRA),
        *(Column(f"num_{title.lower()}_gpus", title, f"of {every[title]} GPUs", importance=70) for title in vendors),
        Column("dtypes", meaning="operand types", is_text=True, wraps=True, importance=EXTRA),
        Column("sizes", meaning="its sizes with their defaults", is_text=True, wraps=True, importance=EXTRA),
        Column("options", meaning="likewise, what may be left out", is_text=True, wraps=True, importance=EXTRA),
        Column("summary", "what it does", is_text=True, wraps=True, importance=90),
    )
    rows = []
    for operation in operations:
        for spec in operation.implementations:
            running = [gpu.maker.title for gpu in _running(spec, gpus)]
            counts = [running.count(title) or None for title in vendors]
            sizes, options = (" ".join(f"{s.name}={s.default}" for s in some) for some in (spec.sizes, spec.options))
            facts = [" ".join(spec.dtypes), sizes, options, spec.summary]
            rows.append([spec.full_name, operation.name, *counts, *facts])
    return Table(columns, rows)


def _document(operation: Operation, gpus: Sequence[GpuModel]) -> dict[str, Any]:
    return {
        "name": operation.name,
        "is_default": operation.name == DEFAULT_KERNEL,
        "dtypes": list(operation.dtypes),
        "sizes": [asdict(size) for size in operation.sizes],
        "options": [asdict(size) for size in operation.options],
        "implementations": [
            {
                "name": spec.full_name,
                "summary": spec.summary,
                "dtypes": list(spec.dtypes),
                "options": [option.name for option in spec.options],
                "gpus": [gpu.name for gpu in _running(spec, gpus)],
            }
            for spec in operation.implementations
        ],
    }


def _running(spec: KernelSpec, gpus: Sequence[GpuModel]) -> list[GpuModel]:
    """The GPUs on which the kernel takes its default workload, another operand type, or a size at its minimum."""
    return [gpu for gpu in gpus if any(takes(spec, gpu, workload) for workload in _tried(spec, gpu))]


def _tried(spec: KernelSpec, gpu: GpuModel) -> Iterator[Workload]:
    usual = spec.default_workload(gpu)
    yield usual
    yield from (replace(usual, dtype=dtype) for dtype in spec.dtypes)
    yield from (replace(usual, sizes={**usual.sizes, size.name: size.least}) for size in spec.sizes)


def _print_sizes(operations: Sequence[Operation], draw: Callable[[Table], None]) -> None:
    """Print the sizes and options of the operations, and the operand types of their implementations."""
    columns = (
        Column("option", is_text=True),
        Column("default", show=lambda value: f"{value:,}"),
        Column("meaning", is_text=True, wraps=True),
    )
    for (sizes, types), names in _by_sizes(operations).items():
        say()
        say(wrap(", ".join(names)))
        draw(Table(columns, [["--" + size.name.replace("_", "-"), size.default, size.meaning] for size in sizes]))
        for dtypes, implementations in types:
            say(wrap(f"--dtype {', '.join(dtypes)}: {', '.join(implementations)}", "  "))
    say()
    for line in (
        "the counts say on how many GPUs of `constrint gpus` a kernel takes its usual sizes, or one of them",
        f"{DEFAULT_KERNEL} is meant where no kernel is named; all kernels of an operation are ranked together, and "
        "each can be named alone: --kernel gemm.pointer. Your own: --kernel FILE.py:NAME",
    ):
        say(wrap(line))


#: Operand types, each group with the implementations that take it.
Types = tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]


def _by_sizes(operations: Sequence[Operation]) -> dict[tuple[tuple[Size, ...], Types], list[str]]:
    """The names of operations by their sizes, options and types."""
    groups: dict[tuple[tuple[Size, ...], Types], list[str]] = {}
    for operation in operations:
        types: dict[tuple[str, ...], list[str]] = {}
        for spec in operation.implementations:
            types.setdefault(spec.dtypes, []).append(spec.name or spec.operation)
        taken = tuple((dtypes, tuple(names)) for dtypes, names in types.items())
        groups.setdefault(((*operation.sizes, *operation.options), taken), []).append(operation.name)
    return groups
