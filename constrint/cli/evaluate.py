"""`constrint evaluate`: the score of whoever writes kernels, from suggestions that each go through the gates."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from constrint.answers.table import EXTRA, Column, Page, Table
from constrint.cli.completing import complete_task, one_of
from constrint.cli.completion import complete_gpu
from constrint.cli.output import Output, printing, refuse_existing, write_file
from constrint.cli.run import Progress
from constrint.errors import UsageError, printed_line

if TYPE_CHECKING:
    from constrint.propose.evaluation import Evaluation, PromptScore, Spread, Suggestion

SCHEMA = "constrint.evaluate/1"
GATES = ("legal", "compiles", "right", "honest", "fast")
#: Columns of suggestions, and of prompts.
COLUMNS = (
    Column("kernel", is_text=True, importance=95),
    Column("model", meaning="the programming model that was asked for", is_text=True, importance=70),
    Column("suggestion", meaning="the file", is_text=True, importance=100),
    *(Column(gate, meaning="yes, NO, or nothing where it was not judged", is_text=True) for gate in GATES),
    Column("speed_up", "speed-up", meaning="over plain PyTorch", importance=90, show="{:.2f}".format),
    Column("message", "reason", meaning="why it is refused", is_text=True, wraps=True, importance=EXTRA),
)
PROMPT_COLUMNS = (
    Column("kernel", is_text=True, importance=100),
    Column("model", meaning="the programming model that was asked for", is_text=True, importance=90),
    Column("suggestions", "n", meaning="suggestions", importance=80),
    Column("right", meaning="suggestions that no gate refuses", is_text=True, importance=85),
    Column("rubric", meaning="0 to 1, of the six-kernel study (arXiv 2306.15121)", is_text=True, importance=100),
    Column("level", meaning="the rubric in words", is_text=True, importance=45),
    Column("pass_at_1", "pass@1", meaning="the chance that one suggestion is right", is_text=True, importance=95),
    Column("pass_at_1_interval", "95 %", meaning="the interval of pass@1", is_text=True, importance=94),
    Column("pass_at_10", "pass@10", meaning="that one of ten is; needs ten suggestions", is_text=True, importance=93),
    Column("pass_at_10_interval", "95 % of 10", meaning="the interval of pass@10", is_text=True, importance=EXTRA),
    Column("fast_1", meaning="share that is right and faster than plain PyTorch", is_text=True, importance=92),
)


@printing
def evaluate(
    suggestions: Annotated[
        Path,
        typer.Option(
            "--suggestions", metavar="DIR", help="Files .py (Triton) or .cu, at most ten; or a tree KERNEL/MODEL/FILE."
        ),
    ],
    kernel: Annotated[
        str | None,
        typer.Option(
            "--kernel",
            metavar="NAME",
            help="axpy, gemv, gemm, spmv, jacobi, cg; or another task.",
            autocompletion=complete_task,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="The programming model that was asked for: triton or cuda.",
            autocompletion=one_of("triton", "cuda"),
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option("--gpu", help="GPU to compile for. [default: the one here, or h200]", autocompletion=complete_gpu),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option("--device", help="cpu: use Triton's interpreter, no GPU.", autocompletion=one_of("cpu")),
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Print the table of scores alone.")] = False,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Write a page with a plot, too.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over the --plot that is there.")] = False,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Decides the inputs of the checks; drawn anew by default.")
    ] = None,
    allow_unsandboxed: Annotated[
        bool,
        typer.Option("--allow-unsandboxed", help="Run source where there is no sandbox (`constrint docs proposals`)."),
    ] = False,
    *,
    output: Output,
) -> None:
    """Score suggestions for a kernel: each through the gates, then the rubric, pass@1, pass@10 and fast_p.

    Ends with exit code 1 where no suggestion of any prompt is or may be right.
    """
    from constrint.propose.evaluation import evaluate as scored
    from constrint.propose.examination import GateSettings

    if device not in (None, "cpu"):
        raise UsageError(f"--device takes cpu; leave it out for the GPU of this machine; got {device!r}.")
    if plot is not None and not force:
        _check_place(plot)
    output.check(PROMPT_COLUMNS if scores else COLUMNS)
    settings = GateSettings(allow_unsandboxed, device or "", seed=seed)
    with closing(Progress("evaluating")) as progress:

        def watch(name: str, asked: str, one: Suggestion) -> None:
            progress.say(f"{name} {asked}: {one.name}")

        found = scored(suggestions, kernel=kernel, model=model, gpu=gpu, settings=settings, watcher=watch)
    output.show(_page(found, has_scores_alone=scores))
    if plot is not None:
        command = ["constrint", "evaluate", "--suggestions", str(suggestions), "--gpu", found.gpu, "--plot", str(plot)]
        command += ["--kernel", kernel] if kernel else []
        command += ["--model", model] if model else []
        write_file(plot, [_plotted(found, shlex.join(command))], error=lambda why: _unwritable(plot, why))
    if not any(prompt.num_right[1] for prompt in found.prompts):
        raise typer.Exit(1)


def _check_place(place: Path) -> None:
    refuse_existing(place)
    if place.is_dir() or not place.parent.is_dir():
        raise UsageError(f"--plot {printed_line(str(place), 200)}: name a file in a folder that exists.")


def _unwritable(place: Path, why: str) -> UsageError:
    return UsageError(f"--plot {printed_line(str(place), 200)} cannot be written: {why}.")


def _page(found: Evaluation, *, has_scores_alone: bool) -> Page:
    suggestions = Table(COLUMNS, [_row(prompt, one) for prompt in found.prompts for one in prompt.suggestions])
    prompts = Table(PROMPT_COLUMNS, list(_prompt_rows(found)))
    notes = [
        found.conditions,
        "Intervals of 95 %: Wilson's for a prompt; for means a bootstrap over the prompts. A range such as 0.00-0.67 "
        "is what suggestions leave open that were compiled and not run.",
    ]

    refused = [(prompt, one) for prompt in found.prompts for one in prompt.suggestions if one.refused_by]
    reasons = [f"{prompt.kernel} {prompt.model} {one.name}: {one.message}" for prompt, one in refused]
    reasons += [""] if reasons else []

    def draw(show: Callable[[Table], None]) -> None:
        from constrint.answers.terminal import say, wrap

        show(suggestions)
        say("")
        for line in reasons:
            say(wrap(line))
        show(prompts)
        say("")
        for note in notes:
            say(wrap(note))

    def document(_: object) -> dict[str, Any]:
        return {"schema": SCHEMA, **found.document(), "means": _means_document(found)}

    if has_scores_alone:
        return Page(prompts, document, below=notes)
    return Page(suggestions, document, draw=draw)


def _row(prompt: PromptScore, one: Suggestion) -> list[object]:
    results = () if one.examined is None else one.examined.results
    # The gate `fast` only tells the least possible time where nothing was timed.
    passed: dict[str, bool] = {result.gate: result.passed for result in results if not result.is_modelled}
    cells = [{True: "yes", False: "NO", None: None}[passed.get(gate)] for gate in GATES]
    why = one.message if one.refused_by else None
    return [prompt.kernel, prompt.model, one.name, *cells, one.speed_up, why]


def _prompt_rows(found: Evaluation) -> Iterator[list[object]]:
    from constrint.propose.evaluation import rubric_of

    for prompt in found.prompts:
        least, most = prompt.levels
        level = least.name if least == most else f"{least.name} to {most.name}"
        right = _range(*map(str, prompt.num_right))
        ones, tens, fast = prompt.pass_at(1), prompt.pass_at(10), prompt.fast(1.0)
        yield [
            prompt.kernel, prompt.model, len(prompt.suggestions), right, _spread(rubric_of(prompt)), level,
            _spread(ones), _interval(ones), _spread(tens), _interval(tens), _spread(fast),
        ]  # fmt: skip
    models = list(dict.fromkeys(prompt.model for prompt in found.prompts))
    for model in models:
        rows = _of_model(found, model)
        if len(rows.prompts) > 1:
            yield _mean_row(rows, model)


def _mean_row(found: Evaluation, model: str) -> list[object]:
    from constrint.propose.evaluation import rubric_of

    ones, tens = found.mean(lambda one: one.pass_at(1)), found.mean(lambda one: one.pass_at(10))
    fast, rubric = found.mean(lambda one: one.fast(1.0)), found.mean(rubric_of)
    tens_interval = None if tens.least is None else _interval(tens)
    return [
        "mean", model, None, None, _spread(rubric), None, _spread(ones), _interval(ones), _spread(tens), tens_interval,
        _spread(fast),
    ]  # fmt: skip


def _of_model(found: Evaluation, model: str) -> Evaluation:
    from dataclasses import replace

    return replace(found, prompts=tuple(prompt for prompt in found.prompts if prompt.model == model))


def _means_document(found: Evaluation) -> list[dict[str, Any]]:
    from constrint.propose.evaluation import FACTORS, rubric_of

    means = []
    for model in dict.fromkeys(prompt.model for prompt in found.prompts):
        of_model = _of_model(found, model)
        scores: dict[str, Spread] = {"rubric": of_model.mean(rubric_of)}
        scores |= {f"pass_at_{k}": of_model.mean(lambda one, k=k: one.pass_at(k)) for k in (1, 10)}  # type: ignore[misc]
        scores |= {f"fast_{p:g}": of_model.mean(lambda one, p=p: one.fast(p)) for p in FACTORS}  # type: ignore[misc]
        shown = {
            name: {"least": one.least, "most": one.most, "interval": None if one.least is None else list(one.interval)}
            for name, one in scores.items()
        }
        means.append({"model": model, "num_prompts": len(of_model.prompts), **shown})
    return means


def _range(least: str, most: str) -> str:
    return least if least == most else f"{least}-{most}"


def _spread(spread: Spread) -> str | None:
    if spread.least is None or spread.most is None:
        return None
    return _range(f"{spread.least:.2f}", f"{spread.most:.2f}")


def _interval(spread: Spread) -> str:
    return f"{spread.interval[0]:.2f}-{spread.interval[1]:.2f}"


def _plotted(found: Evaluation, command: str) -> str:
    from constrint.cli.report import date_of_today
    from constrint.report import html_of_drawings
    from constrint.report.proficiency import draw_scores

    models = dict.fromkeys(prompt.model for prompt in found.prompts)
    drawings = [
        draw_scores(model, [_facts(prompt) for prompt in found.prompts if prompt.model == model], found.conditions)
        for model in models
    ]
    return html_of_drawings("Scores of suggested kernels", drawings, command, date_of_today())


def _facts(prompt: PromptScore) -> Any:
    from constrint.report.proficiency import ScoreFacts

    ones, fast, (least, most) = prompt.pass_at(1), prompt.fast(1.0), prompt.levels
    level = least.name if least == most else f"{least.name} to {most.name}"
    return ScoreFacts(
        kernel=prompt.kernel,
        num_suggestions=len(prompt.suggestions),
        rubric=(least.score, most.score),
        level=level,
        pass_1=(ones.least or 0.0, ones.most or 0.0),
        interval=ones.interval,
        fast_1=fast.least,
    )
