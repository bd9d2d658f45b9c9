"""Meaning of a configuration of the CUDA kernel: blocks, rows of a block, memory on the chip, macros. No torch.

Every function takes plain numbers, columns of them or expressions, so that rules, costs and launches agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from constrint.kernels.cg.star import StarMatrix
from constrint.select.workload import ELEMENT_BYTES

WARP = 32
#: Rows of a block are multiples of this, so that vectors of a block begin at whole sectors.
ROW_STEP = 32
#: Sums of a barrier in shared memory: `Meeting` of `source/grid.cuh`.
MOST_SUMS, SUM_BYTES = 3, 8
#: Words of 64 bits of a block in the barrier's memory, two sets of them.
BLOCK_WORDS, SLOT_SETS = 8, 2
#: Most resident blocks of an SM.
MOST_BLOCKS_PER_SM = 4
#: Numbers in which a launch leaves its state (`StateField` of `source/cg.cu`).
STATE_SIZE = 8
#: The fewest and the most elements of a matrix in CSR that a thread reads at once, and bytes of a product.
ELEMENTS_AT_ONCE, STAGED_BYTES = (2, 8), 8
REGISTER_BYTES = 4
#: Registers of an SM, which the launch bounds divide among the threads of all its blocks: of every GPU since sm_50.
REGISTERS_PER_SM = 65536
#: Registers of a thread, and elements it holds beside, for each group of rows beside each other and for each row of
#: one: from compiled kernels for sm_90a.
BASE_REGISTERS, GROUP_REGISTERS, ROW_REGISTERS = 66, 4, 2
CSR_REGISTERS, CSR_ROW_REGISTERS = 62, 6
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


def most_blocks(rows: int, sms: int, config: Mapping[str, Any]) -> Any:
    """Blocks that are resident, but no more than there are rows for all their threads."""
    least = -(-rows // config["threads"])
    resident = sms * config["blocks_per_sm"]
    return np.minimum(resident, least) if isinstance(least, np.ndarray) else min(resident, least)


def blocks_of(system: System, sms: int, config: Mapping[str, int]) -> tuple[int, int]:
    """Blocks of the grid, and the most rows of one."""
    most = most_blocks(system.rows, sms, config)
    planes = config["planes"]
    if system.star is not None and planes:
        boxes_z, boxes_y, box_y = boxes_of(system.star, planes, most)
        return boxes_z * boxes_y, planes * box_y * system.star.extents[2]
    per_block = -(-system.rows // (most * ROW_STEP)) * ROW_STEP
    return max(1, -(-system.rows // per_block)), per_block


def boxes_of(star: StarMatrix, planes: Any, most: Any) -> tuple[Any, Any, Any]:
    """Boxes of `planes` planes along z and along y, at most `most`, and the lines of a box along y."""
    nz, ny, _ = star.extents
    boxes_z = -(-nz // planes)
    along_y = most // boxes_z
    lines = -(-ny // (np.maximum(1, along_y) if isinstance(along_y, np.ndarray) else max(1, along_y)))
    return boxes_z, -(-ny // lines), lines


def meeting_bytes(blocks: Any, threads: Any) -> Any:
    """Shared memory of the barrier, whole vectors of 16 bytes."""
    return (MOST_SUMS * SUM_BYTES * (blocks + threads // WARP) + 15) // 16 * 16


def elements_at_once(system: System) -> int:
    """Elements of a matrix in CSR that a thread reads at once: a warp's rows of mean length, in one go if it can be."""
    least, most = ELEMENTS_AT_ONCE
    return min(most, max(least, -(-system.nnz // system.rows)))


def staged_bytes(system: System, v: Any) -> Any:
    """Shared memory for products of elements of a matrix in CSR, which a warp reads side by side."""
    return 0 if system.star is not None else STAGED_BYTES * elements_at_once(system) * v["threads"]


def registers_of(system: System, v: Any) -> Any:
    """Registers of a thread that the source asks for; the launch bounds may give it fewer."""
    words = system.element // REGISTER_BYTES
    if system.star is None:
        return CSR_REGISTERS + words * v["unroll"] * CSR_ROW_REGISTERS
    lines = len(system.star.lines)
    return BASE_REGISTERS + words * v["unroll"] * (GROUP_REGISTERS + v["vector"] * (ROW_REGISTERS + (lines + 1) // 2))


def macros_of(system: System, config: Mapping[str, int], blocks: int, most: int) -> dict[str, int | str]:
    """Macros of the source for a configuration.

    Args:
        system: The system; of its rows and elements the mean length of a row matters.
        config: The configuration.
        blocks: Blocks of the grid.
        most: The most blocks that there may be (`most_blocks`).
    """
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
        "UNROLL": elements_at_once(system),
    }
    if star is None:
        return macros | {
            "PLANES": 0,
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
        **_box_macros(star, config["planes"], most),
        "REACH": star.reach,
        "NUM_LINES": len(star.lines),
        "NUM_COEFFICIENTS": len(names),
        "LINE_LIST": ", ".join("{" + ", ".join(map(str, line)) + "}" for line in _lines(star)),
        "COEFFICIENT_PARAMETERS": ", ".join(f"real {name}" for name in names),
        "COEFFICIENTS": ", ".join(names),
    }


def _box_macros(star: StarMatrix, planes: int, most: int) -> dict[str, int]:
    if not planes:
        return {"PLANES": 0}
    _, boxes_y, box_y = boxes_of(star, planes, most)
    reach_z, reach_y = (max(abs(line[axis]) for line in star.lines) for axis in (0, 1))
    return {"PLANES": planes, "BOX_Y": box_y, "BOXES_Y": boxes_y, "REACH_Y": reach_y, "REACH_Z": reach_z}


def _lines(star: StarMatrix) -> Iterator[tuple[int, ...]]:
    """Offsets (z, y), elements to the left and to the right, and the place of the first coefficient, of each line."""
    first = 0
    for offsets, line in star.lines.items():
        yield (*offsets, -min(line), max(line), first)
        first += len(line)
