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
    first_of,
    rows_per_block: tl.constexpr,
    threads_per_row: tl.constexpr,
    padded_width: tl.constexpr,
    width: tl.constexpr,
    has_source: tl.constexpr,
    is_near: tl.constexpr,
    sum_type: tl.constexpr,
):
    """y[row, :] = alpha * sum of values * x[column, :] + beta * source[row, :] for rows_per_block rows of a block.

    threads_per_row entries of each row are loaded at a time. padded_width is the power of two that holds the columns of
    x, of which there are width. is_near: column_of has 16 bits, which count from the row's first column in first_of.
    """
    row = tl.program_id(0) * rows_per_block + tl.arange(0, rows_per_block)
    is_row = row < rows
    begin = tl.load(crow + row, mask=is_row, other=0)
    end = tl.load(crow + row + 1, mask=is_row, other=0)
    longest = tl.max(end - begin, axis=0)
    lane = tl.arange(0, threads_per_row)
    if padded_width == 1:
        total = tl.zeros([rows_per_block, threads_per_row], dtype=sum_type)
        if is_near:
            first = tl.load(first_of + row, mask=is_row, other=0)
        for step in range(0, longest, threads_per_row):
            at = begin[:, None] + step + lane[None, :]
            is_entry = at < end[:, None]
            column = tl.load(column_of + at, mask=is_entry, other=0)
            value = tl.load(values + at, mask=is_entry, other=0.0)
            if is_near:
                column = first[:, None] + (column.to(tl.int32) & 0xFFFF)
            factor = tl.load(x + column.to(tl.int64) * x_row, mask=is_entry, other=0.0)
            total += value.to(sum_type) * factor.to(sum_type)
        result = tl.sum(total, axis=1) * alpha
        if has_source:
            result += beta * tl.load(source + row.to(tl.int64) * source_row, mask=is_row, other=0.0).to(sum_type)
        tl.store(y + row.to(tl.int64) * y_row, result.to(y.dtype.element_ty), mask=is_row)
    else:
        k = tl.arange(0, padded_width)
        is_column = k < width
        wide = tl.zeros([rows_per_block, threads_per_row, padded_width], dtype=sum_type)
        for step in range(0, longest, threads_per_row):
            at = begin[:, None] + step + lane[None, :]
            is_entry = at < end[:, None]
            column = tl.load(column_of + at, mask=is_entry, other=0)
            value = tl.load(values + at, mask=is_entry, other=0.0)
            place = column.to(tl.int64)[:, :, None] * x_row + k[None, None, :] * x_column
            factor = tl.load(x + place, mask=is_entry[:, :, None] & is_column[None, None, :], other=0.0)
            wide += value.to(sum_type)[:, :, None] * factor.to(sum_type)
        results = tl.sum(wide, axis=1) * alpha
        is_stored = is_row[:, None] & is_column[None, :]
        if has_source:
            from_source = source + row.to(tl.int64)[:, None] * source_row + k[None, :] * source_column
            results += beta * tl.load(from_source, mask=is_stored, other=0.0).to(sum_type)
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
    slice_height: tl.constexpr,
    unroll: tl.constexpr,
    is_sorted: tl.constexpr,
    has_source: tl.constexpr,
    sum_type: tl.constexpr,
):
    """The rows of one slice of a sliced ELL matrix; an entry without a value has column -1.

    The entries of a slice lie by columns: the first ones of its slice_height rows, then the second ones, and so on.
    """
    lane = tl.arange(0, slice_height)
    first = tl.load(slices + tl.program_id(0))
    end = tl.load(slices + tl.program_id(0) + 1)
    total = tl.zeros([unroll, slice_height], dtype=sum_type)
    step = tl.arange(0, unroll)
    for start in range(first, end, unroll):
        at = (start + step).to(tl.int64)[:, None] * slice_height + lane[None, :]
        is_stored = (start + step < end)[:, None] & (lane < slice_height)[None, :]
        column = tl.load(column_of + at, mask=is_stored, other=-1)
        value = tl.load(values + at, mask=is_stored, other=0.0)
        factor = tl.load(x + column, mask=column >= 0, other=0.0)
        total += value.to(sum_type) * factor.to(sum_type)
    result = tl.sum(total, axis=0) * alpha
    place = tl.program_id(0) * slice_height + lane
    is_row = place < rows
    row = tl.load(row_of + place, mask=is_row, other=0) if is_sorted else place
    if has_source:
        result += beta * tl.load(source + row, mask=is_row, other=0.0).to(sum_type)
    tl.store(y + row, result.to(y.dtype.element_ty), mask=is_row)


@triton.jit
def spmv_hash(values, hashes, num_values, programs: tl.constexpr, block: tl.constexpr, word_type: tl.constexpr):
    """A hash of the bits of values and their places: each program's share of a sum modulo 2^64."""
    total = tl.zeros([block], dtype=tl.int64)
    lane = tl.arange(0, block)
    for first in range(tl.program_id(0) * block, num_values, programs * block):
        at = first + lane
        is_word = at < num_values
        value = tl.load(values + at, mask=is_word, other=0.0)
        word = value.to(word_type, bitcast=True).to(tl.uint32)
        # Two hashes of 32 bits, each one to one in the word for a place.
        place = at.to(tl.uint32) * 0x9E3779B1
        one = (word ^ place) * 0x85EBCA6B
        one = (one ^ (one >> 15)) * 0x297A2D39
        other = (word + place) * 0x27D4EB2F
        other = (other ^ (other >> 13)) * 0x165667B1
        mixed = one.to(tl.int64) + (other.to(tl.int64) << 31)
        total += tl.where(is_word, mixed, 0)
    tl.store(hashes + tl.program_id(0), tl.sum(total, axis=0))


@triton.jit
def spmv_stale(
    hashes,
    expected,
    flag,
    crow,
    column_of,
    values,
    x,
    y,
    source,
    alpha,
    beta,
    rows,
    programs: tl.constexpr,
    rows_per_block: tl.constexpr,
    threads_per_row: tl.constexpr,
    has_source: tl.constexpr,
    sum_type: tl.constexpr,
):
    """Compute all rows from the matrix itself, where the hash of its values is not the one that was expected."""
    share = tl.arange(0, programs)
    seen = tl.sum(tl.load(hashes + share), axis=0)
    before = tl.sum(tl.load(expected + share), axis=0)
    if seen != before:
        tl.store(flag, 1)
        lane = tl.arange(0, threads_per_row)
        for first in range(tl.program_id(0) * rows_per_block, rows, programs * rows_per_block):
            row = first + tl.arange(0, rows_per_block)
            is_row = row < rows
            begin = tl.load(crow + row, mask=is_row, other=0)
            end = tl.load(crow + row + 1, mask=is_row, other=0)
            total = tl.zeros([rows_per_block, threads_per_row], dtype=sum_type)
            for step in range(0, tl.max(end - begin, axis=0), threads_per_row):
                at = begin[:, None] + step + lane[None, :]
                is_entry = at < end[:, None]
                column = tl.load(column_of + at, mask=is_entry, other=0)
                value = tl.load(values + at, mask=is_entry, other=0.0)
                factor = tl.load(x + column, mask=is_entry, other=0.0)
                total += value.to(sum_type) * factor.to(sum_type)
            result = tl.sum(total, axis=1) * alpha
            if has_source:
                result += beta * tl.load(source + row, mask=is_row, other=0.0).to(sum_type)
            tl.store(y + row, result.to(y.dtype.element_ty), mask=is_row)


#: Types of sums by the names of dtypes.
SUMS: dict[str, Any] = {"fp64": tl.float64, "fp32": tl.float32, "bf16": tl.float32, "fp16": tl.float32}
#: Integers of as many bits as a word of values, by its bytes.
WORDS: dict[int, Any] = {4: tl.int32, 2: tl.int16}
