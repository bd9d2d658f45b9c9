"""`constrint report`: one page about a kernel on one GPU or several, or the facts that the page shows.

The flow: read the options into a question per GPU, gather the facts (`constrint.report.gather`), write the page or
print the facts.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from constrint.answers.facts import MeasuredFacts
from constrint.answers.plots import MAX_WIDTH, figures
from constrint.answers.question import Question
from constrint.answers.terminal import print_json, say, say_all, terminal_width, wrap
from constrint.cli.compiling import compile_shown
from constrint.cli.completing import complete_over
from constrint.cli.options import Choice, Json, KernelCommand, Plot
from constrint.cli.output import write_file
from constrint.cli.question import question_of
from constrint.cli.run import Progress
from constrint.errors import ConstrintError, UsageError
from constrint.hwmodels import load_gpu
from constrint.report import Means, gather, html_of
from constrint.report.gather import gpu_of, operation_of
from constrint.report.heat import check_over
from constrint.report.measured import in_order, measured_facts, published

if TYPE_CHECKING:
    from constrint.tune.store.store import RecordStore

#: Most candidates that a figure has room for.
MAX_TOP = 100
DEFAULT_TOP = 20
DEFAULT_OUT = Path("report.html")
Out = Annotated[
    Path | None, typer.Option("--out", "--output", metavar="FILE", help=f"The page to write. [default: {DEFAULT_OUT}]")
]
Compiled = Annotated[
    int, typer.Option("--compile", metavar="[=N]", help="Compile the N best (10) for each GPU, which need not be here.")
]
Over = Annotated[
    str | None,
    typer.Option(
        "--over",
        metavar="X,Y",
        help="The heat map's two parameters. [default: the most telling ones]",
        autocompletion=complete_over,
    ),
]
Store = Annotated[
    str | None, typer.Option("--store", metavar="URL", help="The store of measurements (by default your own).")
]
#: Looks up the measurements of a question.
Measured = Callable[[Question], Sequence[MeasuredFacts]]


@KernelCommand.taking(files=False, gpus=True)
def report(
    choice: Choice,
    out: Out = None,
    force: Annotated[bool, typer.Option("--force", help="Write over the --out that is there.")] = False,
    top: Annotated[int, typer.Option("--top", help="Number of configurations to show.")] = DEFAULT_TOP,
    compile_: Compiled = 0,
    over: Over = None,
    store: Store = None,
    plot: Plot = False,
    json: Json = False,
) -> None:
    """Write one HTML page about a kernel on a GPU, or several, to look at without a network: what fits and why.

    Ends with exit code 1 where a GPU has no configuration; its page says why.
    """
    _check(top, compile_)
    if plot and json:
        raise UsageError("--plot draws for people, --json prints for programs; leave one out.")
    place = None if (json or plot) and out is None else out or DEFAULT_OUT
    if place is not None:
        _check_place(place, is_forced=force)
    questions = questions_of(choice)
    settings = Means(top=top, num_compiled=compile_, over=_axes(over, questions), compile_all=compile_shown)
    with closing(Progress("reporting")) as progress, measurements(store) as measured:
        means = replace(settings, measured=measured, say=progress.say)
        facts = gather(questions, means, _command_of(questions, top, compile_, over))
        progress.say("drawing")
        page = "" if place is None else html_of(facts, date_of_today())
    if place is not None:
        _check_place(place, is_forced=force)
        write_file(place, [page], error=lambda why: UsageError(f"{place} cannot be written: {why}; {_ANOTHER}"))
    if json:
        print_json(facts)
    for gpu in facts.gpus if plot else ():
        say(wrap(f"{gpu.title} ({gpu.target})"))
        say_all(figures(gpu, terminal_width() or MAX_WIDTH))
    if place is not None and not json:
        say(wrap(f"{place}: {len(page.encode()) / 1e6:.1f} MB, to be opened in a browser; it needs no network."))
    if not all(gpu.candidates for gpu in facts.gpus):
        raise typer.Exit(1)


_ANOTHER = "name another file with --out."


def _check(top: int, num_compiled: int) -> None:
    if not 1 <= top <= MAX_TOP:
        raise UsageError(f"--top must be between 1 and {MAX_TOP}, got {top}.")
    if not 0 <= num_compiled <= MAX_TOP:
        raise UsageError(f"--compile takes a number between 1 and {MAX_TOP}, got {num_compiled}.")


def _check_place(place: Path, *, is_forced: bool) -> None:
    """Refuse a file that cannot be written, or that exists and may not be overwritten."""
    if place.is_dir():
        raise UsageError(f"--out {place} is a folder; name a file in it, for example {place / 'report.html'}.")
    if place.exists() and not is_forced:
        raise UsageError(f"{place} exists; name another file with --out, or write over it with --force.")
    if not place.parent.is_dir():
        raise UsageError(f"--out {place}: there is no folder {place.parent}; make it first.")


def _axes(over: str | None, questions: Sequence[Question]) -> tuple[str, str] | None:
    """The two parameters of `--over`."""
    if over is None:
        return None
    names = [name.strip() for name in over.split(",")]
    if len(names) != 2 or names[0] == names[1] or not all(names):
        raise UsageError(f"--over takes two parameters, for example --over tile_n,tile_m; got {over!r}.")
    axes = (names[0], names[1])
    check_over([request for question in questions for request in question.requests], axes)
    return axes


def questions_of(choice: Choice) -> list[Question]:
    """The question about each named GPU; a GPU that cannot take the workload states why in `refusal`.

    Raises:
        UsageError: When no GPU is named, a GPU is unknown, or no GPU can take the workload.
    """
    names = list(dict.fromkeys(choice.gpus))
    if not names:
        raise UsageError(
            "say which GPU: --gpu NAME (for example mi300x; `constrint gpus` lists them); it may be repeated."
        )
    gpus = [load_gpu(name) for name in names]
    questions: list[Question] = []
    last: ConstrintError | None = None
    for name, gpu in zip(names, gpus, strict=True):
        one = replace(choice, gpu=name)
        try:
            questions.append(question_of(one))
        except ConstrintError as error:
            last = error
            if one.operation is None:
                raise
            title = f"{one.operation.name} on {gpu.name}"
            refused = Question(title, (), one.operation, arguments=("--gpu", name), gpu=gpu, refusal=str(error))
            questions.append(refused)
    if last is not None and all(question.refusal for question in questions):
        raise last
    return questions


def _command_of(questions: Sequence[Question], top: int, num_compiled: int, over: str | None) -> str:
    """The command that makes the same report again."""
    options = [] if top == DEFAULT_TOP else ["--top", str(top)]
    options += [f"--compile={num_compiled}"] if num_compiled else []
    options += ["--over", over] if over else []
    words = next(question.arguments for question in questions if not question.refusal)
    gpus = [word for question in questions for word in question.arguments[:2]]
    return shlex.join(("constrint", "report", *gpus, *words[2:], *options))


@contextmanager
def measurements(place: str | None) -> Iterator[Measured]:
    """Look up measurements in a store and among the published winners; a missing own store is not created.

    Args:
        place: The named store; None for the user's own.

    Raises:
        UsageError: When a named file is missing.
    """
    from constrint.cli.records_selection import opened
    from constrint.tune.store.place import url_of

    url = url_of(place)
    if place is None and url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
        yield lambda question: _measured(question, None)
        return
    with opened(place) as store:
        yield lambda question: _measured(question, store)


def _measured(question: Question, store: RecordStore | None) -> list[MeasuredFacts]:
    """The measurements of one question in the store and among the published winners, the fastest first."""
    from constrint.kernels.registry import code_of

    workload, operation, gpu = question.workload, operation_of(question), gpu_of(question)
    if workload is None:
        return []
    facts: list[MeasuredFacts] = []
    if store is not None:
        preset = {option.name: option.default for option in operation.options}
        options = {name: value for name, value in workload.options.items() if preset.get(name) != value}
        kernels = {spec.full_name for spec in operation.implementations}
        records = (
            record
            for record in store.find(gpu=gpu.name, operation=workload.operation, dtype=workload.dtype, outcome="ok")
            if record.sizes == dict(workload.sizes) and record.options == options and record.kernel in kernels
        )
        # Pages are passed on: a file's name is stated without its folder.
        name = store.place if "://" in store.place else f"the store {Path(store.place).name}"
        facts += measured_facts(records, name, code_of)
    return in_order([*facts, *published(operation, gpu.name, workload)])


def date_of_today() -> str:
    """Today in UTC; the day of SOURCE_DATE_EPOCH if it is set, so that a page can be reproduced to the byte."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    if epoch.isascii() and epoch.isdecimal() and len(epoch) <= 11:
        return datetime.fromtimestamp(int(epoch), timezone.utc).strftime("%Y-%m-%d")
    return datetime.now(timezone.utc).strftime("%Y-%m-%d")
