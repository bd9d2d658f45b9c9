"""out = alpha * x + y in Triton, one pass over memory. Needs triton; nothing imports it until a kernel is compiled."""

# Without `from __future__ import annotations`: with it Triton would not know the types of factors by their names.

from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

if TYPE_CHECKING:
    # Triton takes the name for the type of an argument; without it a factor would be rounded to fp32.
    fp64 = Any


@triton.jit
def axpy_kernel(
    x_ptr, y_ptr, out_ptr,  # (rows, columns); `out` may be x or y itself
    factor_ptr,  # alpha as one element, or None
    columns, x_row, x_step, y_row, y_step, out_row, out_step, alpha: "fp64",
    tile: tl.constexpr,  # elements of a block
    vector: tl.constexpr,  # elements of one load
    is_even: tl.constexpr,  # whether every tile is whole
    is_wide: tl.constexpr,  # whether places need 64 bits
    is_flat: tl.constexpr,  # whether there is one row
    policy: tl.constexpr,  # in the caches: "evict_first", or "" for the usual one
):  # fmt: skip
    """Grid (rows * ceil(columns / tile),)."""
    kind: tl.constexpr = tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32
    across = tl.cdiv(columns, tile)
    block = tl.program_id(0)
    row = tl.zeros((), tl.int64) if is_flat else (block // across).to(tl.int64)
    turn = block if is_flat else block % across
    if vector > 1:
        columns = columns // vector * vector
        x_row, y_row, out_row = x_row // vector * vector, y_row // vector * vector, out_row // vector * vector
    factor = tl.cast(alpha, kind) if factor_ptr is None else tl.load(factor_ptr).to(kind)
    first = turn.to(tl.int64) * tile if is_wide else turn * tile
    places = first + tl.arange(0, tile)
    x_ptrs, y_ptrs = x_ptr + row * x_row + places * x_step, y_ptr + row * y_row + places * y_step
    out_ptrs = out_ptr + row * out_row + places * out_step
    if is_even:
        x, y = tl.load(x_ptrs, eviction_policy=policy).to(kind), tl.load(y_ptrs, eviction_policy=policy).to(kind)
        out = factor * x + y
        tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty), eviction_policy=policy)
    else:
        inside = places < columns
        x = tl.load(x_ptrs, mask=inside, eviction_policy=policy).to(kind)
        y = tl.load(y_ptrs, mask=inside, eviction_policy=policy).to(kind)
        out = factor * x + y
        tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty), mask=inside, eviction_policy=policy)
