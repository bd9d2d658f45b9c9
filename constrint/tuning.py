"""Tuning from a program: one call, as in a package's post-install step.

from constrint.tuning import install
install(MY_SPEC)                 # the usual workloads of your own kernel
install("gemm", "lstm", budget_s=120)
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from constrint import cache
from constrint.errors import StoreError
from constrint.hwmodels import GpuModel
from constrint.kernels.registry import code_of, importable_name, list_kernels, load_kernel, load_spec, register
from constrint.select import KernelSpec, Operation, Workload, winners
from constrint.tune.engine.interface import Engine, Setup
from constrint.tune.engine.registry import DeviceRequest, open_fleet
from constrint.tune.goals import goals_of, usual_goals
from constrint.tune.search.registry import make_search
from constrint.tune.session import Goal
from constrint.tune.store.choices import publish
from constrint.tune.store.store import RecordStore
from constrint.tune.tuner import Listener, Settings, Tuner, TuningReport

#: Default number of trials of a workload.
TRIALS = 16


def install(
    *kernels: KernelSpec | str,
    workloads: Sequence[Workload] | None = None,
    trials: int = TRIALS,
    budget_s: float | None = None,
    gpus: Sequence[int] | None = None,
    store: str | Path | None = None,
    listener: Listener | None = None,
) -> TuningReport:
    """Tune kernels for the GPUs of this machine; stored measurements are not repeated.

    Args:
        kernels: Kernels, or names of operations; every operation if none is given.
        workloads: The workloads; each kernel's usual ones if None.
        trials: Most configurations of a workload.
        budget_s: Time for all workloads, in seconds; None for no limit.
        gpus: Indices of the devices; None for all.
        store: Address of the store; the user's own store if None.
        listener: Follows the progress.

    Raises:
        NoDeviceError: When there is no GPU.
        UsageError: When there is no such kernel, or the GPUs are of several models or of an unknown one.
    """
    fleet = open_fleet("local", DeviceRequest(indices=gpus))
    gpu = fleet.model(None)
    operations = [_operation_of(kernel) for kernel in kernels or list_kernels()]
    goals = usual_goals(operations, gpu)
    if workloads is not None:
        goals = [goal for operation in operations for goal in goals_of(operation, gpu, workloads)]
    settings = Settings(gpu, partial(make_search, "model"), trials, budget_s, resume=True)
    with ExitStack() as stack:
        opened = stack.enter_context(RecordStore.open(store))
        engine = fleet.engine(Setup(load_spec, gpu))
        stack.callback(engine.close)
        return tune(goals, settings, engine, opened, listener)


def tune(
    goals: Sequence[Goal], settings: Settings, engine: Engine, store: RecordStore, listener: Listener | None = None
) -> TuningReport:
    """Tune goals, and publish the winners for look-ups, also after an interruption."""
    specs = {spec.full_name: spec for goal in goals for spec in goal.operation.implementations}
    names = {name: importable_name(spec) for name, spec in specs.items()}
    settings = replace(settings, name_of=names.__getitem__, load=load_spec)
    tuner = Tuner(settings, engine, store, listener)
    try:
        report = tuner.run(goals)
    except BaseException:
        with suppress(StoreError):  # the first exception is the one to raise
            _publish(store, settings.gpu)
        raise
    _publish(store, settings.gpu)
    return report


def _publish(store: RecordStore, gpu: GpuModel) -> None:
    folder = cache.user_folder()
    if folder is not None:
        publish(store, gpu.name, folder, code_of)
        winners.reload()


def _operation_of(kernel: KernelSpec | str) -> Operation:
    if isinstance(kernel, str):
        return load_kernel(kernel)
    register(kernel)
    return load_kernel(kernel.operation)
