"""What certain rules and chances said of kernels that no fit has seen, and what the compiler made of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from constrint.hwmodels import GpuModel, occupancy
from constrint.kernels.resources.sample import Request, Row, Sample
from constrint.model import Var
from constrint.select.core_space import chance_of
from constrint.select.limits import SPILLS, BlockUse

#: Of what `Fresh.cells` gives, after the target.
FRESH_TITLES = ("kernels", "pruned", "of it fit", "valid", "of it exceed", "refused", "spill", "expected")
#: Rules on what a block takes; others say what is a kernel of the space at all.
LIMITS = frozenset({"threads", "smem", "registers", "register_file"})


@dataclass
class Fresh:
    """The figures of one target.

    Args:
        pruned: Kernels that certain limits exclude.
        pruned_fit: Those of them that compile within the limits, and do not spill.
        valid: The others.
        valid_exceed: Those of them that exceed shared memory or threads, or cannot be launched.
        refused: Kernels that the compiler refused or gave up, of either kind.
        chances: The chance of every valid kernel that compiled to spill.
        spills: Whether it did.
        wrong: A line about every kernel of which a certain limit was wrong.
        marked_exceed: Valid kernels that exceed a limit, as an estimated rule says: only the least is certain.
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

    def cells(self) -> list[str]:
        """The figures, one per title."""
        counts = (self.pruned + self.valid, self.pruned, self.pruned_fit, self.valid, self.valid_exceed, self.refused)
        return [*map(str, counts), str(sum(self.spills)), f"{sum(self.chances):.1f}"]


def check_fresh(sample: Sample, rows: Iterable[Row]) -> dict[str, Fresh]:
    """Figures by target."""
    checks: dict[str, Fresh] = defaultdict(Fresh)
    for row in rows:
        _count(checks[row["target"]], sample.request(row), row)
    return checks


def _count(fresh: Fresh, request: Request, row: Row) -> None:
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
    """What of the GPU's a compiled kernel exceeds; empty if it can be launched."""
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
