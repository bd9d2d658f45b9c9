"""`constrint count`: the number of valid configurations, without listing them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from constrint.answers.explanation import CountBounds
from constrint.answers.question import StatedProblem
from constrint.answers.table import EXTRA, Column, Page, Table
from constrint.answers.terminal import say, wrap
from constrint.cli.options import Backend, Choice, KernelCommand, MaxMemory, MaxSeconds
from constrint.cli.output import Output, printing
from constrint.cli.question import check_backend, question_of
from constrint.cli.run import Run
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
        counts = [(stated, _counted(stated, backend, run)) for stated in question.problems]
    rows = [
        [stated.kernel or None, stated.title, c.exact, stated.problem.num_combinations, c.at_least, c.at_most]
        for stated, c in counts
    ]

    def document(shown: Sequence[tuple[StatedProblem, Count]]) -> dict[str, Any]:
        results = [_count_of(stated, counted, question.several) for stated, counted in shown]
        return {"schema": SCHEMA, "backend": backend, "results": results}

    def drawn(_: object) -> None:
        for line in (*_lines(counts), *question.notes):
            say(wrap(line))

    output.show(Page(Table(COLUMNS, rows, counts), document, draw=drawn))
    if run.signal or any(counted.exact is None for _, counted in counts):
        run.leave()


def _counted(stated: StatedProblem, backend: str, run: Run) -> Count:
    counted = count_within(stated.problem, run.limits(), backend)
    return counted if counted.exact is not None else replace(counted, stopped=run.why(counted.stopped))


class SpaceCount(msgspec.Struct, kw_only=True):
    """The size of one space, as `constrint count --json` prints it: see `Bounds` for the absent fields."""

    kernel: str | UnsetType = UNSET
    title: str
    num_valid: int | None
    num_product: int
    at_least: int | UnsetType = UNSET
    at_most: int | UnsetType = UNSET
    searched: float | UnsetType | None = UNSET
    stopped: str | UnsetType = UNSET


def _count_of(stated: StatedProblem, counted: Count, names_kernel: bool) -> SpaceCount:
    return SpaceCount(
        kernel=stated.kernel if names_kernel else UNSET,
        title=stated.title,
        num_product=stated.problem.num_combinations,
        **CountBounds.of(counted).fields(),
    )


def _lines(counts: Sequence[tuple[StatedProblem, Count]]) -> list[str]:
    lines = []
    for stated, counted in counts:
        lines.append(f"{stated.title}: {counted} of {stated.problem.num_combinations:,} combinations")
        if counted.exact is None:
            lines.append(f"not counted to the end: {counted.stopped}")
    if len(counts) > 1:
        product = sum(stated.problem.num_combinations for stated, _ in counts)
        least, most = (sum(bounds) for bounds in zip(*((c.at_least, c.at_most) for _, c in counts), strict=True))
        lines.append(f"all kernels: {Count(least, most)} of {product:,} combinations")
    return lines
