"""What `constrint propose` prints in the end: every candidate with its gates, and the best; or what would be done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import typer

from constrint.answers.record import pairs_text
from constrint.answers.table import EXTRA, Column, Page, Table
from constrint.answers.terminal import print_json, say, wrap
from constrint.answers.trial import named, time_text
from constrint.cli.output import Output
from constrint.cli.propose.asked import Asked
from constrint.cli.propose.progress import config_text, plain
from constrint.cli.propose.speaking import endpoint_of
from constrint.cli.propose.target import Target
from constrint.cli.run import INTERRUPTED
from constrint.errors import ConstrintError
from constrint.propose.llm.answer import estimated_tokens
from constrint.propose.llm.budget import Spending
from constrint.propose.llm.prompt import proposing, texts
from constrint.propose.llm.transcript import Header
from constrint.propose.records import Facts, GateResult
from constrint.propose.rounds.configs import BASELINE, Round, Rounds, Tried, reason_of
from constrint.tune.session import Goal, Tuned
from constrint.tune.store.record import TuningRecord

SCHEMA = "constrint.propose/1"
GATES = ("legal", "compiles", "right", "fast")
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


@dataclass(frozen=True)
class Outcome:
    """What came of a workload.

    Args:
        goal: The workload.
        rounds: Its rounds.
        tuned: What the tuner found; None where nothing was measured.
        is_interrupted: Whether it was ended by Ctrl-C.
    """

    goal: Goal
    rounds: Rounds
    tuned: Tuned | None = None
    is_interrupted: bool = False

    @property
    def winner(self) -> Tried | None:
        """The candidate that won where the best were timed once more in turn; None where another one did, or none."""
        won = None if self.tuned is None else self.tuned.winner
        config = None if won is None else dict(won.config)
        same = (one for one in self.rounds.tried if dict(one.candidate.config) == config)
        return next((one for one in same if won is not None and one.candidate.kernel == won.kernel), None)

    @property
    def known(self) -> TuningRecord | None:
        """The measurement that won although no proposal of this run came to it: it was known before."""
        return None if self.tuned is None or self.winner is not None else self.tuned.winner

    @property
    def best(self) -> Tried | None:
        """The fastest candidate."""
        return self.winner or self.rounds.best

    @property
    def seconds(self) -> float | None:
        """The best one's time."""
        if self.tuned is not None and self.winner is not None:
            return self.tuned.best_s
        return None if self.best is None else self.best.seconds

    @property
    def gain(self) -> float | None:
        """How many times as fast as the cost model's first choice it is; None where either is unknown."""
        if self.tuned is not None:
            return None if self.winner is None else self.tuned.gain
        first, seconds = self.rounds.tried[:1], self.seconds
        if not first or not first[0].gates or first[0].seconds is None or not seconds:
            return None
        return first[0].seconds / seconds

    @property
    def has_passed(self) -> bool:
        """Whether a proposal passed every gate; the cost model's own first choice is none."""
        timed = [tried for tried in self.rounds.tried if tried.gates and tried.seconds is not None]
        return any(tried.origin != BASELINE for tried in timed)


def print_outcomes(
    header: Header, target: Target, outcomes: Sequence[Outcome], spending: Spending, output: Output
) -> None:
    """What came of a run.

    Raises:
        ConstrintError: When the proposer could not be asked at all.
    """

    def document(_: object) -> dict[str, Any]:
        told = {"schema": SCHEMA, "gpu": target.gpu.name, "is_modelled": not target.devices, "run": header.run}
        told |= tokens_document(header, spending)
        return told | {"results": list(map(_document, outcomes))}

    def drawn(draw: Callable[[Table], None]) -> None:
        for outcome in outcomes:
            _print(outcome, target, draw)

    rows = [row for outcome in outcomes for row in _rows(outcome)]
    tokens = tokens_text(header, spending)
    output.show(Page(Table(COLUMNS, rows), document, draw=drawn, below=[tokens] if tokens else []))
    if any(outcome.is_interrupted for outcome in outcomes):
        raise typer.Exit(INTERRUPTED)
    silent = [outcome for outcome in outcomes if not outcome.rounds.rounds]
    if silent:
        raise ConstrintError(f"nothing was proposed: {silent[0].rounds.stopped}.")
    if not all(outcome.has_passed for outcome in outcomes):
        raise typer.Exit(1)


def tokens_document(header: Header, spending: Spending) -> dict[str, Any]:
    """Who answered, and what it took."""
    tokens = {"input": spending.input_tokens, "output": spending.output_tokens, "is_estimated": spending.is_estimated}
    proposer = {"name": header.proposer, "host": header.host, "judges": header.judge}
    return {"proposer": proposer, "tokens": tokens, "dollars": spending.dollars}


def tokens_text(header: Header, spending: Spending) -> str:
    """The same as a sentence; empty where nothing was spent."""
    money = f", ${spending.dollars:.4f}" if spending.dollars else ""
    about = "about " if spending.is_estimated else ""
    return f"{header.proposer} at {header.host}: {about}{spending.tokens:,} tokens{money}." if spending.tokens else ""


def _print(outcome: Outcome, target: Target, draw: Callable[[Table], None]) -> None:
    title = f"{named(outcome.goal.workload)} on {target.gpu.name}"
    fixed = " ".join(f"{name}={value}" for name, value in outcome.goal.fixed.items())
    say(wrap(title + (f" with {fixed}" if fixed else "")))
    draw(Table(COLUMNS, _rows(outcome)))
    best, seconds = outcome.best, outcome.seconds
    if best is None or seconds is None:
        say(wrap("No candidate passed every gate."))
    else:
        gain = "" if outcome.gain is None else f", {outcome.gain:.3f} times as fast as the cost model's first choice"
        how = "measured" if target.devices else "modelled, neither checked nor timed"
        say(wrap(f"best: {best.candidate.kernel} {config_text(best)}: {time_text(seconds)} ({how}){gain}"))
        say(wrap(f"from {best.origin}, round {best.round + 1}: {plain(reason_of(best.proposal))}"))
    known = outcome.known
    if known is not None and known.figures is not None:
        told = f"{known.kernel} {pairs_text(known.config)}: {time_text(known.figures.median_s)}"
        say(wrap(f"known before, and faster: {told}"))
    if outcome.rounds.stopped:
        say(wrap(f"It ended after {len(outcome.rounds.rounds)} rounds: {plain(outcome.rounds.stopped)}."))


def _rows(outcome: Outcome) -> list[list[object]]:
    workload = named(outcome.goal.workload)
    return [[workload, *_row(tried)] for tried in outcome.rounds.tried if tried.gates]


def _row(tried: Tried) -> list[object]:
    said: dict[str, GateResult] = {gate.gate: gate for gate in tried.gates}
    cells: list[object] = []
    for name in GATES:
        gate = said.get(name)
        word = None if gate is None else "yes" if gate.passed else "NO"
        cells.append("modelled" if gate is not None and gate.is_modelled else word)
    return [tried.round + 1, tried.candidate.kernel, tried.origin, *cells, tried.seconds, config_text(tried)]


def _document(outcome: Outcome) -> dict[str, Any]:
    workload, best = outcome.goal.workload, outcome.best
    told: dict[str, Any] = {"operation": workload.operation, "dtype": workload.dtype, "sizes": dict(workload.sizes)}
    told |= {"options": dict(workload.options), "fixed": dict(outcome.goal.fixed), "stopped": outcome.rounds.stopped}
    chosen = None
    if best is not None:
        chosen = {"kernel": best.candidate.kernel, "config": dict(best.candidate.config), "seconds": outcome.seconds}
        chosen |= {"origin": best.origin, "round": best.round, "because": reason_of(best.proposal)}
    told["known"] = None if outcome.known is None else outcome.known.id
    return told | {"best": chosen, "gain": outcome.gain, "rounds": list(map(_of_round, outcome.rounds.rounds))}


def _of_round(one: Round) -> dict[str, Any]:
    refusals = [{"proposal": n, "where": told.where, "message": told.message} for n, told in one.refusals]
    told = {"round": one.number, "fault": one.answer.fault, "message": one.answer.message, "refusals": refusals}
    told |= {"proposals": msgspec.to_builtins(list(one.proposals))}
    return told | {"candidates": [_of_candidate(one, tried) for tried in one.tried]}


def _of_candidate(one: Round, tried: Tried) -> dict[str, Any]:
    numbers = [number for number, proposal in enumerate(one.proposals) if proposal is tried.proposal]
    gates = [
        {
            "gate": gate.gate,
            "passed": gate.passed,
            "message": gate.message,
            "seconds": gate.seconds,
            "is_modelled": gate.is_modelled,
            "resources": msgspec.to_builtins(gate.resources),
        }
        for gate in tried.gates
    ]
    told: dict[str, Any] = {
        "kernel": tried.candidate.kernel,
        "config": dict(tried.candidate.config),
        "origin": tried.origin,
    }
    told |= {"proposal": numbers[0] if numbers else None, "predicted_s": tried.candidate.predicted_s, "gates": gates}
    verdict = msgspec.to_builtins(tried.verdict)
    return told | {"verdict": verdict, "metrics": tried.metrics, "record": tried.record and tried.record.id}


def print_dry_run(asked: Asked, target: Target, goals: Sequence[Goal], facts: Facts, said: str) -> None:
    """What would be asked first, and what would be done; `said` is what the built-in proposer would answer."""
    endpoint, messages = endpoint_of(asked), proposing(facts)
    question = estimated_tokens(texts(messages))
    if asked.output.is_json:
        document = {"schema": SCHEMA, "dry_run": True, "gpu": target.gpu.name, "is_modelled": not target.devices}
        document |= {"host": endpoint and endpoint.host, "model": endpoint and endpoint.model}
        document |= {"question_tokens": question, "messages": msgspec.to_builtins(messages)}
        document |= {"proposals": msgspec.json.decode(said)["proposals"] if said else None}
        print_json(document | {"goals": [named(goal.workload) for goal in goals]})
        return
    for message in messages:
        say(f"--- {message.role}")
        say(message.content)
    say("---")
    if endpoint is None:
        say("The built-in proposer would say:")
        say(said)
    else:
        has_key = (
            f"a key from {endpoint.key_variable}" if endpoint.key else f"no key: {endpoint.key_variable} is not set"
        )
        say(
            wrap(f"{endpoint.model} at {endpoint.host} would be asked that, with {has_key}; about {question:,} tokens.")
        )
    limits = asked.limits
    what = "compiled, checked and timed" if target.devices else "compiled; the cost model stands in for timing"
    say(
        wrap(
            f"Up to {limits.rounds} rounds of {limits.trials} candidates for {named(goals[0].workload)} "
            f"would be {what}."
        )
    )
