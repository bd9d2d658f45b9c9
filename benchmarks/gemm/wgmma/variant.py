"""One way to compute a product: tile, cluster, schedule, and how the operands lie; compiled without a GPU."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path

from constrint.hwmodels import GpuModel
from constrint.kernels.launch.cuda import CudaSource

FOLDER = Path(__file__).parent
#: Bytes of an element, its type in PTX, that of sums, and columns that wgmma's n is a multiple of.
DTYPES = {
    "fp16": (2, "f16", "f32", 8),
    "bf16": (2, "bf16", "f32", 8),
    "tf32": (4, "tf32", "f32", 8),
    "fp8": (1, "e4m3", "f32", 8),
    "int8": (1, "s8", "s32", 16),
}
#: An operand's slice is so many bytes along K; an atom of the swizzle is eight such rows.
LINE_BYTES, ATOM_ROWS = 128, 8
MAX_COLUMNS, ROWS, MAX_BOX = 256, 64, 256
#: Sums of a thread that leave registers for all else, by consumers of a block that is alone on its SM.
MOST_SUMS = {1: 184, 2: 184, 3: 96}
#: Before the ring: barriers, up to where an atom may start.
BEFORE_BYTES = 1024
#: Where 16-bit results are put in order: of a consumer, for the TMA unit, and for threads.
BOX_BYTES, STAGING_BYTES = 64 * 128, 64 * (2 * 64 + 16)
#: Stages of the variants that are tried: more cover no more of a load's latency.
LEAST_STAGES, MOST_STAGES = 2, 12


@dataclass(frozen=True)
class Variant:
    """A kernel of `kernel.cu`.

    Args:
        rows, columns: The tile, as wgmma sees it.
        stages: Slices of both operands that the ring holds.
        consumers: Warpgroups that multiply.
        by_columns: How many of them lie beside each other in a tile.
        in_turns: Whether each of two consumers has a tile of its own.
        cluster_rows, cluster_columns: Blocks of a cluster above and beside each other.
        turned: Whether rows are columns of C.
        resident: Blocks on an SM.
        buffers: Boxes of results that a consumer has room for; none: threads store them.
    """

    rows: int
    columns: int
    stages: int
    consumers: int = 2
    by_columns: int = 1
    in_turns: int = 0
    cluster_rows: int = 1
    cluster_columns: int = 1
    turned: int = 0
    resident: int = 1
    buffers: int = 1

    def __str__(self) -> str:
        schedule = "turns" if self.in_turns else f"{self.consumers // self.by_columns}x{self.by_columns}"
        text = f"{self.rows}x{self.columns}x{self.stages} {schedule} {self.cluster_rows}x{self.cluster_columns}"
        return text + " turned" * self.turned + f" r{self.resident}" * (self.resident > 1) + f" b{self.buffers}"

    @property
    def cluster(self) -> int:
        """Blocks of a cluster."""
        return self.cluster_rows * self.cluster_columns

    @property
    def own(self) -> tuple[int, int]:
        """Rows and columns of a consumer."""
        if self.in_turns:
            return self.rows, self.columns
        return self.rows * self.by_columns // self.consumers, self.columns // self.by_columns

    @property
    def sums(self) -> int:
        """Sums of a thread."""
        rows, columns = self.own
        return rows * columns // 128

    def slice_bytes(self, dtype: str, *, rows_k_major: bool, columns_k_major: bool) -> int:
        """Bytes of a stage."""
        element = DTYPES[dtype][0]
        slab = LINE_BYTES // element * LINE_BYTES
        sides = ((self.rows, rows_k_major), (self.columns, columns_k_major))
        return sum(s * LINE_BYTES if k_major else -(-s * element // LINE_BYTES) * slab for s, k_major in sides)

    def smem_bytes(self, dtype: str, *, rows_k_major: bool = True, columns_k_major: bool = True) -> int:
        """Dynamic shared memory: the ring, and where 16-bit results are put in order."""
        stage = self.slice_bytes(dtype, rows_k_major=rows_k_major, columns_k_major=columns_k_major)
        staging = BOX_BYTES * self.buffers or STAGING_BYTES
        return self.stages * stage + (staging * self.consumers if DTYPES[dtype][0] == 2 else 0)

    def faults(
        self, gpu: GpuModel, dtype: str, *, rows_k_major: bool = True, columns_k_major: bool = True
    ) -> list[str]:
        """Why it cannot be, or cannot be on this GPU."""
        element, _, _, step = DTYPES[dtype]
        rows, columns = self.own
        smem = self.smem_bytes(dtype, rows_k_major=rows_k_major, columns_k_major=columns_k_major) + BEFORE_BYTES
        reserved = gpu.sm.smem_reserved_bytes_per_block
        most = min(gpu.sm.max_smem_bytes_per_block, gpu.sm.smem_bytes_per_sm // self.resident - reserved)
        most_sums = MOST_SUMS[self.consumers] if self.resident == 1 else 160 // self.resident
        rules = {
            "a consumer has whole blocks of 64 rows": rows % ROWS == 0 and rows > 0,
            f"wgmma has up to 256 columns in steps of {step}": columns % step == 0 and 0 < columns <= MAX_COLUMNS,
            "sums leave registers for all else": self.sums <= most_sums,
            "two consumers take turns": not self.in_turns or (self.consumers, self.by_columns) == (2, 1),
            "a box of the TMA unit has up to 256 rows": max(
                box_rows(self.rows, self.cluster_columns), box_rows(self.columns, self.cluster_rows)
            )
            <= MAX_BOX,
            "8-bit and tf32 operands lie along K": element == 2 or (rows_k_major and columns_k_major),
            "the ring fits shared memory": smem <= most,
            "a consumer's columns begin with a slab": columns_k_major
            or self.by_columns == 1
            or columns * element % LINE_BYTES == 0,
            "consumers are dealt whole parts": self.consumers % self.by_columns == 0,
        }
        return [rule for rule, holds in rules.items() if not holds]

    def source(self, dtype: str, *, rows_k_major: bool, columns_k_major: bool) -> CudaSource:
        """The kernel for operands that lie so."""
        macros = {field.name.upper(): int(getattr(self, field.name)) for field in fields(self)}
        macros["CONSUMERS_BY_COLUMNS"] = macros.pop("BY_COLUMNS")
        macros |= {"STORES_BOXES": int(self.buffers > 0 and DTYPES[dtype][0] == 2)}
        macros |= {"DTYPE": list(DTYPES).index(dtype), "ROWS_K_MAJOR": int(rows_k_major)}
        macros |= {"COLUMNS_K_MAJOR": int(columns_k_major)}
        text = wgmma(self.own[1], dtype, rows_k_major=rows_k_major, columns_k_major=columns_k_major)
        return CudaSource(text + _kernel(), "gemm", macros, ("-std=c++17",), (FOLDER,), "gemm.cu", is_settled=True)


@lru_cache(maxsize=1)
def _kernel() -> str:
    return (FOLDER / "kernel.cu").read_text(encoding="utf-8")


def box_rows(width: int, shares: int) -> int:
    """Rows of a box of a slice that lies along K, of which each of the blocks that share it loads a part.

    Where parts would not be whole atoms, blocks load the whole slice in turns.
    """
    part = width // shares
    if width % (ATOM_ROWS * shares):
        return width
    return part // 2 if part > MAX_BOX else part


def wgmma(columns: int, dtype: str, *, rows_k_major: bool, columns_k_major: bool) -> str:
    """The instruction of so many columns, as a function; PTX names every register of the sums."""
    _, name, total, _ = DTYPES[dtype]
    number, letter = columns // 2, "r" if total == "s32" else "f"
    depth = 32 // DTYPES[dtype][0]
    scales = {"s32": "", "f32": ", 1, 1"}[total]
    if DTYPES[dtype][0] == 2:
        scales += f", {int(not rows_k_major)}, {int(not columns_k_major)}"
    sums = ", ".join(f"%{i}" for i in range(number))
    operands = ", ".join(f'"+{letter}"(sums[{i}])' for i in range(number))
    return f"""#include "instructions.cuh"
__device__ __forceinline__ void wgmma(
    sum_t (&sums)[{number}], unsigned long long rows, unsigned long long columns, int adds) {{
  asm volatile("{{\\n.reg .pred adds;\\nsetp.ne.b32 adds, %{number + 2}, 0;\\n"
      "wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.{total}.{name}.{name} {{{sums}}}, "
      "%{number}, %{number + 1}, adds{scales};\\n}}\\n"
      : {operands}
      : "l"(rows), "l"(columns), "r"(adds));
}}
"""


def variants(
    gpu: GpuModel, dtype: str, *, rows_k_major: bool = True, columns_k_major: bool = True
) -> Iterator[Variant]:
    """Every variant that can run, with as many stages as fit, up to twelve."""
    along = {"rows_k_major": rows_k_major, "columns_k_major": columns_k_major}
    schedules = ((1, 1, 0), (2, 1, 0), (2, 2, 0), (2, 1, 1), (3, 1, 0))
    clusters = ((1, 1), (2, 1), (1, 2), (2, 2))
    tiles = itertools.product((64, 128, 192, 256, 320), range(16, 321, 8))
    for (rows, columns), schedule, cluster in itertools.product(tiles, schedules, clusters):
        least = Variant(rows, columns, LEAST_STAGES, *schedule, *cluster)
        if least.faults(gpu, dtype, **along):
            continue
        room = gpu.sm.max_smem_bytes_per_block - BEFORE_BYTES - least.smem_bytes(dtype, **along)
        stages = min(LEAST_STAGES + room // least.slice_bytes(dtype, **along), MOST_STAGES)
        left = room - (stages - LEAST_STAGES) * least.slice_bytes(dtype, **along)
        buffers = 2 if left >= BOX_BYTES * least.consumers else 1
        for turned in (0, 1):
            yield replace(least, stages=stages, turned=turned, buffers=buffers)


def waves(variant: Variant, num_sms: int, m: int, n: int) -> tuple[int, float]:
    """Rounds of tiles that the busiest SM computes for C (m, n), and the share of its tiles that are results."""
    rows, columns = (n, m) if variant.turned else (m, n)
    tiles = math.ceil(rows / (variant.rows * variant.cluster_rows)) * math.ceil(
        columns / (variant.columns * variant.cluster_columns)
    )
    slots = num_sms // variant.cluster * variant.resident
    rounds = math.ceil(tiles / slots)
    done = rounds * slots * variant.cluster * variant.rows * variant.columns
    return rounds, m * n / done
