"""`constrint kernels`: all kernels with their sizes, operand types and GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from constrint.answers.table import EXTRA, Column, Page, Table, pairs_text
from constrint.answers.terminal import say, wrap
from constrint.cli.completion import complete_kernel
from constrint.cli.kernel_list import all_kernels, kernel_named
from constrint.cli.output import Output, printing
from constrint.cli.shipped import KernelList, OperationFacts, SizeFacts
from constrint.kernels.registry import DEFAULT_KERNEL

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
    found = all_kernels() if name is None else kernel_named(name)
    table = _table(found)

    def document(_: object) -> dict[str, Any]:
        return {"schema": SCHEMA, "kernels": [_document(operation) for operation in found.operations]}

    def drawn(draw: Callable[[Table], None]) -> None:
        draw(table.sorted_by(output.sort) if output.sort else table)
        _print_sizes(found.operations, draw)

    output.show(Page(table, document, draw=drawn))


def _table(found: KernelList) -> Table:
    """A row per implementation."""
    makers = list(found.makers.values())
    columns = (
        Column("kernel", is_text=True, importance=100),
        Column("operation", is_text=True, importance=EXTRA),
        *(
            Column(f"num_{title.lower()}_gpus", title, f"of {makers.count(title)} GPUs", importance=70)
            for title in dict.fromkeys(makers)
        ),
        Column("dtypes", meaning="operand types", is_text=True, wraps=True, importance=EXTRA),
        Column("sizes", meaning="its sizes with their defaults", is_text=True, wraps=True, importance=EXTRA),
        Column("options", meaning="likewise, what may be left out", is_text=True, wraps=True, importance=EXTRA),
        Column("summary", "what it does", is_text=True, wraps=True, importance=90),
    )
    rows = []
    for operation in found.operations:
        for one in operation.implementations:
            running = [found.makers[gpu] for gpu in one.gpus]
            counts = [running.count(title) or None for title in dict.fromkeys(makers)]
            facts = [" ".join(one.dtypes), pairs_text(one.sizes), pairs_text(one.options), one.summary]
            rows.append([one.name, operation.name, *counts, *facts])
    return Table(columns, rows)


def _document(operation: OperationFacts) -> dict[str, Any]:
    return {
        "name": operation.name,
        "is_default": operation.name == DEFAULT_KERNEL,
        "dtypes": operation.dtypes,
        "sizes": operation.sizes,
        "options": operation.options,
        "implementations": [
            {
                "name": one.name,
                "summary": one.summary,
                "dtypes": one.dtypes,
                "options": list(one.options),
                "gpus": one.gpus,
            }
            for one in operation.implementations
        ],
    }


def _print_sizes(operations: Sequence[OperationFacts], draw: Callable[[Table], None]) -> None:
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


def _by_sizes(operations: Sequence[OperationFacts]) -> dict[tuple[tuple[SizeFacts, ...], Types], list[str]]:
    """The names of operations by their sizes, options and types."""
    groups: dict[tuple[tuple[SizeFacts, ...], Types], list[str]] = {}
    for operation in operations:
        types: dict[tuple[str, ...], list[str]] = {}
        for one in operation.implementations:
            types.setdefault(one.dtypes, []).append(one.short)
        taken = tuple((dtypes, tuple(names)) for dtypes, names in types.items())
        groups.setdefault(((*operation.sizes, *operation.options), taken), []).append(operation.name)
    return groups
