"""Results of tuning: what came of each workload of a run, and the winners that look-ups hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from constrint.answers.table import Column, Page, Table, pairs_text
from constrint.hwmodels import GpuModel
from constrint.select import Workload
from constrint.tune.store.record import time_text

if TYPE_CHECKING:
    from constrint.select.winners import TunedEntry
    from constrint.tune.session import Goal, Tuned
    from constrint.tune.store.record import TuningRecord
    from constrint.tune.tuner import TuningReport

SCHEMA = "constrint.tune/1"
#: The first step of a command until its first trial, before those of `TuningReport.first_trial`.
START = "the start of the command"
#: Least share of the time of a step that is told, and most workloads of which a fault is.
LEAST_SHARE, MOST_PROBLEMS = 0.02, 5


def named(workload: Workload) -> str:
    """A workload in a few letters: `gemm 4096x4096x4096 bf16 transpose_b`."""
    sizes = "x".join(str(size) for size in workload.sizes.values())
    options = [name if value == 1 else f"{name}={value}" for name, value in workload.options.items()]
    return " ".join([workload.operation, sizes, workload.dtype, *options])


_NAMED = (
    Column("workload", is_text=True, wraps=True, importance=95),
    Column("kernel", is_text=True, importance=70),
    Column("seconds", "time", meaning="measured", importance=100, show=time_text),
)
_CONFIG = Column("config", meaning="every parameter of the winner", is_text=True, wraps=True, importance=80)
#: The columns of winners that look-ups hold.
FROZEN = (*_NAMED, _CONFIG)
#: The columns of a run's results.
TUNED = (
    *_NAMED,
    Column("gain", meaning="how many times as fast as the first choice", importance=90, show="{:.3f}".format),
    Column("num_tried", "tried", meaning="trials, whatever came of them", importance=40),
    Column("num_failed", "failed", meaning="those that did not end well", importance=40),
    _CONFIG,
)


class TrialTime(msgspec.Struct):
    """A measured trial: median and spread in seconds, and the id of its record."""

    kernel: str
    config: dict[str, Any]
    seconds: float
    spread_s: float
    rounds: int
    id: str

    @classmethod
    def of(cls, record: TuningRecord | None) -> TrialTime | None:
        """The times of a record; None without a record."""
        if record is None:
            return None
        figures = record.figures
        assert figures is not None  # a winner was measured
        return cls(
            record.kernel, dict(record.config), figures.median_s, figures.spread_s, figures.num_rounds, record.id
        )


class WorkloadResult(msgspec.Struct, kw_only=True):
    """The result of one workload, as `constrint tune --json` prints it.

    Args:
        operation, dtype, sizes, options: The workload.
        fixed: Parameters that the caller gives, which are not tuned.
        winner: The fastest trial; None without one.
        first_choice: The model's first choice, measured in the same run.
        outcomes: Trials by outcome.
        problem: The reason why nothing was tried, or the first fault where nothing was right; empty with a winner.
        known: Trials that the store knew already.
        is_whole: Whether all trials were made.
        seconds: Time of the workload's session.
    """

    operation: str
    dtype: str
    sizes: dict[str, int]
    options: dict[str, int]
    fixed: dict[str, int]
    winner: TrialTime | None
    first_choice: TrialTime | None
    outcomes: dict[str, int]
    problem: str
    known: int
    is_whole: bool
    seconds: float


def frozen_page(gpu: GpuModel, goals: Sequence[Goal], winners: Sequence[TunedEntry | None]) -> Page:
    """The page of the winners that look-ups hold for some goals; None for a goal without a winner."""
    items = list(zip(goals, winners, strict=True))
    rows = [
        (named(goal.workload), entry and entry.kernel, entry and entry.seconds, _config_text(entry))
        for goal, entry in items
    ]

    def document(shown: Sequence[Any]) -> dict[str, Any]:
        results = [_goal_fields(goal) | {"winner": _entry_fields(entry)} for goal, entry in shown]
        return {"schema": SCHEMA, "gpu": gpu.name, "frozen": True, "results": results}

    number = sum(entry is not None for entry in winners)
    below = [f"{number} of {len(goals)} workloads have a measured winner on {gpu.name}."]
    return Page(Table(FROZEN, rows, items), document, below=below)


def tuned_page(
    gpu: GpuModel, report: TuningReport, num_goals: int, seconds: float, start_s: float, budget_s: float | None
) -> Page:
    """The page of a run's results.

    Args:
        gpu: The GPU.
        report: The results.
        num_goals: Workloads that were to be tuned.
        seconds: Time of the whole command.
        start_s: The part of it before the run: devices were found, and processes started.
        budget_s: The time that the command was given, in seconds; None for no limit.
    """
    tuned = report.tuned
    is_whole = len(tuned) == num_goals and all(each.is_whole for each in tuned)
    steps = {START: start_s, **report.first_trial} if report.first_trial else {}

    def document(shown: Sequence[Tuned]) -> dict[str, Any]:
        head = {"schema": SCHEMA, "gpu": gpu.name, "frozen": False, "is_whole": is_whole, "seconds": seconds}
        devices = [{"name": use.name, "jobs": use.num_jobs, "busy_s": use.busy_s} for use in report.devices]
        head |= {"measuring_s": report.seconds, "first_trial_s": steps, "devices": devices}
        return {**head, "results": [_result(one) for one in shown]}

    below = [f"{len(tuned)} of {num_goals} workloads in {seconds:.0f} s on {gpu.name}; gain: over the first choice."]
    if not is_whole:
        below.append("It was ended before all was tried; --resume goes on with what is measured.")
        if budget_s is not None and not report.is_interrupted and steps:
            below.append(_spent_text(steps, budget_s))
    below += [f"{named(each.goal.workload)}: {each.problem}" for each in tuned if each.problem][:MOST_PROBLEMS]
    return Page(Table(TUNED, list(map(_tuned_row, tuned)), tuned), document, below=below)


def _spent_text(steps: Mapping[str, float], budget_s: float) -> str:
    """How long a run waited for its first trial, and for what; the longest first, without what took next to no time."""
    whole = sum(steps.values())
    longest = sorted(((taken, step) for step, taken in steps.items() if taken >= LEAST_SHARE * whole), reverse=True)
    parts = ", ".join(f"{step} {taken:.1f} s" for taken, step in longest)
    return f"Of the budget of {budget_s:.0f} s the first trial took {whole:.1f} s: {parts}."


def _tuned_row(each: Tuned) -> list[Any]:
    failed = sum(number for outcome, number in each.outcomes.items() if outcome != "ok")
    times = [named(each.goal.workload), each.winner and each.winner.kernel, each.best_s, each.gain]
    return [*times, sum(each.outcomes.values()), failed, _config_text(each.winner)]


def _result(tuned: Tuned) -> WorkloadResult:
    return WorkloadResult(
        **_goal_fields(tuned.goal),
        winner=TrialTime.of(tuned.winner),
        first_choice=TrialTime.of(tuned.first),
        outcomes=dict(tuned.outcomes),
        problem=tuned.problem,
        known=tuned.num_known,
        is_whole=tuned.is_whole,
        seconds=tuned.seconds,
    )


def _goal_fields(goal: Goal) -> dict[str, Any]:
    workload = goal.workload
    return {
        "operation": workload.operation,
        "dtype": workload.dtype,
        "sizes": dict(workload.sizes),
        "options": dict(workload.options),
        "fixed": dict(goal.fixed),
    }


def _entry_fields(entry: TunedEntry | None) -> dict[str, Any] | None:
    if entry is None:
        return None
    return {"kernel": entry.kernel, "config": dict(entry.config), "seconds": entry.seconds}


def _config_text(record: TuningRecord | TunedEntry | None) -> str | None:
    return None if record is None else pairs_text(record.config)
