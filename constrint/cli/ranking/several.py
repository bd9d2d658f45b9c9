"""`constrint solve` with several `--gpu`: the ranking of each, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from constrint.answers.ranking import ranking_page
from constrint.answers.table import Column, Page, Table
from constrint.answers.terminal import say, wrap
from constrint.cli.output import Output
from constrint.cli.ranking.answers import Answer, command_of


def print_each(
    answers: Sequence[Answer], top: int, output: Output, document: Callable[[Sequence[Answer]], dict[str, Any]]
) -> int:
    """Print every GPU's ranking, or why it has none.

    Args:
        answers: The answers, each of so many configurations.
        top: How many were asked for.
        output: How they are printed.
        document: Makes the JSON document of all.

    Returns:
        The exit code: 1 where no GPU has an answer.
    """
    pages = [(answer, _page(answer, top)) for answer in answers]
    if output.is_table:
        for place, (answer, page) in enumerate(pages):
            if place:
                say("\n")
            _print(answer, page, output)
        say()
        say(wrap(f"side by side: {command_of(answers, 'compare')}"))
    else:
        output.show(
            Page(_joined([(a, page.table) for a, page in pages if page is not None]), lambda _: document(answers))
        )
    return 0 if any(answer.ranking is not None for answer in answers) else 1


def _page(answer: Answer, top: int) -> Page | None:
    if answer.question is None or answer.ranking is None:
        return None
    return ranking_page(answer.question, answer.ranking, top)


def _print(answer: Answer, page: Page | None, output: Output) -> None:
    if page is not None:
        output.show(page)
        return
    say(f"{answer.gpu.name}: no answer")
    for line in answer.refusal.splitlines():
        say(wrap(line.lstrip(), line[: len(line) - len(line.lstrip())]))


def _joined(tables: Sequence[tuple[Answer, Table]]) -> Table:
    """The rows of all GPUs in one table, for programs; what a GPU's kernels lack is missing there."""
    columns = {column.key: column for _, table in tables for column in table.columns}
    first = Column("gpu", is_text=True, importance=100)
    rows = []
    for answer, table in tables:
        places = {column.key: at for at, column in enumerate(table.columns)}
        for row in table.rows:
            rows.append([answer.gpu.name, *(row[places[key]] if key in places else None for key in columns)])
    return Table((first, *(replace(column, is_shared=False) for column in columns.values())), rows)
