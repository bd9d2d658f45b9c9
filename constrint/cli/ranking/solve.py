"""`constrint solve`: the ranked configurations of a kernel on a named GPU, or the solutions of a problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from constrint.answers.question import Question
from constrint.answers.ranking import TIME_DIGITS, ranking_document, ranking_page
from constrint.cli.asked.kernel_options import Backend, Choice, KernelCommand
from constrint.cli.asked.request import check_backend, question_of
from constrint.cli.completion.values import complete_export
from constrint.cli.output import Output, printing
from constrint.cli.running.options import MaxMemory, MaxSeconds
from constrint.cli.running.run import Run
from constrint.errors import UsageError
from constrint.select import Ranking
from constrint.select.facts import runs
from constrint.select.rank import rank_requests

if TYPE_CHECKING:
    from constrint.cli.ranking.answers import Answer

SCHEMA = "constrint.solve/1"
#: More candidates than any table is read for; `--all` lists everything.
MAX_TOP = 1_000_000
#: More kernels than anybody waits for.
MAX_COMPILED = 1000


@KernelCommand.taking(gpus=True)
@printing
def solve(
    choice: Choice,
    top: Annotated[
        int, typer.Option("--top", help="How many configurations to print; up to a million for --format csv.")
    ] = 10,
    all_: Annotated[
        bool, typer.Option("--all", help="Print every valid configuration, unranked; with --json one per line.")
    ] = False,
    compile_: Annotated[
        int,
        typer.Option(
            "--compile", metavar="[=N]", help="Compile the N best (10) for the GPU, rank again by what they take."
        ),
    ] = 0,
    backend: Backend = "native",
    max_seconds: MaxSeconds = None,
    max_memory: MaxMemory = None,
    export: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT",
            help="For use elsewhere: triton, json, csv, c-header, kernel-tuner, cutlass-like.",
            autocompletion=complete_export,
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where --export writes; stdout if left out.")
    ] = None,
    rename: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=NEW", help="A parameter's name in what is exported; may be repeated."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over the --output that is there.")] = False,
    *,
    printed: Output,
) -> None:
    """Rank the configurations of a kernel that fit a GPU, with no device present; or solve a problem."""
    if not 1 <= top <= MAX_TOP:
        raise UsageError(f"--top must be between 1 and {MAX_TOP:,}, got {top}.")
    if not 0 <= compile_ <= MAX_COMPILED:
        raise UsageError(f"--compile takes a number between 1 and {MAX_COMPILED}, got {compile_}.")
    if compile_ and (all_ or choice.operation is None):
        raise UsageError("--compile goes with a ranking of a kernel's configs on a --gpu, not with --all or a file.")
    check_backend(backend)
    run = Run("solving", max_seconds, max_memory)
    is_ranking = choice.operation is not None and not all_ and export is None
    if len(choice.gpus) > 1 and not is_ranking:
        raise UsageError("several --gpu go with a ranking of a kernel's configs, not with --all, --export or a file.")
    if export is not None or output is not None or rename or force:
        if printed.option:
            raise UsageError(
                f"{printed.option} prints what is found, --export writes a file: choose one, such as --export json."
            )
        from constrint.cli.ranking.exporting import Wanted, write_export  # loaded for these alone

        wanted = Wanted.of(export, output, rename, force, None if all_ else top)
        question = question_of(choice)
        with run:
            write_export(question, wanted, backend, lambda: rank_question(question, top, compile_, run))
        return
    if all_ or choice.operation is None:
        from constrint.cli.space.solutions import print_all, print_best  # loaded for these alone

        if all_:
            print_all(question_of(choice), backend, run, printed)
        else:
            print_best(question_of(choice), top, backend, run, printed)
        return
    if backend != "native":
        raise UsageError("a kernel's configs are ranked by the native back-end; --all or count take another --backend.")
    if len(choice.gpus) > 1:
        with run:
            ranked = partial(rank_question, top=top, number=compile_, run=run)
            code = _solve_each(choice, top, ranked, printed)
        raise typer.Exit(128 + run.signal if run.signal else code)
    question = question_of(choice)
    with run:
        ranking = rank_question(question, top, compile_, run)
    page = ranking_page(question, ranking, top)
    printed.show(replace(page, document=lambda candidates: _document(replace(ranking, candidates=tuple(candidates)))))
    if run.signal:
        run.leave()


def _solve_each(choice: Choice, top: int, rank: Callable[[Question], Ranking], output: Output) -> int:
    """Rank for several GPUs; the exit code."""
    from constrint.cli.ranking.answers import answers_of  # loaded for these alone
    from constrint.cli.ranking.several import print_each

    def document(answers: Sequence[Answer]) -> dict[str, Any]:
        return {"schema": SCHEMA, "results": [answer.document() for answer in answers]}

    answers = answers_of(choice, rank)
    return print_each(answers, top, output, document)


def rank_question(question: Question, top: int, number: int = 0, run: Run | None = None) -> Ranking:
    """The best configurations of all kernels that were asked about, `number` of them compiled, within a run.

    Raises:
        InfeasibleError: When nothing is valid.
        LimitReachedError: When the run ended before anything was ranked.
        UsageError: When there is nothing to compile with.
    """
    from constrint.cli.ranking.compiling import compile_shown

    if question.operation is None:
        raise UsageError("only configurations of a kernel are ranked; name a --gpu.")
    ranking = rank_requests(
        question.operation,
        question.requests,
        question.refusals,
        top=top,
        started=question.started,
        compile=number,
        compile_all=partial(compile_shown, run=run),
        limits=None if run is None else run.limits(),
    )
    # Among times that tie the ranking goes by preferred values; what is printed is in the order of the printed times.
    rows = sorted(ranking.candidates, key=lambda row: (not runs(row), round(row.cost.seconds * 1e6, TIME_DIGITS)))
    return replace(ranking, candidates=tuple(rows))


def _document(ranking: Ranking) -> dict[str, Any]:
    return {"schema": SCHEMA, "results": [ranking_document(ranking)]}
