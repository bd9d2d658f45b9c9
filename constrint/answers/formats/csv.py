"""Comma-separated values: a row per configuration with its parameters, resources and modelled time."""

from __future__ import annotations

from typing import Any

from constrint.answers.exported import Export, Row
from constrint.answers.registry import Format, csv_lines
from constrint.answers.terminal import printable
from constrint.errors import UsageError


def write(export: Export) -> str:
    """A line of names and a line per configuration; a parameter that the kernel lacks is empty."""
    rows = export.rows()
    parameters = tuple(export.shown.values())
    request = _request(export)
    cells: list[list[tuple[str, Any]]] = [
        [
            ("rank", place),
            *([("kernel", row.kernel)] if row.kernel else []),
            *((name, row.config.get(name)) for name in parameters),
            *_figures(row),
            *request,
        ]
        for place, row in enumerate(rows, 1)
    ]
    heads = [name for name, _ in cells[0]]
    twice = next((name for name in parameters if heads.count(name) > 1), None)
    if twice is not None:
        raise UsageError(
            f"a parameter and another column would both be called {twice!r}: --rename {printable(twice)}=other_name."
        )
    return csv_lines([heads, *([value for _, value in row] for row in cells)], is_raw=export.is_raw)


def _figures(row: Row) -> list[tuple[str, Any]]:
    """Resources and times; resources are empty for a composition of kernels."""
    if row.candidate is None:
        return []
    use, cost = row.candidate.resources, row.candidate.cost
    return [
        ("threads_per_block", use and use.threads),
        ("registers_per_thread", use and use.registers_per_thread),
        ("smem_bytes_per_block", use and use.smem_bytes),
        ("blocks_per_sm", use and use.blocks_per_sm),
        ("limited_by", use and use.limited_by),
        ("spill_chance", use and use.spill_chance),
        ("resources", use and ("modelled" if use.compiled is None else "compiled")),
        ("problem", row.candidate.problem),
        ("num_variants", row.candidate.num_variants),
        ("predicted_s", cost.seconds),
        ("roofline_share", cost.roofline_share),
        ("bound_by", cost.bound_by),
    ]


def _request(export: Export) -> list[tuple[str, Any]]:
    """The GPU and the workload, repeated in every row, so that files can be joined."""
    if export.gpu is None or export.workload is None:
        return []
    numbers = {**export.workload.sizes, **export.workload.options}
    return [("gpu", export.gpu.name), ("dtype", export.workload.dtype), *((f"size_{n}", v) for n, v in numbers.items())]


FORMAT = Format("csv", "one row per configuration", write)
