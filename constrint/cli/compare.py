"""`constrint compare`: the best configuration of a kernel on several GPUs, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import typer

from constrint.answers.comparison import GpuAnswer, command_of, comparison_table, turned_lines
from constrint.answers.table import EXTRA, Page, Table
from constrint.answers.terminal import say, wrap
from constrint.cli.completion import complete_gpu
from constrint.cli.options import Choice, KernelCommand
from constrint.cli.output import Output, printing
from constrint.cli.solve import answers_of, dtype_note, rank_question
from constrint.errors import UsageError

SCHEMA = "constrint.compare/1"
#: Most GPUs of a comparison; no more models exist.
MAX_GPUS = 64


@KernelCommand.taking(files=False, gpus=True)
@printing
def compare(
    choice: Choice,
    gpus: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="GPU...", help="GPU names (see `constrint gpus`) or paths.", autocompletion=complete_gpu
        ),
    ] = None,
    *,
    output: Output,
) -> None:
    """Set the best configuration of a kernel on several GPUs side by side: time, bound, occupancy and limits.

    Ends with exit code 1 where a GPU has no answer.
    """
    named = (*(gpus or ()), *choice.gpus)
    if not 1 <= len(named) <= MAX_GPUS:
        raise UsageError("name the GPUs to compare: constrint compare h200 mi300x b200 (`constrint gpus` lists them).")
    answers = answers_of(replace(choice, gpus=named), partial(rank_question, top=1))
    table = comparison_table(answers)
    if output.sort:
        table = table.sorted_by(output.sort)

    def document(shown: Sequence[GpuAnswer]) -> dict[str, Any]:
        return {"schema": SCHEMA, "results": [answer.result() for answer in shown]}

    output.show(Page(table, document, draw=lambda _: _print(choice, table, output)))
    if any(answer.ranking is None for answer in answers):
        raise typer.Exit(1)


def _print(choice: Choice, table: Table, output: Output) -> None:
    """Print the comparison for people: the table with GPUs as columns, and how far to trust it."""
    answers: Sequence[GpuAnswer] = table.items
    ranked = [answer.ranking for answer in answers if answer.ranking is not None]
    assert choice.operation is not None
    if not ranked:
        say(wrap(f"{choice.operation.name}: no GPU has an answer"))
        for answer in answers:
            say()
            say(wrap(f"{answer.gpu.name}: {answer.refusal}", has_lines=True))
        return
    workload = replace(ranked[0].workload, operation=choice.operation.name)
    say(wrap(f"{workload}: the best configuration of each GPU"))
    if note := dtype_note(choice, answers):
        say(wrap(note))
    say()
    options = output.page_options
    chosen = table.named(options.columns) or [c for c in table.columns if c.importance > EXTRA or options.is_wide]
    for line in turned_lines(table, [c for c in chosen if c.key not in ("gpu", "refusal")]):
        say(line)
    say()
    if len(ranked) > 1 and not options.columns:
        say(wrap("speed: the time on the first GPU that has an answer over the time on this one"))
    say(wrap("times are modelled, not measured; registers with ~, and the chance that they spill, are estimated"))
    say(wrap(f"ranked, with what was assumed: {command_of(answers, 'solve')} --legend"))
