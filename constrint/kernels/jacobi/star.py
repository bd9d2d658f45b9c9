"""Stars: constant factors of a point's neighbours along the axes of a grid, and that of the right side. No torch."""

from __future__ import annotations

import math
import numbers
from ast import literal_eval
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from constrint.errors import UnknownNameError, UsageError

#: The largest offset along an axis.
MOST_RADIUS = 4
#: Key of the factor of the right side in a mapping.
RIGHT_SIDE = "f"
#: Offsets of an axis in the order in which bits of a mask and coefficients of `source/kernel.cu` stand for them.
PLACES = (-1, -2, -3, -4, 1, 2, 3, 4)

#: Stars that are found by their texts, at most.
CAPACITY = 4096

Offset = tuple[int, ...]


@dataclass(frozen=True)
class StarStencil:
    """A star stencil: u'(p) = sum over offsets o of factor(o) * u(p + o), plus `right_side` * f(p).

    Args:
        terms: Offsets, one number for each axis of the grid, the slowest one first, and their factors; no offset is
            named twice, and none has two numbers other than zero. They stand in the order in which they are summed.
        right_side: Factor of f.
    """

    terms: tuple[tuple[Offset, float], ...]
    right_side: float

    @property
    def axes(self) -> int:
        """Axes of the grid."""
        return len(self.terms[0][0])

    @cached_property
    def text(self) -> str:
        """The star as a text, by which `of_text` finds it."""
        text = repr((self.terms, self.right_side))
        if len(_OF_TEXT) >= CAPACITY:
            _OF_TEXT.clear()
        _OF_TEXT[text] = self
        return text

    @staticmethod
    def of_text(text: str) -> StarStencil:
        """The star of a text."""
        star = _OF_TEXT.get(text)
        return star if star is not None else StarStencil(*literal_eval(text))

    @cached_property
    def shape_text(self) -> str:
        """The offsets as a text: what a kernel in CUDA C++ is compiled for."""
        return repr([offset for offset, _ in self.terms])

    @property
    def plain(self) -> tuple[int, list[int], list[float], float]:
        """Axes, offsets one after the other, factors, and the factor of the right side: arguments of an operator."""
        offsets = [step for offset, _ in self.terms for step in offset]
        return self.axes, offsets, [factor for _, factor in self.terms], self.right_side

    @staticmethod
    def of_plain(axes: int, offsets: Sequence[int], factors: Sequence[float], right_side: float) -> StarStencil:
        """The star of `plain`."""
        every = (tuple(offsets[axes * i : axes * (i + 1)]) for i in range(len(factors)))
        return StarStencil(tuple(zip(every, factors, strict=True)), right_side)

    @cached_property
    def flat(self) -> StarStencil:
        """The star of two axes, where it has three and no offset along the slowest one, which is a batch then."""
        if self.axes == 2 or self.widths[0]:
            return self
        return StarStencil(tuple((offset[1:], factor) for offset, factor in self.terms), self.right_side)

    @property
    def widths(self) -> tuple[int, ...]:
        """Width of the border along each axis, on both sides: the largest offset along it."""
        return tuple(max(abs(offset[axis]) for offset, _ in self.terms) for axis in range(self.axes))

    @property
    def mirrored(self) -> StarStencil:
        """The star with opposite offsets: the transpose inside the border."""
        return _ordered({tuple(-step for step in offset): factor for offset, factor in self.terms}, self.right_side)

    def along(self, axis: int) -> dict[int, float]:
        """Factors by offset along an axis; the centre is none of them."""
        return {offset[axis]: factor for offset, factor in self.terms if offset[axis]}

    @property
    def centre(self) -> float | None:
        """The factor of the point itself; None where it has none."""
        return next((factor for offset, factor in self.terms if not any(offset)), None)


_OF_TEXT: dict[str, StarStencil] = {}


def _ordered(factors: Mapping[Offset, float], right_side: float) -> StarStencil:
    """The star in the order of `source/kernel.cu`: rows before, the centre, along x, along y, rows behind."""

    def rank(offset: Offset) -> tuple[int, ...]:
        slow, fast = offset[0], offset[-1]
        if slow:
            return (0 if slow < 0 else 4, slow)
        if not any(offset):
            return 1, 0
        return (2, fast) if fast else (3, offset[1])

    terms = tuple((offset, factors[offset]) for offset in sorted(factors, key=rank))
    return StarStencil(terms, right_side)


def poisson(axes: int) -> StarStencil:
    """The sweep of Jacobi's method for -laplace(u) = f on a grid of unit spacing: a mean of neighbours and of f.

    Args:
        axes: 2 (five points) or 3 (seven points).
    """
    factor = 1.0 / (2 * axes)
    offsets = [tuple(sign * (axis == other) for other in range(axes)) for axis in range(axes) for sign in (-1, 1)]
    return _ordered(dict.fromkeys(offsets, factor), factor)


#: Stars by name.
NAMED = {"5-point": poisson(2), "7-point": poisson(3)}


def star_of(stencil: Any, axes: int) -> StarStencil:
    """The star that a caller names.

    Args:
        stencil: None: `poisson` for a grid of `axes` axes; a name of `NAMED`; or factors by offset, with the factor of
            the right side under "f" (1 where it is missing).
        axes: Axes of the tensor.

    Raises:
        UnknownNameError: For an unknown name.
        UsageError: For anything that is no star; says why.
    """
    if stencil is None:
        if axes not in (2, 3):
            raise UsageError(
                f"jacobi: without a stencil u has two or three axes, got {axes}; name it for a batch of grids, "
                'stencil="5-point" or "7-point".'
            )
        return poisson(axes)
    if isinstance(stencil, StarStencil):
        return stencil
    if isinstance(stencil, str):
        if stencil not in NAMED:
            raise UnknownNameError("stencil", stencil, tuple(NAMED))
        return NAMED[stencil]
    if not isinstance(stencil, Mapping):
        raise UsageError(f"jacobi: stencil maps offsets to factors, got {type(stencil).__name__}.")
    factors: dict[Offset, float] = {}
    right_side = 1.0
    for key, value in stencil.items():
        factor = _factor(key, value)
        if key == RIGHT_SIDE:
            right_side = factor
        else:
            factors[_offset(key)] = factor
    if not factors:
        raise UsageError("jacobi: a stencil has at least one offset.")
    if len({len(offset) for offset in factors}) > 1:
        raise UsageError(f"jacobi: offsets of a stencil have one number of axes, got {sorted(map(len, factors))}.")
    return _ordered(factors, right_side)


def _factor(key: object, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
        raise UsageError(f"jacobi: the factor of {key!r} is a finite number, got {value!r}.")
    return float(value)


def _offset(key: object) -> Offset:
    if not isinstance(key, tuple) or len(key) not in (2, 3) or any(type(step) is not int for step in key):
        raise UsageError(f'jacobi: an offset is a tuple of two or three whole numbers, or "f", got {key!r}.')
    if sum(step != 0 for step in key) > 1:
        raise UsageError(f"jacobi: offsets of a star lie along an axis, got {key}.")
    if any(abs(step) > MOST_RADIUS for step in key):
        raise UsageError(f"jacobi: offsets are at most {MOST_RADIUS}, got {key}.")
    return key
