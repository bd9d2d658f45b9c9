"""`constrint propose --task`: kernels are written for a task, and every one goes through the gates of source."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import typer

from constrint.answers.table import Column, Page, Table
from constrint.answers.terminal import print_json
from constrint.answers.terminal import say as print_line
from constrint.answers.trial import time_text
from constrint.cli.propose.asked import Asked
from constrint.cli.propose.progress import say
from constrint.cli.propose.report import SCHEMA, tokens_document, tokens_text
from constrint.cli.propose.speaking import Speaking, endpoint_of
from constrint.cli.propose.target import Target, target_of
from constrint.cli.records_selection import opened
from constrint.cli.run import INTERRUPTED
from constrint.errors import ConstrintError
from constrint.propose.llm.answer import Speaker
from constrint.propose.llm.prompt import writing
from constrint.propose.rounds.provenance import Provenance, Work, kept_gates
from constrint.propose.rounds.sources import Files, SourceRound, SourceRounds, Written, built_in_files
from constrint.propose.source import Settings, examine, find_task
from constrint.propose.source.score import GATES
from constrint.tune.store.store import RecordStore

BUILT_IN, HUMAN = "built-in", "human"
#: The columns of what was written.
COLUMNS = (
    Column("round", meaning="from 1", importance=80),
    Column("candidate", meaning="a digest of the source", is_text=True, importance=100),
    Column("origin", "from", meaning="who wrote it", is_text=True, importance=75),
    *(Column(gate, meaning="yes, NO or modelled", is_text=True, importance=60) for gate in GATES),
    Column("seconds", "time", meaning="measured", importance=90, show=time_text),
    Column("speed_up", "speed-up", meaning="over plain PyTorch", importance=85, show="{:.3f}".format),
    Column("because", meaning="the writer's reason", is_text=True, wraps=True, importance=55),
)


class Kept:
    """Says how far it is, and keeps what was written and what came of it.

    Args:
        provenance: Who writes for what.
        store: Where it is kept.
    """

    def __init__(self, provenance: Provenance, store: RecordStore) -> None:
        self._provenance, self._store = provenance, store

    def begun(self, one: SourceRound, number: int) -> None:
        """Say what was proposed, and keep what was not taken of it."""
        say(f"round {one.number + 1}: {number} candidates" + (f"; {one.answer.message}" if one.answer.message else ""))
        refused = []
        for place, refusal in enumerate(one.refusals, number):
            told = f"{refusal.where}: {refusal.message}".removeprefix(": ")
            say(f"  refused: {told.splitlines()[0]}")
            blank = self._provenance.blank(one.number, place, None)
            refused.append(msgspec.structs.replace(blank, kind="", refusals=(told,)))
        self._store.add_proposals(refused)

    def finished(self, one: SourceRound, written: Written) -> None:
        """Say how far a candidate came, and keep it."""
        proposal, results = written.proposal, written.examined.results
        place = next(n for n, other in enumerate(one.written) if other is written)
        kept = msgspec.structs.replace(
            self._provenance.blank(one.number, place, proposal),
            because=proposal.because,
            kernel=proposal.task,
            gates=kept_gates(results),
            verdict="" if written.verdict is None else msgspec.json.encode(written.verdict).decode(),
        )
        self._store.add_proposals([kept])
        last = results[-1]
        came = "passed" if last.passed else "failed"
        say(f"  {_name(written)}: {came} {last.gate}" + (f": {last.message}" if last.message else ""))


def show_task(asked: Asked, name: str) -> None:
    """Print what a model would be asked first."""
    target, task = target_of(asked), find_task(name)
    rounds = SourceRounds(task, target.gpu, Files(task.name, [], HUMAN), partial(examine, gpu=target.gpu))
    messages = writing(rounds.facts)
    if asked.output.is_json:
        endpoint = endpoint_of(asked)
        document = {"schema": SCHEMA, "dry_run": True, "gpu": target.gpu.name, "task": task.name}
        document |= {"host": endpoint and endpoint.host, "messages": msgspec.to_builtins(messages)}
        print_json(document)
        return
    for message in messages:
        print_line(f"--- {message.role}")
        print_line(message.content)


def run_task(asked: Asked, name: str, files: Sequence[Path], *, allow_unsandboxed: bool) -> None:
    """Let somebody write, examine what is written, and print what came of it."""
    target, task = target_of(asked), find_task(name)
    writer = HUMAN if files else BUILT_IN
    chosen: Speaker = Files(task.name, files or built_in_files(task.name), writer)
    with ExitStack() as stack:
        speaking = Speaking(asked, target.gpu.name, task.name, task.describe(), writer)
        stack.callback(speaking.close)
        speaker = speaking.speaker(chosen)
        store = stack.enter_context(opened(asked.store, is_made=True))
        work = Work(task.name, target.gpu.name)
        provenance = Provenance(speaking.header.run, work, speaker, asked.replay is not None)
        settings = Settings(allow_unsandboxed, "cpu" if asked.device == "cpu" else "", speaker.name)
        header = speaking.header
        rounds = SourceRounds(
            task,
            target.gpu,
            speaker,
            lambda proposal: examine(proposal, target.gpu, settings),
            rounds=header.rounds,
            trials=header.trials if asked.model is not None or asked.replay is not None else 16,
            spending=speaking.spending,
            watcher=Kept(provenance, store),
        )
        is_interrupted = False
        try:
            rounds.run()
        except KeyboardInterrupt:
            is_interrupted = True
    asked.output.show(_page(rounds, target, speaking))
    if is_interrupted:
        raise typer.Exit(INTERRUPTED)
    if not rounds.rounds:
        raise ConstrintError(f"nothing was written: {rounds.stopped}.")
    if rounds.best is None:
        raise typer.Exit(1)


def _page(rounds: SourceRounds, target: Target, speaking: Speaking) -> Page:
    header, best = speaking.header, rounds.best

    def document(_: object) -> dict[str, Any]:
        whole: dict[str, Any] = {"schema": SCHEMA, "gpu": target.gpu.name, "run": header.run}
        whole |= tokens_document(header, speaking.spending)
        whole |= {"task": rounds.task.name, "stopped": rounds.stopped}
        whole |= {"best": None if best is None else _document(best)}
        told = [
            {
                "round": one.number,
                "fault": one.answer.fault,
                "message": one.answer.message,
                "refusals": msgspec.to_builtins(one.refusals),
                "candidates": list(map(_document, one.written)),
            }
            for one in rounds.rounds
        ]
        return whole | {"rounds": told}

    if best is None:
        waits = any(written.examined.refused_by == "" for written in rounds.written)
        rest = " Candidates that no gate refused are still to be run, on such a GPU." if waits else ""
        said = f"No candidate for {rounds.task.name} is known to be right and honest.{rest}"
    else:
        said = f"best: {_name(best)} of {best.origin}: {best.proposal.because}"
    tokens = tokens_text(header, speaking.spending)
    rows = [_row(one.number, written) for one in rounds.rounds for written in one.written]
    return Page(Table(COLUMNS, rows), document, below=[said, *([tokens] if tokens else [])])


def _name(written: Written) -> str:
    return written.examined.results[0].candidate


def _row(number: int, written: Written) -> list[object]:
    said = {result.gate: result for result in written.examined.results}
    cells: list[object] = []
    for gate in GATES:
        result = next((told for name, told in said.items() if name == gate), None)
        cells.append(
            None if result is None else ("modelled" if result.is_modelled else "yes") if result.passed else "NO"
        )
    last = written.examined.results[-1]
    seconds = None if last.is_modelled else last.seconds
    gain = written.examined.speed_up
    return [number + 1, _name(written), written.origin, *cells, seconds, gain, written.proposal.because]


def _document(written: Written) -> dict[str, Any]:
    examined = written.examined
    gates = [
        {name: getattr(result, name) for name in ("gate", "passed", "message", "seconds", "is_modelled")}
        for result in examined.results
    ]
    told = {"candidate": _name(written), "origin": written.origin, "gates": gates, "score": examined.score}
    told |= {"speed_up": examined.speed_up, "proposal": msgspec.to_builtins(written.proposal)}
    return told | {"verdict": msgspec.to_builtins(written.verdict)}
