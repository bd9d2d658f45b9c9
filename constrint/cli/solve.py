"""`constrint solve`: the ranked configurations of a kernel on named GPUs, or the solutions of a problem.

The flow: read the options into a question (`question_of`), rank it (`rank_question`), lay out the page
(`answers.ranking.ranking_page`), print it (`Output.show`). Several GPUs, exports and lists of solutions have their own
functions below.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from constrint.answers.question import Question
from constrint.answers.ranking import TIME_DIGITS, RankingResult, ranking_page
from constrint.answers.table import Column, Page, Table
from constrint.answers.terminal import say, say_all, terminal_width, wrap
from constrint.cli.completion import complete_export
from constrint.cli.options import Backend, Choice, KernelCommand, MaxMemory, MaxSeconds, Plot
from constrint.cli.output import Output, printing
from constrint.cli.question import check_backend, question_of
from constrint.cli.run import Run
from constrint.errors import CancelledError, ConstrintError, UnsupportedError, UsageError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.select import Operation, Ranking
from constrint.select.candidate import Candidate
from constrint.select.rank import rank_requests
from constrint.select.ranking import lateness

if TYPE_CHECKING:
    from constrint.answers.comparison import GpuAnswer

SCHEMA = "constrint.solve/1"
#: Most configurations of `--top`; `--all` lists everything.
MAX_TOP = 1_000_000
#: Most kernels that a command compiles.
MAX_COMPILED = 1000


@KernelCommand.taking(gpus=True)
@printing
def solve(
    choice: Choice,
    top: Annotated[
        int, typer.Option("--top", help="Number of configurations to print; up to a million for --format csv.")
    ] = 10,
    all_: Annotated[
        bool, typer.Option("--all", help="Print every valid configuration, unranked; with --json one per line.")
    ] = False,
    all_optima: Annotated[
        bool, typer.Option("--all-optima", help="Print every solution of a file that is best by its objectives.")
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
    plot: Plot = False,
    export: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT",
            help="For use elsewhere: triton, json, csv, c-header, kernel-tuner, cutlass-like.",
            autocompletion=complete_export,
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The file of --export; stdout by default.")
    ] = None,
    rename: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=NEW", help="A parameter's name in what is exported; may be repeated."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over the --output that is there.")] = False,
    *,
    printed: Output,
) -> None:
    """Rank the configurations of a kernel that fit a GPU, with no device present; or solve a problem.

    Ends with exit code 1 where a GPU has no answer, or a limit left a kernel out of its ranking.
    """
    _check(choice, top, compile_, is_all=all_, backend=backend, is_export=export is not None)
    if all_optima and (choice.operation is not None or all_ or export is not None):
        raise UsageError("--all-optima goes with --problem FILE or --space FILE.json, without --all and --export.")
    if plot:
        _check_plot(choice, printed, is_ranking=not all_ and export is None)
    run = Run("solving", max_seconds, max_memory)
    if export is not None or output is not None or rename or force:
        if printed.option:
            raise UsageError(
                f"{printed.option} prints what is found, --export writes a file: choose one, such as --export json."
            )
        _check_export(export, output, rename, force=force)
        question = question_of(choice)
        with run:
            ranked = partial(rank_question, question, top, compile_, run)
            text = _exported(
                question, str(export), rename or (), None if all_ else top, backend, ranked, printed.page_options.is_raw
            )
            _write(text, output)
    elif all_ or choice.operation is None:
        from constrint.cli.solutions import print_all, print_best

        if all_ or all_optima:
            print_all(question_of(choice), backend, run, printed, only_best=all_optima)
        else:
            print_best(question_of(choice), top, backend, run, printed)
    elif backend != "native":
        raise UsageError("a kernel's configs are ranked by the native back-end; --all or count take another --backend.")
    elif len(choice.gpus) > 1:
        with run:
            answers = answers_of(choice, partial(rank_question, top=top, number=compile_, run=run))
            _print_each(choice, answers, top, printed, is_plotted=plot)
        is_whole = all(answer.ranking is not None and not answer.ranking.cut for answer in answers)
        raise typer.Exit(128 + run.signal if run.signal else int(not is_whole))
    else:
        question = question_of(choice)
        with run:
            ranking = rank_question(question, top, compile_, run)
            drawn = _drawn(question, ranking) if plot else []
        printed.show(replace(ranking_page(question, ranking, top), document=partial(_document, ranking)))
        say_all(drawn)
        if run.signal or ranking.cut:
            run.leave()


def _check(choice: Choice, top: int, number: int, *, is_all: bool, backend: str, is_export: bool) -> None:
    if not 1 <= top <= MAX_TOP:
        raise UsageError(f"--top must be between 1 and {MAX_TOP:,}, got {top}.")
    if not 0 <= number <= MAX_COMPILED:
        raise UsageError(f"--compile takes a number between 1 and {MAX_COMPILED}, got {number}.")
    if number and (is_all or choice.operation is None):
        raise UsageError("--compile goes with a ranking of a kernel's configs on a --gpu, not with --all or a file.")
    check_backend(backend)
    is_ranking = choice.operation is not None and not is_all and not is_export
    if len(choice.gpus) > 1 and not is_ranking:
        raise UsageError("several --gpu go with a ranking of a kernel's configs, not with --all, --export or a file.")


def _check_plot(choice: Choice, printed: Output, *, is_ranking: bool) -> None:
    if choice.operation is None or not is_ranking:
        raise UsageError("--plot draws the ranking of a kernel on a --gpu, not --all, --export or a file.")
    if not printed.is_table:
        raise UsageError(f"--plot draws for people, --format {printed.format} prints for programs; leave one out.")


def _drawn(question: Question, ranking: Ranking) -> list[str]:
    """The lines of `--plot`."""
    from constrint.answers.plots import MAX_WIDTH, figures
    from constrint.report.gather import plotted

    return ["", *figures(plotted(question, ranking), terminal_width() or MAX_WIDTH)]


def _document(ranking: Ranking, candidates: Sequence[Any]) -> dict[str, Any]:
    return {"schema": SCHEMA, "results": [RankingResult.of(replace(ranking, candidates=tuple(candidates)))]}


def rank_question(question: Question, top: int, number: int = 0, run: Run | None = None) -> Ranking:
    """Rank the configurations of all kernels of a question.

    Args:
        question: The question, about a kernel.
        top: Number of configurations to return.
        number: Number of the best configurations to compile; they are ranked again with the compiler's resources.
        run: The run whose limits apply.

    Raises:
        InfeasibleError: When no configuration is valid.
        LimitReachedError: When the run ended before anything was ranked.
        UsageError: When the question is about a file, or the compiler is not installed.
    """
    if question.operation is None:
        raise UsageError("only configurations of a kernel are ranked; name a --gpu.")
    compile_all = None
    if number:
        from constrint.cli.compiling import compile_shown

        compile_all = partial(compile_shown, run=run)
    ranking = rank_requests(
        question.operation,
        question.requests,
        question.refusals,
        top=top,
        started=question.started,
        compile=number,
        compile_all=compile_all,
        limits=None if run is None else run.limits(),
    )

    def place(row: Candidate) -> tuple[int, float]:
        return lateness(row, ranking.gpu), round(row.cost.seconds * 1e6, TIME_DIGITS)

    if run is not None:
        spaces = [replace(s, refusal=run.why(s.refusal)) if s.is_cut else s for s in ranking.spaces]
        ranking = replace(ranking, spaces=tuple(spaces))
    # The ranking orders tied times by the preferred values; the rows follow the printed times.
    return replace(ranking, candidates=tuple(sorted(ranking.candidates, key=place)))


def answers_of(choice: Choice, rank: Callable[[Question], Ranking]) -> list[GpuAnswer]:
    """Answer the same question for each GPU of `choice.gpus`.

    Args:
        choice: The kernel, its workload and the GPUs.
        rank: Answers the question of one GPU.

    Raises:
        UsageError: When a GPU is unknown, or the question is wrong for every GPU.
    """
    from constrint.hwmodels.load import content_of

    if choice.operation is None:
        raise UsageError("several GPUs are asked about a kernel, not about a file.")
    models = {name: load_gpu(name) for name in choice.gpus}
    # Two names of one model get one answer; a file may have the name of another model.
    named = list({content_of(model): name for name, model in reversed(models.items())}.values())[::-1]
    common = replace(choice, dtype=choice.dtype or common_dtype(choice.operation, [models[name] for name in named]))
    answers = [_answer(replace(common, gpu=name, gpus=(name,)), models[name], rank) for name in named]
    wrong = [answer.error for answer in answers if answer.error is not None and _is_usage(answer.error)]
    if len(wrong) == len(answers):
        raise wrong[0]
    return answers


def common_dtype(operation: Operation, gpus: Sequence[GpuModel]) -> str:
    """The default operand type for several GPUs: the first that every GPU takes, else the first GPU's default."""
    for dtype in operation.dtypes:
        if all(_takes(operation, gpu, dtype) for gpu in gpus):
            return dtype
    return operation.default_workload(gpus[0]).dtype


def dtype_note(choice: Choice, answers: Sequence[GpuAnswer]) -> str:
    """The sentence that no `--dtype` was named and not every GPU takes the usual type; else empty."""
    operation, taken = choice.operation, next((a.ranking.workload.dtype for a in answers if a.ranking is not None), "")
    if operation is None or choice.dtype is not None or taken in ("", usual := operation.dtypes[0]):
        return ""
    without = [answer.gpu.name for answer in answers if not _takes(operation, answer.gpu, usual)]
    verb = "does" if len(without) == 1 else "do"
    return f"{taken} for all, because {' and '.join(without)} {verb} not take {usual}, the usual type (--dtype chooses)"


def _takes(operation: Operation, gpu: GpuModel, dtype: str) -> bool:
    workload = replace(operation.default_workload(gpu), dtype=dtype)
    for spec in operation.implementations:
        try:
            spec.check_workload(gpu, workload)
        except ConstrintError:
            continue
        return True
    return False


def _answer(choice: Choice, gpu: GpuModel, rank: Callable[[Question], Ranking]) -> GpuAnswer:
    from constrint.answers.comparison import GpuAnswer

    question = None
    try:
        question = question_of(choice)
        return GpuAnswer(gpu, str(choice.gpu), question, rank(question))
    except CancelledError:
        raise
    except ConstrintError as error:
        return GpuAnswer(gpu, str(choice.gpu), question, error=error)


def _is_usage(error: ConstrintError) -> bool:
    """Whether the question is wrong for every GPU, rather than unsupported on this one."""
    return isinstance(error, UsageError) and not isinstance(error, UnsupportedError)


def _print_each(choice: Choice, answers: Sequence[GpuAnswer], top: int, output: Output, *, is_plotted: bool) -> None:
    """Print the rankings of several GPUs one below the other, or one table of all for programs."""
    from constrint.answers.comparison import command_of

    pages = [(answer, _page(answer, top)) for answer in answers]
    if not output.is_table:
        table = _joined([(answer, page.table) for answer, page in pages if page is not None])
        output.show(Page(table, lambda _: {"schema": SCHEMA, "results": [answer.result() for answer in answers]}))
        return
    for place, (answer, page) in enumerate(pages):
        if place:
            say("\n")
        if page is not None:
            output.show(page)
            if is_plotted and answer.question is not None and answer.ranking is not None:
                say_all(_drawn(answer.question, answer.ranking))
            continue
        say(f"{answer.gpu.name}: no answer")
        for line in answer.refusal.splitlines():
            say(wrap(line.lstrip(), line[: len(line) - len(line.lstrip())]))
    say()
    if note := dtype_note(choice, answers):
        say(wrap(note))
    say(wrap(f"side by side: {command_of(answers, 'compare')}"))


def _page(answer: GpuAnswer, top: int) -> Page | None:
    if answer.question is None or answer.ranking is None:
        return None
    return ranking_page(answer.question, answer.ranking, top)


def _joined(tables: Sequence[tuple[GpuAnswer, Table]]) -> Table:
    """The rows of all GPUs in one table; parameters that a GPU's kernels lack are missing values."""
    columns = {column.key: column for _, table in tables for column in table.columns}
    first = Column("gpu", is_text=True, importance=100)
    rows = []
    for answer, table in tables:
        places = {column.key: at for at, column in enumerate(table.columns)}
        for row in table.rows:
            rows.append([answer.gpu.name, *(row[places[key]] if key in places else None for key in columns)])
    return Table((first, *(replace(column, is_shared=False) for column in columns.values())), rows)


def _check_export(format: str | None, output: Path | None, rename: Sequence[str] | None, *, force: bool) -> None:
    """Check the options of an export before any work.

    Raises:
        UsageError: When the format is unknown, the file exists, or an option lacks its `--export`.
    """
    from constrint.cli.output import refuse_existing
    from constrint.export import format_named, list_formats

    if format is None:
        option = "--output" if output is not None else "--rename" if rename else "--force"
        raise UsageError(f"{option} goes with --export FORMAT; formats are {', '.join(list_formats())}.")
    format_named(format)
    if output is not None and not force:
        refuse_existing(output)


def _exported(
    question: Question,
    format: str,
    rename: Sequence[str],
    top: int | None,
    backend: str,
    rank: Callable[[], Ranking],
    is_raw: bool,
) -> str:
    """The text of an export: of a ranking if the format takes one and `top` is given, else of the space.

    Raises:
        UsageError: When the format cannot hold the result.
        InfeasibleError: When no configuration is valid.
    """
    from constrint.export import export, format_named

    renamed = dict(map(_renaming, rename))
    if question.requests and top is not None and "ranking" in format_named(format).takes:
        if backend != "native":
            raise UsageError("a kernel's configs are ranked by the native back-end; --all takes another --backend.")
        return export(rank(), format, rename=renamed, raw=is_raw)
    if len(question.problems) > 1:
        names = ", ".join(stated.kernel for stated in question.problems)
        raise UsageError(f"{format} writes one space, and there are {names}: choose one with --kernel.")
    ((stated, space),) = question.spaces(backend)
    return export(space, format, top=top, rename=renamed, about=stated.request, title=question.title, raw=is_raw)


def _renaming(text: str) -> tuple[str, str]:
    name, sign, new = text.partition("=")
    if not sign or not name:
        raise UsageError(f"--rename takes NAME=NEW, such as tile_m=BLOCK_M, or NAME= to leave it out; got {text!r}.")
    return name.strip(), new.strip()


def _write(text: str, output: Path | None) -> None:
    if output is None:
        sys.stdout.write(text)
        return
    from constrint.cli.output import write_file

    write_file(output, [text])
    print(f"wrote {output}", file=sys.stderr)
