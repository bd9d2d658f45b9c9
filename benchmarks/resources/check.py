"""Checks of a kernel's resource rules and estimates against compiled kernels, per target.

`check_rows` takes the recorded sample; `check_fresh` takes kernels that no fit has seen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.resources.fit import Calibration, Judged, calibration, summary
from benchmarks.resources.sample import KernelSample, Row, SampleRequest
from constrint.errors import UsageError
from constrint.hwmodels import GpuModel, occupancy
from constrint.kernels.resources.registers import LeftOut
from constrint.model import Var
from constrint.select.core_space import chance_of
from constrint.select.limits import SPILLS, BlockUse, most_registers, spill_chance

#: Titles of `ResourceCheck.cells`, after that of the target.
TITLES = ("kernels", "exact", "under", "over", "wrong", "reg err", "p90", "spilled", "expected", "log loss")
#: Names of the rules on a block's resources; other rules define the space.
LIMITS = frozenset({"threads", "smem", "registers", "register_file"})


@dataclass
class ResourceCheck:
    """The figures of one target.

    Args:
        compiled: Kernels whose shared memory is known.
        exact: Kernels whose shared memory the rules state to the byte.
        under: Kernels that take more shared memory than the rules state.
        over: Kernels that take less shared memory than the rules call necessary.
        wrong: Kernels that a certain limit on registers excludes although they do not spill.
        judged: Kernels with a meaningful register count, with their estimates.
        chances: The predicted chances of these kernels to spill.
    """

    compiled: int = 0
    exact: int = 0
    under: int = 0
    over: int = 0
    wrong: int = 0
    judged: list[Judged] = field(default_factory=list)
    chances: list[float] = field(default_factory=list)

    @property
    def registers(self) -> LeftOut:
        """The errors of the estimates and the chances."""
        return summary(self.judged, self.chances)

    @property
    def calibration(self) -> list[Calibration]:
        """Shares of kernels that spilled, by their predicted chance."""
        return calibration(self.chances, [judged.kernel.spills for judged in self.judged])

    def cells(self) -> list[str]:
        """The figures, one per title."""
        of = self.registers
        errors = ["-" if error is None else f"{error}%" for error in (of.median_error, of.p90_error)]
        counts = (self.compiled, self.exact, self.under, self.over, self.wrong)
        return [*map(str, counts), *errors, str(of.spilled), str(of.expected), str(of.log_loss)]


def check_rows(sample: KernelSample, rows: Iterable[Row]) -> dict[str, ResourceCheck]:
    """Figures by target."""
    checks: dict[str, ResourceCheck] = defaultdict(ResourceCheck)
    uses: dict[str, BlockUse] = {}
    for row in rows:
        gpu, spec, workload, config = sample.request(row)
        key = f"{row.get('compiler')} {spec.full_name} {gpu.name} {workload}"
        if key not in uses:
            use = spec.use(gpu, workload, {name: Var(name) for name in config})
            if use is None:
                raise UsageError(f"{spec.full_name} is no single kernel: it has no resources to check.")
            uses[key] = use
        _count_checked(checks[row["target"]], sample, row, gpu, uses[key], config)
    return checks


def _count_checked(
    check: ResourceCheck, sample: KernelSample, row: Row, gpu: GpuModel, use: BlockUse, config: Mapping[str, int]
) -> None:
    kernel = sample.kernel(row, True)
    if row["smem_bytes"] and (row["instruction"] or kernel is not None):
        stated, taken = use.smem_stated, int(row["smem_bytes"])
        check.compiled += 1
        check.exact += stated.value(config) == taken
        check.under += stated.value(config) < taken
        check.over += use.smem_needed.value(config) > taken
    if kernel is None:
        return
    if use.least_registers is not None:
        exceeds = use.least_registers.value(config) > most_registers(gpu, use.warps).value(config)
        check.wrong += exceeds and not kernel.spills and gpu.register_file.num_files == 1
    columns: dict[str, Any] = {name: np.array([value]) for name, value in config.items()}
    check.judged.append(Judged(kernel, use.registers_per_thread.value(config)))
    check.chances.append(float(spill_chance(gpu, use, columns)[0]))


@dataclass
class FreshCheck:
    """The figures of one target.

    Args:
        pruned: Kernels that certain limits exclude.
        pruned_fit: Pruned kernels that compile within the limits and do not spill.
        valid: Kernels that no certain limit excludes.
        valid_exceed: Valid kernels that exceed shared memory or threads, or cannot be launched.
        refused: Kernels, pruned or valid, that the compiler refused or gave up.
        chances: The predicted chance to spill of every valid kernel that compiled.
        spills: Whether each of these kernels spilled.
        wrong: A line for every kernel for which a certain limit was wrong.
        marked_exceed: Valid kernels that exceed a limit and that an estimated rule had marked.
    """

    pruned: int = 0
    pruned_fit: int = 0
    valid: int = 0
    valid_exceed: int = 0
    refused: int = 0
    chances: list[float] = field(default_factory=list)
    spills: list[bool] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    marked_exceed: int = 0


def check_fresh(sample: KernelSample, rows: Iterable[Row]) -> dict[str, FreshCheck]:
    """Figures by target."""
    checks: dict[str, FreshCheck] = defaultdict(FreshCheck)
    for row in rows:
        _count_fresh(checks[row["target"]], sample.request(row), row)
    return checks


def _count_fresh(fresh: FreshCheck, request: SampleRequest, row: Row) -> None:
    gpu, spec, workload, config = request
    problem = spec.problem(gpu, workload)
    use = spec.use(gpu, workload, {name: Var(name) for name in problem.variables})
    assert use is not None
    broken = {rule.name for rule in problem.constraints if rule.name in LIMITS and not rule.holds(config)}
    what = f"{spec.full_name} {workload} on {gpu.name} {dict(config)}"
    if broken:
        fresh.pruned += 1
    else:
        fresh.valid += 1
    if row["error"]:
        fresh.refused += 1
        return
    reason = exceeded(gpu, use, config, row)
    spills = int(row["spill_bytes"] or 0) > 0
    if broken and not reason and not spills:
        fresh.pruned_fit += 1
        fresh.wrong.append(f"pruned by {', '.join(sorted(broken))}, but it fits: {what}: {_taken(row)}")
    elif not broken and reason and any(r.name != SPILLS and not r.holds(config) for r in problem.estimates):
        fresh.marked_exceed += 1
    elif not broken and reason:
        fresh.valid_exceed += 1
        fresh.wrong.append(f"valid, but {reason}: {what}: {_taken(row)}")
    if not broken:
        fresh.chances.append(chance_of(gpu, use, problem.estimates, config))
        fresh.spills.append(spills)


def exceeded(gpu: GpuModel, use: BlockUse, config: Mapping[str, int], row: Row) -> str:
    """Return the resource of the GPU that a compiled kernel exceeds; empty if the kernel can be launched."""
    smem, registers = int(row["smem_bytes"]), int(row["registers"])
    if smem > gpu.sm.max_smem_bytes_per_block:
        return f"{smem:,} bytes of shared memory"
    fits = occupancy(
        gpu,
        threads_per_block=use.warps.value(config) * gpu.sm.warp_size,
        registers_per_thread=registers,
        smem_bytes_per_block=smem,
        wgp_mode=(gpu.register_file.partitions_per_block or 0) > gpu.sm.num_partitions,
    )
    return "" if int(fits.blocks_per_sm) else f"{registers} registers a thread leave no room for a block"


def _taken(row: Row) -> str:
    return f"{row['smem_bytes']} B, {row['registers']} registers, {row['spill_bytes']} B spilled"
