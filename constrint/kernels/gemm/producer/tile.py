"""How the producer kernel deals out a tile: consumers, their rows and sums, and the blocks that descriptors move.

No torch, no triton.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.product import ROW_ALIGNMENT_BYTES
from constrint.kernels.gemm.tma.operands import rest_columns
from constrint.kernels.gemm.units import OUTPUT_BYTES, Vars
from constrint.model import Expr, minimum

DTYPES = ("bf16", "fp16", "tf32", "fp8")
#: Warps of the two consumers, which `num_warps` counts, and warps of the producer: a whole warpgroup, of which three
#: warps are idle.
CONSUMER_WARPS = 8
PRODUCER_WARPS = 4
#: `num_warps` for Triton, which counts the first consumer alone.
NUM_WARPS = 4
#: Registers per thread at the start, an equal share for all warps. The producer then gives most of its share to the
#: consumers.
REGISTERS = 168
#: Bytes of a row of an operand's slice and of a stored block: what the TMA unit swizzles by.
ROW_BYTES = 128
#: Least and most rows of a consumer; and rows of all buffers in which one stages its output for the TMA unit.
MIN_ROWS, MAX_ROWS = 64, 128
STAGED_ROWS = 128
#: Most sums of a consumer: 128 per thread, or 96 where the sums of one step also need registers (fp8).
MAX_SUMS, MAX_PROMOTED_SUMS = 128 * 128, 128 * 96


def has_producer(gpu: GpuModel, dtype: str) -> bool:
    """Whether the kernel exists for a GPU and a dtype: Hopper, whose wgmma reads both operands from shared memory."""
    return gpu.arch.target.startswith("sm_90") and dtype in DTYPES


def promotes(dtype: str) -> bool:
    """Whether the sums of every step are added in fp32 registers: wgmma adds products of fp8 in too few bits."""
    return dtype == "fp8"


def sums_in_turns(dtype: str) -> int:
    """The number of sums up to which consumers take tiles in turns; of a larger tile each multiplies half the rows.

    In turns, one stores its tile while the other uses the matrix unit. Where sums are promoted, both work on the same
    tile: one adds its promoted sums while the other multiplies.
    """
    return 0 if promotes(dtype) else MAX_SUMS


def most_sums(dtype: str) -> int:
    """The most sums of a consumer that leave its threads enough registers for everything else."""
    return MAX_PROMOTED_SUMS if promotes(dtype) else MAX_SUMS


def turns(dtype: str, v: Vars) -> Expr:
    """1 where consumers take turns, else 0."""
    return minimum(1, sums_in_turns(dtype) // (v["tile_m"] * v["tile_n"]))


def can_store(n: int, output_bytes: int, dtype: str) -> bool:
    """Whether the kernel can store C: elements of the dtype's own output type, in rows of multiples of 16 bytes."""
    return output_bytes == OUTPUT_BYTES[dtype] and n * output_bytes % ROW_ALIGNMENT_BYTES == 0


Block = tuple[int, int]


class Shares(NamedTuple):
    """How a tile is dealt out.

    Args:
        parts: 2 where each consumer multiplies half the rows, 1 where they take turns.
        rows: Rows of a consumer.
        buffers: Buffers in which each consumer stages blocks of its output.
        widest, rest: Columns of the tile's first part, a power of two, and of its second part; 192 is 128 and 64.
    """

    parts: int
    rows: int
    buffers: int
    widest: int
    rest: int

    @staticmethod
    def of(config: Mapping[str, int], dtype: str) -> Shares:
        """Of a configuration's tile."""
        tile_m, tile_n = config["tile_m"], config["tile_n"]
        parts = 1 if tile_m * tile_n <= sums_in_turns(dtype) else 2
        rest = rest_columns(tile_n)
        return Shares(parts, tile_m // parts, STAGED_ROWS * parts // tile_m, tile_n - rest, rest)

    def constants(self, config: Mapping[str, int], dtype: str) -> dict[str, Any]:
        """Compile-time arguments of the kernel."""
        tile = {"tile_m": config["tile_m"], "widest_n": self.widest, "rest_n": self.rest, "tile_k": config["tile_k"]}
        ring = {"ring_stages": config["num_stages"], "parts": self.parts, "buffers": self.buffers}
        return tile | ring | {"promotes": promotes(dtype)}

    def blocks(self, tile_k: int, dtype: str, *, is_a_transposed: bool, is_b_transposed: bool) -> dict[str, Block]:
        """Rows and columns that each descriptor moves at a time, in the order of memory."""
        columns = ROW_BYTES // OUTPUT_BYTES[dtype]
        blocks = {"a_desc": (self.rows, tile_k), "b_desc": (tile_k, self.widest), "c_desc": (self.rows, columns)}
        if self.rest:
            blocks["b_rest_desc"] = (tile_k, self.rest)
        turned = {"a_desc": is_a_transposed, "b_desc": is_b_transposed, "b_rest_desc": is_b_transposed}
        return {name: block[::-1] if turned.get(name) else block for name, block in blocks.items()}
