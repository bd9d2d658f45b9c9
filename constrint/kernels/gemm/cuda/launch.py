"""The launch of the CUDA GEMM: tensor maps, the schedule of tiles, memory for partial sums. Needs torch.

The grid is persistent: as many clusters as are resident at once, or as there are tiles, whichever is less.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from constrint.errors import UsageError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.cuda.shape import (
    BOX_BYTES,
    LINE_BYTES,
    ROWS,
    WARPGROUP,
    WgmmaTile,
    box_rows,
    cluster_slots,
    depth,
    ring_bytes,
    second_buffers,
)
from constrint.kernels.gemm.cuda.source import OperandLayout, source_of
from constrint.kernels.gemm.epilogue.added import OUTPUTS, as_added, name_of
from constrint.kernels.gemm.epilogue.compiled import SUMS_BESIDE_SOURCE, CompiledEpilogue
from constrint.kernels.gemm.launch import Epilogue, GemmCall
from constrint.kernels.gemm.reference import DTYPE_NAMES
from constrint.kernels.gemm.traced.text import COLUMN
from constrint.kernels.gemm.units import needs_k_major
from constrint.kernels.launch.cuda.source_spec import CudaLaunch
from constrint.kernels.launch.cuda.tensor_map import ROW_BYTES, TensorMap
from constrint.kernels.launch.plan.loaded import resident_blocks

#: SMs of a GPC come in pairs, so that clusters of up to two blocks always fill a GPC.
PAIR = 2
#: Elements as the TMA unit knows them, where their names differ.
LOADED = {"fp8": "uint8", "int8": "uint8"}


def cuda_launches(call: GemmCall, config: Mapping[str, int]) -> list[CudaLaunch]:
    """State the one launch of a call.

    Raises:
        UsageError: For a GPU without a model, other dtypes, and operands that the TMA unit cannot load.
    """
    gpu, dtype = _checked(call)
    a, b, out, epilogue = call.a, call.b.transpose(1, 2), call.out, call.epilogue
    layout = OperandLayout(dtype, a.stride(2) == 1, b.stride(2) == 1)
    (batch, m, k), n, turned = a.shape, b.shape[1], bool(config["turned"])
    rows, columns = (n, m) if turned else (m, n)
    schedule = TileSchedule.of(gpu, config, rows, columns, -(-k // depth(dtype)), batch)
    ring = ring_bytes(config, dtype, a_is_k_major=layout.a_is_k_major, b_is_k_major=layout.b_is_k_major)
    buffers = 2 if second_buffers(gpu, ring, config["consumers"]) > 0 else 1
    bias, source = as_added(epilogue.bias), as_added(epilogue.source)
    # The TMA unit stores 16 bytes at a time. It would write beside rows of C that are not multiples of 16 bytes.
    steps = (out.stride(1), n, *([out.stride(0)] if batch > 1 else []))
    is_aligned = all(size * out.element_size() % ROW_BYTES == 0 for size in steps)
    is_aligned = is_aligned and out.data_ptr() % ROW_BYTES == 0
    in_boxes = out.element_size() == 2 and is_aligned and is_added_in_boxes(config, bias, source, out)
    added = OUTPUTS[out.dtype], name_of(bias), name_of(source)
    ends = CompiledEpilogue(*added, epilogue.activation, in_boxes, buffers, epilogue.traced)
    tile = WgmmaTile.of(config)
    sizes = (
        rows,
        columns,
        k,
        schedule.row_tiles,
        schedule.column_tiles,
        schedule.group,
        schedule.whole,
        schedule.parts,
    )
    launch = CudaLaunch(
        gpu=gpu,
        source=source_of(config, layout, ends, splits=schedule.parts > 1, batched=batch > 1),
        grid=(min(schedule.units, schedule.slots) * tile.cluster,),
        block=((config["consumers"] + 1) * WARPGROUP,),
        arguments=(
            *operand_maps(a, b, layout, config),
            *(boxes_of(out, int(tile.own_columns), turned=turned) if in_boxes else (out,)),
            bias,
            source,
            *memory_of(call, config, schedule, tile),
            *(np.int32(size) for size in sizes),
            np.int64(out.stride(1)),
            np.int32(is_aligned),
            *(np.int64(stride) for stride in ((0, 0) if source is None else source.stride()[1:])),
            np.float32(epilogue.alpha),
            np.float32(epilogue.beta),
            *schedule.divisors,
            *(_batch_arguments(a, b, out, source, schedule, turned=turned) if batch > 1 else ()),
            *operand_arguments(epilogue),
        ),
        smem_bytes=ring + (buffers - 1) * BOX_BYTES * config["consumers"],
        cluster=tile.cluster,
    )
    return [as_resident(launch)]


def operand_arguments(epilogue: Epilogue) -> list[Any]:
    """Arguments of a user's epilogue: each operand and its step, from column to column or else from row to row."""
    arguments: list[Any] = []
    for placed, tensor in zip(epilogue.traced.extras if epilogue.traced else (), epilogue.operands, strict=True):
        arguments += [tensor, np.int64(tensor.stride(-1 if placed.lies == COLUMN else 0) if tensor.dim() else 0)]
    return arguments


def is_added_in_boxes(config: Mapping[str, int], bias: Tensor | None, source: Tensor | None, out: Tensor) -> bool:
    """Whether the end can be added to sums in the order of wgmma, which reads two elements of the bias at a time.

    A source matrix has to lie by rows of whole vectors, as C does, and to have its type; its elements take registers
    beside the sums.
    """
    if bias is not None and bias.data_ptr() % (2 * bias.element_size()):
        return False
    if source is None:
        return True
    own = source.stride(0) if source.shape[0] > 1 else 0
    steps = source.data_ptr(), own * source.element_size(), source.stride(1) * source.element_size()
    is_like = source.dtype == out.dtype and source.stride(2) == 1 and all(step % ROW_BYTES == 0 for step in steps)
    has_room = not config["turned"] and WgmmaTile.of(config).sums <= SUMS_BESIDE_SOURCE
    return is_like and has_room


def _batch_arguments(
    a: Tensor,  # (batch, M, K)
    b: Tensor,  # (batch, N, K)
    out: Tensor,  # (batch, M, N)
    source: Tensor | None,  # (batch, M, N)
    schedule: TileSchedule,
    *,
    turned: bool,
) -> tuple[np.generic, ...]:
    """Arguments of a batch: its size, steps of both operands (0: shared), of C and of the source, a divisor."""
    steps = [np.int32(side.stride(0) > 0) for side in (a, b)]
    source_bytes = 0 if source is None else source.stride(0) * source.element_size()
    return (
        np.int32(a.shape[0]),
        *(steps[::-1] if turned else steps),
        np.int64(out.stride(0)),
        np.int64(source_bytes),
        reciprocal(schedule.row_tiles * schedule.column_tiles),
    )


def operand_maps(a: Tensor, b: Tensor, layout: OperandLayout, config: Mapping[str, int]) -> list[TensorMap]:
    """Tensor maps of A (batch, M, K) and B transposed (batch, N, K), that of wgmma's rows first."""
    maps = [
        _map_of(a, layout.a_is_k_major, config["tile_m"], config["cluster_n"], layout.dtype),
        _map_of(b, layout.b_is_k_major, config["tile_n"], config["cluster_m"], layout.dtype),
    ]
    return maps[::-1] if config["turned"] else maps


def as_resident(launch: CudaLaunch) -> CudaLaunch:
    """Limit the grid to the clusters that the device holds at once; they walk over all tiles.

    A cluster that starts only after others have ended would be alone with its tiles, and the grid would take twice as
    long. How many clusters of four fit depends on which SMs each GPC has: the model assumes a number, the driver knows.
    """
    if launch.cluster <= PAIR or launch.arguments[0].device.type != "cuda":
        return launch
    there = resident_blocks(launch) or 0
    return replace(launch, grid=(there,)) if 0 < there < launch.grid[0] else launch


class TileSchedule(NamedTuple):
    """The schedule of a grid: which clusters compute which tiles, and which tiles are split along K.

    Args:
        row_tiles, column_tiles: Tiles of a cluster along wgmma's rows and columns.
        group: Rows of tiles that are walked together.
        whole: Tiles that are not split; they come first.
        parts: Parts along K of each tile that is split.
        slots: Clusters that are resident at once.
        batch: Products, whose tiles follow each other.
    """

    row_tiles: int
    column_tiles: int
    group: int
    whole: int
    parts: int
    slots: int
    batch: int = 1

    @staticmethod
    def of(
        gpu: GpuModel, config: Mapping[str, int], rows: int, columns: int, slices: int, batch: int = 1
    ) -> TileSchedule:
        """Derive the schedule of a configuration for a product's rows and columns of wgmma and its slices along K."""
        shape = WgmmaTile.of(config)
        row_tiles = -(-rows // (shape.rows * shape.cluster_rows))
        column_tiles = -(-columns // (shape.columns * shape.cluster_columns))
        tiles, slots = row_tiles * column_tiles * batch, int(cluster_slots(gpu, shape.cluster))
        # Every part has a slice: a kernel that was chosen for a longer K splits a shorter one into fewer parts.
        parts = min(config["split_k"], slices)
        whole = tiles if parts == 1 else tiles // slots * slots if config["only_last"] else 0
        return TileSchedule(row_tiles, column_tiles, min(config["group_m"], row_tiles), whole, parts, slots, batch)

    @property
    def split(self) -> int:
        """Tiles that are split."""
        return self.row_tiles * self.column_tiles * self.batch - self.whole

    @property
    def units(self) -> int:
        """Tiles and parts of tiles."""
        return self.whole + self.split * self.parts

    @property
    def divisors(self) -> tuple[np.uint64, ...]:
        """Reciprocals of the tiles of a group, of its rows, of the rows of the last group, and of the parts."""
        last = self.row_tiles % self.group or self.group
        return tuple(reciprocal(by) for by in (self.group * self.column_tiles, self.group, last, self.parts))


def reciprocal(divisor: int) -> np.uint64:
    """Return a divisor as the kernel divides by it: a rounded reciprocal (low 32 bits) and a shift (high 32 bits).

    With `bits` such that 2^bits is the next power of two, the reciprocal is 2^(31 + bits) / divisor, rounded up: it is
    off by less than divisor / 2^(31 + bits), so that a quotient below 2^31 is off by less than 1 / divisor. For 1 the
    result is 0, and the kernel does not divide.
    """
    bits = (divisor - 1).bit_length()
    packed: np.uint64 = np.uint64((bits - 1) << 32 | -(-(1 << (31 + bits)) // divisor) if divisor > 1 else 0)
    return packed


def _checked(call: GemmCall) -> tuple[GpuModel, str]:
    """Check that the kernel computes the call; return the GPU's model and the dtype's name."""
    dtype, gpu = DTYPE_NAMES.get(call.a.dtype, ""), call.machine.gpu
    if gpu is None:
        raise UsageError("gemm.cuda needs a model of the device.")
    if call.precision == "tf32x3":
        raise UsageError("gemm.cuda multiplies fp32 in one pass.")
    if not dtype or call.out.dtype not in OUTPUTS or (call.out.dtype == torch.int32 and dtype != "int8"):
        raise UsageError(f"gemm.cuda is not for {call.a.dtype} with results of {call.out.dtype}.")
    if not call.out.numel() or not call.a.shape[2]:
        raise UsageError("gemm.cuda computes no product without elements.")
    if call.out.stride(2) != 1 and call.out.shape[2] > 1:
        raise UsageError(f"gemm.cuda stores rows whose elements follow each other, got strides {call.out.stride()}.")
    along_k = call.a.stride(2) == 1, call.b.stride(1) == 1
    across = call.a.stride(1) == 1, call.b.stride(2) == 1
    if not all(k or (other and not needs_k_major(dtype)) for k, other in zip(along_k, across, strict=True)):
        raise UsageError("gemm.cuda loads operands that lie along K, or across it where elements have 16 bits.")
    return gpu, dtype


def _map_of(side: Tensor, is_k_major: bool, width: int, shares: int, dtype: str) -> TensorMap:
    """Return the tensor map by which the TMA unit loads an operand (batch, size, K): swizzled boxes 128 bytes wide.

    Args:
        side: A, or B transposed; a batch of them has a third axis, of one matrix where all products share it.
        is_k_major: Whether it is contiguous along K.
        width: Rows of it in a tile.
        shares: Blocks that load a part of each slice.
        dtype: The operands' dtype.
    """
    line = depth(dtype)
    lies = side if is_k_major else side.transpose(1, 2)
    rows = box_rows(width, shares) if is_k_major else line
    kind, shape, stride = LOADED.get(dtype, dtype), (lies.shape[1], lies.shape[2]), lies.stride(1)
    return TensorMap(side, kind, shape, stride, (rows, line), batch=_matrices(side, shape[0] * stride))


def _matrices(tensor: Tensor, size: int) -> tuple[int, int] | None:
    """The third axis of a map of (batch, rows, columns): matrices and elements from one to the next; None for one.

    Args:
        tensor: The batch; matrices that follow each other after 0 elements are one that all products share.
        size: Elements of one matrix with the gaps behind its rows.
    """
    batch, step = tensor.shape[0], tensor.stride(0)
    if batch == 1:
        return None
    return (batch, step) if step else (1, size)


def boxes_of(out: Tensor, own_columns: int, *, turned: bool) -> tuple[TensorMap, TensorMap]:
    """Return the maps by which the TMA unit stores results: boxes of 64 columns of wgmma, and the rest of them."""
    rest = own_columns % ROWS or ROWS
    shape, stride, kind = (out.shape[1], out.shape[2]), out.stride(1), OUTPUTS[out.dtype]
    batch = _matrices(out, shape[0] * stride)
    narrow = (rest, ROWS) if turned else (ROWS, rest)
    swizzle = LINE_BYTES if narrow[1] == ROWS else 0
    whole = TensorMap(out, kind, shape, stride, (ROWS, ROWS), batch=batch)
    return whole, TensorMap(out, kind, shape, stride, narrow, swizzle, batch)


def memory_of(
    call: GemmCall, config: Mapping[str, int], deal: TileSchedule, shape: Any
) -> tuple[Tensor | None, Tensor | None]:
    """Allocate partial sums, and two counters (begun, finished) for every consumer of a split tile; None without."""
    if deal.parts == 1:
        return None, None
    users = deal.split * shape.cluster * (1 if config["in_turns"] else config["consumers"])
    sums = torch.int32 if call.a.dtype == torch.int8 else torch.float32
    size = users * deal.parts * shape.sums * WARPGROUP
    device = call.a.device
    return call.scratch.empty((size,), sums, device), call.scratch.counters(2 * users, device)
