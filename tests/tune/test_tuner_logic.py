"""What the tuner does with what an engine says: an engine of fakes answers at once, as each test wants it."""

from __future__ import annotations

import itertools
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from constrint.answers.trial import tuned_page
from constrint.errors import ConstrintError, UsageError
from constrint.hwmodels import load_gpu
from constrint.kernels.launch.cuda import nvrtc
from constrint.kernels.registry import importable_name, load_kernel, load_spec
from constrint.select import Operation, Workload
from constrint.select.workload import workload_of
from constrint.tune import Outcome, session, tuner
from constrint.tune.engine.interface import Job, JobResult, TrialAnswer
from constrint.tune.goals import goals_of, is_launchable, usual_goals
from constrint.tune.search.interface import SearchTask
from constrint.tune.search.registry import make_search
from constrint.tune.session import Goal
from constrint.tune.store.choices import best_records
from constrint.tune.store.record import Figures, TuningRecord
from constrint.tune.store.store import RecordStore
from constrint.tune.tuner import SEARCH, Settings, Tuner, TuningReport
from tests.support.cuda_kernels import ROTATE

GPU = load_gpu("h200")
GEMM = load_kernel("gemm")
Say = Callable[[int, Job], tuple[TrialAnswer, ...]]


class FakeEngine:
    """Answers each job with what `say` says, the jobs of all slots in turn; slots of `lost` run nothing."""

    toolchain: Mapping[str, str] = {"triton": "9.9", "cuda": "99.0"}

    def __init__(self, say: Say, num_slots: int = 1, lost: Callable[[int], bool] = lambda slot: False) -> None:
        self._lost = lost
        self.slots: Sequence[str] = [f"fake {slot}" for slot in range(num_slots)]
        self._say, self._waiting = say, deque[tuple[int, Job]]()
        self.log: list[tuple[int, Job]] = []

    def submit(self, slot: int, job: Job) -> None:
        self._waiting.append((slot, job))

    def drop(self, numbers: Set[int]) -> None:
        self._waiting = deque((slot, job) for slot, job in self._waiting if job.number not in numbers)

    def poll(self, timeout_s: float) -> list[JobResult]:
        slot, job = self._waiting.popleft()
        self.log.append((slot, job))
        if self._lost(slot):
            answers = tuple(TrialAnswer(outcome=Outcome.NOT_RUN, message="the node is gone") for _ in job.trials)
            return [JobResult(job, slot, answers, 0.0, slot_is_lost=True)]
        return [JobResult(job, slot, self._say(slot, job), 0.0)]

    def close(self) -> None:
        pass


def ok(seconds: float, *, is_final: bool = False) -> TrialAnswer:
    figures = Figures(median_s=seconds, spread_s=0.0, num_rounds=5, is_final=is_final)
    return TrialAnswer(outcome=Outcome.OK, error_over_bound=0.1, figures=figures)


def timed(slot: int, job: Job) -> tuple[TrialAnswer, ...]:
    """Right, with a time that depends on the configuration alone."""
    return tuple(ok(1e-6 * (1 + sum(t.config.values()) % 97), is_final=job.is_final) for t in job.trials)


def products(number: int) -> list[Goal]:
    return goals_of(
        GEMM, GPU, [Workload("gemm", {"m": 256 * (i + 1), "n": 512, "k": 512}, "bf16") for i in range(number)]
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RecordStore]:
    with RecordStore.open(tmp_path / "records.sqlite") as opened:
        yield opened


def run(store: RecordStore, goals: Sequence[Goal], say: Say = timed, slots: int = 1, **options: object) -> TuningReport:
    settings = Settings(GPU, partial(make_search, "model"), **{"trials": 6, **options})  # type: ignore[arg-type]
    return Tuner(settings, FakeEngine(say, slots), store).run(goals)


def configs(records: Sequence[TuningRecord]) -> Counter[str]:
    return Counter(f"{r.workload} {r.kernel} {sorted(r.config.items())}" for r in records)


def test_every_workload_gets_its_trials_its_finals_and_its_winner(store: RecordStore) -> None:
    report = run(store, products(7), slots=3)
    assert len(report.tuned) == 7
    # Six trials of each, and one round of finalists.
    assert [use.name for use in report.devices] == ["fake 0", "fake 1", "fake 2"]
    assert sum(use.num_jobs for use in report.devices) == 49
    for tuned in report.tuned:
        assert tuned.is_whole
        assert tuned.winner is not None
        assert tuned.first is not None
        assert dict(tuned.outcomes) == {"ok": 6}
        assert tuned.gain is not None
        assert tuned.gain >= 1.0
    tried = [r for r in store.find() if r.figures is not None and not r.figures.is_final]
    assert len(tried) == 42
    assert set(configs(tried).values()) == {1}
    # All of a workload's finalists were timed in one job.
    assert all(r.toolchain == tried[0].toolchain and r.source_hash and r.spec_hash for r in tried)


def test_records_of_a_kernel_in_cuda_say_which_nvrtc_it_was(
    store: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvrtc, "nvrtc_version", lambda: "nvrtc 13.5")
    goals = goals_of(Operation("rotate", (ROTATE,)), GPU, [Workload("rotate", {"n": 4096}, "fp32")])
    run(store, [*goals, *products(1)])
    versions = {(record.kernel.partition(".")[0], record.toolchain.get("nvrtc")) for record in store.find()}
    assert versions == {("rotate", "13.5"), ("gemm", None)}
    # What another NVRTC compiled is measured again.
    monkeypatch.setattr(nvrtc, "nvrtc_version", lambda: "nvrtc 13.6")
    again = run(store, [*goals, *products(1)], resume=True)
    assert {t.goal.workload.operation: t.num_known for t in again.tuned} == {"rotate": 0, "gemm": 6}


def test_few_workloads_keep_many_devices_busy(store: RecordStore) -> None:
    under_way: list[int] = []

    class Counting(FakeEngine):
        def poll(self, timeout_s: float) -> list[JobResult]:
            under_way.append(len(self._waiting))
            return super().poll(timeout_s)

    for num_slots, most in ((1, 2), (2, 4), (4, 8), (16, 8)):
        under_way.clear()
        Tuner(Settings(GPU, partial(make_search, "model"), trials=16), Counting(timed, num_slots), store).run(
            products(1)
        )
        assert max(under_way) == most


def test_equal_times_give_the_winner_that_is_published(store: RecordStore) -> None:
    def say(slot: int, job: Job) -> tuple[TrialAnswer, ...]:
        return tuple(ok(1e-6, is_final=job.is_final) for _ in job.trials)

    (tuned,) = run(store, products(1), say).tuned
    (published,) = best_records(store.find())
    assert tuned.winner == published


def test_the_same_answers_give_the_same_winners(store: RecordStore, tmp_path: Path) -> None:
    first = run(store, products(4))
    with RecordStore.open(tmp_path / "other.sqlite") as other:
        second = run(other, products(4), slots=1)
    assert [(t.winner and t.winner.config) for t in first.tuned] == [
        (t.winner and t.winner.config) for t in second.tuned
    ]


def test_what_was_not_run_is_tried_once_more_elsewhere(store: RecordStore) -> None:
    engine = FakeEngine(timed, 2, lost=lambda slot: slot == 1)
    report = Tuner(Settings(GPU, partial(make_search, "model"), trials=6), engine, store).run(products(6))
    assert [dict(t.outcomes) for t in report.tuned] == [{"ok": 6}] * 6
    assert all(t.winner is not None for t in report.tuned)
    lost = [job.trials for slot, job in engine.log if slot == 1]
    again = [job.trials for slot, job in engine.log if slot == 0]
    assert lost
    assert all(trials in again for trials in lost)


def test_with_the_last_device_lost_the_run_ends_and_keeps_what_it_has(store: RecordStore) -> None:
    numbers = itertools.count()
    engine = FakeEngine(timed, lost=lambda slot: next(numbers) >= 5)
    with pytest.raises(ConstrintError, match=r"the last device is lost.*--resume"):
        Tuner(Settings(GPU, partial(make_search, "model"), trials=6), engine, store).run(products(2))
    assert store.count() == 5


def test_finalists_that_are_lost_together_are_timed_one_by_one(store: RecordStore) -> None:
    def say(slot: int, job: Job) -> tuple[TrialAnswer, ...]:
        if job.is_final and len(job.trials) > 1:
            return tuple(TrialAnswer(outcome=Outcome.NOT_RUN) for _ in job.trials)
        return timed(slot, job)

    (tuned,) = run(store, products(1), say).tuned
    assert tuned.winner is not None
    assert tuned.is_whole


def test_finalists_of_a_lost_device_are_timed_on_another_one(store: RecordStore) -> None:
    def is_lost(slot: int) -> bool:
        return slot == 0 and any(job.is_final for _, job in engine.log)

    engine = FakeEngine(timed, 2, lost=is_lost)
    report = Tuner(Settings(GPU, partial(make_search, "model"), trials=6), engine, store).run(products(3))
    assert any(slot == 0 and job.is_final for slot, job in engine.log)
    assert all(tuned.is_whole and tuned.winner is not None for tuned in report.tuned)
    assert all(record.is_ok for record in store.find())


def test_finalists_that_fail_in_the_end_do_not_win(store: RecordStore) -> None:
    def say(slot: int, job: Job) -> tuple[TrialAnswer, ...]:
        answers = list(timed(slot, job))
        if job.is_final:
            best = min(range(len(answers)), key=lambda at: answers[at].figures.median_s)  # type: ignore[union-attr]
            answers[best] = TrialAnswer(outcome=Outcome.WRONG_RESULT, message="after it was timed")
        return tuple(answers)

    (tuned,) = run(store, products(1), say).tuned
    assert tuned.winner is not None
    quickest = min(r.figures.median_s for r in store.find() if r.figures is not None)
    assert tuned.best_s is not None
    assert tuned.best_s > quickest


def test_where_nothing_is_right_there_is_no_winner_and_the_run_goes_on(store: RecordStore) -> None:
    def say(slot: int, job: Job) -> tuple[TrialAnswer, ...]:
        if job.trials[0].workload.sizes["m"] == 256:
            return tuple(TrialAnswer(outcome=Outcome.WRONG_RESULT, message="wrong") for _ in job.trials)
        return timed(slot, job)

    report = run(store, products(2), say)
    winners = {t.goal.workload.sizes["m"]: t.winner for t in report.tuned}
    assert winners[256] is None
    assert winners[512] is not None


class AtOnce:
    """In place of an executor: what is submitted is done before the call returns."""

    def __init__(self, *_: object) -> None:
        pass

    def submit(self, work: Callable[[], object]) -> Future[object]:
        done: Future[object] = Future()
        try:
            done.set_result(work())
        except Exception as error:
            done.set_exception(error)
        return done

    def shutdown(self, **_: object) -> None:
        pass


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time of a run, `now`, which only its trials take: what the tuner takes says how busy the machine is."""
    made = SimpleNamespace(now=1.0)
    for module in (tuner, session):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: made.now, time=time.time))
    monkeypatch.setattr("constrint.tune.search.maker.ThreadPoolExecutor", AtOnce)
    return made


def test_a_budget_is_shared_and_every_workload_gets_its_first_choices(
    store: RecordStore, clock: SimpleNamespace
) -> None:
    def say(slot: int, job: Job) -> tuple[TrialAnswer, ...]:
        clock.now += 0.02
        return timed(slot, job)

    report = run(store, products(6), say, trials=1000, budget_s=6.0)
    # All trials would take two minutes: that none is through with them shows that the time ended them.
    assert len(report.tuned) == 6
    assert all(t.winner is not None and not t.is_whole for t in report.tuned)


class HangingEngine(FakeEngine):
    """Answers some jobs alone, and never the others."""

    def __init__(self, say: Say, hangs: Callable[[Job], bool], clock: SimpleNamespace) -> None:
        super().__init__(say)
        self._hangs, self._clock, self.dropped = hangs, clock, set[int]()

    def drop(self, numbers: Set[int]) -> None:
        self.dropped |= numbers
        super().drop(numbers)

    def poll(self, timeout_s: float) -> list[JobResult]:
        for place, (_, job) in enumerate(self._waiting):
            if not self._hangs(job):
                self._waiting.rotate(-place)
                return super().poll(timeout_s)
        self._clock.now += timeout_s
        return []


@pytest.mark.parametrize("hangs_at", ["trials", "finals"])
def test_what_hangs_at_the_end_of_the_budget_is_dropped_and_the_best_so_far_wins(
    store: RecordStore, clock: SimpleNamespace, hangs_at: str
) -> None:
    engine = HangingEngine(timed, lambda job: job.is_final if hangs_at == "finals" else job.number % 2 == 1, clock)
    settings = Settings(GPU, partial(make_search, "model"), trials=8, budget_s=2.0)
    report = Tuner(settings, engine, store).run(products(1))
    assert len(report.tuned) == 1
    assert engine.dropped
    for tuned in report.tuned:
        assert not tuned.is_whole
        assert tuned.winner is not None


def test_the_first_trial_is_run_however_short_the_budget(store: RecordStore) -> None:
    report = run(store, products(3), budget_s=0.0)
    (tuned,) = report.tuned
    assert tuned.winner is not None


class LatestFirst(FakeEngine):
    """Answers the job that came last first."""

    def poll(self, timeout_s: float) -> list[JobResult]:
        self._waiting.rotate(1)
        return super().poll(timeout_s)


@pytest.mark.parametrize("name", ["axpy", "gemv", "spmv", "jacobi", "cg", "gemm", "lstm"])
@pytest.mark.parametrize("engine_type", [FakeEngine, LatestFirst])
def test_the_first_choice_is_measured_however_short_the_budget(
    store: RecordStore, name: str, engine_type: type[FakeEngine]
) -> None:
    def say(slot: int, job: Job) -> tuple[TrialAnswer, ...]:
        return tuple(ok(1.0, is_final=job.is_final) for _ in job.trials)

    operation = load_kernel(name)
    goals = goals_of(operation, GPU, [workload_of(operation, GPU, {}, None)])
    settings = Settings(GPU, partial(make_search, "model"), trials=8, budget_s=0.0)
    (tuned,) = Tuner(settings, engine_type(say), store).run(goals).tuned
    (first,) = make_search("model", SearchTask(operation, GPU, goals[0].workload, (), 0, goals[0].fixed)).ask(1)
    tried = [(r.kernel, dict(r.config)) for r in store.find() if r.figures is not None and not r.figures.is_final]
    assert (first.kernel, dict(first.config)) in tried
    assert len(tried) <= 2
    assert tuned.first is not None
    assert (tuned.first.kernel, dict(tuned.first.config)) == (first.kernel, dict(first.config))


@pytest.mark.parametrize("num_failed", [1, 2, 8])
def test_a_first_choice_that_fails_does_not_end_a_run_without_time(store: RecordStore, num_failed: int) -> None:
    def say(slot: int, job: Job) -> tuple[TrialAnswer, ...]:
        if job.number < num_failed:
            return tuple(TrialAnswer(outcome=Outcome.LAUNCH_FAILED, message=f"no {job.number}") for _ in job.trials)
        return timed(slot, job)

    (tuned,) = run(store, products(1), say, trials=8, budget_s=0.0).tuned
    # The second choice is what such a run shows; whoever has no time gets no third one.
    assert (tuned.winner is not None) == (num_failed < 2)
    assert sum(tuned.outcomes.values()) == 2
    assert tuned.problem == ("" if tuned.winner else "launch_failed: no 0")


def test_a_run_states_what_its_first_trial_waited_for(store: RecordStore) -> None:
    class Telling(FakeEngine):
        def poll(self, timeout_s: float) -> list[JobResult]:
            return [replace(done, steps={"compilation": 1.5, "timing": 0.5}) for done in super().poll(timeout_s)]

    settings = Settings(GPU, partial(make_search, "model"), trials=4, budget_s=0.0)
    report = Tuner(settings, Telling(timed), store).run(products(1))
    assert list(report.first_trial) == [SEARCH, "compilation", "timing"]
    (line,) = (one for one in tuned_page(GPU, report, 1, 12.0, 8.0, 10.0).below if "budget" in one)
    whole_s = 8.0 + sum(report.first_trial.values())
    assert line.startswith(
        f"Of the budget of 10 s the first trial took {whole_s:.1f} s: the start of the command 8.0 s"
    )
    assert "compilation 1.5 s" in line
    assert "timing 0.5 s" in line
    # Who set no limit, or was through in time, is told nothing.
    whole = run(store, products(1), trials=2, budget_s=60.0)
    for each, budget_s in ((report, None), (whole, 60.0)):
        assert not any("budget" in one for one in tuned_page(GPU, each, 1, 12.0, 8.0, budget_s).below)


def test_a_resumed_run_measures_nothing_twice_and_a_new_one_all(store: RecordStore) -> None:
    run(store, products(2))
    number = store.count()
    report = run(store, products(2), resume=True)
    assert store.count() == number
    assert [t.num_known for t in report.tuned] == [6, 6]
    assert all(t.winner is not None and t.is_whole for t in report.tuned)
    more = run(store, products(2), resume=True, trials=9)
    assert [sum(t.outcomes.values()) for t in more.tuned] == [9, 9]
    tried = [r for r in store.find() if r.figures is not None and not r.figures.is_final]
    assert set(configs(tried).values()) == {1}
    assert [t.num_known for t in run(store, products(2)).tuned] == [0, 0]


def test_ctrl_c_gives_what_is_known(store: RecordStore) -> None:
    number = 0

    def say(slot: int, job: Job) -> tuple[TrialAnswer, ...]:
        nonlocal number
        number += 1
        if number == 5:
            raise KeyboardInterrupt
        return timed(slot, job)

    report = run(store, products(3), say)
    assert report.is_interrupted
    assert store.count() == 4
    assert not any(t.is_whole for t in report.tuned)


def test_goals_are_buckets_in_every_way_that_they_are_launched() -> None:
    lstm = load_kernel("lstm")
    layers = [
        Workload("lstm", {"batch": batch, "time": time, "heads": 12, "head_dim": 64}, "bf16")
        for batch, time in ((3, 10), (16, 999), (17, 5))
    ]
    goals = goals_of(lstm, GPU, layers)
    assert [(g.workload.sizes["batch"], dict(g.fixed)) for g in goals] == [
        (batch, {"recompute": way}) for batch in (4, 16, 32) for way in (0, 1)
    ]
    assert all(is_launchable(spec) for goal in goals for spec in goal.operation.implementations)
    with pytest.raises(ConstrintError, match="fp13"):
        goals_of(GEMM, GPU, [Workload("gemm", {"m": 1, "n": 1, "k": 1}, "fp13")])
    usual = usual_goals([GEMM, lstm], GPU)
    assert len(usual) > 20
    assert len(usual) == len({repr((g.workload, g.fixed)) for g in usual})
    assert usual_goals([GEMM], load_gpu("v100"))


def test_other_processes_find_a_kernel_by_its_importable_name() -> None:
    path = f"{Path(__file__).parent / 'tiny.py'}:SPEC"
    for spec in (load_spec("gemm.pointer"), load_spec("lstm.triton"), load_spec(path)):
        name = importable_name(spec)
        assert load_spec(name) is spec
    assert importable_name(load_spec("gemm.pointer")) == "gemm.pointer"
    nameless = type(load_spec(path))()
    with pytest.raises(UsageError, match="it is no variable of"):
        importable_name(nameless)
    with pytest.raises(UsageError, match="cannot be imported"):
        load_kernel("no.such.module:SPEC")
    with pytest.raises(UsageError, match="has no 'NOTHING'"):
        load_kernel("constrint.kernels.registry:NOTHING")
