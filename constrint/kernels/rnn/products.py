"""Products beside a recurrence in full fp32, by the kernels of `matmul` where these were measured to be faster.

On Hopper `gemm.fp32` multiplies fp32 in parts on the tensor cores and takes about half of cuBLAS' time, and long sums
are split, which cuBLAS does not do in fp32. Both functions return None for calls that torch runs: other dtypes and
GPUs, products in tf32, calls that are traced, and the first call of a shape (`gemm/linear.py` says why).
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor
from torch.compiler import is_compiling

from constrint.kernels.gemm.linear import linear, recurs
from constrint.kernels.gemm.op import matmul

#: Compute capability of GPUs on which fp32 products were measured beside cuBLAS.
HOPPER = 9
#: Elements of a weight below which a product of inference costs the host more than the device.
SMALL = 1 << 18


def exact_projection(x: Tensor, weight: Tensor, bias: Tensor | None, *, trains: bool) -> Tensor | None:
    """x @ weight^T + bias in fp32; its gradients are one plan.

    Args:
        x: (..., K), contiguous.
        weight: (N, K).
        bias: (N,), or None.
        trains: Whether a gradient will be computed.
    """
    if not (trains or weight.numel() > SMALL) or not _is_exact(x, weight):
        return None
    return linear(x, weight, bias)


def exact_sum(left: Tensor, right: Tensor) -> Tensor | None:
    """left^T @ right in fp32, a sum over all steps.

    Args:
        left: (B * T, M), contiguous.
        right: (B * T, N), contiguous.
    """
    if not _is_exact(left, right) or not recurs(left, right, "sum over steps"):
        return None
    return matmul(left.t(), right)


def is_exact(x: Tensor) -> bool:
    """Whether products of a tensor are in full fp32 on a GPU where the functions of this file apply."""
    if not x.is_cuda or x.dtype != torch.float32 or is_compiling():
        return False
    return torch.get_float32_matmul_precision() == "highest" and _is_hopper(x.device.index or 0)


def _is_exact(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and is_exact(a) and not torch._C._is_any_autocast_enabled()


@lru_cache(maxsize=64)
def _is_hopper(device: int) -> bool:
    return torch.version.cuda is not None and torch.cuda.get_device_capability(device)[0] == HOPPER
