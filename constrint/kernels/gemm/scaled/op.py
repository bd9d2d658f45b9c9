"""`scaled_matmul`: products of fp8 whose scales are those of rows and columns, or of blocks of 128, as DeepSeek's are.

Later calls of a signature run a plan: one look-up, the result's memory, the launch.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from constrint.choose import Decision, Request, decide
from constrint.errors import ConstrintError, UsageError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.scaled.cost import COPY_S, library_s
from constrint.kernels.gemm.scaled.launch import ScaledCall, scaled_launches
from constrint.kernels.gemm.scaled.reference import scaled_reference
from constrint.kernels.gemm.scaled.shape import BLOCK, DEPTH
from constrint.kernels.launch.cuda.nvrtc import nvrtc_here
from constrint.kernels.launch.cuda.tensor_map import ROW_BYTES
from constrint.kernels.launch.device import gpu_of
from constrint.kernels.launch.plan.recipe import RecordedCall, recipe_of
from constrint.kernels.launch.plan.scratch import NotedScratch
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.launch.plan.table import IS_NEW, WANTS_GRAD, PlanTable
from constrint.kernels.launch.policy import record_what_fits
from constrint.select.workload import Workload

#: Types of results.
RESULTS = (torch.bfloat16, torch.float16, torch.float32)
#: torch's own operator takes multiples of this many columns of both operands.
LIBRARY_MULTIPLE = 16
#: Share of its time that our kernel has to save at least: neither estimate is better than that.
LEAST_SHARE = 0.05


def scaled_matmul(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    *,
    out_dtype: torch.dtype = torch.bfloat16,
) -> Tensor:
    """(a * scale_a) @ (b * scale_b) + bias, added up in fp32 after 128 products each and rounded once.

    Args:
        a: (M, K) fp8 (e4m3).
        b: (K, N) fp8.
        scale_a: fp32, (M, 1); or (M, ceil(K / 128)) for blocks of 128 numbers of a row.
        scale_b: fp32, (1, N); or (ceil(K / 128), ceil(N / 128)) for blocks of 128 by 128.
        bias: (N,), added to every row.
        out_dtype: bf16, fp16 or fp32.

    Returns:
        A new tensor (M, N). torch._scaled_mm computes what it takes and is expected to be faster at; products that no
        kernel computes (GPUs other than Hopper, operands across K, the CPU) are those of the reference in PyTorch.

    Raises:
        UsageError: For shapes and dtypes that do not go together; says what was seen. The product has no gradients.
    """
    in_blocks = _check(a, b, scale_a, scale_b, bias, out_dtype)
    if any(t is not None and t.requires_grad for t in (scale_a, scale_b, bias)) and torch.is_grad_enabled():
        raise UsageError("scaled_matmul has no gradients: call it in torch.no_grad(), or detach its scales and bias.")
    if a.is_cuda and _prefers_library(a, b, (scale_a, scale_b), bias, out_dtype, in_blocks):
        theirs = _by_library(a, b, scale_a, scale_b, out_dtype, in_blocks)
        if theirs is not None:
            return theirs
    out: Any = _PLANS.call(False, (str(out_dtype), in_blocks), a, b, scale_a, scale_b, bias)
    if out is IS_NEW:
        out = _PLANS.learn((str(out_dtype), in_blocks), a, b, scale_a, scale_b, bias)
    if out is None or out is WANTS_GRAD:
        out = scaled_reference(a, b, scale_a, scale_b, bias, out_dtype)
    result: Tensor = out
    return result


def _prefers_library(
    a: Tensor, b: Tensor, scales: tuple[Tensor, Tensor], bias: Tensor | None, out_dtype: torch.dtype, in_blocks: bool
) -> bool:
    """Whether torch's own operator takes the product and is expected to be faster."""
    if bias is not None or a.stride(1) != 1 or b.stride(0) != 1:
        return False
    # It takes scales of blocks by columns.
    copies = sum(in_blocks and scale.stride(0) != 1 for scale in scales)
    return _is_faster(a.device, a.shape[0], b.shape[1], a.shape[1], out_dtype, in_blocks, copies)


@lru_cache(maxsize=4096)
def _is_faster(
    device: torch.device, m: int, n: int, k: int, out_dtype: torch.dtype, in_blocks: bool, copies: int
) -> bool:
    gpu = gpu_of(device)
    if gpu is None or n % LIBRARY_MULTIPLE or k % LIBRARY_MULTIPLE or out_dtype.itemsize != 2:
        return False
    if (in_blocks, device.index) in _REFUSED:
        return False
    sizes = {"m": m, "n": n, "k": k}
    try:
        ours = decide(_request(gpu, device, sizes, out_dtype, in_blocks)).program.seconds
    except ConstrintError:
        return True
    theirs = library_s(gpu, sizes, out_dtype.itemsize) + copies * COPY_S
    return ours is None or (1 - LEAST_SHARE) * theirs < ours


#: Kinds of products, by blocks and device, that torch's operator refused.
_REFUSED: set[tuple[bool, int | None]] = set()


def _by_library(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, out_dtype: torch.dtype, in_blocks: bool
) -> Tensor | None:
    """torch's own product; None where it refuses the call."""
    if in_blocks:
        # It takes scales of blocks by columns.
        scale_a, scale_b = (t.t().contiguous().t() for t in (scale_a, scale_b))
    else:
        scale_a, scale_b = scale_a.contiguous(), scale_b.contiguous()
    try:
        out: Tensor = torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=out_dtype)
    except RuntimeError:
        _REFUSED.add((in_blocks, a.device.index))
        _is_faster.cache_clear()
        return None
    return out


def _request(
    gpu: GpuModel, device: torch.device, sizes: dict[str, int], out_dtype: torch.dtype, in_blocks: bool
) -> Request:
    options = {name: 1 for name, is_set in (("blocks", in_blocks), ("wide_output", out_dtype.itemsize == 4)) if is_set}
    return Request("scaled_gemm", Workload("scaled_gemm", sizes, "fp8", options), gpu, device)


def _check(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Tensor | None, out_dtype: torch.dtype) -> bool:
    """Whether scales are those of blocks.

    Raises:
        UsageError: For shapes and dtypes that do not go together.
    """
    named = {"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b} | ({} if bias is None else {"bias": bias})
    for name, tensor in named.items():
        if not isinstance(tensor, Tensor):
            raise UsageError(f"scaled_matmul: {name} must be a tensor, got {type(tensor).__name__}.")
        if tensor.device != a.device:
            raise UsageError(f"scaled_matmul: {name} is on {tensor.device}, a is on {a.device}.")
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise UsageError(f"scaled_matmul takes a (M, K) and b (K, N), got {tuple(a.shape)} and {tuple(b.shape)}.")
    if a.dtype != torch.float8_e4m3fn or b.dtype != a.dtype or out_dtype not in RESULTS:
        raise UsageError(
            f"scaled_matmul takes float8_e4m3fn and gives {RESULTS}, got {a.dtype}, {b.dtype}, {out_dtype}."
        )
    (m, k), n = a.shape, b.shape[1]
    by_rows = ((m, 1), (1, n))
    in_blocks = ((m, -(-k // DEPTH)), (-(-k // DEPTH), -(-n // BLOCK)))
    seen = tuple(scale_a.shape), tuple(scale_b.shape)
    if seen not in (by_rows, in_blocks) or scale_a.dtype != torch.float32 or scale_b.dtype != torch.float32:
        raise UsageError(
            f"scaled_matmul takes fp32 scales {by_rows[0]} and {by_rows[1]}, or {in_blocks[0]} and {in_blocks[1]} for "
            f"blocks; got {seen[0]} and {seen[1]} of {scale_a.dtype} and {scale_b.dtype}."
        )
    if bias is not None and tuple(bias.shape) != (n,):
        raise UsageError(f"scaled_matmul takes a bias ({n},), got {tuple(bias.shape)}.")
    return seen != by_rows


def _build(tensors: tuple[Tensor | None, ...], extra: Any) -> RecordedCall:
    """The plan of a call.

    Raises:
        NotPlannedError: For calls that no kernel computes.
    """
    a, b, scale_a, scale_b, bias = tensors
    if a is None or b is None or scale_a is None or scale_b is None:
        raise NotPlannedError("an operand is missing")
    gpu = gpu_of(a.device)
    name, in_blocks = extra
    along_k = a.stride(1) == 1 and b.stride(0) == 1
    aligned = _is_loadable(a) and _is_loadable(b.T)
    if gpu is None or not nvrtc_here() or not along_k or not aligned or not a.shape[0] * a.shape[1] * b.shape[1]:
        raise NotPlannedError("no kernel computes this product")
    out_dtype = getattr(torch, name.removeprefix("torch."))
    sizes = {"m": a.shape[0], "n": b.shape[1], "k": a.shape[1]}
    out = torch.empty((sizes["m"], sizes["n"]), dtype=out_dtype, device=a.device)

    def record(chosen: Decision, may_spill: bool) -> RecordedCall:
        scratch = NotedScratch()
        call = ScaledCall(a, b, scale_a, scale_b, out, bias, scratch)
        launches = scaled_launches(gpu, call, chosen.config, in_blocks=in_blocks)
        label = f"scaled_gemm.cuda {dict(chosen.config)}"
        return recipe_of(launches, tensors, [out], scratch, label, may_spill=may_spill)

    try:
        decision = decide(_request(gpu, a.device, sizes, out_dtype, in_blocks))
        return record_what_fits(decision, record, () if bias is None else ("bias",))
    except ConstrintError as error:
        raise NotPlannedError(str(error)) from error


def _is_loadable(rows: Tensor) -> bool:
    """Whether the TMA unit loads rows: their starts are multiples of 16 bytes."""
    return rows.data_ptr() % ROW_BYTES == 0 and rows.stride(0) % ROW_BYTES == 0 and rows.stride(0) > 0


_PLANS = PlanTable("scaled_matmul", _build, torch.get_float32_matmul_precision)
