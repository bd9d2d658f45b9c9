"""The command: its options, and whether they make sense together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from constrint.cli.options import Choice, KernelCommand
from constrint.cli.output import Output, printing
from constrint.cli.propose.asked import Asked, Limits, Model
from constrint.cli.tune import seconds_of
from constrint.errors import UnknownNameError, UsageError
from constrint.tune.engine.interface import RUN_PATIENCE_S

JUDGES = ("rules", "model")
DEVICES = ("cuda", "cpu")
#: Rounds, and candidates of a round, where nobody says how many.
ROUNDS, TRIALS = 5, 4
#: Seconds that a model may take to answer.
ANSWER_S = 120.0


@KernelCommand.taking(files=False, rules=False)
@printing
def propose(
    choice: Choice,
    llm: Annotated[
        str | None, typer.Option("--llm", metavar="URL", help="An OpenAI-compatible endpoint; built-in rules without.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", metavar="NAME", help="The model at the endpoint.")] = None,
    key: Annotated[
        str | None, typer.Option("--key-variable", metavar="NAME", help="Environment variable that holds the key.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option("--rounds", min=1, max=1000, help=f"Times the proposer is asked. [default: {ROUNDS}]")
    ] = None,
    trials: Annotated[
        int | None, typer.Option("--trials", min=1, max=64, help=f"Candidates of a round. [default: {TRIALS}]")
    ] = None,
    budget: Annotated[
        str | None, typer.Option("--budget", metavar="TIME", help="Time for everything: 60s, 10m, 1h.")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option("--tokens", min=1, help="Tokens of all questions and replies at most.")
    ] = None,
    dollars: Annotated[
        float | None, typer.Option("--dollars", min=0.0, help="Money for the same; needs --prices.")
    ] = None,
    prices: Annotated[
        str | None, typer.Option("--prices", metavar="IN,OUT", help="Dollars for a million tokens: 2.5,10.")
    ] = None,
    answer_time: Annotated[
        float, typer.Option("--answer-time", min=0.1, help="Seconds that a reply may take, retries included.")
    ] = ANSWER_S,
    judge: Annotated[str, typer.Option("--judge", help="rules (built in), or model.")] = "rules",
    transcript: Annotated[
        Path | None, typer.Option("--transcript", metavar="FILE", help="Write down what is asked and answered.")
    ] = None,
    replay: Annotated[
        Path | None, typer.Option("--replay", metavar="FILE", help="Take the answers from a transcript, not a model.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with --transcript; do not measure again what the store knows.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the first question and what would be done; ask nobody.")
    ] = False,
    modelled: Annotated[
        bool, typer.Option("--modelled", help="Measure nothing: the cost model stands in for the GPU.")
    ] = False,
    store: Annotated[
        str | None, typer.Option("--store", metavar="URL", help="Where proposals and records are kept.")
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, help="Seconds that a candidate may take on the GPU.")
    ] = RUN_PATIENCE_S,
    device: Annotated[str, typer.Option("--device", help="cuda, or cpu for kernels that run there.")] = "cuda",
    profile: Annotated[
        bool, typer.Option("--profile", help="Profile the best of each round with Nsight Compute for the judge.")
    ] = False,
    task: Annotated[
        str | None, typer.Option("--task", metavar="NAME", help="Have a kernel written: softmax, ..., or FILE.py.")
    ] = None,
    candidate: Annotated[
        list[Path] | None,
        typer.Option("--candidate", metavar="FILE", help="With --task: a kernel that is there already."),
    ] = None,
    allow_unsandboxed: Annotated[
        bool,
        typer.Option("--allow-unsandboxed", help="Run source where there is no sandbox (`constrint docs proposals`)."),
    ] = False,
    *,
    output: Output,
) -> None:
    """Let a language model, or built-in rules, propose; believe what was compiled, checked and timed."""
    if replay is not None and (rounds is not None or trials is not None):
        raise UsageError("--replay takes rounds and trials from the transcript: give no others.")
    _check(judge, device, llm, replay, transcript)
    _check_task(choice, task, candidate, allow_unsandboxed, llm)
    asked = Asked(
        choice=choice,
        model=_model(llm, model, key, answer_time, judge),
        limits=Limits(
            rounds or ROUNDS, trials or TRIALS, seconds_of(budget), tokens, dollars, _prices(prices, dollars)
        ),
        transcript=transcript,
        replay=replay,
        resume=resume,
        is_modelled=modelled,
        store=store,
        timeout_s=timeout,
        device=device,
        has_profile=profile,
        output=output,
    )
    if task is not None:
        from constrint.cli.propose.task import COLUMNS, run_task, show_task

        output.check(COLUMNS)
        if dry_run:
            show_task(asked, task)
        else:
            run_task(asked, task, candidate or [], allow_unsandboxed=allow_unsandboxed)
        return
    from constrint.cli.propose.report import COLUMNS as COLUMNS_OF_RUN
    from constrint.cli.propose.run import run, show

    output.check(COLUMNS_OF_RUN)
    if dry_run:
        show(asked)
    else:
        run(asked)


def _check(judge: str, device: str, llm: str | None, replay: Path | None, transcript: Path | None) -> None:
    for name, value, known in (("judge", judge, JUDGES), ("device", device, DEVICES)):
        if value not in known:
            raise UnknownNameError(name, value, known)
    if judge == "model" and llm is None and replay is None:
        raise UsageError("--judge model needs a model: --llm URL --model NAME.")
    if replay is not None and (llm is not None or transcript is not None):
        raise UsageError("--replay answers from a transcript: give neither --llm nor --transcript with it.")


def _check_task(
    choice: Choice, task: str | None, candidate: list[Path] | None, allow_unsandboxed: bool, llm: str | None
) -> None:
    if task is None and (candidate or allow_unsandboxed):
        raise UsageError("--candidate and --allow-unsandboxed are about kernels that are written: add --task NAME.")
    if task is not None and (choice.kernel or choice.sizes or choice.dtype):
        raise UsageError("--task names what is computed: give no --kernel, sizes or --dtype with it.")
    if candidate and llm is not None:
        raise UsageError("--candidate examines files, --llm asks a model: give one of them.")


def _model(llm: str | None, name: str | None, key: str | None, answer_s: float, judge: str) -> Model | None:
    if llm is None:
        given = {"--model": name, "--key-variable": key}
        extra = [option for option, value in given.items() if value is not None]
        if extra:
            raise UsageError(f"{', '.join(extra)}: name the endpoint, too: --llm URL.")
        return None
    if name is None:
        raise UsageError("--llm needs the model's name there: --model NAME.")
    return Model(llm, name, key, answer_s, judge == "model")


def _prices(text: str | None, dollars: float | None) -> tuple[float, float] | None:
    if text is None:
        if dollars is not None:
            raise UsageError("--dollars needs the prices of tokens: --prices IN,OUT, in dollars for a million.")
        return None
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != 2 or not all(0 <= number < 1e6 for number in numbers):
        raise UsageError(f"--prices {text!r}: write dollars for a million tokens in and out, such as 2.5,10.")
    return numbers[0], numbers[1]
