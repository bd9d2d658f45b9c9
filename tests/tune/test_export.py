"""The trials of a run in other tools: Optuna's own library, and stand-ins of the clients of wandb and mlflow."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from constrint.errors import UnknownNameError, UsageError
from constrint.plugins import PluginWarning
from constrint.tune.export import ExportingListener, MlflowExport, OptunaExport, WandbExport, open_export
from constrint.tune.session import Goal, Tuned
from constrint.tune.store.record import TuningRecord
from tests.support.needs import missing_packages
from tests.tune.search.llm.tiny_search import WORKLOAD, record, tiny_task

GOAL = Goal(tiny_task().operation, WORKLOAD)


def records() -> list[TuningRecord]:
    import msgspec

    failed = msgspec.structs.replace(record(5, 1.0), outcome="wrong_result", message="off by 3", figures=None)
    return [record(2, 4e-6), failed, record(7, 2e-6)]


def tuned() -> Tuned:
    tried = records()
    return Tuned(GOAL, tried[2], tried[0], {"ok": 2, "wrong_result": 1}, 0, True, 1.0)


@pytest.mark.skipif(bool(missing_packages("optuna")), reason="needs the extra [optuna]")
@pytest.mark.filterwarnings("ignore")
def test_optuna_gets_a_study_with_each_trial(tmp_path: Path) -> None:
    import optuna

    storage = f"sqlite:///{tmp_path}/trials.db"
    export = open_export(f"optuna:{storage}")
    assert isinstance(export, OptunaExport)
    export.write(tuned(), records())
    (name,) = optuna.get_all_study_names(storage)
    assert name.startswith(WORKLOAD.operation)
    study = optuna.load_study(study_name=name, storage=storage)
    states = [trial.state.name for trial in study.trials]
    assert states == ["COMPLETE", "FAIL", "COMPLETE"]
    assert study.best_value == 2e-6
    assert study.best_params["what"] == 7
    assert study.trials[1].user_attrs == {"outcome": "wrong_result", "message": "off by 3"}
    assert study.user_attrs["gpu"] == records()[0].gpu


def test_wandb_gets_a_run_with_a_step_for_each_trial() -> None:
    logged: list[dict[str, Any]] = []
    summary: dict[str, Any] = {}
    ended: list[bool] = []
    made: dict[str, Any] = {}
    run = SimpleNamespace(
        log=logged.append, summary=SimpleNamespace(update=summary.update), finish=lambda: ended.append(True)
    )

    def init(**given: Any) -> Any:
        made.update(given)
        return run

    WandbExport(SimpleNamespace(init=init), "mine").write(tuned(), records())
    assert made["project"] == "mine"
    assert made["config"]["operation"] == WORKLOAD.operation
    assert [step.get("seconds") for step in logged] == [4e-6, None, 2e-6]
    assert [step["best_s"] for step in logged] == [4e-6, 4e-6, 2e-6]
    assert [step["what"] for step in logged] == [2, 5, 7]
    assert summary["best_what"] == 7
    assert ended == [True]


def test_mlflow_gets_a_run_with_metrics_by_step() -> None:
    seen: list[tuple[str, Any]] = []

    @contextmanager
    def start_run(run_name: str) -> Iterator[None]:
        seen.append(("run", run_name))
        yield
        seen.append(("end", None))

    client = SimpleNamespace(
        set_experiment=lambda name: seen.append(("experiment", name)),
        start_run=start_run,
        log_params=lambda params: seen.append(("params", params)),
        log_metrics=lambda metrics, step: seen.append((f"step {step}", metrics)),
        set_tags=lambda tags: seen.append(("tags", tags)),
    )
    MlflowExport(client, "").write(tuned(), records())
    assert [name for name, _ in seen] == ["experiment", "run", "params", "step 0", "step 1", "step 2", "tags", "end"]
    found = dict(seen)
    assert found["experiment"] == "constrint"
    assert found["step 2"]["best_s"] == 2e-6
    assert found["tags"]["best_what"] == "7"


class Follower:
    """A listener that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def started(self, slot: int, session: Any) -> None:
        self.told.append("started")

    def tried(self, slot: int, session: Any, record: TuningRecord, left_s: float | None) -> None:
        self.told.append("tried")

    def finished(self, slot: int, tuned: Tuned) -> None:
        self.told.append("finished")


def test_each_workload_is_written_once_and_a_failing_tool_is_a_warning() -> None:
    written: list[int] = []

    class Keeps:
        def write(self, tuned: Tuned, records: list[TuningRecord]) -> None:
            written.append(len(records))

    class Fails:
        def write(self, tuned: Tuned, records: list[TuningRecord]) -> None:
            raise OSError("no network")

    follower, session = Follower(), SimpleNamespace(goal=GOAL)
    listener = ExportingListener(follower, [Fails(), Keeps()])  # type: ignore[list-item]
    listener.started(0, session)  # type: ignore[arg-type]
    for one in records():
        listener.tried(0, session, one, None)  # type: ignore[arg-type]
    with pytest.warns(PluginWarning, match="Fails wrote nothing of a workload: OSError: no network"):
        listener.finished(0, tuned())
    assert written == [3]
    assert follower.told == ["started", "tried", "tried", "tried", "finished"]


def test_unknown_and_missing_tools_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownNameError, match="unknown export 'wandbb'"):
        open_export("wandbb")
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(UsageError, match="pip install mlflow"):
        open_export("mlflow:mine")
