"""The tuner: the only loop. It carries jobs of several workloads to an engine, and what comes back to a store.

Records go to the store as they come, so that an interruption, a crash or a full disk loses at most what the devices are
at and what is on its way to the disk.
"""

from __future__ import annotations

import itertools
import math
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from constrint.errors import ConstrintError, InfeasibleError, LimitReachedError, UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.select.fingerprint import fingerprint_of
from constrint.select.toolchain import differences, toolchain_of
from constrint.tune.engine.interface import Engine, Job, JobResult
from constrint.tune.search.interface import Search, SearchTask
from constrint.tune.search.maker import Making, SearchMaker
from constrint.tune.session import BATCH, Goal, NoSearch, RunFacts, Session, Tuned, finals_of
from constrint.tune.store.record import TuningRecord
from constrint.tune.store.store import RecordStore
from constrint.tune.store.writer import Writer
from constrint.tune.trial import Load

#: Workloads that are tuned at once on one device: while one is compiled, the other runs.
OPEN = 12
POLL_S = 0.25
#: Trials that each device has at least before it, also at the end of a run, where few workloads are left.
LEAST_JOBS = 2
#: Trials that are asked of a search at once at most, since it learns nothing between them.
MOST_BATCH = 4 * BATCH
#: Trials after which the time that is left can be told: the first ones pay for what is loaded once.
TELLING_TRIALS = 12


class Listener(Protocol):
    """Hears how far it is."""

    def started(self, slot: int, session: Session) -> None:
        """A workload is begun on a device."""

    def tried(self, slot: int, session: Session, record: TuningRecord, left_s: float | None) -> None:
        """A trial's outcome is known; `left_s` is what is left of the whole run, if that can be told."""

    def finished(self, slot: int, tuned: Tuned) -> None:
        """A workload is through."""


@dataclass(frozen=True)
class Settings:
    """How much is tried, and how.

    Args:
        gpu: The hardware model of all devices.
        search: Makes what proposes configurations.
        trials: Configurations of a workload that are tried at most.
        budget_s: Time for all workloads; None for as long as it takes.
        num_final: The quickest of a workload that are timed once more, in turn.
        resume: Whether what the store knows of these very kernels, GPU and tools is not measured again.
        seed: Of whatever is random.
        name_of: Name by which other processes find a kernel, where it is not its full name.
        run: The run's name in the store; a new one if empty.
        load: Finds a kernel by that name, so that searches can be made in other processes; None for a thread of this
            one, which then has less time for the devices.
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
    """What a device did in a run.

    Args:
        name: The device.
        num_jobs: Trials that it ran, and rounds of finalists.
        busy_s: What they took.
    """

    name: str
    num_jobs: int = 0
    busy_s: float = 0.0


@dataclass(frozen=True)
class TuningReport:
    """What came of a run.

    Args:
        tuned: The workloads that were begun, in the order in which they were finished.
        is_interrupted: Whether it was ended by Ctrl-C.
        devices: What each device did.
        seconds: From the first job that was done to the last one: the start of processes is not counted.
    """

    tuned: tuple[Tuned, ...]
    is_interrupted: bool = False
    devices: tuple[Use, ...] = ()
    seconds: float = 0.0


@dataclass
class Waiting:
    """A workload that was not begun.

    Args:
        goal: The workload.
        known: What is known of its operation on this GPU.
        again: Of that, what need not be measured again.
        search: What will propose, once it is being made.
    """

    goal: Goal
    known: Sequence[TuningRecord]
    again: Sequence[TuningRecord] = ()
    search: Making | Future[Search] | None = None


def records_of(store: RecordStore, goal: Goal, gpu: GpuModel, tools: Mapping[str, str]) -> list[TuningRecord]:
    """What a store knows of an operation on a GPU, measured by today's tools."""
    own = {spec.full_name: toolchain_of(spec, tools) for spec in goal.operation.implementations}
    found = store.find(operation=goal.workload.operation, gpu=gpu.name)
    return [r for r in found if not differences(r.toolchain, own.get(r.kernel, tools))]


def is_same(goal: Goal, record: TuningRecord) -> bool:
    """Whether a record is one of this workload and of today's kernels."""
    if record.workload != goal.workload or record.fixed != dict(goal.fixed):
        return False
    specs = {spec.full_name: spec for spec in goal.operation.implementations}
    spec = specs.get(record.kernel)
    return spec is not None and (record.source_hash, record.spec_hash) == tuple(fingerprint_of(spec))


def new_run() -> str:
    """A name for a run that no other one has."""
    return uuid.uuid4().hex[:12]


class Tuner:
    """Tunes workloads one after another on each device.

    Args:
        settings: How.
        engine: Runs the trials.
        store: Keeps what comes of them.
        listener: Hears how far it is.
    """

    def __init__(
        self, settings: Settings, engine: Engine, store: RecordStore, listener: Listener | None = None
    ) -> None:
        self._settings, self._engine, self._store, self._listener = settings, engine, store, listener
        self._facts = RunFacts(settings.run or new_run(), settings.gpu.name, engine.toolchain)
        self._numbers = itertools.count()
        #: The session of every job that is under way.
        self._jobs: dict[int, Session] = {}
        self._sessions: list[list[Session]] = [[] for _ in engine.slots]
        self._lost: set[int] = set()
        self._known: dict[str, list[TuningRecord]] = {}
        self._use = [Use(name) for name in engine.slots]
        #: When the first and the last job were done.
        self._first_done = self._last_done = 0.0

    def run(self, goals: Sequence[Goal]) -> TuningReport:
        """Tune workloads; Ctrl-C ends it with what is known by then.

        Raises:
            ConstrintError: When no device can be used, or the store keeps nothing any more.
        """
        tuned: list[Tuned] = []
        is_interrupted = False
        started = time.monotonic()
        self._until = started + self._settings.budget_s if self._settings.budget_s is not None else None
        self._started, self._num_trials, self._num_made = started, 0, 0
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
            self._writer.wait()
        except KeyboardInterrupt:
            self._writer.wait()
            is_interrupted = True
            tuned += [session.result() for sessions in self._sessions for session in sessions]
        finally:
            maker.close()
            self._writer.close()
        return TuningReport(tuple(tuned), is_interrupted, tuple(self._use), self._last_done - self._first_done)

    def _advance(self) -> Iterator[Tuned]:
        """Hand on what workloads have to run next; gives those that are through."""
        num_open = sum(map(len, self._sessions))
        for slot, sessions in enumerate(self._sessions):
            for session in list(sessions):
                self._submit(slot, session, session.next_jobs(self._numbers, self._batch(num_open)))
                if session.is_through:
                    sessions.remove(session)
                    yield self._finish(slot, session)

    def _batch(self, num_open: int) -> int:
        """How many trials a workload may have under way, so that no device waits while few workloads are left."""
        num_devices = len(self._sessions) - len(self._lost)
        return max(BATCH, min(MOST_BATCH, math.ceil(LEAST_JOBS * num_devices / num_open)))

    def _share_what_is_left(self, waiting: deque[Waiting]) -> None:
        """Let the last workloads go on until the time is up, whatever their shares were."""
        if self._until is not None and not waiting:
            for session in itertools.chain.from_iterable(self._sessions):
                session.stop_at = self._until

    def _search_maker(self) -> SearchMaker:
        """What makes searches ahead, while devices are at work: solving a space takes a while."""
        settings = self._settings
        return SearchMaker(
            settings.search,
            settings.gpu,
            self._known,
            load=settings.load,
            name_of=settings.name_of,
            num_processes=len(self._sessions),
        )

    def _make_ahead(self, waiting: deque[Waiting], maker: SearchMaker) -> None:
        """Let searches be made of the next workloads: those that there is room for, and one more for each device."""
        num_devices = len(self._sessions)
        room = OPEN * num_devices - sum(map(len, self._sessions))
        for each in itertools.islice(waiting, room + num_devices):
            if each.search is None:
                goal, settings = each.goal, self._settings
                each.again = [r for r in each.known if settings.resume and is_same(goal, r)]
                if finals_of(each.again, settings.trials):
                    each.search = Future()
                    each.search.set_result(NoSearch())
                    continue
                task = SearchTask(goal.operation, settings.gpu, goal.workload, (), settings.seed, goal.fixed)
                # The first ones are there before other processes are.
                each.search = maker.submit(task, is_away=self._num_made >= num_devices)
                self._num_made += 1

    def _open(self, waiting: deque[Waiting]) -> Iterator[Tuned]:
        """Begin workloads on the devices that have room; gives those that nothing can be proposed for."""
        for depth in range(OPEN):
            for slot, sessions in enumerate(self._sessions):
                if not waiting or len(sessions) != depth or slot in self._lost:
                    continue
                if self._until is not None and time.monotonic() > self._until:
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
                if self._listener:
                    self._listener.started(slot, session)

    def _session(self, begun: Waiting, search: Search, num_waiting: int) -> Session:
        settings, facts = self._settings, self._facts
        numbers = settings.trials, settings.num_final
        session = Session(begun.goal, search, facts, *numbers, begun.again, settings.name_of)
        if self._until is not None:
            # Each of those that are left has an equal share of the devices' time.
            now, ways = time.monotonic(), OPEN * max(1, len(self._sessions) - len(self._lost))
            session.stop_at = now + (self._until - now) * min(1.0, ways / (num_waiting + 1))
        return session

    def _records_of(self, goal: Goal) -> list[TuningRecord]:
        """What the store knew of an operation on this GPU when the run began, measured by today's tools."""
        operation = goal.workload.operation
        if operation not in self._known:
            self._known[operation] = records_of(self._store, goal, self._settings.gpu, self._facts.toolchain)
        return self._known[operation]

    def _submit(self, home: int, session: Session, jobs: Sequence[Job]) -> None:
        """Hand jobs on; trials also go to devices that have nothing else to do, finalists stay together."""
        slots = [home, *(slot for slot, own in enumerate(self._sessions) if not own and slot not in self._lost)]
        slots = [slot for slot in slots if slot not in self._lost] or [home]
        for place, job in enumerate(jobs):
            slot = slots[0] if job.is_final else slots[place % len(slots)]
            self._jobs[job.number] = session
            self._engine.submit(slot, job)

    def _hear(self, several: Sequence[JobResult]) -> None:
        """Keep what came of jobs, all at once, and hand on what is to be run again."""
        heard = []
        for done in several:
            session = self._jobs.pop(done.job.number)
            self._count(done)
            if done.slot_is_lost:
                self._leave(done)
            heard.append((done, session, *session.hear(done, self._numbers)))
        # The disk is not waited for: the next trials are under way meanwhile. What it complains of ends the run.
        self._writer.add([record for _, _, records, _ in heard for record in records])
        for done, session, records, again in heard:
            home = next((slot for slot, sessions in enumerate(self._sessions) if session in sessions), done.slot)
            self._submit(home, session, again)
            for record in records:
                self._num_trials += not done.job.is_final
                if self._listener:
                    self._listener.tried(done.slot, session, record, self._left_s())

    def _count(self, done: JobResult) -> None:
        """Add a job to what its device did."""
        self._last_done = time.monotonic()
        self._first_done = self._first_done or self._last_done
        use = self._use[done.slot]
        use.num_jobs, use.busy_s = use.num_jobs + 1, use.busy_s + done.seconds

    def _leave(self, done: JobResult) -> None:
        """Use a device no more; its workloads go to the next one."""
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
        """What is left of the run, from what its trials have taken so far."""
        spent = time.monotonic() - self._started
        is_told = self._num_trials >= TELLING_TRIALS
        left = spent * max(0, self._left - self._num_trials) / self._num_trials if is_told else None
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
