"""How a kernel's resource rules do against a table of compiled kernels, per target."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from constrint.errors import UsageError
from constrint.kernels.resources.sample import Request, Row, Sample
from constrint.kernels.resources.scores import Score
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
        registers: What the register figures say of the kernels whose registers say anything.
    """

    compiled: int = 0
    exact: int = 0
    under: int = 0
    registers: Score = field(default_factory=Score)

    def cells(self) -> Iterator[str]:
        """The figures, one per title."""
        score = self.registers
        median = score.left_out().median_error
        yield from map(str, (self.compiled, self.exact, self.under))
        yield "-" if median is None else f"{median}%"
        yield from map(str, (score.spilling, score.kept, score.clean, score.excluded))


def check_rows(sample: Sample, rows: Iterable[Row]) -> dict[str, Check]:
    """Figures by target."""
    checks: dict[str, Check] = defaultdict(Check)
    uses: dict[str, BlockUse] = {}
    for row in rows:
        request, check, kernel = sample.request(row), checks[row["target"]], sample.kernel(row, True)
        key = f"{request.spec.full_name} {request.gpu.name} {request.workload}"
        if key not in uses:
            uses[key] = _use_of(request)
        use = uses[key]
        if row["smem_bytes"] and (row["instruction"] or kernel is not None):
            stated = (use.smem_bytes if use.smem_bytes_exact is None else use.smem_bytes_exact).value(request.config)
            check.compiled += 1
            check.exact += stated == int(row["smem_bytes"])
            check.under += stated < int(row["smem_bytes"])
        if kernel is not None:
            estimate = use.registers_per_thread.value(request.config)
            bound = use.registers_needed.value(request.config)
            check.registers.add(kernel, estimate, bound)
    return checks


def _use_of(request: Request) -> BlockUse:
    gpu, spec, workload, config = request
    use = spec.use(gpu, workload, {name: Var(name) for name in config})
    if use is None:
        raise UsageError(f"{spec.full_name} is no single kernel: it has no resources to check.")
    return use
