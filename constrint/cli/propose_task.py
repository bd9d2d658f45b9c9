"""`constrint propose --task`: kernels are written for a task, and each goes through the gates of source."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from constrint.answers.table import Column, Page, Table
from constrint.answers.terminal import print_json
from constrint.answers.terminal import say as print_line
from constrint.cli.llm_options import plain
from constrint.cli.llm_options import say as report
from constrint.cli.propose_request import SCHEMA, ProposeRequest, Target, gate_text, target_of
from constrint.cli.records_selection import opened
from constrint.cli.run import INTERRUPTED
from constrint.errors import ConstrintError
from constrint.propose import GateSettings, examine, find_task
from constrint.propose.score import GATES
from constrint.propose.writing import Files, SourceRound, SourceRounds, Written, built_in_files
from constrint.tune.search.llm.answer import Speaker
from constrint.tune.search.llm.outcome import proposer_document, proposer_text
from constrint.tune.search.llm.prompt import writing
from constrint.tune.search.llm.provenance import blank_record, decided, record_of, refusal_text
from constrint.tune.store.record import time_text

if TYPE_CHECKING:
    from constrint.tune.search.llm.records import GateResult
    from constrint.tune.search.llm.run import Conversation
    from constrint.tune.store.proposals import ProposalRecord
    from constrint.tune.store.store import RecordStore

BUILT_IN, HUMAN = "built-in", "human"
#: Candidates of a round where files are examined, of which a round has all.
ALL_FILES = 16
#: The columns of written candidates.
COLUMNS = (
    Column("round", meaning="from 1", importance=80),
    Column("candidate", meaning="a digest of the source", is_text=True, importance=100),
    Column("origin", "from", meaning="who wrote it", is_text=True, importance=75),
    *(Column(gate, meaning="yes, NO or modelled", is_text=True, importance=60) for gate in GATES),
    Column("seconds", "time", meaning="measured", importance=90, show=time_text),
    Column("speed_up", "speed-up", meaning="over plain PyTorch", importance=85, show="{:.3f}".format),
    Column("because", meaning="the writer's reason", is_text=True, wraps=True, importance=55),
)


class WritingLog:
    """Stores each written candidate as it is decided, and says how far the run is.

    Args:
        blank: The fields that all records share.
        store: Keeps the records.
    """

    def __init__(self, blank: ProposalRecord, store: RecordStore) -> None:
        self._blank, self._store = blank, store

    def begun(self, one: SourceRound, number: int) -> None:
        """Say how many candidates a round has; store and say what was refused."""
        note = f"; {one.answer.message}" if one.answer.message else ""
        report(f"round {one.number + 1}: {number} candidates{note}")
        refused = []
        for place, refusal in enumerate(one.refusals, number):
            message = refusal_text(refusal)
            report("  refused: " + message.partition("\n")[0])
            refused.append(record_of(self._blank, one.number, place, None, kind="", because="", refusals=(message,)))
        self._store.add_proposals(refused)

    def finished(self, one: SourceRound, written: Written) -> None:
        """Store a candidate, and say which gate it reached."""
        proposal, results = written.proposal, written.examined.results
        place = next(n for n, other in enumerate(one.written) if other is written)
        told = decided(results, written.verdict)
        self._store.add_proposals([record_of(self._blank, one.number, place, proposal, kernel=proposal.task, **told)])
        last = results[-1]
        passed = "passed" if last.passed else "failed"
        report(f"  {_name(written)}: {passed} {last.gate}" + (f": {last.message}" if last.message else ""))


def show_task(request: ProposeRequest, name: str) -> None:
    """Print the first question that a model would get."""
    request.output.check(COLUMNS)
    target, task = target_of(request), find_task(name)
    rounds = SourceRounds(task, target.gpu, Files(task.name, [], HUMAN), partial(examine, gpu=target.gpu))
    messages = writing(rounds.facts)
    if request.output.is_json:
        endpoint = request.asking.endpoint()
        document = {"schema": SCHEMA, "dry_run": True, "gpu": target.gpu.name, "task": task.name}
        document |= {"host": endpoint and endpoint.host, "messages": msgspec.to_builtins(messages)}
        print_json(document)
        return
    for message in messages:
        print_line(f"--- {message.role}")
        print_line(message.content)


def run_task(request: ProposeRequest, name: str, files: Sequence[Path], *, allow_unsandboxed: bool) -> None:
    """Have kernels written or take `files`, examine them, and print the outcome."""
    request.output.check(COLUMNS)
    target, task = target_of(request), find_task(name)
    writer = HUMAN if files else BUILT_IN
    chosen: Speaker = Files(task.name, files or built_in_files(task.name), writer)
    with ExitStack() as stack:
        talk = request.conversation(target.gpu.name, task.name, task.describe(), writer)
        stack.callback(talk.close)
        speaker, head = talk.speaker(chosen), talk.header
        store = stack.enter_context(opened(request.store, is_made=True))
        blank = blank_record(head.run, speaker, task.name, target.gpu.name, is_replayed=talk.is_replayed)
        settings = GateSettings(allow_unsandboxed, "cpu" if request.device == "cpu" else "", speaker.name)
        rounds = SourceRounds(
            task,
            target.gpu,
            speaker,
            lambda proposal: examine(proposal, target.gpu, settings),
            rounds=head.rounds,
            trials=head.trials if request.asking.llm is not None or talk.is_replayed else ALL_FILES,
            spending=talk.spending,
            watcher=WritingLog(blank, store),
        )
        is_interrupted = False
        try:
            rounds.run()
        except KeyboardInterrupt:
            is_interrupted = True
    request.output.show(_page(rounds, target, talk))
    if is_interrupted:
        raise typer.Exit(INTERRUPTED)
    if not rounds.rounds:
        raise ConstrintError(f"nothing was written: {plain(rounds.stopped)}.")
    if rounds.best is None:
        raise typer.Exit(1)


def _page(rounds: SourceRounds, target: Target, talk: Conversation) -> Page:
    best = rounds.best

    def document(_: object) -> dict[str, Any]:
        whole: dict[str, Any] = {"schema": SCHEMA, "gpu": target.gpu.name, "run": talk.header.run}
        whole |= proposer_document(talk.header, talk.spending)
        whole |= {"task": rounds.task.name, "stopped": rounds.stopped}
        whole |= {"best": None if best is None else _document(best)}
        return whole | {"rounds": list(map(_of_round, rounds.rounds))}

    if best is None:
        waits = any(written.examined.refused_by == "" for written in rounds.written)
        rest = " Candidates that no gate refused are still to be run, on such a GPU." if waits else ""
        conclusion = f"No candidate for {rounds.task.name} is known to be right and honest.{rest}"
    else:
        conclusion = f"best: {_name(best)} of {best.origin}: {best.proposal.because}"
    tokens = proposer_text(talk.header, talk.spending)
    rows = [_row(one.number, written) for one in rounds.rounds for written in one.written]
    return Page(Table(COLUMNS, rows), document, below=[conclusion, *([tokens] if tokens else [])])


def _name(written: Written) -> str:
    return written.examined.results[0].candidate


def _row(number: int, written: Written) -> list[object]:
    results: dict[str, GateResult] = {result.gate: result for result in written.examined.results}
    cells: list[object] = [gate_text(results.get(gate)) for gate in GATES]
    last, gain = written.examined.results[-1], written.examined.speed_up
    seconds = None if last.is_modelled else last.seconds
    return [number + 1, _name(written), written.origin, *cells, seconds, gain, written.proposal.because]


def _of_round(one: SourceRound) -> dict[str, Any]:
    return {
        "round": one.number,
        "fault": one.answer.fault,
        "message": one.answer.message,
        "refusals": msgspec.to_builtins(one.refusals),
        "candidates": list(map(_document, one.written)),
    }


def _document(written: Written) -> dict[str, Any]:
    examined = written.examined
    gates = [
        {name: getattr(result, name) for name in ("gate", "passed", "message", "seconds", "is_modelled")}
        for result in examined.results
    ]
    document = {"candidate": _name(written), "origin": written.origin, "gates": gates, "score": examined.score}
    document |= {"speed_up": examined.speed_up, "proposal": msgspec.to_builtins(written.proposal)}
    return document | {"verdict": msgspec.to_builtins(written.verdict)}
