"""`constrint count`: how many configurations are valid, without listing them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from constrint.answers.question import Asked
from constrint.answers.table import EXTRA, Column, Page, Table
from constrint.answers.terminal import say, wrap
from constrint.cli.asked.kernel_options import Backend, Choice, KernelCommand
from constrint.cli.asked.request import check_backend, question_of
from constrint.cli.output import Output, printing
from constrint.cli.running.options import MaxMemory, MaxSeconds
from constrint.cli.running.run import Run
from constrint.solve import Count, count_within

SCHEMA = "constrint.count/1"
COLUMNS = (
    Column("kernel", is_text=True),
    Column("title", meaning="what was asked", is_text=True, wraps=True),
    Column("num_valid", meaning="configs that satisfy every rule"),
    Column("num_product", meaning="configs in the full product"),
    Column("at_least", meaning="configs that are known to satisfy every rule", importance=EXTRA),
    Column("at_most", meaning="more cannot satisfy every rule", importance=EXTRA),
)


@KernelCommand
@printing
def count(
    choice: Choice,
    backend: Backend = "native",
    max_seconds: MaxSeconds = None,
    max_memory: MaxMemory = None,
    *,
    output: Output,
) -> None:
    """Count the solutions; exact, and quick even where no one could list them."""
    check_backend(backend)
    run = Run("counting", max_seconds, max_memory)
    question = question_of(choice)
    with run:
        counts = [(asked, _counted(asked, backend, run)) for asked in question.asked]
    rows = [
        [asked.kernel or None, asked.title, c.exact, asked.problem.num_combinations, c.at_least, c.at_most]
        for asked, c in counts
    ]

    def document(shown: Sequence[tuple[Asked, Count]]) -> dict[str, Any]:
        results = [_document(asked, counted, question.several) for asked, counted in shown]
        return {"schema": SCHEMA, "backend": backend, "results": results}

    def drawn(_: object) -> None:
        for line in (*_lines(counts), *question.notes):
            say(wrap(line))

    output.show(Page(Table(COLUMNS, rows, counts), document, draw=drawn))
    if run.signal or any(counted.exact is None for _, counted in counts):
        run.leave()


def _counted(asked: Asked, backend: str, run: Run) -> Count:
    counted = count_within(asked.problem, run.limits(), backend)
    return counted if counted.exact is not None else replace(counted, stopped=run.why(counted.stopped))


def _document(asked: Asked, counted: Count, names_kernel: bool) -> dict[str, Any]:
    return {
        **({"kernel": asked.kernel} if names_kernel else {}),
        "title": asked.title,
        "num_valid": counted.exact,
        "num_product": asked.problem.num_combinations,
        **as_bounds(counted),
    }


def as_bounds(counted: Count) -> dict[str, Any]:
    """What is known of a number of solutions that was not counted to the end; nothing for an exact one."""
    if counted.exact is not None:
        return {}
    return {
        "at_least": counted.at_least,
        "at_most": counted.at_most,
        "searched": counted.searched,
        "stopped": counted.stopped,
    }


def _lines(counts: Sequence[tuple[Asked, Count]]) -> list[str]:
    lines = []
    for asked, counted in counts:
        lines.append(f"{asked.title}: {counted} of {asked.problem.num_combinations:,} combinations")
        if counted.exact is None:
            lines.append(f"not counted to the end: {counted.stopped}")
    if len(counts) > 1:
        product = sum(asked.problem.num_combinations for asked, _ in counts)
        least, most = (sum(bounds) for bounds in zip(*((c.at_least, c.at_most) for _, c in counts), strict=True))
        lines.append(f"all kernels: {Count(least, most)} of {product:,} combinations")
    return lines
