"""Row keys: several columns of positions as one integer, for grouping and for matching two tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from constrint.errors import LimitReachedError
from constrint.model.work import step
from constrint.solve.memory import available_bytes

Keys = NDArray[np.int64]
#: Columns of positions, one per variable: each row stands for one combination.
Rows = dict[str, NDArray[Any]]
_KEY_LIMIT: Final = 1 << 62
_DENSE: Final = 1 << 16
_MANY: Final = 1 << 18
# Listings up to this size are not compared with the memory that is left.
_FEW_BYTES: Final = 1 << 24


def combine(tables: Sequence[Sequence[NDArray[Any]]], sizes: Sequence[int]) -> tuple[list[Keys], int]:
    """Encodes rows as integers, the same way for every table.

    Args:
        tables: For each table its columns of positions; all tables have the same columns.
        sizes: Number of possible positions of each column.

    Returns:
        One key per row for each table, and an upper bound that every key stays below. Keys order rows
        lexicographically.
    """
    if not sizes:
        raise ValueError("combine needs at least one column")
    keys: list[Keys] = [columns[0].astype(np.int64) for columns in tables]
    bound = sizes[0]
    for i in range(1, len(sizes)):
        if bound * sizes[i] >= _KEY_LIMIT:
            keys, bound = _compressed(keys)
        keys = [k * sizes[i] + columns[i] for k, columns in zip(keys, tables, strict=True)]
        bound *= sizes[i]
    return keys, bound


def _compressed(keys: list[Keys]) -> tuple[list[Keys], int]:
    """Renumbers keys densely, keeping their order."""
    unique, inverse = np.unique(np.concatenate(keys), return_inverse=True)
    ends = np.cumsum([len(k) for k in keys])[:-1]
    return [part.astype(np.int64) for part in np.split(inverse.reshape(-1), ends)], max(1, len(unique))


def group(keys: Keys, bound: int) -> tuple[NDArray[np.intp] | None, Keys, NDArray[np.intp]]:
    """Sorts rows by key.

    Returns:
        The order of rows (None if they are sorted already), the distinct keys, and where each one's rows
        start in that order.
    """
    order: NDArray[np.intp] | None = None
    if len(keys) > 1 and not bool(np.all(keys[1:] >= keys[:-1])):
        order = _rising(keys, bound)
        keys = keys[order]
    first = np.empty(len(keys), dtype=bool)
    first[:1] = True
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    starts = np.flatnonzero(first)
    return order, keys[starts], starts


def _rising(keys: Keys, bound: int) -> NDArray[np.intp]:
    """The order in which keys rise, equal ones as they stand; many long ones are sorted 16 bits at a time."""
    if bound <= _DENSE or len(keys) < _MANY:
        return np.argsort(keys.astype(np.uint16) if bound <= _DENSE else keys, kind="stable")
    order: NDArray[np.intp] | None = None
    for shift in range(0, (bound - 1).bit_length(), 16):
        step()
        digits = (keys >> shift).astype(np.uint16)
        more = np.argsort(digits if order is None else digits[order], kind="stable")
        step()
        order = more if order is None else order[more]
    assert order is not None
    return order


def find(wanted: NDArray[Any], known: Keys, bound: int) -> NDArray[Any]:
    """Position of every wanted key among the sorted distinct `known` ones; -1 where it is missing."""
    if bound <= max(_DENSE, 4 * len(wanted)):
        place = np.full(bound, -1, dtype=np.int16 if len(known) < 1 << 15 else np.int32)
        place[known] = np.arange(len(known), dtype=place.dtype)
        result: NDArray[Any] = place[wanted]
        return result
    if len(known) == 0:
        return np.full(len(wanted), -1, dtype=np.intp)
    at = np.searchsorted(known, wanted)
    at[at == len(known)] = 0
    at[known[at] != wanted] = -1
    return at


def check_listing(rows: int, row_bytes: int = 8) -> None:
    """Refuses to list rows that would take more than half of the memory that is left.

    Args:
        rows: How many.
        row_bytes: Bytes of one row.
    """
    needed = rows * row_bytes
    if needed > _FEW_BYTES and needed > available_bytes():
        raise LimitReachedError(
            f"this would list {rows} rows of {row_bytes} bytes; {available_bytes()} bytes, half of the memory left, "
            "may be taken. Project onto fewer variables, restrict, sample or iterate."
        )


def total_type(bound: int) -> Any:
    """The dtype in which sums of up to `bound` stay exact."""
    return np.int64 if bound < _KEY_LIMIT else object


def ranges(starts: NDArray[np.intp], lengths: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Lists start, start + 1, ... for every pair of start and length.

    Returns:
        For each listed number the pair that it comes from, and the number.
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    check_listing(total)
    # Counting the ends passed so far is much faster than np.repeat.
    passed = np.bincount(ends[:-1], minlength=total)[:total] if total else np.zeros(0, dtype=np.intp)
    source = np.cumsum(passed, dtype=np.intp)
    numbers = np.arange(total) + (starts - (ends - lengths))[source]
    return source, numbers
