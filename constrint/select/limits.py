"""Hardware limits as constraints: what one block may take on a GPU, each rule with the limit's name and value.

The numbers come from the `GpuModel` alone. The rules equal the occupancy model's conditions for at least one
resident block.
"""

from __future__ import annotations

from dataclasses import dataclass

from constrint.hwmodels import AmdCu, GpuModel, NvidiaSm
from constrint.model import Expr, Problem, ceildiv


@dataclass(frozen=True)
class BlockUse:
    """What one block takes, as expressions over a problem's variables.

    Args:
        warps: Warps (waves) per block.
        registers_per_thread: 32-bit registers per thread; on CDNA2 and later the total of the unified file.
        smem_bytes: Shared memory (LDS), static and dynamic together.
        registers_bound: Registers that the compiler may need at most, where `registers_per_thread` is an estimate that
            can fall short; it decides what spills.
        smem_bytes_exact: Shared memory with the kernel's free parameters, where they change it; `smem_bytes` is then
            the most over their values.
    """

    warps: Expr
    registers_per_thread: Expr
    smem_bytes: Expr
    registers_bound: Expr | None = None
    smem_bytes_exact: Expr | None = None

    @property
    def registers_needed(self) -> Expr:
        """Registers that a thread must be able to have: the bound if there is one."""
        return self.registers_per_thread if self.registers_bound is None else self.registers_bound


def add_block_limits(problem: Problem, gpu: GpuModel, use: BlockUse) -> None:
    """Add the limits of one block: threads, shared memory, registers per thread and per partition."""
    sm = gpu.sm
    smem_name = "LDS" if gpu.vendor == "amd" else "shared memory"
    problem.add(
        use.warps * sm.warp_size <= sm.max_threads_per_block,
        name="threads",
        because=f"a block of {gpu.name} has at most {sm.max_threads_per_block} threads",
    )
    problem.add(
        use.smem_bytes <= sm.max_smem_bytes_per_block,
        name="smem",
        because=f"a block of {gpu.name} has at most {sm.max_smem_bytes_per_block:,} bytes of {smem_name}",
    )
    problem.add(
        use.registers_needed <= sm.max_registers_per_thread,
        name="registers",
        because=f"a thread of {gpu.name} has at most {sm.max_registers_per_thread} registers; beyond it spills",
    )
    allocated, available, what = register_capacity(gpu, use)
    problem.add(
        allocated <= available,
        name="register_file",
        because=f"one block fits the register file: {available:,} {what}",
    )


def register_capacity(gpu: GpuModel, use: BlockUse) -> tuple[Expr, int, str]:
    """Registers that one block takes of its fullest partition, how many there are, and what is counted."""
    sm = gpu.sm
    warps_per_partition = ceildiv(use.warps, sm.num_partitions)
    if isinstance(sm, NvidiaSm):
        unit = sm.register_alloc_granularity_registers_per_warp
        per_warp = unit * ceildiv(use.registers_needed * sm.warp_size, unit)
        return warps_per_partition * per_warp, sm.registers_per_partition, "registers per SM sub-partition"
    assert isinstance(sm, AmdCu)
    granularity = sm.vgpr_alloc_granularity(sm.warp_size)
    per_lane = granularity * ceildiv(use.registers_needed, granularity)
    return warps_per_partition * per_lane, sm.vgprs_per_lane(sm.warp_size), "vector registers per SIMD lane"
