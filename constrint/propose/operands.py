"""Sizes, inputs and outputs of a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Extent:
    """The sizes that one dimension is drawn from.

    Args:
        name: `m`, `n` and the like.
        meaning: The thing that it counts.
        most: The largest size that a candidate has to take.
        usual: The largest size that is drawn for the checks; `long` ones aside.
        long: A size at which sums are long; 0 where the dimension is not summed.
        multiple: Every drawn size is a multiple of this.
        timed: The size at which candidates are timed.
    """

    name: str
    meaning: str
    most: int
    usual: int
    timed: int
    long: int = 0
    multiple: int = 1


@dataclass(frozen=True)
class Operand:
    """An input tensor.

    Args:
        name: The argument's name.
        shape: Its shape.
        dtype: Its type; empty for the one that the call is made with.
        below: Integers are drawn from 0 to less than this; 0 for an operand that is no integer.
        is_parameter: Whether it is a parameter of the function, such as a weight: its values stay near 1 in every set.
        bound: Values are kept within -bound to bound, so that no result leaves the range of fp16.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = ""
    below: int = 0
    is_parameter: bool = False
    bound: float = 2.0**13


@dataclass(frozen=True)
class Expected:
    """The expected output, in fp64.

    Args:
        value: The values.
        magnitude: For each element the magnitude of what is added up to it, at least its own: the error of a sum in
            floating point is in proportion to this, not to the result.
    """

    value: Any
    magnitude: Any
