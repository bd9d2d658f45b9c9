"""What `constrint tune` prints in the end: the winners as a table or as JSON, or what the tables hold already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from constrint.answers.table import Column, Page, Table
from constrint.cli.output import Output
from constrint.cli.tune.progress import named, time_text
from constrint.hwmodels import GpuModel
from constrint.tune.session import Goal
from constrint.tune.tuner import Report

SCHEMA = "constrint.tune/1"
#: The exit code after Ctrl-C, as shells give it.
INTERRUPTED = 130
_NAMED = (
    Column("workload", is_text=True, wraps=True, importance=95),
    Column("kernel", is_text=True, importance=70),
    Column("seconds", "time", meaning="measured", importance=100, show=time_text),
)
_CONFIG = Column("config", meaning="every parameter of the winner", is_text=True, wraps=True, importance=80)
#: The columns of what look-ups find, and of what came of a run.
FROZEN = (*_NAMED, _CONFIG)
TUNED = (
    *_NAMED,
    Column("gain", meaning="how many times as fast as the first choice", importance=90, show="{:.3f}".format),
    Column("num_tried", "tried", meaning="trials, whatever came of them", importance=40),
    Column("num_failed", "failed", meaning="those that did not end well", importance=40),
    _CONFIG,
)


def print_frozen(gpu: GpuModel, goals: Sequence[Goal], output: Output) -> None:
    """What look-ups find; ends with exit code 1 where they find nothing for a workload."""
    from constrint.select.winners import winner

    found = [winner(goal.operation.implementations, gpu, goal.workload, goal.fixed) for goal in goals]
    missing = sum(entry is None for entry in found)
    items = list(zip(goals, found, strict=True))
    rows = [
        (named(goal.workload), entry and entry.kernel, entry and entry.seconds, _config(entry)) for goal, entry in items
    ]

    def document(shown: Sequence[Any]) -> dict[str, Any]:
        results = [_of_goal(goal) | {"winner": _of_entry(entry)} for goal, entry in shown]
        return {"schema": SCHEMA, "gpu": gpu.name, "frozen": True, "results": results}

    below = [f"{len(goals) - missing} of {len(goals)} workloads have a measured winner on {gpu.name}."]
    output.show(Page(Table(FROZEN, rows, items), document, below=below))
    if missing:
        raise typer.Exit(1)


def print_report(gpu: GpuModel, report: Report, num_goals: int, seconds: float, output: Output) -> None:
    """What came of a run; ends with exit code 1 where a workload has no winner."""
    tuned = report.tuned
    is_whole = len(tuned) == num_goals and all(each.is_whole for each in tuned)
    has_all = len(tuned) == num_goals and all(each.winner is not None for each in tuned)

    def document(shown: Sequence[Any]) -> dict[str, Any]:
        told = {"schema": SCHEMA, "gpu": gpu.name, "frozen": False, "is_whole": is_whole, "seconds": seconds}
        devices = [{"name": use.name, "jobs": use.num_jobs, "busy_s": use.busy_s} for use in report.devices]
        told |= {"measuring_s": report.seconds, "devices": devices}
        return told | {"results": [_document(each) for each in shown]}

    below = [f"{len(tuned)} of {num_goals} workloads in {seconds:.0f} s on {gpu.name}; gain: over the first choice."]
    if not is_whole:
        below.append("It was ended before all was tried; --resume goes on with what is measured.")
    output.show(Page(Table(TUNED, list(map(_row, tuned)), tuned), document, below=below))
    if report.is_interrupted or not has_all:
        raise typer.Exit(INTERRUPTED if report.is_interrupted else 1)


def _row(each: Any) -> list[Any]:
    failed = sum(number for outcome, number in each.outcomes.items() if outcome != "ok")
    told = [named(each.goal.workload), each.winner and each.winner.kernel, each.best_s, each.gain]
    return [*told, sum(each.outcomes.values()), failed, _config(each.winner)]


def _of_goal(goal: Any) -> dict[str, Any]:
    workload = goal.workload
    told = {"operation": workload.operation, "dtype": workload.dtype, "sizes": dict(workload.sizes)}
    return told | {"options": dict(workload.options), "fixed": dict(goal.fixed)}


def _of_entry(entry: Any) -> dict[str, Any] | None:
    return entry and {"kernel": entry.kernel, "config": dict(entry.config), "seconds": entry.seconds}


def _document(tuned: Any) -> dict[str, Any]:
    def figure(record: Any) -> dict[str, Any] | None:
        if record is None:
            return None
        told = {"kernel": record.kernel, "config": dict(record.config), "seconds": record.figures.median_s}
        return told | {"spread_s": record.figures.spread_s, "rounds": record.figures.num_rounds, "id": record.id}

    told = {"winner": figure(tuned.winner), "first_choice": figure(tuned.first), "outcomes": dict(tuned.outcomes)}
    told |= {"problem": tuned.problem, "known": tuned.num_known, "is_whole": tuned.is_whole, "seconds": tuned.seconds}
    return _of_goal(tuned.goal) | told


def _config(record: Any) -> str | None:
    return None if record is None else " ".join(f"{name}={value}" for name, value in record.config.items())
