"""How a kernel's resource rules do against a table of compiled kernels, per target."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from constrint.errors import UsageError
from constrint.kernels.resources.fit import Judged, summary
from constrint.kernels.resources.sample import Row, Sample
from constrint.kernels.resources.weights import LeftOut
from constrint.model import Var
from constrint.select import BlockUse

#: Of what `Check.cells` gives, after the target.
TITLES = ("kernels", "exact", "under", "reg err", "spill", "kept", "clean", "excluded")


@dataclass
class Check:
    """The figures of one target.

    Args:
        compiled: Kernels whose shared memory is known.
        exact: Those whose shared memory is stated to the byte.
        under: Those that take more than is stated.
        judged: The kernels whose registers say anything, with their register figures.
    """

    compiled: int = 0
    exact: int = 0
    under: int = 0
    judged: list[Judged] = field(default_factory=list)

    @property
    def registers(self) -> LeftOut:
        """How the register figures do."""
        return summary(self.judged)

    def cells(self) -> list[str]:
        """The figures, one per title."""
        of = self.registers
        error = "-" if of.median_error is None else f"{of.median_error}%"
        figures = (self.compiled, self.exact, self.under, error, of.spilling, of.kept, of.clean, of.excluded)
        return [str(figure) for figure in figures]


def check_rows(sample: Sample, rows: Iterable[Row]) -> dict[str, Check]:
    """Figures by target."""
    checks: dict[str, Check] = defaultdict(Check)
    uses: dict[str, BlockUse] = {}
    for row in rows:
        gpu, spec, workload, config = sample.request(row)
        check, kernel = checks[row["target"]], sample.kernel(row, True)
        key = f"{spec.full_name} {gpu.name} {workload}"
        if key not in uses:
            use = spec.use(gpu, workload, {name: Var(name) for name in config})
            if use is None:
                raise UsageError(f"{spec.full_name} is no single kernel: it has no resources to check.")
            uses[key] = use
        use = uses[key]
        if row["smem_bytes"] and (row["instruction"] or kernel is not None):
            stated = (use.smem_bytes if use.smem_bytes_exact is None else use.smem_bytes_exact).value(config)
            check.compiled += 1
            check.exact += stated == int(row["smem_bytes"])
            check.under += stated < int(row["smem_bytes"])
        if kernel is not None:
            estimate = use.registers_per_thread.value(config)
            bound = use.registers_needed.value(config)
            check.judged.append(Judged(kernel, estimate, bound))
    return checks
