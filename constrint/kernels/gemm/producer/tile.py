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
#: Warps of the two consumers, which `num_warps` counts, and those that come with the producer: a warpgroup, three
#: warps of which idle.
CONSUMER_WARPS = 8
PRODUCER_WARPS = 4
#: Warps as Triton counts them: of the first consumer; the others come with the kernel.
NUM_WARPS = 4
#: Registers at the start, an equal share of the SM's; producers then give up most of theirs to the consumers.
REGISTERS = 168
#: Bytes of a row of an operand's slice and of a stored block: what the TMA unit swizzles by.
ROW_BYTES = 128
#: Rows of a consumer, and rows by buffers of the output on its way to the TMA unit.
MIN_ROWS, MAX_ROWS = 64, 128
STAGED_ROWS = 128
#: Sums of a consumer: 128 in each of its threads, or 96 where those of a step are in registers beside them.
MAX_SUMS, MAX_PROMOTED_SUMS = 128 * 128, 128 * 96


def has_producer(gpu: GpuModel, dtype: str) -> bool:
    """Whether the kernel is there for a dtype: wgmma reads both operands of it from shared memory."""
    return gpu.arch.target.startswith("sm_90") and dtype in DTYPES


def promotes(dtype: str) -> bool:
    """Whether every step's sums are added up in registers: wgmma itself adds products of fp8 in too few bits."""
    return dtype == "fp8"


def sums_in_turns(dtype: str) -> int:
    """Consumers take turns at tiles of up to so many sums; of a larger one each multiplies half the rows.

    While one stores its tile, the other has the matrix unit. Promoted sums are added while the other multiplies rows
    of the same tile.
    """
    return 0 if promotes(dtype) else MAX_SUMS


def most_sums(dtype: str) -> int:
    """Sums that a consumer may have, so that its threads have registers for all else."""
    return MAX_PROMOTED_SUMS if promotes(dtype) else MAX_SUMS


def turns(dtype: str, v: Vars) -> Expr:
    """1 where consumers take turns, else 0."""
    return minimum(1, sums_in_turns(dtype) // (v["tile_m"] * v["tile_n"]))


def can_store(n: int, output_bytes: int, dtype: str) -> bool:
    """Whether the kernel stores rows of n elements of so many bytes: the dtype's own output, as the TMA unit can."""
    return output_bytes == OUTPUT_BYTES[dtype] and n * output_bytes % ROW_ALIGNMENT_BYTES == 0


Block = tuple[int, int]


class Shares(NamedTuple):
    """How a tile is dealt out.

    Args:
        parts: 2 where each consumer multiplies half the rows, 1 where they take turns.
        rows: Rows of a consumer.
        buffers: Blocks of output that each has on their way.
        widest, rest: Columns that wgmma takes at once, and those beyond.
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
        return {
            "tile_m": config["tile_m"],
            "widest_n": self.widest,
            "rest_n": self.rest,
            "tile_k": config["tile_k"],
            "ring_stages": config["num_stages"],
            "parts": self.parts,
            "buffers": self.buffers,
            "promotes": promotes(dtype),
        }

    def blocks(self, tile_k: int, dtype: str, *, is_a_transposed: bool, is_b_transposed: bool) -> dict[str, Block]:
        """Rows and columns that each descriptor moves at a time, in the order of memory."""
        columns = ROW_BYTES // OUTPUT_BYTES[dtype]
        blocks = {"a_desc": (self.rows, tile_k), "b_desc": (tile_k, self.widest), "c_desc": (self.rows, columns)}
        if self.rest:
            blocks["b_rest_desc"] = (tile_k, self.rest)
        turned = {"a_desc": is_a_transposed, "b_desc": is_b_transposed, "b_rest_desc": is_b_transposed}
        return {name: block[::-1] if turned.get(name) else block for name, block in blocks.items()}
