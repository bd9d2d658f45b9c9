"""Layouts of tensors in memory, for the kernels' rules; random operands and exact results for checking.

Triton sees by itself only whether a size or stride is a multiple of 16. Smaller multiples are passed to it as hints.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

import torch
from torch import Tensor

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.product import MatrixLayout, Product
from constrint.kernels.gemm.reference import DTYPE_NAMES, default_out_dtype, gemm_reference
from constrint.kernels.gemm.tma.pack import copies_needed
from constrint.kernels.gemm.units import ALIGNED_ELEMENTS, LINE_BYTES, WIDEST_BYTES


@dataclass(frozen=True)
class Rows:
    """Rows in memory of a (batch, M, K), (batch, K, N) or (batch, M, N) tensor.

    Args:
        width_bytes: Bytes of the widest aligned access to all rows: 16, 8, 4, 2 or 1.
        step_bytes: The largest number, up to a line of the L2 (128), that divides the address of every row.
        is_transposed: Whether rows run along the second axis.
        hint: A number of elements that every row's start and length are multiples of, for the compiler; 1 where it
            needs no hint. Example: bf16 rows of 1,004 elements allow accesses of 8 bytes, so the hint is 4.
    """

    width_bytes: int
    step_bytes: int
    is_transposed: bool
    hint: int


def rows_of(t: Tensor) -> Rows:
    """The layout of the rows of a tensor of three axes."""
    element = t.element_size()
    is_transposed = t.stride(2) != 1
    along, across = (1, 2) if is_transposed else (2, 1)
    if t.stride(along) != 1 or t.data_ptr() % WIDEST_BYTES:
        return Rows(element, element, is_transposed, 1)
    # The length counts, too: loads wrap around at the last row and column, and are masked at the end of K.
    strides = [t.stride(axis) for axis in (0, across) if t.shape[axis] > 1]
    figures = [t.shape[along], *strides]
    width = gcd(WIDEST_BYTES, *(figure * element for figure in figures))
    step = gcd(LINE_BYTES, t.data_ptr(), *(stride * element for stride in strides))
    is_seen = all(figure % ALIGNED_ELEMENTS == 0 for figure in (*figures, t.stride(across)))
    return Rows(width, step, is_transposed, 1 if is_seen else width // element)


def with_aligned_stride(t: Tensor) -> Tensor:
    """The same tensor; where it is a single row or column, the stride across, which nothing uses, is an aligned one."""
    for across, along in ((1, 2), (2, 1)):
        if t.shape[across] == 1 and t.stride(along) == 1 and t.stride(across) % ALIGNED_ELEMENTS:
            strides = list(t.stride())
            strides[across] = -(-t.shape[along] // ALIGNED_ELEMENTS) * ALIGNED_ELEMENTS
            return t.as_strided(t.shape, strides)
    return t


def product_of(
    a: Tensor,  # (batch, M, K)
    b: Tensor,  # (batch, K, N)
    bias: Tensor | None,
    source: Tensor | None,
    out_dtype: torch.dtype,
    *,
    is_three_pass: bool,
    has_nvrtc: bool = True,
    no_library: str = "",
    no_library_end: str = "",
    activation: str = "",
) -> Product:
    """The description of a product for rules and cost models; further arguments are those of `Product`."""
    copies = copies_needed(a, b)
    return Product(
        m=a.shape[1],
        n=b.shape[2],
        k=a.shape[2],
        dtype=DTYPE_NAMES[a.dtype],
        a=_operand(a, 2, copies.get("a")),
        b=_operand(b, 1, copies.get("b")),
        output_bytes=out_dtype.itemsize,
        batch=a.shape[0],
        has_bias=bias is not None,
        has_source=source is not None,
        is_three_pass=is_three_pass,
        has_nvrtc=has_nvrtc,
        no_library=no_library,
        no_library_end=no_library_end,
        activation=activation,
    )


def _operand(t: Tensor, depth: int, is_copied_k_major: bool | None) -> MatrixLayout:
    rows = rows_of(t)
    return MatrixLayout(
        width_bytes=rows.width_bytes,
        step_bytes=rows.step_bytes,
        is_k_major=t.stride(depth) == 1,
        is_copied=is_copied_k_major is not None,
        is_copied_k_major=bool(is_copied_k_major),
        is_expanded=0 in t.stride(),
        is_scattered=1 not in t.stride()[-2:],
    )


def random_operands(gpu: GpuModel, product: Product, *, device: Any, seed: int) -> dict[str, Tensor]:
    """A, B, and bias and source where the product has them; without data on `meta`."""
    generator = None if torch.device(device).type == "meta" else torch.Generator(device).manual_seed(seed)
    p, dtype = product, _torch_dtype(gpu, product.dtype)

    def matrix(rows: int, columns: int, is_transposed: bool) -> Tensor:
        sizes = (p.batch, columns, rows) if is_transposed else (p.batch, rows, columns)
        values = torch.randn(sizes, device=device, generator=generator)
        values = (values * 8).clamp(-100, 100).to(dtype) if dtype == torch.int8 else values.to(dtype)
        return values.transpose(1, 2) if is_transposed else values

    operands = {"a": matrix(p.m, p.k, not p.a.is_k_major), "b": matrix(p.k, p.n, p.b.is_k_major)}
    added = default_out_dtype(dtype) if dtype != torch.int8 else torch.float32
    if p.has_bias:
        operands["bias"] = torch.randn(p.n, device=device, generator=generator).to(added)
    if p.has_source:
        operands["source"] = torch.randn((p.batch, p.m, p.n), device=device, generator=generator).to(added)
    return operands


#: Factors that leave the bits of floating-point operands as they are: small products, and sums of one sign that stay
#: within fp16 up to a depth of 2^17.
TINY, ONE_SIGNED = 2.0**-8, 2.0**-3


def unusual_operands(operands: dict[str, Tensor], number: int) -> dict[str, Tensor]:
    """Operands that show faults which random operands hide, derived from random ones.

    Args:
        operands: Random operands.
        number: 0 for the operands themselves; 1: rows are further apart in memory; 2: sums of one sign, which do not
            cancel; 3: hardly any element is not 0; 4: small elements. 5 is 0 again.
    """
    kind = number % 5
    if kind == 1:
        return {name: _further_apart(t) if t.dim() == 3 else t for name, t in operands.items()}
    if kind == 2:
        return {name: _scaled(_magnitude(t), ONE_SIGNED) for name, t in operands.items()}
    if kind == 3:
        return {name: _scattered(t) for name, t in operands.items()}
    return {name: _scaled(t, TINY) for name, t in operands.items()} if kind == 4 else operands


def _further_apart(t: Tensor) -> Tensor:
    """The same with a gap of whole lines of the L2 behind every row, filled with values that must not be read."""
    is_transposed = t.stride(2) != 1
    rows = t.transpose(1, 2) if is_transposed else t
    gap = LINE_BYTES // t.element_size()
    wide = torch.full((*rows.shape[:2], rows.shape[2] + gap), 99.0, device=t.device).to(t.dtype)
    wide[:, :, : rows.shape[2]] = rows
    inside = wide[:, :, : rows.shape[2]]
    return inside.transpose(1, 2) if is_transposed else inside


def _magnitude(t: Tensor) -> Tensor:
    return t.float().abs().to(t.dtype)


def _scaled(t: Tensor, factor: float) -> Tensor:
    return (t.float() * factor).to(t.dtype) if t.is_floating_point() else t


def _scattered(t: Tensor) -> Tensor:
    """Every 37th element of a tensor, which no tile is a multiple of, and zeros."""
    index = torch.arange(t.numel(), device=t.device).reshape(t.shape)
    return torch.where(index % 37 == 0, t.float(), 0.0).to(t.dtype)


def empty_result(product: Product, a: Tensor) -> Tensor:
    """C (batch, M, N) in the product's type."""
    dtype = default_out_dtype(a.dtype)
    if product.output_bytes > dtype.itemsize:
        dtype = torch.float32
    return torch.empty((product.batch, product.m, product.n), dtype=dtype, device=a.device)


def exact_result(operands: dict[str, Tensor]) -> Tensor:
    """C in fp64, integers exactly."""
    wide = {name: t.double() for name, t in operands.items()}
    beta = 1.0 if "source" in operands else 0.0
    return gemm_reference(
        wide["a"], wide["b"], wide.get("bias"), wide.get("source"), beta=beta, out_dtype=torch.float64
    )


def _torch_dtype(gpu: GpuModel, dtype: str) -> torch.dtype:
    if dtype == "fp8":
        # CDNA3 has its own encoding of 8-bit floats.
        return torch.float8_e4m3fnuz if gpu.arch.target == "gfx942" else torch.float8_e4m3fn
    return next(torch_dtype for torch_dtype, name in DTYPE_NAMES.items() if name == dtype)
