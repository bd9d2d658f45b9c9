"""Layouts of tensors in memory, for the kernels' rules; random operands and exact results for checking.

Triton sees by itself only whether a size or stride is a multiple of 16. Smaller multiples are passed to it as hints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any

import torch
from torch import Tensor

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.product import Copying, MatrixLayout, Product, copying_of
from constrint.kernels.gemm.reference import DTYPE_NAMES, default_out_dtype, gemm_reference
from constrint.kernels.gemm.units import ALIGNED_ELEMENTS, LINE_BYTES, WIDEST_BYTES
from constrint.kernels.launch.plan.scratch import Scratch
from constrint.kernels.launch.triton import TritonLaunch


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
        is_shared=t.shape[0] > 1 and t.stride(0) == 0 and _is_loaded_alone(t, depth),
    )


def _is_loaded_alone(t: Tensor, depth: int) -> bool:
    """Whether the TMA unit loads one matrix of a batch as it lies."""
    return 0 not in t.stride()[1:] and not _copying(t[:1], depth).is_copied


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


#: Rows and columns that one block copies; square, since one side may have to be transposed.
TILE_ROWS = 64
TILE_COLUMNS = 64


@dataclass(frozen=True)
class _Copy:
    """One operand with its faster axis last, and the aligned tensor that it goes to."""

    source: Tensor
    target: Tensor
    num_blocks: int


def can_describe(t: Tensor) -> bool:
    """Whether the TMA unit can load from it: one unit stride, all others and the start multiples of 16 bytes."""
    if 1 not in t.stride()[-2:] or t.data_ptr() % 16:
        return False
    outer = [t.stride(-2) if t.stride(-1) == 1 else t.stride(-1)]
    outer += [stride for stride, size in zip(t.stride()[:-2], t.shape[:-2], strict=True) if size > 1]
    return all(stride > 0 and stride * t.element_size() % 16 == 0 for stride in outer)


def copies_needed(a: Tensor, b: Tensor) -> dict[str, bool]:
    """The operands that are copied before the TMA unit loads them: name -> whether the copy is contiguous along K.

    A is (batch, M, K), B is (batch, K, N). A copy that is not made contiguous along K keeps its order of axes.
    """
    return {
        name: along_k
        for name, t, depth in (("a", a, 2), ("b", b, 1))
        for is_copied, along_k in [_copying(t, depth)]
        if is_copied
    }


def _copying(t: Tensor, depth: int) -> Copying:
    is_k_major = t.stride(depth) == 1
    length = t.shape[depth if is_k_major else 3 - depth]
    # wgmma and its successors transpose 16-bit operands alone.
    needs_k_major, is_loadable = t.element_size() != 2, can_describe(t)
    row_bytes = length * t.element_size()
    return copying_of(row_bytes, is_k_major=is_k_major, needs_k_major=needs_k_major, is_loadable=is_loadable)


def pack(
    a: Tensor, b: Tensor, copies: Mapping[str, bool], scratch: Scratch, *, overlaps: bool = False
) -> tuple[Tensor, Tensor, list[TritonLaunch]]:
    """Copy the operands named in `copies`, so that their rows start at whole lines of the L2.

    Args:
        a: (batch, M, K), any strides.
        b: (batch, K, N), any strides.
        copies: The operands to copy, "a" or "b"; True for a copy along K, False for one that keeps the order of axes.
        scratch: Allocates the copies.
        overlaps: Let the next kernel start before the copies are complete; that kernel waits for them itself.

    Returns:
        A and B, or their copies, and the launch that fills the copies; no launch without copies.
    """
    from constrint.kernels.gemm.tma.kernel import pack_kernel

    # Contiguous along K means rows of A as they are, and those of B transposed.
    is_turned = {"a": _is_transposed(a), "b": _is_transposed(b)}
    is_turned |= {name: name == "b" for name, along_k in copies.items() if along_k}
    prepared = {name: _prepare(t, is_turned[name], scratch) for name, t in (("a", a), ("b", b)) if name in copies}
    first = prepared.get("a", prepared.get("b"))
    second = prepared.get("b", first)
    if first is None or second is None:
        return a, b, []
    num_blocks = first.num_blocks + (second.num_blocks if second is not first else 0)
    arguments: dict[str, Any] = {"blocks_a": first.num_blocks, "overlaps": overlaps}
    arguments |= {"tile_rows": TILE_ROWS, "tile_columns": TILE_COLUMNS}
    for name, copy in (("a", first), ("b", second)):
        _, rows, columns = copy.source.shape
        strides = (*copy.source.stride(), *copy.target.stride()[:2])
        names = (f"stride_{name}b", f"stride_{name}r", f"stride_{name}c", f"stride_p{name}b", f"stride_p{name}r")
        arguments |= {f"{name}_ptr": copy.source, f"packed_{name}_ptr": copy.target}
        arguments |= {f"rows_{name}": rows, f"columns_{name}": columns, **dict(zip(names, strides, strict=True))}
    packed = {name: copy.target.transpose(1, 2) if is_turned[name] else copy.target for name, copy in prepared.items()}
    launch = TritonLaunch(pack_kernel, (num_blocks, a.shape[0]), arguments, {})
    return packed.get("a", a), packed.get("b", b), [launch]


def _is_transposed(t: Tensor) -> bool:
    return abs(t.stride(1)) < abs(t.stride(2))


def _prepare(t: Tensor, is_turned: bool, scratch: Scratch) -> _Copy:
    source = t.transpose(1, 2) if is_turned else t
    batch, rows, columns = source.shape
    # Rows start at whole lines of the L2, so that the TMA unit loads no half lines.
    per_line = LINE_BYTES // t.element_size()
    padded = -(-columns // per_line) * per_line
    target = scratch.empty((batch, rows, padded), t.dtype, t.device)[:, :, :columns]
    return _Copy(source, target, -(-rows // TILE_ROWS) * -(-columns // TILE_COLUMNS))
