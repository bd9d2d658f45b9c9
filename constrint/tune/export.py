"""The trials of a tuning run for other tools, through their own clients: Optuna, Weights & Biases, MLflow."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, Protocol

from constrint.errors import UnknownNameError, UsageError
from constrint.plugins import PluginWarning
from constrint.tune.session import Session, Tuned
from constrint.tune.store.record import TuningRecord
from constrint.tune.tuner import Listener


class TrialExport(Protocol):
    """A tool that takes the trials of finished workloads."""

    def write(self, tuned: Tuned, records: Sequence[TuningRecord]) -> None:
        """Write the trials of a workload, in the order in which they were tried."""


def title_of(tuned: Tuned, records: Sequence[TuningRecord]) -> str:
    """The workload and the run, by which a tool lists it."""
    workload = tuned.goal.workload
    numbers = " ".join(f"{name}={value}" for name, value in (*workload.sizes.items(), *workload.options.items()))
    return " ".join(filter(None, (workload.operation, numbers, workload.dtype, records[0].run if records else "")))


def facts_of(tuned: Tuned, records: Sequence[TuningRecord]) -> dict[str, Any]:
    """The workload, the GPU and the versions of the tools, by name."""
    workload = tuned.goal.workload
    facts = {"operation": workload.operation, "dtype": workload.dtype, **workload.sizes, **workload.options}
    return facts if not records else {**facts, "gpu": records[0].gpu, **records[0].toolchain}


class OptunaExport:
    """A study for each workload, in the storage named: by default `sqlite:///constrint-optuna.db`.

    Args:
        optuna: The client.
        place: The storage's URL.
    """

    def __init__(self, optuna: Any, place: str) -> None:
        self._optuna, self._storage = optuna, place or "sqlite:///constrint-optuna.db"

    def write(self, tuned: Tuned, records: Sequence[TuningRecord]) -> None:
        """Add a trial for each record; a configuration that failed is a failed trial with its reason."""
        study = self._optuna.create_study(
            study_name=title_of(tuned, records), storage=self._storage, direction="minimize", load_if_exists=True
        )
        for name, value in facts_of(tuned, records).items():
            study.set_user_attr(name, value)
        params = [{"kernel": record.kernel, **record.config} for record in records]
        spaces = {name: self._distribution([p[name] for p in params if name in p]) for name in _names(params)}
        states = self._optuna.trial.TrialState
        for record, values in zip(records, params, strict=True):
            seconds = _seconds(record)
            study.add_trial(
                self._optuna.trial.create_trial(
                    state=states.FAIL if seconds is None else states.COMPLETE,
                    value=seconds,
                    params=values,
                    distributions={name: spaces[name] for name in values},
                    user_attrs={"outcome": record.outcome, "message": record.message},
                )
            )

    def _distribution(self, values: Sequence[Any]) -> Any:
        kinds = self._optuna.distributions
        if all(type(value) is int for value in values):
            return kinds.IntDistribution(min(values), max(values))
        return kinds.CategoricalDistribution(tuple(dict.fromkeys(values)))


class WandbExport:
    """A run of Weights & Biases for each workload, in the project named: by default `constrint`."""

    def __init__(self, wandb: Any, place: str) -> None:
        self._wandb, self._project = wandb, place or "constrint"

    def write(self, tuned: Tuned, records: Sequence[TuningRecord]) -> None:
        """Log a step for each record, with the best time so far, and the winner as the run's summary."""
        run = self._wandb.init(
            project=self._project, name=title_of(tuned, records), config=facts_of(tuned, records), reinit=True
        )
        for record, metrics in zip(records, _metrics(records), strict=True):
            run.log({**metrics, "outcome": record.outcome, "kernel": record.kernel, **record.config})
        run.summary.update(_winner(tuned))
        run.finish()


class MlflowExport:
    """A run of MLflow for each workload, in the experiment named: by default `constrint`."""

    def __init__(self, mlflow: Any, place: str) -> None:
        self._mlflow, self._experiment = mlflow, place or "constrint"

    def write(self, tuned: Tuned, records: Sequence[TuningRecord]) -> None:
        """Log the workload as parameters, a step for each record, and the winner as tags."""
        self._mlflow.set_experiment(self._experiment)
        with self._mlflow.start_run(run_name=title_of(tuned, records)):
            self._mlflow.log_params(facts_of(tuned, records))
            for step, metrics in enumerate(_metrics(records)):
                self._mlflow.log_metrics(metrics, step=step)
            self._mlflow.set_tags({name: str(value) for name, value in _winner(tuned).items()})


#: The tools by name.
EXPORTS: Final[Mapping[str, Callable[[Any, str], TrialExport]]] = {
    "optuna": OptunaExport,
    "wandb": WandbExport,
    "mlflow": MlflowExport,
}


def open_export(named: str) -> TrialExport:
    """The tool that `NAME` or `NAME:PLACE` names; its client is imported.

    Raises:
        UnknownNameError: When there is no such tool.
        UsageError: When its client is not installed.
    """
    name, _, place = named.partition(":")
    if name not in EXPORTS:
        raise UnknownNameError("export", name, EXPORTS)
    try:
        client = import_module(name)
    except ImportError:
        raise UsageError(f"--export {name} needs {name}, which is not installed: pip install {name}.") from None
    return EXPORTS[name](client, place)


class ExportingListener:
    """Follows a run for another listener, and hands the trials of each finished workload to tools.

    A tool that fails is a warning: the run and its store do not depend on it.
    """

    def __init__(self, listener: Listener, exports: Sequence[TrialExport]) -> None:
        self._listener, self._exports = listener, exports
        self._records: dict[int, list[TuningRecord]] = {}

    def started(self, slot: int, session: Session) -> None:
        """Pass it on."""
        self._listener.started(slot, session)

    def tried(self, slot: int, session: Session, record: TuningRecord, left_s: float | None) -> None:
        """Keep the record, and pass it on."""
        self._records.setdefault(id(session.goal), []).append(record)
        self._listener.tried(slot, session, record, left_s)

    def finished(self, slot: int, tuned: Tuned) -> None:
        """Write the workload's trials, and pass it on."""
        records = self._records.pop(id(tuned.goal), [])
        for export in self._exports if records else ():
            try:
                export.write(tuned, records)
            except Exception as error:  # noqa: BLE001 - another's client and its network may raise anything
                what = " ".join(f"{type(error).__name__}: {error}".split())
                warnings.warn(
                    f"{type(export).__name__} wrote nothing of a workload: {what}", PluginWarning, stacklevel=2
                )
        self._listener.finished(slot, tuned)


def _names(params: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for one in params for name in one))


def _seconds(record: TuningRecord) -> float | None:
    return record.figures.median_s if record.is_ok and record.figures is not None else None


def _metrics(records: Sequence[TuningRecord]) -> list[dict[str, float]]:
    """The time of each record and the best so far, in seconds; those that are known."""
    best, rows = float("inf"), []
    for record in records:
        seconds = _seconds(record)
        best = min(best, seconds or best)
        known = {
            "seconds": seconds,
            "best_s": None if best == float("inf") else best,
            "predicted_s": record.predicted_s,
        }
        rows.append({name: value for name, value in known.items() if value is not None})
    return rows


def _winner(tuned: Tuned) -> dict[str, Any]:
    if tuned.winner is None:
        return {"problem": tuned.problem or "no configuration ran and was right"}
    return {"best_s": tuned.best_s, "best_kernel": tuned.winner.kernel} | {
        f"best_{name}": value for name, value in tuned.winner.config.items()
    }
