"""Give operands that the TMA unit cannot load rows that it can: one launch copies both. Needs torch and triton."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from constrint.kernels.gemm.product import Copying, copying_of
from constrint.kernels.gemm.units import LINE_BYTES
from constrint.kernels.launch.plan.scratch import Scratch
from constrint.kernels.launch.triton import TritonLaunch

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
