"""`constrint report`: one page to look at about a kernel on one GPU or several, or the facts that it is made of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from constrint.answers.terminal import print_json, say, wrap
from constrint.cli.asked.kernel_options import Choice, Json, KernelCommand
from constrint.cli.ranking.compiling import compile_shown
from constrint.cli.report.measurements import measurements
from constrint.cli.report.progress import Progress
from constrint.cli.report.questions import command_of, questions_of
from constrint.cli.report.writing import check_place, date_of_today, write_page
from constrint.errors import UsageError
from constrint.report import GpuQuestion, Means, gather, html_of
from constrint.report.facts.telling import check_over

#: More candidates than a figure has room for.
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
    typer.Option("--over", metavar="X,Y", help="The heat map's two parameters. [default: the most telling ones]"),
]
Store = Annotated[
    str | None, typer.Option("--store", metavar="URL", help="Where measurements are looked up (else your own store).")
]


@KernelCommand.taking(files=False, gpus=True)
def report(
    choice: Choice,
    out: Out = None,
    force: Annotated[bool, typer.Option("--force", help="Write over the --out that is there.")] = False,
    top: Annotated[int, typer.Option("--top", help="How many configurations to show.")] = DEFAULT_TOP,
    compile_: Compiled = 0,
    over: Over = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Write one HTML page about a kernel on a GPU, or several, to look at without a network: what fits and why."""
    _check(top, compile_)
    place = None if json and out is None else out or DEFAULT_OUT
    if place is not None:
        check_place(place, is_forced=force)
    questions = questions_of(choice)
    wanted = Means(top=top, num_compiled=compile_, over=_axes(over, questions), compile_all=compile_shown)
    with Progress() as progress, measurements(store) as measured:
        means = replace(wanted, measured=measured, say=progress.say)
        facts = gather(questions, means, command_of(questions, _options(top, compile_, over)))
        progress.say("drawing")
        page = "" if place is None else html_of(facts, date_of_today())
    if place is not None:
        write_page(page, place, is_forced=force)
    if json:
        print_json(facts)
    else:
        say(wrap(f"{place}: {len(page.encode()) / 1e6:.1f} MB, to be opened in a browser; it needs no network."))
    if not any(gpu.candidates for gpu in facts.gpus):
        raise typer.Exit(1)


def _check(top: int, num_compiled: int) -> None:
    if not 1 <= top <= MAX_TOP:
        raise UsageError(f"--top must be between 1 and {MAX_TOP}, got {top}.")
    if not 0 <= num_compiled <= MAX_TOP:
        raise UsageError(f"--compile takes a number between 1 and {MAX_TOP}, got {num_compiled}.")


def _axes(over: str | None, questions: list[GpuQuestion]) -> tuple[str, str] | None:
    """The two parameters of `--over`."""
    if over is None:
        return None
    names = [name.strip() for name in over.split(",")]
    if len(names) != 2 or names[0] == names[1] or not all(names):
        raise UsageError(f"--over takes two parameters, for example --over tile_n,tile_m; got {over!r}.")
    axes = (names[0], names[1])
    check_over([request for question in questions for request in question.requests], axes)
    return axes


def _options(top: int, num_compiled: int, over: str | None) -> list[str]:
    """The command's own options, to be repeated."""
    options = [] if top == DEFAULT_TOP else ["--top", str(top)]
    options += [f"--compile={num_compiled}"] if num_compiled else []
    return options + (["--over", over] if over else [])
