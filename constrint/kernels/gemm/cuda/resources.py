"""What one block of the CUDA kernel takes: its warps, the registers that it is launched with, and its ring.

Registers are dealt out by the kernel itself (`setmaxnreg` in `source/instructions.cuh`): a block is launched with an
equal share for each thread, then the producer gives most of its own to the consumers. What a consumer's sums may take
is a rule (`rules.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.cuda.shape import (
    BEFORE_BYTES,
    BOX_BYTES,
    WARPGROUP,
    WARPGROUP_WARPS,
    ring_bytes,
    second_buffers,
)
from constrint.kernels.gemm.product import Product
from constrint.model import Expr, maximum, minimum
from constrint.select.limits import BlockUse
from constrint.select.spec import Vars

#: Registers of a thread are granted in steps.
REGISTER_STEP = 8
#: How `source/instructions.cuh` and `source/parts.cuh` deal registers out: the producer's beside two consumers and
#: otherwise, the most of a consumer; what it needs beside sums that leave as they are, and beside others; and how many
#: sums of one other part are loaded at once.
PRODUCER_REGISTERS, LARGEST_REGISTERS = (40, 32), 240
BESIDE_PLAIN_SUMS, BESIDE_SUMS, TWO_PARTS = 48, 64, 48
#: The most parts whose sums are loaded at once, where they are few: half of what is left holds them.
MOST_TOGETHER = 16


def launched_registers(gpu: GpuModel, consumers: Expr) -> Expr:
    """Registers of a thread at the launch: an equal share of the SM's for a block that is alone on it."""
    return minimum(gpu.sm.max_registers_per_thread, _equal_share(gpu, consumers))


def _equal_share(gpu: GpuModel, consumers: Any) -> Any:
    """Registers of a thread where all threads of the one block of an SM have as many."""
    whole = gpu.sm.num_partitions * gpu.register_file.capacity // WARPGROUP
    return whole // (consumers + 1) // REGISTER_STEP * REGISTER_STEP


def turns_of_sums(
    gpu: GpuModel, consumers: NDArray[np.int64], sums: NDArray[np.int64], parts: NDArray[np.int64], *, is_plain: bool
) -> NDArray[np.int64]:
    """How many times whoever adds a tile's parts waits for partial sums; `source/parts.cuh` says how many come at once.

    Args:
        gpu: The hardware model.
        consumers: Warpgroups that multiply.
        sums: Sums of a consumer's thread.
        parts: Parts of the tile.
        is_plain: Whether sums leave as they are.
    """
    share = _equal_share(gpu, consumers) * (consumers + 1)
    producer = np.where(consumers == 2, *PRODUCER_REGISTERS)
    own = np.minimum((share - producer) // consumers // REGISTER_STEP * REGISTER_STEP, LARGEST_REGISTERS)
    free = own - sums - (BESIDE_PLAIN_SUMS if is_plain else BESIDE_SUMS)
    batch = np.select([free < 32, free > 128], [8, 64], free // 16 * 8)
    # Of two parts one is in registers; else two parts are loaded at once, or more where all sums of one are few.
    keeps = (parts == 2) & (free >= TWO_PARTS)
    together = np.where(sums > batch, 2, np.clip(free // (2 * sums), 2, MOST_TOGETHER))
    return np.where(keeps, -(-sums // TWO_PARTS), -(-sums // batch) * -(-parts // together))


def least_smem_bytes(product: Product, v: Vars) -> Any:
    """Shared memory of a block with one buffer for the results of each consumer."""
    majors = {"a_is_k_major": product.a.is_k_major, "b_is_k_major": product.b.is_k_major}
    return BEFORE_BYTES + ring_bytes(v, product.dtype, **majors)


def smem_bytes(gpu: GpuModel, least: Any, v: Vars) -> Any:
    """Shared memory of a block that takes so much at least, as it is compiled: with second buffers where they fit."""
    consumers = v["consumers"]
    has_second = maximum(0, minimum(1, second_buffers(gpu, least - BEFORE_BYTES, consumers)))
    return least + BOX_BYTES * consumers * has_second


def block_use(gpu: GpuModel, least: Any, v: Vars) -> BlockUse:
    """Warps with the producer's, registers and shared memory of one block; nothing of it is estimated.

    Args:
        gpu: The hardware model.
        least: Bytes of shared memory that it takes with one buffer for the results of each consumer.
        v: Its parameters.
    """
    registers = launched_registers(gpu, v["consumers"])
    return BlockUse(
        warps=WARPGROUP_WARPS * (v["consumers"] + 1),
        registers_per_thread=registers,
        smem_bytes=smem_bytes(gpu, least, v),
        least_registers=registers,
        spilling=None,
    )
