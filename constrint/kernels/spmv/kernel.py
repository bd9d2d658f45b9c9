"""Products of a sparse matrix and a few vectors in Triton: rows by groups of threads, and sliced ELL. Needs triton."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit
def spmv_vector(
    crow,
    column_of,
    values,
    x,
    y,
    source,
    alpha,
    beta,
    rows,
    x_row,
    x_column,
    y_row,
    y_column,
    source_row,
    source_column,
    ROWS: tl.constexpr,
    LANES: tl.constexpr,
    COLUMNS: tl.constexpr,
    WIDTH: tl.constexpr,
    HAS_SOURCE: tl.constexpr,
    SUM: tl.constexpr,
):
    """y[row, :] = alpha * sum of values * x[column, :] + beta * source[row, :] for ROWS rows of a block.

    LANES entries of each row are loaded at a time. COLUMNS is the power of two that holds the WIDTH columns of x.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    is_row = row < rows
    begin = tl.load(crow + row, mask=is_row, other=0)
    end = tl.load(crow + row + 1, mask=is_row, other=0)
    longest = tl.max(end - begin, axis=0)
    lane = tl.arange(0, LANES)
    if COLUMNS == 1:
        total = tl.zeros([ROWS, LANES], dtype=SUM)
        for step in range(0, longest, LANES):
            at = begin[:, None] + step + lane[None, :]
            is_entry = at < end[:, None]
            column = tl.load(column_of + at, mask=is_entry, other=0)
            value = tl.load(values + at, mask=is_entry, other=0.0)
            factor = tl.load(x + column.to(tl.int64) * x_row, mask=is_entry, other=0.0)
            total += value.to(SUM) * factor.to(SUM)
        result = tl.sum(total, axis=1) * alpha.to(SUM)
        if HAS_SOURCE:
            result += beta.to(SUM) * tl.load(source + row.to(tl.int64) * source_row, mask=is_row, other=0.0).to(SUM)
        tl.store(y + row.to(tl.int64) * y_row, result.to(y.dtype.element_ty), mask=is_row)
    else:
        k = tl.arange(0, COLUMNS)
        is_column = k < WIDTH
        wide = tl.zeros([ROWS, LANES, COLUMNS], dtype=SUM)
        for step in range(0, longest, LANES):
            at = begin[:, None] + step + lane[None, :]
            is_entry = at < end[:, None]
            column = tl.load(column_of + at, mask=is_entry, other=0)
            value = tl.load(values + at, mask=is_entry, other=0.0)
            place = column.to(tl.int64)[:, :, None] * x_row + k[None, None, :] * x_column
            factor = tl.load(x + place, mask=is_entry[:, :, None] & is_column[None, None, :], other=0.0)
            wide += value.to(SUM)[:, :, None] * factor.to(SUM)
        results = tl.sum(wide, axis=1) * alpha.to(SUM)
        is_stored = is_row[:, None] & is_column[None, :]
        if HAS_SOURCE:
            from_source = source + row.to(tl.int64)[:, None] * source_row + k[None, :] * source_column
            results += beta.to(SUM) * tl.load(from_source, mask=is_stored, other=0.0).to(SUM)
        to = y + row.to(tl.int64)[:, None] * y_row + k[None, :] * y_column
        tl.store(to, results.to(y.dtype.element_ty), mask=is_stored)


@triton.jit
def spmv_ell(
    slices,
    column_of,
    values,
    row_of,
    x,
    y,
    source,
    alpha,
    beta,
    rows,
    HEIGHT: tl.constexpr,
    UNROLL: tl.constexpr,
    IS_SORTED: tl.constexpr,
    HAS_SOURCE: tl.constexpr,
    SUM: tl.constexpr,
):
    """The rows of one slice of a sliced ELL matrix; an entry without a value has column -1.

    The entries of a slice lie by columns: the first ones of its HEIGHT rows, then the second ones, and so on.
    """
    lane = tl.arange(0, HEIGHT)
    first = tl.load(slices + tl.program_id(0))
    end = tl.load(slices + tl.program_id(0) + 1)
    total = tl.zeros([UNROLL, HEIGHT], dtype=SUM)
    step = tl.arange(0, UNROLL)
    for start in range(first, end, UNROLL):
        at = (start + step).to(tl.int64)[:, None] * HEIGHT + lane[None, :]
        is_stored = (start + step < end)[:, None] & (lane < HEIGHT)[None, :]
        column = tl.load(column_of + at, mask=is_stored, other=-1)
        value = tl.load(values + at, mask=is_stored, other=0.0)
        factor = tl.load(x + column, mask=column >= 0, other=0.0)
        total += value.to(SUM) * factor.to(SUM)
    result = tl.sum(total, axis=0) * alpha.to(SUM)
    place = tl.program_id(0) * HEIGHT + lane
    is_row = place < rows
    row = tl.load(row_of + place, mask=is_row, other=0) if IS_SORTED else place
    if HAS_SOURCE:
        result += beta.to(SUM) * tl.load(source + row, mask=is_row, other=0.0).to(SUM)
    tl.store(y + row, result.to(y.dtype.element_ty), mask=is_row)


#: Types of sums by the names of dtypes.
SUMS: dict[str, Any] = {"fp64": tl.float64, "fp32": tl.float32, "bf16": tl.float32, "fp16": tl.float32}
