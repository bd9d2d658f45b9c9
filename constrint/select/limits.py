"""Hardware limits as constraints on the resources of one block, each rule with the limit's name and value.

The numbers come from the `GpuModel` alone. Limits on threads, shared memory and proven register demand are certain:
a configuration that breaks one cannot run. Limits on estimated registers remove no configuration. `BlockColumns` has
the resources of many configurations, and the blocks per SM that follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel, occupancy
from constrint.hwmodels.occupancy import limit_names
from constrint.model import Constraint, Expr, Problem, ceildiv, minimum
from constrint.model.constraint import CERTAIN, ESTIMATED
from constrint.select.candidate import ResourceUse

#: Name of the estimated rule that has a spill curve.
SPILLS = "spills"


Columns = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Spilling:
    """Chance of a spill: a logistic curve over estimated registers relative to the most that a thread may have.

    With x = ln(registers / (`at_percent` / 100 x the most that a thread may have)), the chance is
    1 / (1 + exp(-`slope_tenths` / 10 x)).

    Args:
        at_percent: Percent of the most registers at which every other kernel spills.
        slope_tenths: Slope of the curve in tenths.
        clear_percent: Percent of the most registers up to which at most one kernel in ten spills.
        error_percent: Error that one estimate in ten exceeds, in percent of the true count.
        figure: Name of the vendor's figure for the cost of a spill; see `slowdown`.
    """

    at_percent: Expr | int
    slope_tenths: Expr | int
    clear_percent: Expr | int
    error_percent: Expr | int
    figure: str = "spill_exponent"

    def error_of(self, config: Mapping[str, int]) -> int:
        """`error_percent` of a configuration."""
        error = self.error_percent
        return error.value(config) if isinstance(error, Expr) else error

    @staticmethod
    def of(at_percent: int, slope_tenths: int, error_percent: int) -> Spilling:
        """A curve that is the same for all configurations."""
        clear = at_percent * np.exp(-np.log(9.0) * 10 / slope_tenths)
        return Spilling(at_percent, slope_tenths, int(clear), error_percent)


#: Share of held-out kernels that spill although the fitted curve gives a chance of at most one in a thousand
#: (`benchmarks/registers.py fit`: 7 of 3,041 products, 3 of 742 recurrences).
LAPSE = 0.0025
#: Chance of a spill, or of a block that does not fit, for a broken estimated rule without a curve.
BROKEN_CHANCE = 0.7
#: Register demand assumed for such a kernel, relative to the most that a thread may have.
BROKEN_SHARE = 1.3
#: The exponent of `slowdown` where the vendor states none.
USUAL_EXPONENT = 1.0

#: Curve for estimates without a fit: they may be off by a third.
UNFITTED = Spilling.of(105, 60, 35)


@dataclass(frozen=True)
class BlockUse:
    """Resources of one block, as expressions over a problem's variables.

    Args:
        warps: Warps (waves) per block.
        registers_per_thread: 32-bit registers per thread, estimated; on CDNA2 and later the total of the unified file.
        smem_bytes: Shared memory (LDS), static and dynamic together; an upper bound.
        smem_bytes_exact: Shared memory as a function of the free parameters, where they change it; `smem_bytes` is then
            the maximum over their values, and makes no limit.
        least_registers: Proven lower bound on a thread's registers: values live at once. None where there is no proof.
        least_smem_bytes: Lower bound on a block's shared memory, where `smem_bytes` may be too large.
        spilling: Spill curve of the register estimate; None where registers are known exactly.
        together: Blocks that have to be resident at the same time because they wait for each other.
    """

    warps: Expr
    registers_per_thread: Expr
    smem_bytes: Expr
    smem_bytes_exact: Expr | None = None
    least_registers: Expr | None = None
    least_smem_bytes: Expr | None = None
    spilling: Spilling | None = UNFITTED
    together: Expr | None = None

    @property
    def smem_needed(self) -> Expr:
        """Shared memory that a block needs to be launched."""
        if self.least_smem_bytes is not None:
            return self.least_smem_bytes
        return self.smem_stated

    @property
    def smem_stated(self) -> Expr:
        """Predicted shared memory, with the free parameters where they change it."""
        return self.smem_bytes if self.smem_bytes_exact is None else self.smem_bytes_exact


def add_block_limits(problem: Problem, gpu: GpuModel, use: BlockUse) -> None:
    """Add the limits of one block, the certain ones and the estimated ones."""
    sm = gpu.sm
    problem.add(
        use.warps * sm.warp_size <= sm.max_threads_per_block,
        name="threads",
        because=f"a block of {gpu.name} has at most {sm.max_threads_per_block} threads",
        kind=CERTAIN,
    )
    fits = f"a block of {gpu.name} has at most {sm.max_smem_bytes_per_block:,} bytes of {gpu.terms.smem}"
    problem.add(use.smem_needed <= sm.max_smem_bytes_per_block, name="smem", because=fits, kind=CERTAIN)
    if use.least_registers is not None:
        _add_register_limits(problem, gpu, use.warps, use.least_registers)
    if use.least_smem_bytes is not None:
        stated = f"with all that the compiler or an optional input may add; {fits}"
        problem.add(use.smem_stated <= sm.max_smem_bytes_per_block, name="smem_stated", because=stated, kind=ESTIMATED)
    if use.spilling is not None:
        _add_spilling(problem, gpu, use, use.spilling)


def _add_register_limits(problem: Problem, gpu: GpuModel, warps: Expr, least: Expr) -> None:
    """Rules of registers: the proven live values fit a thread's registers, and the block's warps the register file."""
    most, files = gpu.sm.max_registers_per_thread, gpu.register_file.num_files
    live = "what must be live at once alone"
    problem.add(
        least <= most * files,
        name="registers",
        because=f"a thread of {gpu.name} has at most {most * files} registers, and {live} needs more",
        kind=CERTAIN,
    )
    allocated, available, what = register_capacity(gpu, warps, least)
    problem.add(
        allocated <= available * files,
        name="register_file",
        because=f"one block fits the register file: {available * files:,} {what}, and {live} needs more",
        kind=CERTAIN,
    )


def _add_spilling(problem: Problem, gpu: GpuModel, use: BlockUse, curve: Spilling) -> None:
    """Add the estimated rule on registers: of the kernels that satisfy it, at most one in ten spills."""
    most = most_registers(gpu, use.warps)
    seen = "assumed: no kernel like it was fitted" if curve is UNFITTED else "of those that no fit has seen"
    problem.add(
        use.registers_per_thread <= most * curve.clear_percent // 100,
        name=SPILLS,
        because=f"one kernel in ten at this limit spills, {seen}; one estimate in ten is off by more than "
        f"{_percent(curve.error_percent)}; solve --compile says for certain",
        kind=ESTIMATED,
    )


def _percent(value: Expr | int) -> str:
    return f"{value} %" if isinstance(value, int) else "its error band"


def spill_chance(gpu: GpuModel, use: BlockUse, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
    """The chance that each configuration spills, 0 to 1."""
    if use.spilling is None:
        return np.zeros(len(next(iter(columns.values()), (0,))))
    share = register_shares(gpu, use, columns)
    at, slope = (_column(figure, columns) for figure in (use.spilling.at_percent, use.spilling.slope_tenths))
    of_curve = 1.0 / (1.0 + (share / (at / 100.0)) ** (-slope / 10.0))
    return np.asarray(LAPSE + (1.0 - LAPSE) * of_curve, dtype=np.float64)


def broken_chance(estimates: Iterable[Constraint], columns: Mapping[str, NDArray[Any]]) -> Any:
    """Chance that a configuration spills or does not fit because of the estimated rules that it breaks.

    Each broken rule adds an independent chance of `BROKEN_CHANCE`. The rule of `spill_chance` does not count, nor do
    rules on parameters without a value.
    """
    num_broken: Any = 0
    for rule in estimates:
        if rule.name != SPILLS and rule.variables <= columns.keys():
            num_broken = num_broken + ~np.asarray(rule.holds_columns(columns), dtype=bool)
    return chance_of_broken(num_broken)


def chance_of_broken(num_broken: Any) -> Any:
    """Chance of a spill or of a block that does not fit, by the number of estimated rules that are broken."""
    return 1.0 - (1.0 - BROKEN_CHANCE) ** num_broken


def slowdown(gpu: GpuModel, chances: Any, shares: Any, figure: str = "spill_exponent") -> Any:
    """Expected slowdown of kernels that may spill, relative to the same kernels without spills.

    A kernel that spills takes max(1, share)^e times as long, so a few excess registers cost little.

    Args:
        gpu: The hardware model, whose vendor may state e.
        chances: Chance of a spill per kernel.
        shares: Needed registers over the most that a thread may have.
        figure: Name of the vendor's figure e.
    """
    exponent = gpu.figure(figure) if gpu.has_figure(figure) else USUAL_EXPONENT
    return 1.0 + chances * (np.maximum(1.0, shares) ** exponent - 1.0)


def register_shares(gpu: GpuModel, use: BlockUse, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
    """Estimated registers per configuration over the most that a thread may have."""
    most = most_registers(gpu, use.warps).columns(columns)
    return np.asarray(np.maximum(use.registers_per_thread.columns(columns), 1) / np.maximum(most, 1), dtype=np.float64)


def _column(figure: Expr | int, columns: Mapping[str, NDArray[Any]]) -> Any:
    return figure.columns(columns) if isinstance(figure, Expr) else float(figure)


def register_capacity(gpu: GpuModel, warps: Expr, registers: Expr) -> tuple[Expr, int, str]:
    """Registers that one block takes of its fullest partition, the partition's capacity, and the unit in words."""
    file = gpu.register_file
    if file.per_thread > 1:
        registers = registers * file.per_thread
    per_warp = file.granularity * ceildiv(registers, file.granularity)
    return _warps_of_a_partition(gpu, warps) * per_warp, file.capacity, file.counted


def most_registers(gpu: GpuModel, warps: Expr) -> Expr:
    """Registers that a compiler may give a thread: the instruction set's limit, or the share of the block's warps."""
    sm, file = gpu.sm, gpu.register_file
    if file.shared_by_block is not None:
        left = file.shared_by_block // sm.warp_size // warps
    else:
        left = file.capacity // _warps_of_a_partition(gpu, warps) // file.granularity * file.granularity
    return minimum(sm.max_registers_per_thread, left)


def _warps_of_a_partition(gpu: GpuModel, warps: Expr) -> Expr:
    return ceildiv(warps, gpu.register_file.partitions_per_block or gpu.sm.num_partitions)


@dataclass(frozen=True)
class BlockColumns:
    """Resources of one block and blocks per SM, per configuration.

    Args:
        use: The evaluated expressions; None for an implementation that is no single kernel.
        registers: Estimated registers, capped at the most that a thread may have.
        blocks_per_sm: Resident blocks, at least 1: configurations that certainly do not fit were removed.
        chances: Chance of a spill.
        shares: Estimated registers over the most that a thread may have.
    """

    use: BlockUse | None
    threads: NDArray[np.int64]
    registers: NDArray[np.int64]
    smem_bytes: NDArray[np.int64]
    blocks_per_sm: NDArray[np.int64]
    limited_by_mask: NDArray[Any]
    chances: NDArray[np.float64]
    shares: NDArray[np.float64]

    def slowdown(self, gpu: GpuModel) -> NDArray[np.float64]:
        """Expected slowdown of each configuration by spills; see `slowdown`."""
        if self.use is None or self.use.spilling is None:
            return np.ones(len(self.chances))
        return np.asarray(slowdown(gpu, self.chances, self.shares, self.use.spilling.figure), dtype=np.float64)

    def may_exceed(self, gpu: GpuModel) -> NDArray[np.bool_]:
        """Mask of the configurations that may take more shared memory than a block may have."""
        is_bound = self.use is not None and self.use.least_smem_bytes is not None
        return np.asarray((self.smem_bytes > gpu.sm.max_smem_bytes_per_block) & is_bound)

    @staticmethod
    def of(gpu: GpuModel, use: BlockUse | None, columns: Columns, estimates: Iterable[Constraint] = ()) -> BlockColumns:
        """Evaluate a kernel's resource expressions, and its estimated rules."""
        if use is None:
            none = np.zeros(len(next(iter(columns.values()), (0,))), dtype=np.int64)
            certain = none.astype(np.float64)
            return BlockColumns(None, none, none, none, np.ones_like(none), none, certain, certain)
        threads = use.warps.columns(columns) * gpu.sm.warp_size
        most = most_registers(gpu, use.warps).columns(columns)
        registers = np.minimum(use.registers_per_thread.columns(columns), most)
        smem = use.smem_bytes.columns(columns)
        fits = occupancy(
            gpu,
            threads_per_block=threads,
            registers_per_thread=registers,
            smem_bytes_per_block=np.minimum(smem, gpu.sm.max_smem_bytes_per_block),
        )
        blocks = np.maximum(fits.blocks_per_sm, 1)
        doubt = broken_chance(estimates, columns)
        chances = np.maximum(spill_chance(gpu, use, columns), doubt)
        shares = np.maximum(register_shares(gpu, use, columns), np.where(doubt > 0, BROKEN_SHARE, 0.0))
        return BlockColumns(use, threads, registers, smem, blocks, fits.limited_by_mask, chances, shares)

    def take(self, rows: NDArray[Any]) -> BlockColumns:
        """Select rows."""
        return BlockColumns(
            self.use,
            self.threads[rows],
            self.registers[rows],
            self.smem_bytes[rows],
            self.blocks_per_sm[rows],
            self.limited_by_mask[rows],
            self.chances[rows],
            self.shares[rows],
        )

    def resources(self, row: int, config: Mapping[str, int]) -> ResourceUse | None:
        """The resources of one row, with shared memory for the whole configuration where free parameters change it."""
        if self.use is None:
            return None
        stated = ResourceUse(
            threads=int(self.threads[row]),
            registers_per_thread=int(self.registers[row]),
            smem_bytes=int(self.smem_bytes[row]),
            blocks_per_sm=int(self.blocks_per_sm[row]),
            limited_by=str(limit_names(self.limited_by_mask[row])),
            spill_chance=float(self.chances[row]),
            error_percent=0 if self.use.spilling is None else self.use.spilling.error_of(config),
        )
        exact = self.use.smem_bytes_exact
        return stated if exact is None else replace(stated, smem_bytes=exact.value(config))
