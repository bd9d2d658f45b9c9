"""Time all contenders on one layer: prepared first (compiled, built, chosen for), then timed in turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch

from benchmarks.harness.table import attempt
from benchmarks.rnn.contenders import Case, contenders, precision, runs_on
from benchmarks.rnn.entries import Entry, Job
from constrint.tune.measure import Timer

PASSES = ("forward", "both")
ROUNDS = 5
#: Stands for who is timed where the layer's tensors cannot be made.
EVERYONE = "everyone"
#: How something failed: by dtype, who, and which pass.
Failed = dict[tuple[str, str, str], str]


def case_of(job: Job, dtype: str) -> Case:
    """The layer in one dtype."""
    sizes = job.sizes
    return Case(sizes.cell, sizes.heads, sizes.dim, sizes.batch, sizes.time, dtype)


def everyone(job: Job, dtype: str) -> Iterator[tuple[str, Any]]:
    """Yield the contenders in one dtype."""
    return contenders(case_of(job, dtype), job.kinds, job.backends, job.sizes.layers)


def prepare(job: Job) -> Failed:
    """Let everyone run once, so that nothing is compiled while others are timed; returns what failed, and how."""
    failed: Failed = {}
    for dtype in job.dtypes:
        outcome = attempt(partial(_prepare, job, dtype, failed))["outcome"]
        if outcome != "ok":
            failed[dtype, EVERYONE, ""] = outcome
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return failed


def _prepare(job: Job, dtype: str, failed: Failed) -> None:
    with precision(dtype):
        for name, make in everyone(job, dtype):
            for which, (_, outcome) in _made(make).items():
                if outcome != "ok":
                    failed[dtype, name, which] = outcome


def measure(job: Job, dtype: str, timer: Timer, failed: Failed) -> list[Entry]:
    """Time everyone in one dtype, in turn; what fails, or has failed, does not run."""
    if (dtype, EVERYONE, "") in failed:
        return [Entry(dtype, EVERYONE, outcome=failed[dtype, EVERYONE, ""])]
    entries, calls = [], []
    with precision(dtype):
        for name, make in everyone(job, dtype):
            entry = Entry(dtype, name, runs_on=runs_on(case_of(job, dtype), name))
            entries.append(entry)
            failures = {which: failed[dtype, name, which] for which in PASSES if (dtype, name, which) in failed}
            if len(failures) < len(PASSES):
                for which, (call, outcome) in _made(make, tuple(failures)).items():
                    if outcome == "ok":
                        calls.append((entry, which, call))
                    else:
                        failures[which] = outcome
            entry.outcome = "; ".join(f"{which}: {outcome}" for which, outcome in failures.items()) or "ok"
        outcome = attempt(lambda: _time(timer, calls))["outcome"]
    if outcome != "ok":
        for entry, _, _ in calls:
            entry.outcome = outcome
    return entries


def measure_all(job: Job, failed: Failed) -> list[Entry]:
    """Time everyone in every dtype."""
    timer = Timer()
    return [entry for dtype in job.dtypes for entry in measure(job, dtype, timer, failed)]


def _made(make: Any, left_out: Sequence[str] = ()) -> dict[str, tuple[Any, str]]:
    """The calls that a contender makes, each run once, with its outcome."""
    made: list[Any] = []
    outcome = attempt(lambda: made.extend(make()))["outcome"]
    if outcome != "ok":
        return dict.fromkeys(PASSES, (None, outcome))
    calls = dict(zip(PASSES, made, strict=True))
    return {
        which: (call, attempt(partial(_run, call))["outcome"]) for which, call in calls.items() if which not in left_out
    }


def _run(call: Any) -> None:
    call()
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _time(timer: Timer, calls: Sequence[tuple[Entry, str, Any]]) -> None:
    figures = timer.from_python([call for _, _, call in calls], ROUNDS)
    for (entry, which, _), figure in zip(calls, figures, strict=True):
        entry.times[which] = figure
