"""The tuner's loop: it carries the jobs of several workloads to an engine, and their records to a store.

    goal -> search (made ahead, `search/maker.py`) -> session -> jobs -> engine -> records -> store

Records are stored as they come, so that an interruption, a crash or a full disk loses at most the trials under way and
the records on their way to the disk.
"""

from __future__ import annotations

import itertools
import math
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Protocol

from constrint.errors import ConstrintError, InfeasibleError, LimitReachedError, UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.select.fingerprint import fingerprint_of
from constrint.select.toolchain import differences, toolchain_of
from constrint.tune.engine.interface import Engine, Job, JobResult
from constrint.tune.search.interface import Search, SearchTask
from constrint.tune.search.maker import PendingSearch, SearchMaker
from constrint.tune.session import BATCH, Goal, NoSearch, RunFacts, Session, Tuned, finals_of
from constrint.tune.store.record import TuningRecord
from constrint.tune.store.store import RecordStore
from constrint.tune.store.writer import Writer
from constrint.tune.trial import Load

#: Workloads that are open at once on one device: one compiles while another runs.
OPEN = 12
POLL_S = 0.25
#: Fewest trials queued for each device, also at the end of a run with few workloads left.
LEAST_JOBS = 2
#: Most trials that a search is asked for at once, since it learns nothing between them.
MOST_BATCH = 4 * BATCH
#: Share of a run's time before its end in which finalists alone are begun, and after it in which they may end.
FINAL_SHARE = 0.1
#: Name of the first step to a run's first result, before those of `JobResult.steps`.
SEARCH = "the search"
#: Trials before an estimate of the remaining time: the first ones include loading.
TELLING_TRIALS = 12


class Listener(Protocol):
    """Follows the progress of a run."""

    def started(self, slot: int, session: Session) -> None:
        """A workload begins on a device."""

    def tried(self, slot: int, session: Session, record: TuningRecord, left_s: float | None) -> None:
        """A trial has a record; `left_s` is the estimated time left of the run, or None."""

    def finished(self, slot: int, tuned: Tuned) -> None:
        """A workload is finished."""


@dataclass(frozen=True)
class Settings:
    """Bounds and method of a run.

    Args:
        gpu: The hardware model of all devices.
        search: Makes the search of a task.
        trials: Most configurations of a workload.
        budget_s: Time for all workloads, in seconds; None for no limit.
        num_final: Finalists of a workload, timed once more in turn.
        resume: Whether stored records of the same kernels, GPU and tools are used in place of new trials.
        seed: Seed of the searches.
        name_of: Name by which other processes find a kernel.
        run: Name of the run in the store; a new one if empty.
        load: Finds a kernel by that name, so that searches are made in other processes; None to make them in a thread
            of this one, which then has less time for the devices.
    """

    gpu: GpuModel
    search: Callable[[SearchTask], Search]
    trials: int = 16
    budget_s: float | None = None
    num_final: int = 4
    resume: bool = False
    seed: int = 0
    name_of: Callable[[str], str] = str
    load: Load | None = None
    run: str = ""


@dataclass
class Use:
    """Work of a device in a run.

    Args:
        name: The device.
        num_jobs: Trials and rounds of finalists that it ran.
        busy_s: Their time, in seconds.
    """

    name: str
    num_jobs: int = 0
    busy_s: float = 0.0


@dataclass(frozen=True)
class TuningReport:
    """The result of a run.

    Args:
        tuned: The workloads that were begun, in the order in which they finished.
        is_interrupted: Whether Ctrl-C ended it.
        devices: Work of each device.
        seconds: Time from the first result to the last, without the start of processes.
        first_trial: Seconds of each step from the start of the run to the first result, in order; empty without one.
    """

    tuned: tuple[Tuned, ...]
    is_interrupted: bool = False
    devices: tuple[Use, ...] = ()
    seconds: float = 0.0
    first_trial: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Waiting:
    """A workload that was not begun.

    Args:
        goal: The workload.
        records: Records of its operation on this GPU.
        again: Those of this workload, which replace trials.
        search: Its search, once it is being made.
    """

    goal: Goal
    records: Sequence[TuningRecord]
    again: Sequence[TuningRecord] = ()
    search: PendingSearch | Future[Search] | None = None


def records_of(store: RecordStore, goal: Goal, gpu: GpuModel, tools: Mapping[str, str]) -> list[TuningRecord]:
    """Stored records of an operation on a GPU, measured by today's tools."""
    own = {spec.full_name: toolchain_of(spec, tools) for spec in goal.operation.implementations}
    records = store.find(operation=goal.workload.operation, gpu=gpu.name)
    return [r for r in records if not differences(r.toolchain, own.get(r.kernel, tools))]


def is_same(goal: Goal, record: TuningRecord) -> bool:
    """Whether a record is of this workload and of today's kernels."""
    if record.workload != goal.workload or record.fixed != dict(goal.fixed):
        return False
    specs = {spec.full_name: spec for spec in goal.operation.implementations}
    spec = specs.get(record.kernel)
    return spec is not None and (record.source_hash, record.spec_hash) == tuple(fingerprint_of(spec))


def new_run() -> str:
    """A unique name of a run."""
    return uuid.uuid4().hex[:12]


class Tuner:
    """Tunes workloads, several at once on each device.

    Args:
        settings: Bounds and method.
        engine: Runs the trials.
        store: Keeps their records.
        listener: Follows the progress.
    """

    def __init__(
        self, settings: Settings, engine: Engine, store: RecordStore, listener: Listener | None = None
    ) -> None:
        self._settings, self._engine, self._store, self._listener = settings, engine, store, listener
        self._facts = RunFacts(settings.run or new_run(), settings.gpu, engine.toolchain)
        self._numbers = itertools.count()
        #: The session of each job under way.
        self._jobs: dict[int, Session] = {}
        self._sessions: list[list[Session]] = [[] for _ in engine.slots]
        self._lost: set[int] = set()
        self._records: dict[str, list[TuningRecord]] = {}
        self._has_begun = False
        self._use = [Use(name) for name in engine.slots]
        #: Times of the first and the last result.
        self._first_done = self._last_done = 0.0
        self._first_trial: dict[str, float] = {}
        self._has_shown = False

    def run(self, goals: Sequence[Goal]) -> TuningReport:
        """Tune workloads; Ctrl-C ends the run with the results so far.

        Raises:
            ConstrintError: When no device can be used, or the store fails.
        """
        tuned: list[Tuned] = []
        is_interrupted = False
        started = time.monotonic()
        budget_s = self._settings.budget_s
        self._until = None if budget_s is None else started + budget_s
        self._reserve_s = 0.0 if budget_s is None else FINAL_SHARE * budget_s
        self._started, self._num_trials, self._num_made = started, 0, 0
        self._submitted = math.inf
        self._left = len(goals) * self._settings.trials
        self._writer = Writer(self._store)
        waiting = deque(Waiting(goal, self._records_of(goal)) for goal in goals)
        maker = self._search_maker()
        try:
            while waiting or any(self._sessions):
                self._make_ahead(waiting, maker)
                self._share_what_is_left(waiting)
                for unable in self._open(waiting):
                    tuned.append(unable)
                    if self._listener:
                        self._listener.finished(0, unable)
                tuned += self._advance()
                if self._jobs:
                    self._hear(self._engine.poll(POLL_S))
                tuned += self._ended_by_time(waiting)
            self._writer.wait()
        except KeyboardInterrupt:
            self._writer.wait()
            is_interrupted = True
            tuned += [session.result() for sessions in self._sessions for session in sessions]
        finally:
            maker.close()
            self._writer.close()
        measured_s = self._last_done - self._first_done
        return TuningReport(tuple(tuned), is_interrupted, tuple(self._use), measured_s, self._first_trial)

    def _advance(self) -> Iterator[Tuned]:
        """Submit the next jobs of all sessions; yields the results of finished ones."""
        num_open = sum(map(len, self._sessions))
        for slot, sessions in enumerate(self._sessions):
            for session in list(sessions):
                self._submit(slot, session, session.next_jobs(self._numbers, self._batch(num_open)))
                if session.is_through:
                    sessions.remove(session)
                    yield self._finish(slot, session)

    def _batch(self, num_open: int) -> int:
        """Number of trials that a workload may have under way, so that no device idles while few workloads are left."""
        num_devices = len(self._sessions) - len(self._lost)
        return max(BATCH, min(MOST_BATCH, math.ceil(LEAST_JOBS * num_devices / num_open)))

    def _share_what_is_left(self, waiting: deque[Waiting]) -> None:
        """Give the last workloads all of the time that is left."""
        if self._until is not None and not waiting:
            for session in itertools.chain.from_iterable(self._sessions):
                session.stop_at = self._until - self._reserve_s

    def _ended_by_time(self, waiting: deque[Waiting]) -> list[Tuned]:
        """Drop trials for which there is no time left; after the last moment, all that is under way.

        The first choice of a run is waited for; where it fails, the rest of its batch.
        """
        sessions = list(itertools.chain.from_iterable(self._sessions))
        self._has_shown |= any(session.is_shown for session in sessions)
        is_over = self._until is not None and time.monotonic() > self._until + self._reserve_s and self._has_shown
        for session in sessions:
            if is_over or session.is_late:
                self._drop(session.stop())
        if not is_over:
            return []
        waiting.clear()
        for slot in self._sessions:
            slot.clear()
        ended = [replace(session.result(), is_whole=False) for session in sessions]
        if self._listener:
            for tuned in ended:
                self._listener.finished(0, tuned)
        return ended

    def _drop(self, numbers: set[int]) -> None:
        self._engine.drop(numbers)
        for number in numbers:
            del self._jobs[number]

    def _search_maker(self) -> SearchMaker:
        """The maker of searches, which solves spaces while devices are at work."""
        settings = self._settings
        return SearchMaker(
            settings.search,
            settings.gpu,
            self._records,
            load=settings.load,
            name_of=settings.name_of,
            num_processes=len(self._sessions),
        )

    def _make_ahead(self, waiting: deque[Waiting], maker: SearchMaker) -> None:
        """Begin to make the searches of the next workloads: those that there is room for, and one more per device."""
        num_devices = len(self._sessions)
        room = OPEN * num_devices - sum(map(len, self._sessions))
        for each in itertools.islice(waiting, room + num_devices):
            if each.search is None:
                goal, settings = each.goal, self._settings
                each.again = [r for r in each.records if settings.resume and is_same(goal, r)]
                if finals_of(each.again, settings.trials):
                    each.search = Future()
                    each.search.set_result(NoSearch())
                    continue
                task = SearchTask(goal.operation, settings.gpu, goal.workload, (), settings.seed, goal.fixed)
                # The first searches are made here: other processes would start later.
                each.search = maker.submit(task, is_away=self._num_made >= num_devices)
                self._num_made += 1

    def _open(self, waiting: deque[Waiting]) -> Iterator[Tuned]:
        """Begin workloads on devices with room; yields the results of workloads without any candidate."""
        for depth in range(OPEN):
            for slot, sessions in enumerate(self._sessions):
                if not waiting or len(sessions) != depth or slot in self._lost:
                    continue
                if self._until is not None and self._has_begun and time.monotonic() > self._until:
                    waiting.clear()
                    return
                search = waiting[0].search
                if search is None or (any(self._sessions) and not search.done()):
                    return
                begun = waiting.popleft()
                try:
                    session = self._session(begun, search.result(), len(waiting))
                except (InfeasibleError, LimitReachedError, UnsupportedError) as error:
                    yield Tuned(begun.goal, None, None, {}, 0, True, 0.0, str(error).splitlines()[0])
                    return
                sessions.append(session)
                self._has_begun = True
                if self._listener:
                    self._listener.started(slot, session)

    def _session(self, begun: Waiting, search: Search, num_waiting: int) -> Session:
        settings, facts = self._settings, self._facts
        numbers = settings.trials, settings.num_final
        session = Session(begun.goal, search, facts, *numbers, begun.again, settings.name_of)
        if self._until is not None:
            # The workloads that are left share the devices' time equally.
            now, ways = time.monotonic(), OPEN * max(1, len(self._sessions) - len(self._lost))
            left = self._until - self._reserve_s - now
            session.stop_at = now + left * min(1.0, ways / (num_waiting + 1))
        return session

    def _records_of(self, goal: Goal) -> list[TuningRecord]:
        """Records of an operation on this GPU, as stored when the run began, measured by today's tools."""
        operation = goal.workload.operation
        if operation not in self._records:
            self._records[operation] = records_of(self._store, goal, self._settings.gpu, self._facts.toolchain)
        return self._records[operation]

    def _submit(self, home: int, session: Session, jobs: Sequence[Job]) -> None:
        """Submit jobs; trials are spread over the home device and idle ones, finalists stay together."""
        slots = [home, *(slot for slot, own in enumerate(self._sessions) if not own and slot not in self._lost)]
        slots = [slot for slot in slots if slot not in self._lost] or [home]
        for place, job in enumerate(jobs):
            slot = slots[0] if job.is_final else slots[place % len(slots)]
            self._jobs[job.number] = session
            self._submitted = min(self._submitted, time.monotonic())
            self._engine.submit(slot, job)

    def _hear(self, several: Sequence[JobResult]) -> None:
        """Store the records of results, all at once, and submit lost trials again."""
        heard = []
        for done in several:
            session = self._jobs.pop(done.job.number)
            self._count(done)
            if done.slot_is_lost:
                self._leave(done)
            heard.append((done, session, *session.hear(done, self._numbers)))
        # Nobody waits for the disk: the next trials are under way. A fault of it ends the run.
        self._writer.add([record for _, _, records, _ in heard for record in records])
        for done, session, records, again in heard:
            home = next((slot for slot, sessions in enumerate(self._sessions) if session in sessions), done.slot)
            self._submit(home, session, again)
            for record in records:
                self._num_trials += not done.job.is_final
                if self._listener:
                    self._listener.tried(done.slot, session, record, self._left_s())

    def _count(self, done: JobResult) -> None:
        """Count a job for its device."""
        self._last_done = time.monotonic()
        if not self._first_done:
            self._first_done = self._last_done
            self._first_trial = {SEARCH: self._submitted - self._started, **done.steps}
        use = self._use[done.slot]
        use.num_jobs, use.busy_s = use.num_jobs + 1, use.busy_s + done.seconds

    def _leave(self, done: JobResult) -> None:
        """Give up a device; its workloads move to the next one."""
        slot = done.slot
        self._lost.add(slot)
        others = [other for other in range(len(self._sessions)) if other not in self._lost]
        if not others:
            why = done.answers[0].message
            raise ConstrintError(
                f"the last device is lost ({why}); what was measured is kept: --resume goes on with it."
            )
        self._sessions[others[0]] += self._sessions[slot]
        self._sessions[slot] = []

    def _left_s(self) -> float | None:
        """Estimated time left of the run, by the trials so far; None before there are enough."""
        spent = time.monotonic() - self._started
        is_estimable = self._num_trials >= TELLING_TRIALS
        left = spent * max(0, self._left - self._num_trials) / self._num_trials if is_estimable else None
        if self._until is not None:
            rest = max(0.0, self._until - time.monotonic())
            return rest if left is None else min(left, rest)
        return left

    def _finish(self, slot: int, session: Session) -> Tuned:
        tuned = session.result()
        self._left -= max(0, self._settings.trials - session.num_tried)
        if self._listener:
            self._listener.finished(slot, tuned)
        return tuned
