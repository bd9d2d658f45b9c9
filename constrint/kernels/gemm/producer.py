"""The Hopper kernel with a producer warp (`kernel_hopper.py`): its tiles, what a block takes, and what it is for.

No torch, no triton. The shared-memory rule is exact for Triton 3.6 and 3.9 (`tests/kernels/test_gemm_hopper.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.descriptor import ROW_ALIGNMENT_BYTES, rest_columns
from constrint.kernels.gemm.units import ELEMENT_BYTES, OUTPUT_BYTES, Vars
from constrint.model import Constraint, Expr, all_of, divides, minimum

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
#: Columns of a tile: one or two operands of wgmma, of one or more stored blocks each.
COLUMN_STEP, MAX_COLUMNS = 64, 256
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


def _turns(dtype: str, v: Vars) -> Expr:
    """1 where consumers take turns, else 0."""
    return minimum(1, sums_in_turns(dtype) // (v["tile_m"] * v["tile_n"]))


def producer_smem_bytes(dtype: str, v: Vars) -> Expr:
    """Shared memory of one block: the ring, the output on its way, barriers, and what partitions are handed."""
    ring = v["num_stages"] * (v["tile_m"] + v["tile_n"]) * ROW_BYTES
    staging = 2 * STAGED_ROWS * ROW_BYTES
    turns, has_rest = _turns(dtype, v), minimum(1, rest_columns(v["tile_n"]))
    # Two sets of barriers of 8 bytes, each a multiple of 16 where something that is aligned follows.
    padded = 16 * ((v["num_stages"] + 1) // 2)
    barriers = padded + turns * padded + (1 - turns) * 8 * v["num_stages"]
    return ring + staging + barriers + 152 + 32 * turns + 32 * has_rest


class ProducerRule(NamedTuple):
    """What holds where `producer` is 1."""

    condition: Constraint
    name: str
    because: str


def producer_rules(dtype: str, v: Vars, output_alignment: int) -> Iterator[ProducerRule]:
    """Every rule of the kernel beyond the descriptor kernel's, for rows of C that start at multiples of these bytes."""
    yield ProducerRule(v["descriptor"] == 1, "descriptor", "the producer loads through the TMA unit")
    yield ProducerRule(v["persistent"] == 1, "persistent", "the producer runs on from tile to tile")
    whole = "tiles leave in blocks of 128-byte rows anyway"
    yield ProducerRule(v["epilogue_subtile"] == 1, "epilogue", whole)
    yield ProducerRule(v["num_warps"] == CONSUMER_WARPS, "warps", "two warpgroups multiply, whatever the tile")
    line = "rows of a slice are 128 bytes, by which the TMA unit swizzles"
    yield ProducerRule(v["tile_k"] == ROW_BYTES // ELEMENT_BYTES[dtype], "depth", line)
    columns = all_of(divides(COLUMN_STEP, v["tile_n"]), v["tile_n"] <= MAX_COLUMNS)
    yield ProducerRule(columns, "columns", "wgmma takes up to 256 columns, and stored blocks are whole")
    turns = _turns(dtype, v)
    rows = "a consumer has 64 rows, those of wgmma, or 128"
    yield ProducerRule(v["tile_m"] >= (2 - turns) * MIN_ROWS, "least_rows", rows)
    yield ProducerRule(v["tile_m"] <= (2 - turns) * MAX_ROWS, "most_rows", rows)
    most = MAX_PROMOTED_SUMS if promotes(dtype) else MAX_SUMS
    fits = f"{most // 128} sums a thread leave registers for all else"
    yield ProducerRule(v["tile_m"] * v["tile_n"] <= 2 * most, "sums", fits)
    if output_alignment % ROW_ALIGNMENT_BYTES:
        short = f"the TMA unit stores rows that start at multiples of {ROW_ALIGNMENT_BYTES} bytes"
        yield ProducerRule(v["producer"] == 0, "output", short)


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
        found = {"a_desc": (self.rows, tile_k), "b_desc": (tile_k, self.widest), "c_desc": (self.rows, columns)}
        if self.rest:
            found["b_rest_desc"] = (tile_k, self.rest)
        turned = {"a_desc": is_a_transposed, "b_desc": is_b_transposed, "b_rest_desc": is_b_transposed}
        return {name: block[::-1] if turned.get(name) else block for name, block in found.items()}
