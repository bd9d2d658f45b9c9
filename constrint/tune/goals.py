"""Goals of the tuner: requested workloads, rounded to the buckets that share one winner."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from constrint.errors import ConstrintError, UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.select import KernelSpec, Operation, Workload
from constrint.tune.session import Goal


def is_launchable(spec: KernelSpec) -> bool:
    """Whether a kernel states its launches; one without can be ranked, but not measured."""
    return type(spec).launches is not KernelSpec.launches


def goals_of(operation: Operation, gpu: GpuModel, workloads: Iterable[Workload]) -> list[Goal]:
    """The goals of workloads, each once, with the kernels of the operation that take it and can be launched.

    Raises:
        ConstrintError: When no kernel takes a workload: the reason of the last one.
    """
    goals: list[Goal] = []
    for workload in workloads:
        goals += [goal for goal in _goals_of_one(operation, gpu, workload) if goal not in goals]
    return goals


def usual_goals(operations: Iterable[Operation], gpu: GpuModel) -> list[Goal]:
    """The goals of an installation: the usual workloads of every kernel, without those that the GPU cannot take."""
    goals: list[Goal] = []
    for operation in operations:
        for spec in filter(is_launchable, operation.implementations):
            for workload in spec.usual_workloads(gpu):
                try:
                    own = _goals_of_one(operation, gpu, workload)
                except ConstrintError:
                    continue
                goals += [goal for goal in own if goal not in goals]
    return goals


def _goals_of_one(operation: Operation, gpu: GpuModel, workload: Workload) -> Iterator[Goal]:
    able, last = [], None
    for spec in filter(is_launchable, operation.implementations):
        try:
            spec.check_workload(gpu, spec.bucket(workload))
            able.append(spec)
        except ConstrintError as error:
            last = error
    if not able:
        raise last or UnsupportedError(f"no kernel of {operation.name!r} says how it is launched.")
    preset = {option.name: option.default for option in operation.options}
    bucket = able[0].bucket(workload)
    options = {name: value for name, value in bucket.options.items() if preset.get(name) != value}
    whole = Workload(able[0].operation, dict(bucket.sizes), bucket.dtype, options)
    return iter([Goal(Operation(operation.name, tuple(able)), whole, fixed) for fixed in able[0].ways(whole)])
