"""The facts of a question: the kernels, the GPU's limits, the cost model's ranking, and winners of near workloads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from constrint.hwmodels import GpuModel
from constrint.select import Workload
from constrint.select.candidates import Candidates, KernelCandidates
from constrint.tune.search.interface import SearchTask
from constrint.tune.search.learned import distance, in_space, nearest
from constrint.tune.search.llm.actions import actions_of, bound_by, zone_of_part
from constrint.tune.search.llm.records import Nearby, PredictedConfig, TaskFacts, TaskKernel, TaskParam, TaskRule
from constrint.tune.store.record import TuningRecord

#: Entries of the ranking, and winners of the nearest workloads.
NUM_RANKED: Final = 8
NUM_NEARBY: Final = 4


def facts_of(task: SearchTask, candidates: Candidates) -> TaskFacts:
    """The facts of a task before its first round.

    Args:
        task: The workload and the GPU, with records of other workloads.
        candidates: The valid configurations.
    """
    gpu, workload = task.gpu, task.workload
    head = ranked_head(candidates, NUM_RANKED)
    specs = [kernel.spec for kernel in candidates.kernels]
    return TaskFacts(
        operation=workload.operation,
        workload=str(workload),
        sizes=dict(workload.sizes),
        dtype=workload.dtype,
        options=dict(workload.options),
        gpu=gpu.name,
        limits=limits_of(gpu, workload.dtype),
        kernels=tuple(kernel_facts(kernel) for kernel in candidates.kernels),
        roofline_s=min(spec.roofline_s(gpu, workload) for spec in specs),
        zone=head[0].zone if head else None,
        ranking=tuple(head),
        nearby=tuple(_nearby(task)),
    )


def limits_of(gpu: GpuModel, dtype: str) -> dict[str, float]:
    """The limits of the GPU that bound kernels, by names with units."""
    sm, device, dram = gpu.sm, gpu.device, gpu.memory.dram
    limits: dict[str, float | None] = {
        "num_sms": device.sm_count,
        "warp_size": sm.warp_size,
        "max_threads_per_block": sm.max_threads_per_block,
        "max_registers_per_thread": sm.max_registers_per_thread,
        "max_smem_bytes_per_block": sm.max_smem_bytes_per_block,
        "dram_bytes": dram.size_bytes,
        "dram_bytes_per_s": dram.bandwidth_bytes_per_s,
        f"peak_{dtype}_flop_per_s": gpu.peak_flop_per_s(dtype),
    }
    return {name: float(value) for name, value in limits.items() if value}


def kernel_facts(kernel: KernelCandidates) -> TaskKernel:
    """The parameters, rules and actions of one implementation."""
    from constrint.solve.explain.conflict import rule_text  # loaded where rules are shown

    spec, gpu, workload = kernel.spec, kernel.gpu, kernel.workload
    params = [
        TaskParam(name=param.name, values=param.values, meaning=param.meaning, because=param.because)
        for param in spec.params(gpu, workload)
    ]
    problem = spec.problem(gpu, workload)
    rules = [
        TaskRule(rule=rule_text(rule), because=rule.because, is_certain=is_certain)
        for rules, is_certain in ((problem.constraints, True), (problem.estimates, False))
        for rule in rules
    ]
    return TaskKernel(
        name=spec.full_name,
        summary=spec.summary,
        params=tuple(params),
        rules=tuple(rules),
        actions=actions_of(spec, [param.name for param in params]),
        num_valid=kernel.size,
    )


def ranked_head(candidates: Candidates, number: int) -> list[PredictedConfig]:
    """The configurations with the least predicted times, and the first one of each kernel absent from them."""
    places, rows = (column.tolist() for column in candidates.best(number))
    for place, kernel in enumerate(candidates.kernels):
        if place not in places and kernel.num_rows:
            places.append(place)
            rows.append(int(np.argmin(kernel.seconds)))
    return [ranked(candidates.kernels[place], row) for place, row in zip(places, rows, strict=True)]


def ranked(kernel: KernelCandidates, row: int) -> PredictedConfig:
    """A row of a kernel with its predicted time and the parts of it."""
    parts_s = {name: float(part[0]) for name, part in kernel.parts_s(np.array([row])).items()}
    part = bound_by(parts_s)
    return PredictedConfig(
        kernel=kernel.spec.full_name,
        config=kernel.config(row),
        predicted_s=float(kernel.seconds[row]),
        bound_by=part,
        zone=zone_of_part(part) if part else None,
        parts_s={name: value for name, value in parts_s.items() if value > 0},
    )


def _nearby(task: SearchTask) -> list[Nearby]:
    """The winners of the nearest workloads, nearest first; only those by a kernel of the task, in its space."""
    winners: list[Nearby] = []
    for workload, records in nearest(task):
        if len(winners) == NUM_NEARBY:
            break
        timed = [] if workload == task.workload else list(_timed(task, workload, records))
        if timed:
            seconds, winner = min(timed, key=lambda pair: pair[0])
            config = {name: int(value) for name, value in winner.config.items() if isinstance(value, int)}
            far, kernel = distance(task.workload, workload), winner.kernel
            winners.append(Nearby(workload=str(workload), distance=far, kernel=kernel, config=config, seconds=seconds))
    return winners


def _timed(
    task: SearchTask, workload: Workload, records: Sequence[TuningRecord]
) -> Iterator[tuple[float, TuningRecord]]:
    """Records of a workload by the task's kernels, with their times."""
    for spec in task.operation.implementations:
        own = [record for record in records if record.kernel == spec.full_name]
        for record in in_space(spec, task.gpu, workload, own) if own else ():
            if record.figures is not None:
                yield record.figures.median_s, record
