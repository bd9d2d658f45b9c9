"""Hardware limits as constraints: what one block may take on a GPU, each rule with the limit's name and value.

The numbers come from the `GpuModel` alone. The rules equal the occupancy model's conditions for at least one
resident block.
"""

from __future__ import annotations

from dataclasses import dataclass

from constrint.hwmodels import GpuModel
from constrint.model import Expr, Problem, ceildiv, minimum


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
    problem.add(
        use.warps * sm.warp_size <= sm.max_threads_per_block,
        name="threads",
        because=f"a block of {gpu.name} has at most {sm.max_threads_per_block} threads",
    )
    problem.add(
        use.smem_bytes <= sm.max_smem_bytes_per_block,
        name="smem",
        because=f"a block of {gpu.name} has at most {sm.max_smem_bytes_per_block:,} bytes of {gpu.terms.smem}",
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
    file = gpu.register_file
    warps_per_partition = ceildiv(use.warps, gpu.sm.num_partitions)
    registers = use.registers_needed
    if file.per_thread > 1:
        registers = registers * file.per_thread
    per_warp = file.granularity * ceildiv(registers, file.granularity)
    return warps_per_partition * per_warp, file.capacity, file.counted


def most_registers(gpu: GpuModel, warps: Expr) -> Expr:
    """Registers that a compiler may give a thread: the instruction set's limit, or what the block's warps leave."""
    sm, file = gpu.sm, gpu.register_file
    if file.shared_by_block is not None:
        left = file.shared_by_block // sm.warp_size // warps
    else:
        left = file.capacity // ceildiv(warps, sm.num_partitions) // file.granularity * file.granularity
    return minimum(sm.max_registers_per_thread, left)
