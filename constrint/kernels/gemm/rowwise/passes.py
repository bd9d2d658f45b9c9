"""The launch and the plans of the pass over rows, and the same by torch's functions. Needs torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from constrint.kernels.gemm.units import row_hint
from constrint.kernels.launch.device import gpu_of
from constrint.kernels.launch.plan.recipe import RecordedCall, recipe_of
from constrint.kernels.launch.plan.scratch import NotedScratch
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.launch.plan.table import IS_NEW, WANTS_GRAD, PlanTable
from constrint.kernels.launch.triton import TritonLaunch

#: Elements of a block's tile, its columns at most and at least, and its warps.
TILE_ELEMENTS, MOST_COLUMNS, LEAST_COLUMNS, NUM_WARPS = 2048, 1024, 16, 4
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
FP8 = torch.float8_e4m3fn
#: The greatest number of fp8 (e4m3).
MOST = 448.0


def in_fp8(z: Tensor, scale: Tensor | None) -> tuple[Tensor, Tensor]:
    """z / scale in fp8 (e4m3), saturated, and what is found of each row.

    Args:
        z: (..., N).
        scale: One fp32 number on z's device; None: each row's greatest magnitude over 448, 1 for a row of zeros.

    Returns:
        (..., N) in fp8; and in fp32 (..., 1) the greatest magnitudes of z's rows, infinite where there is a NaN, or
        their scales without `scale`.
    """
    out: Any = ROWS.call(True, ("fp8", 0.0), z, scale)
    if out is IS_NEW:
        out = ROWS.learn(("fp8", 0.0), z, scale)
    if out is None or out is WANTS_GRAD:
        return in_fp8_by_torch(z, scale)
    first, second = out
    return first, second.view(*z.shape[:-1], 1)


def inverse_norms(z: Tensor, eps: float) -> Tensor:
    """1 / sqrt(mean of z^2 over a row + eps) in fp32, (..., 1)."""
    out: Any = ROWS.call(True, ("rms", float(eps)), z, None)
    if out is IS_NEW:
        out = ROWS.learn(("rms", float(eps)), z, None)
    if out is None or out is WANTS_GRAD:
        return inverse_norms_by_torch(z, eps)
    found: Tensor = out
    return found.view(*z.shape[:-1], 1)


def in_fp8_by_torch(z: Tensor, scale: Tensor | None) -> tuple[Tensor, Tensor]:
    """`in_fp8` by torch's functions."""
    wide = z.float()
    size = torch.where(wide.isnan(), float("inf"), wide.abs()).amax(-1, keepdim=True)
    # By a tensor: torch multiplies by the reciprocal of a number of Python on a GPU, which is not what division gives.
    used = torch.where(size > 0, size / size.new_full((), MOST), 1.0) if scale is None else scale
    out = (wide / used).clamp(-MOST, MOST).to(FP8)
    return out, used if scale is None else size


def inverse_norms_by_torch(z: Tensor, eps: float) -> Tensor:
    """`inverse_norms` by torch's functions."""
    return (z.float().square().mean(-1, keepdim=True) + eps).rsqrt()


def rows_launch(z: Tensor, scale: Tensor | None, out: Tensor | None, found: Tensor, eps: float) -> TritonLaunch:
    """The launch of the pass.

    Args:
        z: (M, N), rows of contiguous elements.
        scale: One fp32 number, or None.
        out: (M, N) of fp8, contiguous; None for norms.
        found: (M,) in fp32.
        eps: What is added to the mean of squares.
    """
    from constrint.kernels.gemm.rowwise.kernel import rows_kernel

    m, n = z.shape
    tile_n = min(MOST_COLUMNS, max(LEAST_COLUMNS, 1 << (n - 1).bit_length()))
    tile_m = TILE_ELEMENTS // tile_n
    arguments: dict[str, Any] = {"z_ptr": z, "scale_ptr": scale, "out_ptr": out, "found_ptr": found, "m": m, "n": n}
    arguments |= {"stride": z.stride(0), "eps": float(eps), "tile_m": tile_m, "tile_n": tile_n, "most": MOST}
    arguments |= {"hint": row_hint(n, z.stride(0))}
    return TritonLaunch(rows_kernel, (-(-m // tile_m),), arguments, {"num_warps": NUM_WARPS})


def _plan_of_rows(tensors: tuple[Tensor | None, ...], extra: Any) -> RecordedCall:
    """The plan of a call on (z, scale): one or two results.

    Raises:
        NotPlannedError: For tensors that the kernel does not read, and GPUs without fp8 of this kind.
    """
    z, scale = tensors
    kind, eps = extra
    assert z is not None
    if not z.numel() or z.dtype not in DTYPES or not z.is_contiguous() or z.dim() < 1:
        raise NotPlannedError("not a tensor of this kernel")
    rows = z.view(-1, z.shape[-1])
    found = torch.empty(rows.shape[0], dtype=torch.float32, device=z.device)
    if kind == "rms":
        launch = rows_launch(rows, None, None, found, eps)
        return recipe_of([launch], tensors, [found], NotedScratch(), "norms of rows")
    gpu = gpu_of(z.device)
    if gpu is None or torch.version.hip is not None or gpu.dot_unit("fp8") is None:
        raise NotPlannedError("the GPU has no fp8 of this kind")
    if scale is not None and (scale.numel() != 1 or scale.dtype != torch.float32):
        raise NotPlannedError("a scale is one fp32 number")
    out = torch.empty(z.shape, dtype=FP8, device=z.device)
    launch = rows_launch(rows, scale, out.view(rows.shape), found, eps)
    return recipe_of([launch], tensors, [out, found], NotedScratch(), "fp8")


ROWS = PlanTable("rows", _plan_of_rows, torch.get_float32_matmul_precision)
