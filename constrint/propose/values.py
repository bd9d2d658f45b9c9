"""The input sets that a candidate is checked on: sizes, strides and values, drawn after the candidate was written."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from constrint.propose.operands import Extent, Operand
from constrint.propose.worker.tensors import torch_dtype

#: Powers of two by which rows of a `large` set are scaled, from the first to below the second; one row has the largest.
LARGE = (0, 10)
#: Around what the values of an `offset` set lie: all of one sign, so that sums grow and low precision shows.
OFFSET = 16.0
TINY = 2.0**-10
#: Most free elements after the rows of a strided operand, and the largest stride of its columns.
MAX_GAP, MAX_COLUMN_STRIDE = 40, 2

#: A candidate is believed after so many checked calls that one which is wrong in one call of `RARE` is caught with the
#: chance `CERTAINTY`: all n are right with the chance (1 - 1 / RARE)^n, so n >= ln(0.01) / ln(0.98), which is 228.
RARE, CERTAINTY = 50, 0.99
ENOUGH_CALLS = math.ceil(math.log(1 - CERTAINTY) / math.log(1 - 1 / RARE))
#: Largest size of the calls that fill this number, in multiples of an extent; one of how many has strides of its own,
#: for which a kernel may be compiled again.
MOST_REPEATED, STRIDED_OF = 6, 7


@dataclass(frozen=True)
class InputSet:
    """One call of a check.

    Args:
        style: The distribution of its values, one of `STYLES`.
        sizes: Its sizes.
        dtype: Type of the operands.
        seed: The seed of its values.
        is_strided: Whether the operands have strides of their own.
        least_column_stride: Least stride of the columns of operands that have strides of their own.
    """

    style: str
    sizes: dict[str, int]
    dtype: str
    seed: int
    is_strided: bool = False
    least_column_stride: int = 1

    @property
    def text(self) -> str:
        """The set in words."""
        sizes = " ".join(f"{name}={size}" for name, size in self.sizes.items())
        return f"{sizes} {self.dtype}, {self.style} values{', strided' if self.is_strided else ''}"


def input_sets(extents: Sequence[Extent], dtypes: tuple[str, ...], seed: int) -> Iterator[InputSet]:
    """The sets of one check: for each type seven, of which no two have the same sizes and values.

    Args:
        extents: The extents from which sizes are drawn.
        dtypes: Types of the operands.
        seed: The seed of all draws; draw it after the candidate was written.
    """
    chance = random.Random(seed)

    def sizes(draw: Callable[[Extent], int]) -> dict[str, int]:
        return {extent.name: draw(extent) for extent in extents}

    def ragged(extent: Extent) -> int:
        return extent.multiple * chance.randint(1, extent.usual // extent.multiple)

    def several(extent: Extent) -> int:
        """A ragged size of two or more: one row reads the same with any stride between rows."""
        most = extent.usual // extent.multiple
        return extent.multiple * chance.randint(min(2, most), most)

    def aligned(extent: Extent) -> int:
        return 1 << chance.randint(3, extent.usual.bit_length() - 1)

    def least(extent: Extent) -> int:
        return extent.multiple

    def long(extent: Extent) -> int:
        return extent.long - extent.multiple * chance.randint(0, 40) if extent.long else min(3, extent.usual)

    for dtype in dtypes:
        for style, draw, is_strided in (
            ("plain", aligned, False),
            ("plain", ragged, False),
            ("plain", several, True),
            ("large", ragged, False),
            ("offset", long, False),
            ("equal", ragged, False),
            ("tiny", least, False),
        ):
            # Columns of all other sets have the stride 1: who takes no other would be right in one strided set of two.
            yield InputSet(style, sizes(draw), dtype, chance.getrandbits(48), is_strided, MAX_COLUMN_STRIDE)


def repeated_sets(extents: Sequence[Extent], dtypes: tuple[str, ...], seed: int, count: int) -> Iterator[InputSet]:
    """Sets of the least cost: one small size, so that little is compiled again, and other values in every one.

    Args:
        extents: The extents from which the size is drawn.
        dtypes: Types of the operands, in turn.
        seed: The seed of all draws; draw it after the candidate was written.
        count: How many sets.
    """
    chance = random.Random(f"repeated {seed}")
    sizes = {extent.name: extent.multiple * chance.randint(2, MOST_REPEATED) for extent in extents}
    sizes = {extent.name: min(sizes[extent.name], extent.usual) for extent in extents}
    for number in range(count):
        style, dtype = chance.choice(("plain", *STYLES)), dtypes[number % len(dtypes)]
        yield InputSet(style, sizes, dtype, chance.getrandbits(48), is_strided=number % STRIDED_OF == 0)


def generator(seed: int, device: str) -> Any:
    """A generator of random numbers on a device."""
    import torch

    return torch.Generator(device).manual_seed(seed)


def draw_operand(operand: Operand, dtype: str, generator: Any, style: str) -> Any:
    """The values of one operand, contiguous."""
    import torch

    shape, device = operand.shape, generator.device
    if operand.below:
        return torch.randint(operand.below, shape, generator=generator, device=device)
    values = torch.randn(shape, generator=generator, device=device)
    if operand.is_parameter:
        values = values / 4 + 1
    elif style in STYLES:
        values = STYLES[style](values, generator)
    return values.clamp_(-operand.bound, operand.bound).to(torch_dtype(dtype))


def strided(values: Any, seed: int, least_column_stride: int = 1) -> Any:
    """The same values with gaps between columns and rows; the gaps hold NaN, or nearly the least integer.

    Args:
        values: The values.
        seed: The seed of the strides.
        least_column_stride: Least stride of the columns; 1 for columns that lie side by side in some draws.
    """
    import torch

    chance = random.Random(seed)
    strides: list[int] = []
    step = chance.randint(least_column_stride, MAX_COLUMN_STRIDE)
    for size in reversed(values.shape):
        strides.append(step)
        step = step * size + chance.randint(1, MAX_GAP)
    strides.reverse()
    extent = 1 + sum((size - 1) * stride for size, stride in zip(values.shape, strides, strict=True))
    return torch.empty(extent, dtype=values.dtype).as_strided(values.shape, strides).copy_(values)


def _large(values: Any, generator: Any) -> Any:
    import torch

    rows = torch.randint(*LARGE, (*values.shape[:-1], 1), generator=generator, device=values.device)
    # Without a row of the largest values, one set in sixty would not overflow the exponents of a careless softmax.
    largest = torch.randint(rows.numel(), (1,), generator=generator, device=values.device)
    rows.view(-1)[largest] = LARGE[1] - 1
    return values * 2.0**rows


def _offset(values: Any, generator: Any) -> Any:
    return values + OFFSET


def _equal(values: Any, generator: Any) -> Any:
    return values[..., :1].expand(values.shape).clone()


def _tiny(values: Any, generator: Any) -> Any:
    return values * TINY


#: Kinds of input values by name; `plain` values are drawn from the normal distribution.
STYLES: dict[str, Callable[[Any, Any], Any]] = {"large": _large, "offset": _offset, "equal": _equal, "tiny": _tiny}
