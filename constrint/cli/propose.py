"""`constrint propose`: a language model, or built-in rules, propose; constraints, compilers and measurements decide.

The model is one search of the tuner (`constrint/tune/search/llm`), asked here for one workload after another. With
`--task` it writes kernels instead (`propose_task.py`).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from constrint.answers.table import EXTRA, Column, Page, Table, pairs_text
from constrint.answers.terminal import print_json, say, wrap
from constrint.answers.trial import named
from constrint.cli.completing import complete_task, one_of
from constrint.cli.llm_options import LlmOptions, plain, taking_model
from constrint.cli.llm_options import say as report
from constrint.cli.options import Choice, KernelCommand
from constrint.cli.output import Output, printing
from constrint.cli.propose_request import SCHEMA, ProposeRequest, Target, gate_text, target_of
from constrint.cli.run import INTERRUPTED
from constrint.cli.tune import seconds_of
from constrint.errors import ConstrintError, UnknownNameError, UsageError
from constrint.tune.engine.interface import RUN_PATIENCE_S, Engine, Setup
from constrint.tune.store.record import time_text

if TYPE_CHECKING:
    from constrint.tune.search.interface import SearchTask
    from constrint.tune.search.llm.gates import Attempt
    from constrint.tune.search.llm.outcome import SearchOutcome
    from constrint.tune.search.llm.records import GateResult, PredictedConfig
    from constrint.tune.search.llm.run import Conversation, LlmRun
    from constrint.tune.session import Goal
    from constrint.tune.store.store import RecordStore

JUDGES = ("rules", "model")
DEVICES = ("cuda", "cpu")
GATES = ("legal", "compiles", "right", "fast")
#: Default rounds, and candidates of a round.
ROUNDS, TRIALS = 5, 4
#: The tuner's trials of a workload: the rounds bound them.
NO_LIMIT = 1 << 30
#: The columns of candidates.
COLUMNS = (
    Column("workload", is_text=True, importance=EXTRA),
    Column("round", meaning="from 1", importance=80),
    Column("kernel", is_text=True, importance=75),
    Column("origin", "from", meaning="who proposed it", is_text=True, importance=85),
    *(Column(gate, meaning="yes, NO or modelled", is_text=True, importance=60) for gate in GATES),
    Column("seconds", "time", meaning="measured, unless the gate `fast` says modelled", importance=90, show=time_text),
    Column("config", meaning="every parameter", is_text=True, wraps=True, importance=70),
)


@KernelCommand.taking(files=False, rules=False)
@printing
@taking_model
def propose(
    choice: Choice,
    asking: LlmOptions,
    rounds: Annotated[
        int | None, typer.Option("--rounds", min=1, max=1000, help=f"Times the proposer is asked. [default: {ROUNDS}]")
    ] = None,
    trials: Annotated[
        int | None, typer.Option("--trials", min=1, max=64, help=f"Candidates of a round. [default: {TRIALS}]")
    ] = None,
    budget: Annotated[
        str | None, typer.Option("--budget", metavar="TIME", help="Time for everything: 60s, 10m, 1h.")
    ] = None,
    judge: Annotated[
        str, typer.Option("--judge", help="rules (built in), or model.", autocompletion=one_of("rules", "model"))
    ] = "rules",
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
        str | None, typer.Option("--store", metavar="URL", help="The store of proposals and records.")
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, help="Seconds that a candidate may take on the GPU.")
    ] = RUN_PATIENCE_S,
    device: Annotated[
        str,
        typer.Option("--device", help="cuda, or cpu for kernels that run there.", autocompletion=one_of("cuda", "cpu")),
    ] = "cuda",
    profile: Annotated[
        bool, typer.Option("--profile", help="Profile the best of each round with Nsight Compute for the judge.")
    ] = False,
    task: Annotated[
        str | None,
        typer.Option(
            "--task",
            metavar="NAME",
            help="Have a kernel written: softmax, ..., or FILE.py.",
            autocompletion=complete_task,
        ),
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
    _check(asking, judge, device, replay, transcript)
    _check_task(choice, asking, task, candidate, allow_unsandboxed)
    asking.check()
    request = ProposeRequest(
        choice, asking, rounds or ROUNDS, trials or TRIALS, seconds_of(budget), judge == "model", transcript, replay,
        resume, modelled, store, timeout, device, profile, output,
    )  # fmt: skip
    if task is not None:
        from constrint.cli.propose_task import run_task, show_task

        if dry_run:
            show_task(request, task)
        else:
            run_task(request, task, candidate or [], allow_unsandboxed=allow_unsandboxed)
        return
    output.check(COLUMNS)
    if dry_run:
        _show(request)
    else:
        _run(request)


def _run(request: ProposeRequest) -> None:
    """Search every workload of the request, and print the outcomes."""
    from constrint.cli.compiling import compile_shown
    from constrint.cli.records_selection import opened
    from constrint.cli.tune import goals_of_choice
    from constrint.kernels.registry import DEFAULT_KERNEL
    from constrint.tune.search.llm.rules import BuiltInProposer
    from constrint.tune.search.llm.run import LlmRun
    from constrint.tune.search.llm.search import Effort

    target = target_of(request)
    goals = goals_of_choice(request.choice, target.gpu, None, install=False)
    if target.note:
        report(f"note: {target.note}.")
    with ExitStack() as stack:
        kernel = request.choice.kernel or DEFAULT_KERNEL
        talk = request.conversation(target.gpu.name, kernel, str(goals[0].workload), BuiltInProposer.name)
        stack.callback(talk.close)
        store = stack.enter_context(opened(request.store, is_made=True))
        engine = _engine(request, target)
        if engine is not None:
            stack.callback(engine.close)
        head = talk.header
        effort = Effort(head.rounds, head.trials, engine is None, head.judge)
        run = LlmRun(talk, store, partial(compile_shown, is_apart=True), effort, report)
        outcomes: list[SearchOutcome] = []
        for goal in goals:
            outcomes.append(_search(request, target, goal, run, engine))
            if outcomes[-1].is_interrupted:
                break
    _print_outcomes(target, outcomes, talk, request.output)


def _engine(request: ProposeRequest, target: Target) -> Engine | None:
    """The engine of the devices that measure; None where the cost model replaces them."""
    if not target.devices:
        return None
    from constrint.kernels.registry import load_spec
    from constrint.tune.engine.local import LocalEngine
    from constrint.tune.search.llm.gates import NUM_INPUTS
    from constrint.tune.search.llm.profiler import find_ncu
    from constrint.tune.search.llm.search import SEED_BITS

    if request.has_profile and find_ncu() is None:
        raise UsageError(
            "--profile needs Nsight Compute, and there is no command ncu on the path; leave --profile out."
        )
    setup = Setup(load_spec, target.gpu, request.device, num_inputs=NUM_INPUTS, has_unusual=True)
    setup = replace(setup.with_patience(request.timeout_s), seed=secrets.randbits(SEED_BITS))
    return LocalEngine(setup, target.devices)


def _search(request: ProposeRequest, target: Target, goal: Goal, run: LlmRun, engine: Engine | None) -> SearchOutcome:
    """Search one workload: by the tuner on an engine, by the cost model's times without one."""
    from constrint.tune.search.llm.outcome import SearchOutcome
    from constrint.tune.tuner import Settings
    from constrint.tuning import tune

    search = run.search(_task(target, goal, run.store), profile=_profile(request, target, goal, engine))
    if engine is None:
        try:
            search.ask(1)
        except KeyboardInterrupt:
            return SearchOutcome(goal, search, is_interrupted=True)
        return SearchOutcome(goal, search)
    settings = Settings(
        target.gpu,
        lambda task: search,
        NO_LIMIT,
        run.conversation.left_s(),
        resume=request.resume,
        run=run.conversation.header.run,
    )
    result = tune([goal], settings, engine, run.store)
    return SearchOutcome(goal, search, result.tuned[0] if result.tuned else None, result.is_interrupted)


def _task(target: Target, goal: Goal, store: RecordStore | None = None) -> SearchTask:
    """The search's task, with the store's records of other workloads by the kernels of today."""
    from constrint.kernels.registry import code_of
    from constrint.tune.search.interface import SearchTask
    from constrint.tune.store.choices import of_one_code

    records = () if store is None else store.find(operation=goal.workload.operation, gpu=target.gpu.name)
    nearby = [record for record in of_one_code(records, code_of) if record.workload != goal.workload]
    return SearchTask(goal.operation, target.gpu, goal.workload, nearby, 0, goal.fixed)


def _profile(
    request: ProposeRequest, target: Target, goal: Goal, engine: Engine | None
) -> Callable[[PredictedConfig], Mapping[str, float]] | None:
    """The profiler of a workload's candidates; None where no profile is requested, or nothing is measured."""
    from constrint.kernels.registry import importable_name, load_spec
    from constrint.tune.search.llm.profiler import Profiler, find_ncu

    ncu = find_ncu()
    if not request.has_profile or engine is None or ncu is None:
        return None
    profiler = Profiler(ncu, load_spec, goal.workload, request.choice.gpu or target.gpu.name, request.device)

    def profile(candidate: PredictedConfig) -> Mapping[str, float]:
        metrics = profiler(candidate, importable_name(goal.operation.spec(candidate.kernel)))
        if profiler.problem:
            report(f"note: {profiler.problem}.")
        return metrics

    return profile


def _show(request: ProposeRequest) -> None:
    """Print the first question and the plan; nobody is asked, and nothing is compiled or stored."""
    import msgspec

    from constrint.cli.tune import goals_of_choice
    from constrint.tune.search.llm.answer import PromptRequest, estimated_tokens
    from constrint.tune.search.llm.prompt import messages_of
    from constrint.tune.search.llm.resolve import Resolver
    from constrint.tune.search.llm.rules import BuiltInProposer

    target = target_of(request)
    goals = goals_of_choice(request.choice, target.gpu, None, install=False)
    resolver = Resolver(_task(target, goals[0]))
    question, endpoint = PromptRequest(resolver.facts), request.asking.endpoint()
    messages = messages_of(question)
    reply = BuiltInProposer(resolver).answer(question).text if endpoint is None else ""
    tokens = estimated_tokens(message.content for message in messages)
    if request.output.is_json:
        document = {"schema": SCHEMA, "dry_run": True, "gpu": target.gpu.name, "is_modelled": not target.devices}
        document |= {"host": endpoint and endpoint.host, "model": endpoint and endpoint.model}
        document |= {"question_tokens": tokens, "messages": msgspec.to_builtins(messages)}
        document |= {"proposals": msgspec.json.decode(reply)["proposals"] if reply else None}
        print_json(document | {"goals": [named(goal.workload) for goal in goals]})
        return
    for message in messages:
        say(f"--- {message.role}")
        say(message.content)
    say("---")
    if endpoint is None:
        say("The built-in proposer would say:")
        say(reply)
    else:
        variable = endpoint.key_variable
        key = f"a key from {variable}" if endpoint.key else f"no key: {variable} is not set"
        say(wrap(f"{endpoint.model} at {endpoint.host} would be asked that, with {key}; about {tokens:,} tokens."))
    what = "compiled, checked and timed" if target.devices else "compiled; the cost model stands in for timing"
    rounds, trials, workload = request.rounds, request.trials, named(goals[0].workload)
    say(wrap(f"Up to {rounds} rounds of {trials} candidates for {workload} would be {what}."))


def _print_outcomes(target: Target, outcomes: Sequence[SearchOutcome], talk: Conversation, output: Output) -> None:
    """Print the outcomes of a run.

    Raises:
        ConstrintError: When the proposer could not be asked at all.
    """
    from constrint.tune.search.llm.outcome import proposer_document, proposer_text

    def document(_: object) -> dict[str, Any]:
        head = {"schema": SCHEMA, "gpu": target.gpu.name, "is_modelled": not target.devices, "run": talk.header.run}
        head |= proposer_document(talk.header, talk.spending)
        return head | {"results": [outcome.document() for outcome in outcomes]}

    def drawn(draw: Callable[[Table], None]) -> None:
        for outcome in outcomes:
            _print(outcome, target, draw)

    rows = [row for outcome in outcomes for row in _rows(outcome)]
    tokens = proposer_text(talk.header, talk.spending)
    output.show(Page(Table(COLUMNS, rows), document, draw=drawn, below=[tokens] if tokens else []))
    if any(outcome.is_interrupted for outcome in outcomes):
        raise typer.Exit(INTERRUPTED)
    silent = [outcome for outcome in outcomes if not outcome.search.rounds]
    if silent:
        raise ConstrintError(f"nothing was proposed: {plain(silent[0].search.stopped)}.")
    if not all(outcome.has_passed for outcome in outcomes):
        raise typer.Exit(1)


def _print(outcome: SearchOutcome, target: Target, draw: Callable[[Table], None]) -> None:
    from constrint.tune.search.llm.provenance import reason_of

    title = f"{named(outcome.goal.workload)} on {target.gpu.name}"
    fixed = pairs_text(outcome.goal.fixed)
    say(wrap(title + (f" with {fixed}" if fixed else "")))
    draw(Table(COLUMNS, _rows(outcome)))
    best, seconds = outcome.best, outcome.seconds
    if best is None or seconds is None:
        say(wrap("No candidate passed every gate."))
    else:
        gain = "" if outcome.gain is None else f", {outcome.gain:.3f} times as fast as the cost model's first choice"
        how = "measured" if target.devices else "modelled, neither checked nor timed"
        say(
            wrap(
                f"best: {best.candidate.kernel} {pairs_text(best.candidate.config)}: {time_text(seconds)} ({how}){gain}"
            )
        )
        say(wrap(f"from {best.origin}, round {best.round + 1}: {plain(reason_of(best.proposal))}"))
    earlier = outcome.earlier_winner
    if earlier is not None and earlier.figures is not None:
        measured = f"{plain(f'{earlier.kernel} {pairs_text(earlier.config)}')}: {time_text(earlier.figures.median_s)}"
        say(wrap(f"known before, and faster: {measured}"))
    if outcome.search.stopped:
        say(wrap(f"It ended after {len(outcome.search.rounds)} rounds: {plain(outcome.search.stopped)}."))


def _rows(outcome: SearchOutcome) -> list[list[object]]:
    workload = named(outcome.goal.workload)
    return [[workload, *_row(attempt)] for attempt in outcome.search.attempts if attempt.gates]


def _row(attempt: Attempt) -> list[object]:
    results: dict[str, GateResult] = {gate.gate: gate for gate in attempt.gates}
    cells: list[object] = [gate_text(results.get(name)) for name in GATES]
    kernel, config = attempt.candidate.kernel, pairs_text(attempt.candidate.config)
    return [attempt.round + 1, kernel, attempt.origin, *cells, attempt.seconds, config]


def _check(asking: LlmOptions, judge: str, device: str, replay: Path | None, transcript: Path | None) -> None:
    for name, value, names in (("judge", judge, JUDGES), ("device", device, DEVICES)):
        if value not in names:
            raise UnknownNameError(name, value, names)
    if judge == "model" and asking.llm is None and replay is None:
        raise UsageError("--judge model needs a model: --llm URL --model NAME.")
    if replay is not None and (asking.llm is not None or transcript is not None):
        raise UsageError("--replay answers from a transcript: give neither --llm nor --transcript with it.")


def _check_task(
    choice: Choice, asking: LlmOptions, task: str | None, candidate: list[Path] | None, allow_unsandboxed: bool
) -> None:
    if task is None and (candidate or allow_unsandboxed):
        raise UsageError("--candidate and --allow-unsandboxed are about kernels that are written: add --task NAME.")
    if task is not None and (choice.kernel or choice.sizes or choice.dtype):
        raise UsageError("--task names what is computed: give no --kernel, sizes or --dtype with it.")
    if candidate and asking.llm is not None:
        raise UsageError("--candidate examines files, --llm asks a model: give one of them.")
