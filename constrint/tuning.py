"""Tuning from a program: one call, as a package makes it after it was installed.

from constrint.tuning import install
install(MY_SPEC)                 # the usual workloads of a kernel of one's own
install("gemm", "lstm", budget_s=120)
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from constrint import cache
from constrint.errors import NoDeviceError, StoreError, UsageError
from constrint.hwmodels import DetectedDevice, GpuModel, detect, load_gpu
from constrint.kernels.registry import code_of, importable_name, list_kernels, load_kernel, load_spec, register
from constrint.select import KernelSpec, Operation, Workload, winners
from constrint.tune.engine.interface import Engine, Setup
from constrint.tune.goals import goals_of, usual_goals
from constrint.tune.search.registry import make_search
from constrint.tune.session import Goal
from constrint.tune.store.choices import publish
from constrint.tune.store.store import RecordStore
from constrint.tune.tuner import Listener, Report, Settings, Tuner

if TYPE_CHECKING:
    from constrint.tune.engine.ray import RayEngine
    from constrint.tune.engine.ray_cluster import RayCluster

#: Configurations of a workload that are tried where nobody says how many.
TRIALS = 16


def install(
    *kernels: KernelSpec | str,
    workloads: Sequence[Workload] | None = None,
    trials: int = TRIALS,
    budget_s: float | None = None,
    gpus: Sequence[int] | None = None,
    store: str | Path | None = None,
    listener: Listener | None = None,
) -> Report:
    """Tune kernels for the GPUs of this machine; what the store knows already is not measured again.

    Args:
        kernels: Kernels, or names of operations; every operation if none is given.
        workloads: What is tuned; each kernel's usual workloads if None.
        trials: Configurations of a workload that are tried at most.
        budget_s: Time for everything; None for as long as it takes.
        gpus: Indices of the devices; all if None.
        store: Where records are kept; the user's own store if None.
        listener: Hears how far it is.

    Raises:
        NoDeviceError: When there is no GPU.
        UsageError: When there is no such kernel, or the GPUs are of several models or of an unknown one.
    """
    gpu, devices = devices_of(gpus)
    asked = [_operation_of(kernel) for kernel in kernels or list_kernels()]
    goals = usual_goals(asked, gpu)
    if workloads is not None:
        goals = [goal for operation in asked for goal in goals_of(operation, gpu, workloads)]
    settings = Settings(gpu, partial(make_search, "model"), trials, budget_s, resume=True)
    with ExitStack() as stack:
        opened = stack.enter_context(RecordStore.open(store))
        engine = local_engine(Setup(load_spec, gpu), devices)
        stack.callback(engine.close)
        return tune(goals, settings, engine, opened, listener)


def tune(
    goals: Sequence[Goal], settings: Settings, engine: Engine, store: RecordStore, listener: Listener | None = None
) -> Report:
    """Tune goals, and publish the winners where look-ups find them, those of an interrupted run too."""
    specs = {spec.full_name: spec for goal in goals for spec in goal.operation.implementations}
    names = {name: importable_name(spec) for name, spec in specs.items()}
    settings = replace(settings, name_of=names.__getitem__, load=load_spec)
    tuner = Tuner(settings, engine, store, listener)
    try:
        report = tuner.run(goals)
    except BaseException:
        with suppress(StoreError):  # what ended the run is what matters
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


def local_engine(setup: Setup, devices: Sequence[int]) -> Engine:
    """The engine of this machine's devices."""
    from constrint.tune.engine.local import LocalEngine

    return LocalEngine(setup, devices)


def ray_cluster(address: str | None, device: str = "cuda") -> RayCluster:
    """The free devices of a Ray cluster, `constrint docs many`; close it, or the engine that is made of it.

    Raises:
        UsageError: When Ray is not installed.
        ConstrintError: When no cluster answers, or it has no device.
    """
    from constrint.tune.engine.ray_cluster import RayCluster

    return RayCluster(address, device)


def ray_engine(setup: Setup, cluster: RayCluster) -> RayEngine:
    """The engine of a Ray cluster's devices.

    Raises:
        NoDeviceError: When none of them is of the model that is tuned for.
    """
    from constrint.tune.engine.ray import RayEngine

    return RayEngine(setup, cluster=cluster)


def devices_of(indices: Sequence[int] | None, model: str | None = None) -> tuple[GpuModel, tuple[int, ...]]:
    """The model of devices of this machine, and their indices.

    Args:
        indices: Which ones; all if None.
        model: The name of their model, where it is not to be found out.

    Raises:
        NoDeviceError: When there is no GPU.
        UsageError: When one of them is not there, or they are of several models, or of one that has no description.
    """
    found = detect()
    chosen = found if indices is None else [_device(found, index) for index in indices]
    if model is None:
        names = {device.model for device in chosen}
        if None in names:
            unknown = next(device for device in chosen if device.model is None)
            raise UsageError(
                f"there is no hardware model of {unknown.name} ({unknown.target}); name one that is alike with --gpu, "
                "or add it (CONTRIBUTING.md says how)."
            )
        if len(names) > 1:
            told = ", ".join(f"{device.index} is {device.model}" for device in chosen)
            raise UsageError(f"the GPUs are of several models ({told}); name those of one with --gpus.")
        (model,) = names
    assert model is not None
    return load_gpu(model), tuple(device.index for device in chosen)


def _device(found: Sequence[DetectedDevice], index: int) -> DetectedDevice:
    for device in found:
        if device.index == index:
            return device
    if not found:
        raise NoDeviceError("no GPU found on this machine.")
    raise UsageError(f"there is no GPU {index}; this machine has {', '.join(str(device.index) for device in found)}.")
