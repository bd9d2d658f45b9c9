"""What the tuner does where devices are lost, with an engine that only says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from constrint.errors import ConstrintError
from constrint.hwmodels import load_gpu
from constrint.kernels.registry import load_kernel
from constrint.select import Workload
from constrint.tune import Outcome
from constrint.tune.engine.interface import Answer, Done, Job, failed
from constrint.tune.search.registry import make_search
from constrint.tune.session import Goal, Tuned
from constrint.tune.store.record import Figures, TuningRecord
from constrint.tune.store.store import RecordStore
from constrint.tune.tuner import Settings, Tuner

KERNEL = f"{Path(__file__).parent / 'hostile.py'}:SPEC"
NUM_TRIALS = 8


class Losing:
    """Two devices, on which all is right; the first is lost when it is given a job that `when` is true of."""

    slots: Sequence[str] = ("GPU 0", "GPU 1")
    toolchain: Mapping[str, str] = {"triton": "3.9.0", "driver": "a cluster's"}

    def __init__(self, when: Any, lost: frozenset[int] = frozenset()) -> None:
        self._when, self._lost, self._done = when, set(lost), list[Done]()

    def submit(self, slot: int, job: Job) -> None:
        if slot == 0 and self._when(job):
            self._lost.add(slot)
        if slot in self._lost:
            answers = failed(job, Outcome.NOT_RUN, "the power is out")
        else:
            figures = Figures(median_s=1e-6, spread_s=0.0, num_rounds=3, cache="cold", is_final=job.is_final)
            answers = tuple(Answer(outcome=Outcome.OK, figures=figures) for _ in job.trials)
        self._done.append(Done(job, slot, answers, 0.0, slot_is_lost=slot in self._lost))

    def poll(self, timeout_s: float) -> list[Done]:
        done, self._done = self._done, []
        return done

    def close(self) -> None:
        pass


def run(engine: Losing, folder: Path) -> tuple[list[TuningRecord], tuple[Tuned, ...]]:
    settings = Settings(load_gpu("h200"), lambda task: make_search("random", task), NUM_TRIALS)
    goals = [Goal(load_kernel(KERNEL), Workload("hostile", {"n": n}, "fp32")) for n in (8, 16, 32)]
    with RecordStore.open(folder / "records.sqlite") as store:
        report = Tuner(settings, engine, store).run(goals)
        return list(store.find()), report.tuned


@pytest.mark.parametrize(
    "when", [lambda job: job.number >= 2, lambda job: job.is_final], ids=["at a trial", "at the finals"]
)
def test_what_a_lost_device_had_is_done_by_another_one(tmp_path: Path, when: Any) -> None:
    records, tuned = run(Losing(when), tmp_path)
    assert [each.is_whole and each.winner is not None for each in tuned] == [True] * 3
    assert {record.outcome for record in records} == {"ok"}
    counts = Counter(
        (record.figures.is_final, str(record.workload), str(record.config)) for record in records if record.figures
    )
    assert set(counts.values()) == {1}
    assert sum(not is_final for is_final, _, _ in counts) == 3 * NUM_TRIALS


def test_records_have_the_tools_of_the_devices(tmp_path: Path) -> None:
    records, _ = run(Losing(lambda job: False), tmp_path)
    assert all(record.toolchain == Losing.toolchain for record in records)


def test_the_last_device_is_lost_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(ConstrintError, match=r"the last device is lost \(the power is out\)"):
        run(Losing(lambda job: job.number >= 3, lost=frozenset({1})), tmp_path)
