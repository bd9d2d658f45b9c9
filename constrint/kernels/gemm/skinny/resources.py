"""What one block of the kernel for short sides takes: warps, registers and shared memory.

The compiler is told how many blocks an SM is to hold (`__launch_bounds__`), and gives threads no more registers than
that leaves. What sums, vectors under way and addresses take of them is counted here; beyond, kernels spill, which is a
rule (`rules.py`).
"""

from __future__ import annotations

from typing import Any

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.skinny.shape import QUAD, WARP, Shape
from constrint.kernels.gemm.units import WIDEST_BYTES
from constrint.model import Expr, maximum, minimum
from constrint.select.limits import BlockUse
from constrint.select.spec import Vars

#: Registers of a thread beside sums, vectors and what is counted here.
OTHER_REGISTERS = 40
#: Registers are granted in steps, and thread 255 of 256 at most; static shared memory beside the sums.
REGISTER_STEP, FLAG_BYTES = 8, 16


def launched_registers(gpu: GpuModel, v: Vars) -> Expr:
    """Registers that the compiler may give a thread, so that an SM holds as many blocks as it is told."""
    whole = gpu.sm.num_partitions * gpu.register_file.capacity
    left = whole // (WARP * v["num_warps"] * v["resident"]) // REGISTER_STEP * REGISTER_STEP
    return minimum(gpu.sm.max_registers_per_thread, left)


def needed_registers(product: Product, v: Vars) -> Expr:
    """Registers that sums, vectors under way and addresses take: counted, and not what the compiler says."""
    shape, turned, mma = Shape.of_product(v, product), v["turned"], v["mma"]
    sides = (product.a, product.b)
    # Of operands that are read anywhere, two vectors are loaded for each.
    shifted = [1 + (side.width_bytes < WIDEST_BYTES) for side in sides]
    doubled = shifted[0] + turned * (shifted[1] - shifted[0])
    majors = [3 + side.is_k_major for side in sides]
    addresses = shape.tiles * (majors[0] + turned * (majors[1] - majors[0]))
    # Vectors of the short operand, or its numbers beside those of a vector of the long one.
    of_matrices, of_numbers = shape.small // 2 * minimum(shape.unroll, 2), 7 * shape.small + 16
    made = of_numbers + mma * (of_matrices - of_numbers)
    # 8-bit floats are made fp16 before they are multiplied.
    widened = 48 if product.dtype == "fp8" else 0
    taken: Expr = (
        shape.sums + 4 * doubled * shape.vectors * v["num_stages"] + addresses + made + widened + OTHER_REGISTERS
    )
    return taken


def dynamic_smem_bytes(shape: Shape, num_warps: Any, *, most: Any = max) -> Any:
    """Dynamic shared memory: the sums of all warps along K, or four of each thread."""
    return 4 * most(shape.warps_k * shape.small * (shape.rows + QUAD), QUAD * WARP * num_warps)


def smem_bytes(product: Product, v: Vars) -> Expr:
    """Shared memory of a block, with the flag that tells the last one."""
    taken: Expr = dynamic_smem_bytes(Shape.of_product(v, product), v["num_warps"], most=maximum) + FLAG_BYTES
    return taken


def block_use(gpu: GpuModel, product: Product, v: Vars) -> BlockUse:
    """Warps, registers and shared memory of one block; nothing of it is estimated."""
    registers = launched_registers(gpu, v)
    return BlockUse(
        warps=v["num_warps"],
        registers_per_thread=registers,
        smem_bytes=smem_bytes(product, v),
        least_registers=registers,
        spilling=None,
    )
