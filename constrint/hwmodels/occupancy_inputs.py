"""Checking the inputs of `occupancy`: whole numbers in range, as int64, that broadcast together."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from constrint.errors import UsageError

#: Largest value of an input (that of the header's int); keeps every product within 64 bits.
MAX_INPUT = 2**31 - 1


def whole_numbers(name: str, value: Any, *, least: int = 0, most: int = MAX_INPUT) -> Any:
    """The value as an int64 scalar or array.

    Raises:
        UsageError: When it is not made of whole numbers from `least` to `most`.
    """
    rule = f"{name}: expected whole numbers from {least} to {most}"
    if isinstance(value, int) and not isinstance(value, bool):
        if not least <= value <= most:
            raise UsageError(f"{rule}, got {value}.")
        return np.int64(value)
    if value is None or isinstance(value, str | bytes):
        raise UsageError(f"{rule}, got {value!r}.")
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, OverflowError):
        raise UsageError(f"{rule}, got lists of unequal lengths.") from None
    if array.size == 0 and array.dtype.kind == "f":
        array = array.astype(np.int64)  # an empty list
    if array.dtype.kind not in "iu":
        raise UsageError(f"{rule}, got {_shown(value, array)}.")
    if array.size and not (least <= (low := int(array.min())) and int(array.max()) <= most):
        raise UsageError(f"{rule}, got {low if low < least else int(array.max())}.")
    return array.astype(np.int64)[()]


def whole_number(name: str, value: Any, *, least: int = 0) -> int:
    """One whole number."""
    try:
        number = operator.index(value) if not isinstance(value, bool) else None
    except TypeError:
        number = None
    if number is None or not least <= number <= MAX_INPUT:
        raise UsageError(f"{name}: expected one whole number from {least} to {MAX_INPUT}, got {value!r}.")
    return number


def common_shape(columns: Mapping[str, Any]) -> tuple[int, ...]:
    """The shape that the inputs broadcast to.

    Raises:
        UsageError: When they do not.
    """
    if all(isinstance(value, np.generic) for value in columns.values()):
        return ()
    try:
        return np.broadcast_shapes(*(np.shape(value) for value in columns.values()))
    except ValueError:
        shapes = ", ".join(f"{name} {np.shape(value)}" for name, value in columns.items() if np.shape(value))
        raise UsageError(f"the inputs' shapes do not broadcast together: {shapes}.") from None


def differs(value: Any, default: int) -> bool:
    """Whether any element of an input is not the default."""
    different = value != default
    return bool(different if isinstance(different, np.bool_) else different.any())


def _shown(value: Any, array: Any) -> str:
    if array.ndim == 0:
        return repr(value.item() if hasattr(value, "item") else value)
    return f"an array of {array.dtype}"
