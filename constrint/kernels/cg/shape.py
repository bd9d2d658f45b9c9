"""Meaning of a configuration of the CUDA kernel: blocks, rows of a block, memory on the chip, macros. No torch.

Every function takes plain numbers, columns of them or expressions, so that rules, costs and launches agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from constrint.kernels.cg.star import Star
from constrint.select.workload import ELEMENT_BYTES, Workload

WARP = 32
#: Rows of a block are multiples of this, so that vectors of a block begin at whole sectors.
ROW_STEP = 32
#: Sums of a barrier in shared memory: `Meeting` of `source/grid.cuh`.
MOST_SUMS, SUM_BYTES = 3, 8
#: Words of 64 bits of a block in the barrier's memory, two sets of them.
BLOCK_WORDS, SLOT_SETS = 8, 2
#: Numbers in which a launch leaves its state (`StateField` of `source/cg.cu`).
STATE_SIZE = 8
REGISTER_BYTES = 4
#: Registers of an SM, which the launch bounds divide among the threads of all its blocks: of every GPU since sm_50.
REGISTERS_PER_SM = 65536
#: Registers of a thread beside those that grow, and for each row that it loads at once: estimated from compiled kernels.
BASE_REGISTERS, ROW_REGISTERS = 36, 3
INDEX_BYTES = 4
LONG_INDEX_BYTES = 8


@dataclass(frozen=True)
class System:
    """What the kernel is compiled for, beside a configuration.

    Args:
        rows: Rows of the matrix.
        dtype: "fp64" or "fp32".
        star: The matrix where it is a star; None: rows in CSR.
        nnz: Stored elements of a matrix in CSR.
        jacobi: Whether the inverse diagonal of a matrix in CSR preconditions.
        row_bytes, column_bytes: Bytes of an index of a row's start and of a column.
    """

    rows: int
    dtype: str
    star: Star | None = None
    nnz: int = 0
    jacobi: bool = False
    row_bytes: int = INDEX_BYTES
    column_bytes: int = INDEX_BYTES

    @property
    def element(self) -> int:
        """Bytes of an element of a vector."""
        return ELEMENT_BYTES[self.dtype]


def star_of(workload: Workload) -> Star | None:
    """The star of a workload: `points` of it along the axes, nearest first; None for a matrix in CSR.

    It is strictly dominant in the diagonal, so that a fixed number of iterations has one answer in every precision.
    """
    nx, ny = workload.options.get("nx", 0), workload.options.get("ny", 0)
    if not nx:
        return None
    rows = workload.sizes["rows"]
    shape = (nx,) if nx == rows else (rows // nx, nx) if ny in (0, rows // nx) else (rows // (nx * ny), ny, nx)
    sides = {(0,) * len(shape): 0.0}
    reach = workload.options.get("reach", 1)
    for axis, size in enumerate(shape):
        for step in range(1, min(reach, size - 1) + 1):
            for sign in (-1, 1):
                sides[tuple(sign * step if other == axis else 0 for other in range(len(shape)))] = -1.0 / step
    sides[(0,) * len(shape)] = 2.0 * sum(map(abs, sides.values())) or 1.0
    return Star(shape, sides)


def system_of(workload: Workload) -> System:
    """The system of a workload."""
    options = workload.options
    wide = LONG_INDEX_BYTES if options.get("long", 0) else INDEX_BYTES
    star = star_of(workload)
    jacobi = bool(options.get("jacobi", 0)) and star is None
    return System(workload.sizes["rows"], workload.dtype, star, workload.sizes["nnz"], jacobi, wide, wide)


def num_blocks(rows: int, sms: int, threads: int, blocks_per_sm: int) -> int:
    """Blocks of the grid: as many as are resident, but with a row for each thread."""
    most = min(sms * blocks_per_sm, -(-rows // threads))
    return max(1, -(-rows // rows_per_block(rows, most)))


def rows_per_block(rows: int, blocks: int) -> int:
    """Rows of a block of so many."""
    return -(-rows // (blocks * ROW_STEP)) * ROW_STEP


def meeting_bytes(blocks: Any, threads: Any) -> Any:
    """Shared memory of the barrier."""
    return MOST_SUMS * SUM_BYTES * (blocks + threads // WARP)


def registers_of(system: System, v: Any) -> Any:
    """Registers of a thread that the source asks for; the launch bounds may give it fewer."""
    words = system.element // REGISTER_BYTES
    near = len(system.star.neighbours) if system.star is not None else 4
    return BASE_REGISTERS + words * (v["kept_steps"] + v["unroll"] * (ROW_REGISTERS + near // 2))


def macros_of(system: System, config: Mapping[str, int], blocks: int) -> dict[str, int | str]:
    """Macros of the source for a configuration."""
    star = system.star
    macros: dict[str, int | str] = {
        "STENCIL": int(star is not None),
        "IS_DOUBLE": int(system.dtype == "fp64"),
        "THREADS": config["threads"],
        "BLOCKS_PER_SM": config["blocks_per_sm"],
        "MOST_BLOCKS": blocks,
        "JACOBI": int(system.jacobi),
        "KEPT_ROWS": config["kept_rows"],
        "KEPT_GROUPS": config["kept_steps"] // config["unroll"],
        "STEPS_AT_ONCE": config["unroll"],
        "UNROLL": max(2, config["unroll"]),
    }
    if star is None:
        return macros | {
            "LANES": config["lanes"],
            "LONG_ROWS": int(system.row_bytes == LONG_INDEX_BYTES),
            "LONG_COLUMNS": int(system.column_bytes == LONG_INDEX_BYTES),
        }
    nz, ny, nx = star.extents
    near = star.neighbours
    names = [f"coefficient{i}" for i in range(len(near) + 1)]
    return macros | {
        "NX": nx,
        "NY": ny,
        "NZ": nz,
        "HALO": star.halo,
        "NUM_OFFSETS": max(1, len(near)),
        "OFFSET_LIST": ", ".join(f"{{{z}, {y}, {x}}}" for z, y, x in near) or "{0, 0, 1}",
        "COEFFICIENT_PARAMETERS": ", ".join(f"real {name}" for name in names),
        "COEFFICIENTS": f"{names[0]}, {{{', '.join(names[1:]) or '0'}}}",
    }
