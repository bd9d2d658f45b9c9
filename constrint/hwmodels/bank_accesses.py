"""Accesses of a tile in shared memory by name: which row and byte each lane of a warp touches.

A tile is rows of bytes. For an operand whose K is contiguous a row is one of M (or N) and holds K; a transposed access
reads a tile whose rows are K. Every access covers the whole tile, in as many instructions as that takes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from constrint.errors import UnknownNameError, UnsupportedError, UsageError
from constrint.hwmodels.banks import Kind

if TYPE_CHECKING:
    from constrint.hwmodels.schema import GpuModel

Places = NDArray[np.int64]
#: Bytes of an element.
DTYPE_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}
#: Bytes that a lane moves from or to global memory at once, and that a lane reads of shared memory at most.
WIDEST_BYTES = 16
#: Most rows of a tile, and most bytes of one.
MAX_ROWS, MAX_BYTES = 4096, 1 << 20
#: Rows and bytes that one transposed read of a matrix unit's operand moves: a lane has four elements of 16 bits.
_TR = "ds_read_b64_tr_b16"
_MFMA = re.compile(r"mfma_(\d{1,3})x(\d{1,3})x(\d{1,3})(_trans|_halves)?")
_TRANSPOSE = re.compile(rf"{_TR}(?:_(\d{{1,3}})x(\d{{1,3}})x(\d{{1,3}}))?")


class Tile(NamedTuple):
    """A tile in shared memory.

    Args:
        rows: Rows.
        columns: Elements of a row, contiguous in memory.
        dtype: Type of the elements.
    """

    rows: int
    columns: int
    dtype: str

    @property
    def element_bytes(self) -> int:
        """Bytes of an element."""
        return DTYPE_BYTES[self.dtype]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.columns * self.element_bytes

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns} {self.dtype}"


@dataclass(frozen=True)
class TileAccess:
    """One kind of access to every element of a tile.

    Args:
        name: Name.
        kind: "read" or "write".
        width_bits: Bits of each lane in one instruction.
        rows: The row that each lane touches, by instruction and lane.
        columns: The first byte of the row that it touches.
        copies_whole_warps: Whether an instruction writes the bytes of a warp one behind the other, wherever it begins.
    """

    name: str
    kind: Kind
    width_bits: int
    rows: Places
    columns: Places
    copies_whole_warps: bool = False


def check_tile(rows: int, columns: int, dtype: str) -> Tile:
    """A tile from its sizes.

    Raises:
        UsageError: When a size is out of range or the dtype is unknown.
    """
    if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
        raise UnknownNameError("dtype of a tile in shared memory", str(dtype), DTYPE_BYTES)
    for what, size in (("rows", rows), ("columns", columns)):
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MAX_ROWS:
            raise UsageError(f"tile: its {what} are a number from 1 to {MAX_ROWS:,}; got {size!r}.")
    tile = Tile(rows, columns, dtype)
    if tile.rows * tile.row_bytes > MAX_BYTES:
        raise UsageError(f"tile: {tile} has {tile.rows * tile.row_bytes:,} bytes; a block's memory is far smaller.")
    return tile


def tile_access(gpu: GpuModel, name: str, tile: Tile) -> TileAccess:
    """The access of that name to every element of a tile.

    Raises:
        UsageError: When no access has the name, or the tile is no multiple of its block.
        UnsupportedError: When the GPU has no such instruction.
    """
    warp = gpu.sm.warp_size
    if name in _PLAIN:
        return _PLAIN[name](name, tile, warp)
    if name in _LDMATRIX:
        _has(gpu, name, any(i.kind == "mma" and i.m == (16,) and i.n == (8,) for i in gpu.matrix.instructions))
        return _ldmatrix(name, tile, *_LDMATRIX[name])
    if name == "wgmma":
        _has(gpu, name, any(i.kind in ("wgmma", "tcgen05") for i in gpu.matrix.instructions))
        return _ldmatrix(name, tile, 8, 16)
    if hit := _MFMA.fullmatch(name):
        return _mfma(gpu, name, tile, (int(hit[1]), int(hit[2]), int(hit[3])), hit[4] or "")
    if hit := _TRANSPOSE.fullmatch(name):
        m, n, k = (int(hit[i] or default) for i, default in ((1, 16), (2, 16), (3, 32)))
        return _transpose(gpu, name, tile, (m, n, k))
    raise UnknownNameError("access", name, access_names(gpu, tile.dtype))


def access_names(gpu: GpuModel, dtype: str) -> list[str]:
    """Names of the accesses that a GPU has for a dtype."""
    kinds = {i.kind for i in gpu.matrix.instructions if i.dtype == dtype}
    names = [*_PLAIN]
    if "mma" in kinds:
        names += _LDMATRIX
    if kinds & {"wgmma", "tcgen05"}:
        names.append("wgmma")
    for i in gpu.matrix.instructions:
        if i.kind == "mfma" and i.dtype == dtype and i.blocks == 1:
            shape = f"{i.m[0]}x{i.n[0]}x{i.k}"
            lane_bytes = _lane_bytes(i.m[0], i.k, DTYPE_BYTES.get(dtype, 1))
            names += [f"mfma_{shape}", f"mfma_{shape}_trans"]
            names += [f"mfma_{shape}_halves"] * (lane_bytes == 2 * WIDEST_BYTES)
            names += [f"{_TR}_{shape}"] * (_has_transpose(gpu, dtype) and lane_bytes == WIDEST_BYTES)
    return list(dict.fromkeys(names))


def _has(gpu: GpuModel, name: str, is_there: bool) -> None:
    if not is_there:
        raise UnsupportedError(f"access {name}: {gpu.name} has no such instruction; `constrint banks` lists its own.")


def _pieces(name: str, tile: Tile, rows: int, num_bytes: int) -> tuple[Places, Places]:
    """The first row and byte of every block of a tile that is cut into blocks.

    Raises:
        UsageError: When the tile is no multiple of the block.
    """
    if tile.rows % rows or tile.row_bytes % num_bytes:
        raise UsageError(
            f"access {name}: it takes blocks of {rows} rows and {num_bytes} bytes, and the tile {tile} has {tile.rows} "
            f"rows of {tile.row_bytes} bytes; give a multiple."
        )
    first, byte = np.meshgrid(np.arange(0, tile.rows, rows), np.arange(0, tile.row_bytes, num_bytes), indexing="ij")
    return first.reshape(-1, 1), byte.reshape(-1, 1)


def _rows_of_16(name: str, tile: Tile, warp: int) -> TileAccess:
    """Consecutive lanes take consecutive 16 bytes of a row, row after row; lanes without data repeat another one's."""
    _pieces(name, tile, 1, WIDEST_BYTES)
    each_row = tile.row_bytes // WIDEST_BYTES
    num_chunks = tile.rows * each_row
    chunk = np.arange(-(-num_chunks // warp) * warp).reshape(-1, warp) % num_chunks
    kind: Kind = "read" if name == "load_rows" else "write"
    return TileAccess(
        name, kind, 8 * WIDEST_BYTES, chunk // each_row, chunk % each_row * WIDEST_BYTES, name == "copy_rows"
    )


def _columns_of_16(name: str, tile: Tile, warp: int) -> TileAccess:
    """Each lane has 16 bytes of a column from global memory and writes its elements one after the other."""
    depth = WIDEST_BYTES // tile.element_bytes
    _pieces(name, tile, depth, tile.element_bytes)
    each_column = tile.rows // depth
    num_chunks = each_column * tile.columns
    chunk = np.arange(-(-num_chunks // warp) * warp).reshape(-1, 1, warp) % num_chunks
    element = np.arange(depth).reshape(1, -1, 1)
    rows = (chunk % each_column * depth + element).reshape(-1, warp)
    columns = np.broadcast_to(chunk // each_column * tile.element_bytes, (len(chunk), depth, warp)).reshape(-1, warp)
    return TileAccess(name, "write", 8 * tile.element_bytes, rows, columns)


#: Accesses without a matrix instruction. `copy_rows` is `store_rows` by a copy that passes the registers by.
_PLAIN: dict[str, Callable[[str, Tile, int], TileAccess]] = {
    "store_rows": _rows_of_16,
    "copy_rows": _rows_of_16,
    "load_rows": _rows_of_16,
    "store_columns": _columns_of_16,
}
#: Loads of `ldmatrix.x4` and of matrix units that read in place: the lanes per step down the rows, and its second step.
#: In A (and where rows are K, transposed) lane 8 begins the lower eight rows, in B the next 16 bytes.
_LDMATRIX = {
    "ldmatrix": (16, 16),
    "mma_m16n8k16_a": (16, 16),
    "mma_m16n8k16_b": (8, 16),
    "ldmatrix_trans": (16, 16),
    "mma_m16n8k16_trans": (16, 16),
}


def _ldmatrix(name: str, tile: Tile, rows_before_bytes: int, rows: int) -> TileAccess:
    """Four matrices of eight rows of 16 bytes; an operand of 8 or 32 bits takes the same bytes."""
    if name.endswith("trans") and tile.element_bytes != 2:
        raise UsageError(f"access {name}: it transposes elements of 16 bits, and {tile.dtype} has another size.")
    first, byte = _pieces(name, tile, rows, 2 * WIDEST_BYTES)
    lane = np.arange(32)
    if rows_before_bytes == 16:
        down, along = lane % 16, lane // 16
    else:
        down, along = lane % 8 + lane // 16 * 8, lane // 8 % 2
    return TileAccess(name, "read", 8 * WIDEST_BYTES, first + down, byte + along * WIDEST_BYTES)


def _lane_bytes(m: int, k: int, element_bytes: int) -> int:
    """Bytes of an MFMA operand that one of 64 lanes holds."""
    return m * k * element_bytes // 64


def _mfma(gpu: GpuModel, name: str, tile: Tile, shape: tuple[int, int, int], how: str) -> TileAccess:
    """One operand of an MFMA: lane l has row l % m and the (l // m)-th part of K.

    A part of 32 bytes is read as two of 16, one behind the other, or (`_halves`) each from its half of K, which is the
    same product where both operands do it.
    """
    m, n, k = shape
    same = [i for i in gpu.matrix.instructions if i.kind == "mfma" and i.dtype == tile.dtype and i.blocks == 1]
    _has(gpu, name, any((i.m, i.n, i.k) == ((m,), (n,), k) for i in same))
    lane, part_bytes = np.arange(64), _lane_bytes(m, k, tile.element_bytes)
    row, part = lane % m, lane // m
    if how == "_trans":
        elements = part_bytes // tile.element_bytes
        first, byte = _pieces(name, tile, k, m * tile.element_bytes)
        each = np.arange(elements).reshape(1, -1, 1)
        rows = (first[:, :, None] + part * elements + each).reshape(-1, 64)
        columns = np.repeat(byte + row * tile.element_bytes, elements, axis=0)
        return TileAccess(name, "read", 8 * tile.element_bytes, rows, columns)
    first, byte = _pieces(name, tile, m, k * tile.element_bytes)
    width = min(part_bytes, WIDEST_BYTES)
    step = (64 // m) * width if how == "_halves" else width
    begin = part * (width if how == "_halves" else part_bytes)
    reads = np.arange(part_bytes // width).reshape(1, -1, 1) * step
    columns = (byte[:, :, None] + begin + reads).reshape(-1, 64)
    return TileAccess(name, "read", 8 * width, np.repeat(first + row, reads.size, axis=0), columns)


def _has_transpose(gpu: GpuModel, dtype: str) -> bool:
    return gpu.arch.target == "gfx950" and DTYPE_BYTES.get(dtype) == 2


def _transpose(gpu: GpuModel, name: str, tile: Tile, shape: tuple[int, int, int]) -> TileAccess:
    """`ds_read_b64_tr_b16`: sixteen lanes take four rows of K with 16 elements each, four elements a lane."""
    m, n, k = shape
    _has(gpu, name, _has_transpose(gpu, tile.dtype))
    _has(gpu, name, any((i.m, i.n, i.k) == ((m,), (n,), k) for i in gpu.matrix.instructions if i.dtype == tile.dtype))
    first, byte = _pieces(name, tile, k, m * 2)
    lane, depth = np.arange(64), m * k // 64
    reads = np.arange(depth // 4).reshape(1, -1, 1) * 4
    rows = (first[:, :, None] + lane % 16 // 4 + lane // m * depth + reads).reshape(-1, 64)
    columns = np.repeat(byte + lane % 4 * 8 + lane % m // 16 * 32, reads.size, axis=0)
    return TileAccess(name, "read", 64, rows, columns)
