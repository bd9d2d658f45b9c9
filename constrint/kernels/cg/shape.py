"""Meaning of a configuration of the CUDA kernel: blocks, rows of a block, memory on the chip, macros. No torch.

Every function takes plain numbers, columns of them or expressions, so that rules, costs and launches agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from constrint.kernels.cg.star import StarMatrix
from constrint.select.workload import ELEMENT_BYTES

WARP = 32
#: Rows of a block are multiples of this, so that vectors of a block begin at whole sectors.
ROW_STEP = 32
#: Sums of a barrier in shared memory: `Meeting` of `source/grid.cuh`.
MOST_SUMS, SUM_BYTES = 3, 8
#: Words of 64 bits of a block in the barrier's memory, two sets of them.
BLOCK_WORDS, SLOT_SETS = 8, 2
#: Numbers in which a launch leaves its state (`StateField` of `source/cg.cu`).
STATE_SIZE = 8
#: Elements of a matrix in CSR that a thread reads at once, for each of its rows, and bytes of a product.
ELEMENTS_AT_ONCE, STAGED_BYTES = 2, 8
REGISTER_BYTES = 4
#: Registers of an SM, which the launch bounds divide among the threads of all its blocks: of every GPU since sm_50.
REGISTERS_PER_SM = 65536
#: Registers of a thread, and more of them for each row that it loads at once: estimated from compiled kernels.
BASE_REGISTERS, ROW_REGISTERS = 40, 3
INDEX_BYTES = 4
LONG_INDEX_BYTES = 8


@dataclass(frozen=True)
class System:
    """A system as the kernel is compiled for it, beside a configuration.

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
    star: StarMatrix | None = None
    nnz: int = 0
    jacobi: bool = False
    row_bytes: int = INDEX_BYTES
    column_bytes: int = INDEX_BYTES

    @property
    def element(self) -> int:
        """Bytes of an element of a vector."""
        return ELEMENT_BYTES[self.dtype]


def num_blocks(rows: int, sms: int, threads: int, blocks_per_sm: int) -> int:
    """Blocks of the grid: as many as are resident, but with a row for each thread."""
    most = min(sms * blocks_per_sm, -(-rows // threads))
    return max(1, -(-rows // rows_per_block(rows, most)))


def rows_per_block(rows: int, blocks: int) -> int:
    """Rows of a block where a number of blocks share all rows."""
    return -(-rows // (blocks * ROW_STEP)) * ROW_STEP


def meeting_bytes(blocks: Any, threads: Any) -> Any:
    """Shared memory of the barrier, whole vectors of 16 bytes."""
    return (MOST_SUMS * SUM_BYTES * (blocks + threads // WARP) + 15) // 16 * 16


def staged_bytes(system: System, v: Any) -> Any:
    """Shared memory for products of elements of a matrix in CSR, which a warp reads side by side."""
    return 0 if system.star is not None else STAGED_BYTES * ELEMENTS_AT_ONCE * v["unroll"] * v["threads"]


def registers_of(system: System, v: Any) -> Any:
    """Registers of a thread that the source asks for; the launch bounds may give it fewer."""
    words = system.element // REGISTER_BYTES
    lines = len(system.star.lines) if system.star is not None else 3
    return BASE_REGISTERS + words * v["unroll"] * (v["vector"] * (ROW_REGISTERS + lines // 2) + 2)


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
        "KEPT_X": config["kept_x"],
        "STEPS_AT_ONCE": config["unroll"],
        "VECTOR": config["vector"],
        "UNROLL": ELEMENTS_AT_ONCE * config["unroll"],
    }
    if star is None:
        return macros | {
            "LANES": config["lanes"],
            "LONG_ROWS": int(system.row_bytes == LONG_INDEX_BYTES),
            "LONG_COLUMNS": int(system.column_bytes == LONG_INDEX_BYTES),
        }
    nz, ny, nx = star.extents
    names = [f"coefficient{i}" for i in range(len(star.coefficients))]
    return macros | {
        "NX": nx,
        "NY": ny,
        "NZ": nz,
        "HALO": star.halo,
        "REACH": star.reach,
        "NUM_LINES": len(star.lines),
        "NUM_COEFFICIENTS": len(names),
        "LINE_LIST": ", ".join("{" + ", ".join(map(str, line)) + "}" for line in _lines(star)),
        "COEFFICIENT_PARAMETERS": ", ".join(f"real {name}" for name in names),
        "COEFFICIENTS": ", ".join(names),
    }


def _lines(star: StarMatrix) -> Iterator[tuple[int, ...]]:
    """Offsets (z, y), elements to the left and to the right, and the place of the first coefficient, of each line."""
    first = 0
    for offsets, line in star.lines.items():
        yield (*offsets, -min(line), max(line), first)
        first += len(line)
