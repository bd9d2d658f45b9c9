"""What `constrint tune` prints in the end: the winners as a table or as JSON, or what the tables hold already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from constrint.cli.output import print_json, print_table, say, wrap
from constrint.cli.tune_progress import named, time_text
from constrint.hwmodels import GpuModel
from constrint.tune.session import Goal
from constrint.tune.tuner import Report

SCHEMA = "constrint.tune/1"
#: The exit code after Ctrl-C, as shells give it.
INTERRUPTED = 130


def print_frozen(gpu: GpuModel, goals: Sequence[Goal], *, json: bool) -> None:
    """What look-ups find; ends with exit code 1 where they find nothing for a workload."""
    from constrint.select.winners import winner

    found = [winner(goal.operation.implementations, gpu, goal.workload, goal.fixed) for goal in goals]
    missing = sum(entry is None for entry in found)
    if json:
        results = [_of_goal(goal) | {"winner": _of_entry(entry)} for goal, entry in zip(goals, found, strict=True)]
        print_json({"schema": SCHEMA, "gpu": gpu.name, "frozen": True, "results": results})
    else:
        rows = [
            (named(goal.workload), entry and entry.kernel, entry and time_text(entry.seconds), _config(entry))
            for goal, entry in zip(goals, found, strict=True)
        ]
        print_table(("workload", "kernel", "time", "config"), rows, left=("workload", "kernel", "config"))
        say(wrap(f"{len(goals) - missing} of {len(goals)} workloads have a measured winner on {gpu.name}."))
    if missing:
        raise typer.Exit(1)


def print_report(gpu: GpuModel, report: Report, num_goals: int, seconds: float, *, json: bool) -> None:
    """What came of a run; ends with exit code 1 where a workload has no winner."""
    tuned = report.tuned
    is_whole = len(tuned) == num_goals and all(each.is_whole for each in tuned)
    has_all = len(tuned) == num_goals and all(each.winner is not None for each in tuned)
    if json:
        document = {"schema": SCHEMA, "gpu": gpu.name, "frozen": False, "is_whole": is_whole, "seconds": seconds}
        devices = [{"name": use.name, "jobs": use.num_jobs, "busy_s": use.busy_s} for use in report.devices]
        document |= {"measuring_s": report.seconds, "devices": devices}
        print_json(document | {"results": [_document(each) for each in tuned]})
    else:
        rows = []
        for each in tuned:
            winner = each.winner
            failed = sum(number for outcome, number in each.outcomes.items() if outcome != "ok")
            rows.append(
                (
                    named(each.goal.workload),
                    winner and winner.kernel,
                    each.best_s and time_text(each.best_s),
                    each.gain and f"{each.gain:.3f}",
                    sum(each.outcomes.values()),
                    failed,
                    _config(winner),
                )
            )
        headers = ("workload", "kernel", "time", "gain", "tried", "failed", "config")
        print_table(headers, rows, left=("workload", "kernel", "config"))
        say(
            wrap(
                f"{len(tuned)} of {num_goals} workloads in {seconds:.0f} s on {gpu.name}; gain: over the first choice."
            )
        )
        if not is_whole:
            say(wrap("It was ended before all was tried; --resume goes on with what is measured."))
    if report.is_interrupted or not has_all:
        raise typer.Exit(INTERRUPTED if report.is_interrupted else 1)


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


def _config(record: Any) -> str:
    return "" if record is None else " ".join(f"{name}={value}" for name, value in record.config.items())
