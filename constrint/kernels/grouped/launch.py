"""The launch of grouped products: the CUDA GEMM for a batch whose products end where the device finds. Needs torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from constrint.errors import UsageError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.cuda.launch import as_resident, boxes_of, operand_maps, reciprocal
from constrint.kernels.gemm.cuda.shape import BOX_BYTES, WARPGROUP, WgmmaTile, cluster_slots, ring_bytes, second_buffers
from constrint.kernels.gemm.cuda.source import OperandLayout, source_of
from constrint.kernels.gemm.epilogue.added import OUTPUTS, as_added, name_of
from constrint.kernels.gemm.epilogue.compiled import CompiledEpilogue
from constrint.kernels.gemm.reference import DTYPE_NAMES
from constrint.kernels.grouped.cost import EXPERT_BYTES, MOST_EXPERTS
from constrint.kernels.launch.cuda.source_spec import CudaLaunch
from constrint.kernels.launch.cuda.tensor_map import ROW_BYTES, TensorMap


@dataclass(frozen=True)
class GroupedCall:
    """Grouped products to launch: out[rows of e] = activation(alpha * a[rows of e] @ b[e] + bias[e]).

    Args:
        a: (M, K), rows or columns contiguous.
        b: (experts, K, N), likewise.
        offsets: (experts,), int32, contiguous: where the rows of each expert end.
        out: (M, N), contiguous rows.
        bias: (N,) or (experts, N), or None.
        alpha, activation: The rest of the epilogue.
    """

    a: Tensor
    b: Tensor
    offsets: Tensor
    out: Tensor
    bias: Tensor | None = None
    alpha: float = 1.0
    activation: str | None = None


def grouped_launch(gpu: GpuModel, call: GroupedCall, config: Mapping[str, int]) -> CudaLaunch:
    """State the one launch of a call.

    Raises:
        UsageError: For dtypes and layouts that the kernel does not take, and for too many experts.
    """
    dtype = _checked(call)
    a, b, out, bias = call.a[None], call.b.transpose(1, 2), call.out, as_added(call.bias)
    layout = OperandLayout(dtype, a.stride(2) == 1, b.stride(2) == 1)
    (m, k), (experts, n, _), turned = call.a.shape, b.shape, bool(config["turned"])
    tile, rows, columns = WgmmaTile.of(config), *((n, m) if turned else (m, n))
    over_rows, over_columns = int(tile.rows * tile.cluster_rows), int(tile.columns * tile.cluster_columns)
    ragged, across = (over_columns, -(-n // over_rows)) if turned else (over_rows, -(-n // over_columns))
    group = min(config["group_m"], -(-m // ragged))
    # Every expert may end in a tile that is not full.
    units = (m // ragged + min(experts, m)) * across
    ring = ring_bytes(config, dtype, a_is_k_major=layout.a_is_k_major, b_is_k_major=layout.b_is_k_major)
    is_aligned = out.data_ptr() % ROW_BYTES == 0
    is_aligned = is_aligned and all(size * out.element_size() % ROW_BYTES == 0 for size in (out.stride(0), n))
    bias_step = bias.stride(0) if bias is not None and bias.dim() == 2 else 0
    is_paired = bias is None or all(start % 2 == 0 for start in (bias.data_ptr() // bias.element_size(), bias_step))
    in_boxes = is_aligned and is_paired and out.element_size() == 2
    table = EXPERT_BYTES * experts
    buffers = 2 if in_boxes and second_buffers(gpu, ring + table, config["consumers"]) > 0 else 1
    ends = CompiledEpilogue(OUTPUTS[out.dtype], name_of(bias), "", call.activation, in_boxes, buffers)
    steps = (0, 1 if b.stride(0) else 0)
    launch = CudaLaunch(
        gpu=gpu,
        source=source_of(config, layout, ends, splits=False, grouped=True),
        grid=(min(units, int(cluster_slots(gpu, tile.cluster))) * int(tile.cluster),),
        block=((config["consumers"] + 1) * WARPGROUP,),
        arguments=(
            *(_with_place(each) for each in operand_maps(a, b, layout, config)),
            *(_boxes_of_all(out, int(tile.own_columns), turned=turned) if in_boxes else (out,)),
            *(bias, None, None, None),
            *(np.int32(size) for size in (rows, columns, k)),
            *(np.int32(size) for size in ((across, 0) if turned else (0, across))),
            *(np.int32(size) for size in (group, 0, 1)),
            np.int64(out.stride(0)),
            np.int32(is_aligned),
            *(np.int64(0), np.int64(0)),
            np.float32(call.alpha),
            np.float32(0),
            *(reciprocal(by) for by in (group * across, group, 1, 1)),
            np.int32(experts),
            *(np.int32(step) for step in (steps[::-1] if turned else steps)),
            *(np.int64(0), np.int64(0), np.uint64(0)),
            call.offsets,
            np.int64(0 if bias is None else bias_step * bias.element_size()),
            out,
        ),
        smem_bytes=ring + (buffers - 1) * BOX_BYTES * config["consumers"] + table,
        cluster=int(tile.cluster),
    )
    return as_resident(launch)


def _boxes_of_all(out: Tensor, own_columns: int, *, turned: bool) -> list[TensorMap]:
    """The maps by which the TMA unit stores results of tiles that are whole."""
    return [_with_place(each) for each in boxes_of(out[None], own_columns, turned=turned)]


def _with_place(tensor_map: TensorMap) -> TensorMap:
    """The map with a third axis, which the kernel expects."""
    if tensor_map.batch is not None:
        return tensor_map
    return replace(tensor_map, batch=(1, tensor_map.shape[0] * tensor_map.stride))


def _checked(call: GroupedCall) -> str:
    """Check that the kernel computes the call; return the dtype's name."""
    a, b, out = call.a, call.b, call.out
    dtype = DTYPE_NAMES.get(a.dtype, "")
    if dtype not in ("bf16", "fp16") or b.dtype != a.dtype or out.dtype not in OUTPUTS or out.dtype == torch.int32:
        raise UsageError(f"grouped.cuda is not for {a.dtype} and {b.dtype} with results of {out.dtype}.")
    if not 1 <= b.shape[0] <= MOST_EXPERTS:
        raise UsageError(f"grouped.cuda is for 1 to {MOST_EXPERTS} experts, got {b.shape[0]}.")
    if not a.numel() or not b.numel():
        raise UsageError("grouped.cuda computes no product without elements.")
    offsets = call.offsets
    if offsets.dtype != torch.int32 or offsets.shape != (b.shape[0],) or not offsets.is_contiguous():
        raise UsageError(
            f"grouped.cuda reads {b.shape[0]} contiguous int32 offsets, got {offsets.dtype} {tuple(offsets.shape)}."
        )
    if out.stride(1) != 1 and out.shape[1] > 1:
        raise UsageError(f"grouped.cuda stores rows whose elements follow each other, got strides {out.stride()}.")
    if call.bias is not None and call.bias.stride(-1) != 1:
        raise UsageError("grouped.cuda reads a bias whose elements follow each other.")
    if not ((a.stride(1) == 1 or a.stride(0) == 1) and (b.stride(2) == 1 or b.stride(1) == 1)):
        raise UsageError("grouped.cuda loads operands that lie along K or across it.")
    return dtype
