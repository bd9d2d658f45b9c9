"""The inputs of `occupancy`: what a kernel takes, checked: whole numbers in range, as int64, that broadcast."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from constrint.errors import UsageError

#: Largest value of an input (that of the header's int); keeps every product within 64 bits.
MAX_INPUT = 2**31 - 1


@dataclass(frozen=True)
class KernelUse:
    """What a kernel asks of an SM, by the names of `occupancy`'s arguments, which it explains.

    Columns are int64 scalars or arrays that broadcast; `sgprs_per_wave` is 0 where it is not stated.
    """

    threads_per_block: Any
    registers_per_thread: Any
    smem_bytes_per_block: Any
    accumulator_registers_per_thread: Any
    sgprs_per_wave: Any
    carveout_percent: Any
    barriers_per_block: Any
    wave_size: int | None
    wgp_mode: bool
    smem_opt_in: bool
    lds_granularity_bytes: int | None

    def options(self) -> Iterator[str]:
        """Names of the optional arguments of `occupancy` that are given and that not every vendor's GPUs take."""
        given = {
            "carveout_percent": differs(self.carveout_percent, -1),
            "barriers_per_block": differs(self.barriers_per_block, 0),
            "smem_opt_in=False": not self.smem_opt_in,
            "accumulator_registers_per_thread": differs(self.accumulator_registers_per_thread, 0),
            "sgprs_per_wave": differs(self.sgprs_per_wave, 0),
            "wgp_mode": self.wgp_mode,
            "lds_granularity_bytes": self.lds_granularity_bytes is not None,
        }
        return (name for name, is_given in given.items() if is_given)


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
