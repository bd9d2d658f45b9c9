"""The session of one workload: its next trials, their records, and the winner.

A session runs and stores nothing: the tuner carries its jobs to an engine and its records to a store.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from constrint.hwmodels import GpuModel
from constrint.select import Operation, Workload
from constrint.select.fingerprint import fingerprint_of
from constrint.select.toolchain import toolchain_of
from constrint.tune.engine.interface import Job, JobResult, TrialAnswer
from constrint.tune.floor import implausible
from constrint.tune.search.interface import Proposal, RecordSearch, Search
from constrint.tune.store.choices import best_records
from constrint.tune.store.record import TuningRecord, digest
from constrint.tune.trial import Outcome, Trial

#: Default number of trials that a session requests from its search at once.
BATCH = 2
#: Most repetitions of a trial whose device was lost.
MAX_MOVES = 1


@dataclass(frozen=True)
class Goal:
    """A workload of an operation, whose implementations all compete.

    Args:
        operation: The operation.
        workload: The workload.
        fixed: Values that parameters must have.
    """

    operation: Operation
    workload: Workload
    fixed: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Tuned:
    """The result of a workload.

    Args:
        goal: The workload.
        winner: The finalist with the least time; None where no configuration was correct.
        first: Record of the model's first choice, timed in turn with the finalists; None where it failed.
        outcomes: Number of trials by outcome.
        num_known: Number of them that an earlier run had measured.
        is_whole: Whether all trials were run: neither interrupted nor out of time.
        seconds: Time from the first trial to the last.
        problem: Reason for which nothing was tried, or for which the first trial failed where none was right; empty
            where there is a winner.
    """

    goal: Goal
    winner: TuningRecord | None
    first: TuningRecord | None
    outcomes: Mapping[str, int]
    num_known: int
    is_whole: bool
    seconds: float
    problem: str = ""

    @property
    def gain(self) -> float | None:
        """Time of the first choice over that of the winner; None where either is unknown."""
        if self.winner is None or self.first is None or not self.winner.figures or not self.first.figures:
            return None
        return self.first.figures.median_s / self.winner.figures.median_s

    @property
    def best_s(self) -> float | None:
        """The winner's time; None where there is none."""
        return None if self.winner is None or self.winner.figures is None else self.winner.figures.median_s


@dataclass(frozen=True)
class RunFacts:
    """The fields that all records of a run share."""

    run: str
    gpu: GpuModel
    toolchain: Mapping[str, str]


@dataclass
class Session:
    """The state of one workload.

    Args:
        goal: The workload.
        search: Proposes configurations.
        facts: Shared fields of the run's records.
        num_trials: Most configurations to try.
        num_final: Number of finalists, the quickest, which are timed once more in turn.
        earlier: Records of this workload by the same kernels and tools, which are not repeated.
        name_of: Name by which other processes find a kernel.
    """

    goal: Goal
    search: Search
    facts: RunFacts
    num_trials: int
    num_final: int
    earlier: Sequence[TuningRecord] = ()
    name_of: Callable[[str], str] = str
    stop_at: float = math.inf
    num_known: int = 0
    records: list[TuningRecord] = field(default_factory=list)
    finals: list[TuningRecord] = field(default_factory=list)
    started: float = 0.0
    is_through: bool = False
    is_whole: bool = True
    _pending: list[tuple[Proposal, TuningRecord | None]] = field(default_factory=list)
    _open: dict[int, Proposal | None] = field(default_factory=dict)
    _has_finals: bool = False
    _moves: Counter[int] = field(default_factory=Counter)

    @property
    def best_s(self) -> float:
        """The least time so far; infinite where there is none."""
        return min((r.figures.median_s for r in self.records if r.is_ok and r.figures), default=math.inf)

    @property
    def is_shown(self) -> bool:
        """Whether what a run shows however short its time is known: a right first choice, or all of the first batch."""
        if self.records or not self._pending:
            return bool(self.records)
        first = self._pending[0][1]
        return first is not None and first.is_ok

    @property
    def is_late(self) -> bool:
        """Whether trials are under way after their time, though the workload has something to show."""
        return bool(self._open) and self.is_shown and not self._has_finals and time.monotonic() > self.stop_at

    @property
    def num_tried(self) -> int:
        """Trials whose outcome is known."""
        return len(self.records)

    def next_jobs(self, numbers: Iterator[int], batch: int = BATCH) -> list[Job]:
        """The next jobs; empty while jobs are under way, and at the end of the session.

        Args:
            numbers: Source of job numbers.
            batch: Number of trials to ask the search for.
        """
        if not self.started:
            self.started = time.monotonic()
            self._recall()
        while not self._open and not self.is_through:
            if self._has_finals:
                self.is_through = True
                break
            proposals = self._ask(batch)
            if not proposals:
                return self._final_jobs(numbers)
            best_s = self.best_s
            jobs = [Job(next(numbers), (self._trial(proposal),), best_s=best_s) for proposal in proposals]
            self._open = {job.number: proposal for job, proposal in zip(jobs, proposals, strict=True)}
            self._pending = [(proposal, None) for proposal in proposals]
            return jobs
        return []

    def _recall(self) -> None:
        """Replay the earlier records to the search; enough of them, with finalists, finish the workload at once."""
        tried = latest(self.earlier)
        for record in tried:
            config = {name: value for name, value in record.config.items() if isinstance(value, int)}
            figures = record.figures if record.is_ok else None
            self._show(record)
            self.search.tell(Proposal(record.kernel, config), figures.median_s if figures else None)
        self.records, self.num_known = tried, len(tried)
        self.finals = finals_of(self.earlier, self.num_trials)
        self.is_through = bool(self.finals)

    def hear(self, done: JobResult, numbers: Iterator[int]) -> tuple[list[TuningRecord], list[Job]]:
        """Take the result of a job; returns its records, and new jobs for trials that a lost device did not run.

        A lost trial is repeated once; finalists that were lost together are timed one by one.
        """
        job = done.job
        proposal = self._open.pop(job.number)
        may_move = self._moves.pop(job.number, 0) < MAX_MOVES
        records, again = [], []
        for trial, answer in zip(job.trials, done.answers, strict=True):
            if answer.outcome == Outcome.NOT_RUN and may_move:
                again.append(Job(next(numbers), (trial,), is_final=job.is_final, best_s=job.best_s))
                self._open[again[-1].number], self._moves[again[-1].number] = proposal, 1
            else:
                records.append(self._record(trial, answer, proposal))
                if not job.is_final:
                    self._show(records[-1])
        if job.is_final:
            self.finals += records
        elif records:
            self._pending = [(one, records[0] if one is proposal else record) for one, record in self._pending]
            if not self._open:
                self._tell()
        return records, again

    def stop(self) -> set[int]:
        """Forget the jobs under way, whose numbers are returned; after trials finalists are next."""
        numbers = set(self._open)
        self._open = {}
        self._pending = [(proposal, record) for proposal, record in self._pending if record is not None]
        self._tell()
        self.is_whole = False
        return numbers

    def result(self) -> Tuned:
        """The result so far; without finalists the winner is the best of the trials."""
        right = [record for record in self.finals or self.records if record.is_ok and record.figures]
        first = self.records[0] if self.records else None
        winner = next(iter(best_records(right)), None)
        return Tuned(
            goal=self.goal,
            winner=winner,
            first=next((r for r in right if first and r.key == first.key), None),
            outcomes=dict(Counter(record.outcome for record in self.records)),
            num_known=self.num_known,
            is_whole=self.is_whole and self.is_through,
            seconds=time.monotonic() - self.started if self.started else 0.0,
            problem="" if winner is not None else self._first_fault(),
        )

    def _first_fault(self) -> str:
        """Outcome and message of the first trial that was not right; empty where there is none."""
        failed = next((record for record in (*self.records, *self.finals) if not record.is_ok), None)
        return "" if failed is None else f"{failed.outcome}: {failed.message}"

    def _ask(self, batch: int) -> list[Proposal]:
        left = self.num_trials - len(self.records)
        if left > 0 and self.records and time.monotonic() > self.stop_at:
            self.is_whole, left = False, 0
        fresh: list[Proposal] = []
        while len(fresh) < min(batch, left):
            proposals = self.search.ask(min(batch, left) - len(fresh))
            if not proposals:
                break
            # A search that ignores `tell` may propose configurations that have a record.
            fresh += [proposal for proposal in proposals if not self._is_known(proposal)]
        return fresh

    def _is_known(self, proposal: Proposal) -> bool:
        return any((r.kernel, r.config) == (proposal.kernel, proposal.config) for r in self.records)

    def _show(self, record: TuningRecord) -> None:
        """Hand a record to a search that takes whole records."""
        if isinstance(self.search, RecordSearch):
            self.search.hear(record)

    def _tell(self) -> None:
        """Report the times of the proposals to the search, in the order of the proposals."""
        for proposal, record in self._pending:
            assert record is not None
            figures = record.figures if record.is_ok else None
            self.search.tell(proposal, figures.median_s if figures else None)
            self.records.append(record)
        self._pending = []

    def _final_jobs(self, numbers: Iterator[int]) -> list[Job]:
        """The job of the finalists: the quickest and the first choice, timed in turn."""
        self._has_finals = True
        right = sorted((record for record in self.records if record.is_ok and record.figures), key=_order)
        chosen = right[: self.num_final]
        first = self.records[0] if self.records else None
        if first is not None and first in right and first not in chosen:
            chosen.append(first)
        if not chosen:
            self.is_through = True
            return []
        job = Job(next(numbers), tuple(map(self._trial_of, chosen)), is_final=True)
        self._open = {job.number: None}
        return [job]

    def _trial(self, proposal: Proposal) -> Trial:
        return Trial(self.name_of(proposal.kernel), self.goal.workload, dict(proposal.config), seed=proposal.seed)

    def _trial_of(self, record: TuningRecord) -> Trial:
        config = {name: value for name, value in record.config.items() if isinstance(value, int)}
        return Trial(self.name_of(record.kernel), self.goal.workload, config)

    def _record(self, trial: Trial, answer: TrialAnswer, proposal: Proposal | None) -> TuningRecord:
        """The record of an answer; a finalist, without a proposal, repeats the fields of its trial's record."""
        if proposal is not None:
            blank = self._blank(proposal.kernel, proposal.config)
            more: dict[str, Any] = {"predicted_s": _finite(proposal.predicted_s), "compiled": answer.compiled}
        else:
            blank = next(r for r in self.records if self._trial_of(r) == trial)
            more = {"run": self.facts.run, "created": time.time()}
        outcome, message = answer.outcome, answer.message
        if outcome == Outcome.NOT_RUN:
            outcome = Outcome.CRASHED
        elif outcome == Outcome.OK:
            seconds = answer.figures.median_s if answer.figures else math.nan
            message = implausible(self.goal.operation.spec(blank.kernel), self.facts.gpu, trial.workload, seconds)
            outcome = Outcome.IMPLAUSIBLE if message else outcome
        fields: dict[str, Any] = {"outcome": outcome.name.lower(), "message": message, "figures": answer.figures}
        return msgspec.structs.replace(blank, **fields, **more, error_over_bound=_finite(answer.error_over_bound))

    def _blank(self, kernel: str, config: Mapping[str, int]) -> TuningRecord:
        spec = self.goal.operation.spec(kernel)
        fingerprint = fingerprint_of(spec)
        workload = self.goal.workload
        return TuningRecord(
            kernel=kernel,
            operation=workload.operation,
            gpu=self.facts.gpu.name,
            dtype=workload.dtype,
            sizes=dict(workload.sizes),
            options=dict(workload.options),
            fixed=dict(self.goal.fixed),
            config=dict(config),
            outcome="",
            run=self.facts.run,
            created=time.time(),
            source_hash=fingerprint.source,
            spec_hash=fingerprint.spec,
            toolchain=dict(toolchain_of(spec, self.facts.toolchain)),
        )


def _order(record: TuningRecord) -> tuple[float, str, str]:
    """Sort key of records: time, then kernel and configuration, the same on every machine."""
    assert record.figures is not None
    return record.figures.median_s, record.kernel, digest(record.config)


def _finite(number: float | None) -> float | None:
    return None if number is None or not math.isfinite(number) else number


class NoSearch:
    """The search of a workload whose stored records suffice: it proposes nothing."""

    def ask(self, number: int) -> list[Proposal]:
        """Nothing."""
        return []

    def tell(self, proposal: Proposal, seconds: float | None) -> None:
        """Ignored."""


def finals_of(records: Sequence[TuningRecord], num_trials: int) -> list[TuningRecord]:
    """The finalists of the latest run, where `num_trials` configurations were tried; else none."""
    finals = [record for record in records if record.figures is not None and record.figures.is_final]
    if not finals or len(latest(records)) < num_trials:
        return []
    return [record for record in finals if record.run == finals[-1].run]


def latest(records: Iterable[TuningRecord]) -> list[TuningRecord]:
    """The newest record of each configuration, finals excluded, in the order of the trials."""
    ordered = sorted(records, key=lambda record: (record.created, record.id))
    newest = {r.key: r for r in ordered if r.figures is None or not r.figures.is_final}
    return sorted(newest.values(), key=lambda record: (record.created, record.id))
