"""Records of other workloads as measured over predicted times, ready for the regression."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel
from constrint.select import KernelSpec, Workload
from constrint.select.candidates import KernelCandidates
from constrint.tune.search.interface import SearchTask
from constrint.tune.search.points import ConfigPoints, Describer, Floats
from constrint.tune.store.record import TuningRecord

#: Most configurations to learn from: of one kernel for one workload, and in total.
MOST_CONFIGS, MOST_KNOWN = 32, 400
#: Largest factor between measurement and prediction; a record beyond it is discarded.
MOST_OFF = 20.0
#: Largest excess over the median log ratio that is learnt: a slow configuration is slow either way.
CLIP = 0.25
#: Distance of workloads of different types, and of those that differ in an option, in powers of two of a size.
OF_DTYPE, OF_OPTION = 4.0, 1.0
#: Types with the same units at the same rate, and their distance.
KIN, OF_KIN = {"bf16", "fp16"}, 0.5


@dataclass(frozen=True)
class Learned:
    """Measurements of earlier runs.

    Args:
        points: The configurations.
        log_ratios: Logarithms of their measured over their predicted times.
        distances: Distances between workloads, by their numbers; number 0 is the workload that is tuned.
    """

    points: ConfigPoints | None
    log_ratios: Floats
    distances: Floats


def learn_from(task: SearchTask, describer: Describer) -> Learned:
    """The usable records of a task: those of its GPU, operation and kernels."""
    groups = nearest(task)
    points: list[ConfigPoints] = []
    ratios: list[Floats] = []
    for number, (workload, records) in enumerate(groups, start=1):
        if sum(map(len, ratios)) >= MOST_KNOWN:
            break
        for spec in task.operation.implementations:
            own = [record for record in records if record.kernel == spec.full_name]
            if own and spec.full_name in describer.places:
                candidates, log_ratios = ratios_of(spec, task.gpu, workload, own)
                if candidates is not None:
                    number = 0 if workload == task.workload else number
                    points.append(describer.points(candidates, np.arange(candidates.num_rows), number))
                    ratios.append(log_ratios)
    workloads = [task.workload, *(workload for workload, _ in groups)]
    distances = np.array([[distance(one, other) for other in workloads] for one in workloads])
    if not points:
        return Learned(None, np.zeros(0), distances)
    return Learned(ConfigPoints.joined(points), np.concatenate(ratios), distances)


def nearest(task: SearchTask) -> list[tuple[Workload, list[TuningRecord]]]:
    """Workloads with records, nearest to the task's first, with one record per configuration."""
    groups: dict[tuple[object, ...], list[TuningRecord]] = {}
    for record in task.records:
        if _is_usable(record, task):
            key = (record.dtype, *sorted(record.sizes.items()), None, *sorted(record.options.items()))
            groups.setdefault(key, []).append(record)
    by_workload = [(records[0].workload, _one_each(records)) for records in groups.values()]
    by_workload.sort(key=lambda group: (distance(task.workload, group[0]), str(group[0])))
    return by_workload


def distance(one: Workload, other: Workload) -> float:
    """Distance of two workloads of one operation, in powers of two of a size."""
    squares = sum(math.log2(max(one.sizes[n], 1) / max(other.sizes[n], 1)) ** 2 for n in one.sizes)
    different = sum(one.options.get(n) != other.options.get(n) for n in {*one.options, *other.options})
    dtypes = 0.0 if one.dtype == other.dtype else OF_KIN if {one.dtype, other.dtype} == KIN else OF_DTYPE
    return math.sqrt(squares) + OF_OPTION * different + dtypes


def ratios_of(
    spec: KernelSpec, gpu: GpuModel, workload: Workload, records: Sequence[TuningRecord]
) -> tuple[KernelCandidates | None, Floats]:
    """One kernel's recorded configurations of a workload, and their measured over predicted times as logarithms."""
    nothing = None, np.zeros(0)
    usable = in_space(spec, gpu, workload, records)
    if not usable:
        return nothing
    names = usable[0].config
    columns = {name: np.array([record.config[name] for record in usable], dtype=np.int64) for name in names}
    if not columns:
        usable = usable[:1]
    candidates = KernelCandidates(spec, gpu, workload, columns)
    measured = np.array([record.figures.median_s for record in usable if record.figures is not None])
    log_ratios = np.log(measured / candidates.seconds)
    # Fast configurations, and those that the model predicts to be fast: both correct the ranking's head.
    telling = np.minimum(np.argsort(np.argsort(measured)), np.argsort(np.argsort(candidates.seconds)))
    rows = np.argsort(telling, kind="stable")[:MOST_CONFIGS]
    rows = rows[np.abs(log_ratios[rows]) <= math.log(MOST_OFF)]
    if not len(rows):
        return nothing
    log_ratios = np.minimum(log_ratios, np.median(log_ratios[rows]) + CLIP)
    if columns:
        candidates = KernelCandidates(spec, gpu, workload, {name: column[rows] for name, column in columns.items()})
    return candidates, log_ratios[rows]


def _is_usable(record: TuningRecord, task: SearchTask) -> bool:
    """Whether a record has a time and is of the task's GPU and operation."""
    names = set(task.workload.sizes)
    if record.operation != task.workload.operation or record.gpu.lower() != task.gpu.name.lower():
        return False
    if not record.is_ok or record.figures is None or set(record.sizes) != names:
        return False
    return math.isfinite(record.figures.median_s) and record.figures.median_s > 0


def _one_each(records: Sequence[TuningRecord]) -> list[TuningRecord]:
    """One record per configuration: cold ones where there are any, and the final figure of several."""
    cold = [record for record in records if record.figures is not None and record.figures.cache == "cold"]
    by_config: dict[tuple[object, ...], TuningRecord] = {}
    for record in sorted(cold or records, key=lambda r: (r.figures is not None and r.figures.is_final, r.created)):
        key: tuple[object, ...] = (record.kernel, *sorted(record.config.items()))
        by_config[key] = record
    return list(by_config.values())


def in_space(
    spec: KernelSpec, gpu: GpuModel, workload: Workload, records: Sequence[TuningRecord]
) -> list[TuningRecord]:
    """The records of one workload whose configurations have a value of the kernel for each of its parameters.

    A store may come from anywhere: of other records neither names nor values are trusted.
    """
    try:
        spec.check_workload(gpu, workload)
        allowed = {param.name: set(param.values) for param in spec.params(gpu, workload)}
    except ConstrintError:
        return []
    if not set(workload.options) <= {option.name for option in spec.options}:
        return []
    return [record for record in records if _is_allowed(record.config, allowed)]


def _is_allowed(config: Mapping[str, object], allowed: Mapping[str, set[int]]) -> bool:
    if set(config) != set(allowed):
        return False
    return all(isinstance(value, int) and value in allowed[name] for name, value in config.items())
