"""What one block takes where operands are gathered: as the CUDA kernel for others, and lines as they lie in memory."""

from __future__ import annotations

from typing import Any

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.cuda.resources import launched_registers
from constrint.kernels.gemm.cuda.resources import least_smem_bytes as least_of_others
from constrint.kernels.gemm.cuda.shape import BEFORE_BYTES, BOX_BYTES, WARPGROUP_WARPS, second_buffers
from constrint.kernels.gemm.cuda.unaligned.gathered import line_blocks, raw_bytes
from constrint.kernels.gemm.product import Product
from constrint.model import maximum, minimum
from constrint.select.limits import BlockUse
from constrint.select.spec import Vars


def least_smem_bytes(product: Product, v: Vars) -> Any:
    """Shared memory of a block with one buffer for the results of each consumer."""
    return least_of_others(product, v) + raw_bytes(v, line_blocks(v, product))


def smem_bytes(gpu: GpuModel, product: Product, v: Vars) -> Any:
    """Shared memory of a block, as it is compiled: with second buffers where they fit."""
    least, consumers = least_smem_bytes(product, v), v["consumers"]
    has_second = maximum(0, minimum(1, second_buffers(gpu, least - BEFORE_BYTES, consumers)))
    return least + BOX_BYTES * consumers * has_second


def block_use(gpu: GpuModel, product: Product, v: Vars) -> BlockUse:
    """Warps with the producer's, registers and shared memory of one block; nothing of it is estimated."""
    registers = launched_registers(gpu, v["consumers"])
    return BlockUse(
        warps=WARPGROUP_WARPS * (v["consumers"] + 1),
        registers_per_thread=registers,
        smem_bytes=smem_bytes(gpu, product, v),
        least_registers=registers,
        spilling=None,
    )
