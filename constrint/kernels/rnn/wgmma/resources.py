"""What one block of the kernel for many sequences takes: its warps, shared memory, and registers of a thread.

Sums and the window of what was asked for are arrays of the source whose elements are all live when the last chunk of a
step is waited for: that part is certain. The rest is estimated from kernels that were compiled for sm_90a by NVRTC 13
(36 of them; those that spilled are told from those that did not by `SPILLING`).
"""

from __future__ import annotations

from constrint.kernels.rnn.wgmma.shape import Shape
from constrint.model import Expr
from constrint.select.limits import BlockUse, Spilling

#: Registers for addresses, the rows of a thread, and what is under way.
OTHER_REGISTERS = 24
#: Half of the kernels spill that are estimated to need what a thread may have; compiled ones hardly spill below.
SPILLING = Spilling.of(at_percent=100, slope_tenths=200, error_percent=25)


def block_use(shape: Shape) -> BlockUse:
    """Warps, registers and shared memory of one block."""
    return BlockUse(
        warps=shape.warps,
        registers_per_thread=least_registers(shape) + carried_registers(shape) + OTHER_REGISTERS,
        smem_bytes=shape.smem_bytes,
        least_registers=least_registers(shape),
        spilling=SPILLING,
        together=shape.blocks,
    )


def least_registers(shape: Shape) -> Expr:
    """Registers that a thread needs whatever the compiler does: sums, and what rows are read into."""
    return shape.sums + 4 * shape.window + 1


def carried_registers(shape: Shape) -> Expr:
    """Registers of a thread that hold states, and the next step's inputs, two of them in a word."""
    return shape.items * shape.cell.num_states + shape.items * shape.cell.num_gates // 2
