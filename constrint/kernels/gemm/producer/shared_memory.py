"""Shared memory that a block of the producer kernel takes, as an integer expression; exact for Triton 3.6 and 3.9."""

from __future__ import annotations

from constrint.kernels.gemm.producer.tile import ROW_BYTES, STAGED_ROWS, turns
from constrint.kernels.gemm.tma.operands import rest_columns
from constrint.kernels.gemm.units import Vars
from constrint.model import Expr, minimum


def producer_smem_bytes(dtype: str, v: Vars) -> Expr:
    """Shared memory of one block: the ring, staged output, barriers, and the arguments of the warp partitions."""
    ring = v["num_stages"] * (v["tile_m"] + v["tile_n"]) * ROW_BYTES
    staging = 2 * STAGED_ROWS * ROW_BYTES
    in_turns, has_rest = turns(dtype, v), minimum(1, rest_columns(v["tile_n"]))
    # Two sets of barriers of 8 bytes, each a multiple of 16 where something that is aligned follows.
    padded = 16 * ((v["num_stages"] + 1) // 2)
    barriers = padded + in_turns * padded + (1 - in_turns) * 8 * v["num_stages"]
    return ring + staging + barriers + 152 + 32 * in_turns + 32 * has_rest
