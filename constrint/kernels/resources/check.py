"""How a kernel's resource rules and estimates do against a table of compiled kernels, per target."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from constrint.errors import UsageError
from constrint.hwmodels import GpuModel
from constrint.kernels.resources.curve import Calibration, Judged, calibration
from constrint.kernels.resources.fit import summary
from constrint.kernels.resources.sample import Row, Sample
from constrint.kernels.resources.weights import LeftOut
from constrint.model import Var
from constrint.select import BlockUse
from constrint.select.limits import most_registers, spill_chance

#: Of what `Check.cells` gives, after the target.
TITLES = ("kernels", "exact", "under", "over", "wrong", "reg err", "p90", "spilled", "expected", "log loss")


@dataclass
class Check:
    """The figures of one target.

    Args:
        compiled: Kernels whose shared memory is known.
        exact: Those whose shared memory is stated to the byte.
        under: Those that take more than is stated.
        over: Those that take less than is said to be needed.
        wrong: Kernels that a certain limit on registers excludes, and that do not spill.
        judged: The kernels whose registers say anything, with their estimates.
        chances: Their chances to spill.
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
        """How the estimates and the chances do."""
        return summary(self.judged, self.chances)

    @property
    def calibration(self) -> list[Calibration]:
        """How often kernels spilled, by the chance that was given them."""
        return calibration(self.chances, [judged.kernel.spills for judged in self.judged])

    def cells(self) -> list[str]:
        """The figures, one per title."""
        of = self.registers
        errors = ["-" if error is None else f"{error}%" for error in (of.median_error, of.p90_error)]
        counts = (self.compiled, self.exact, self.under, self.over, self.wrong)
        return [*map(str, counts), *errors, str(of.spilled), str(of.expected), str(of.log_loss)]


def check_rows(sample: Sample, rows: Iterable[Row]) -> dict[str, Check]:
    """Figures by target."""
    checks: dict[str, Check] = defaultdict(Check)
    uses: dict[str, BlockUse] = {}
    for row in rows:
        gpu, spec, workload, config = sample.request(row)
        key = f"{spec.full_name} {gpu.name} {workload}"
        if key not in uses:
            use = spec.use(gpu, workload, {name: Var(name) for name in config})
            if use is None:
                raise UsageError(f"{spec.full_name} is no single kernel: it has no resources to check.")
            uses[key] = use
        _count(checks[row["target"]], sample, row, gpu, uses[key], config)
    return checks


def _count(check: Check, sample: Sample, row: Row, gpu: GpuModel, use: BlockUse, config: Mapping[str, int]) -> None:
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
