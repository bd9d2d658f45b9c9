"""Tensors in the midst of memory that nobody may write to: layouts, gaps, offsets, guards, and values of many kinds."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

#: Bytes before every tensor, and behind it (`Behind`). All bytes that are no element are 0xFF: NaN in every floating
#: type, -1 else.
GUARD = 4096
POISON = 0xFF
#: Alignment of the first element of a tensor without an offset.
ALIGNMENT = 256
#: Values of operands. `ints` are so small that every sum is exact.
MODES = ("ints", "normal", "special", "denormal", "zeros", "one_signed", "large")


@dataclass
class Behind:
    """Memory behind every tensor.

    Args:
        guard: Bytes; 0: memory ends with the last element, so that a sanitizer sees what is read beyond it.
    """

    guard: int = GUARD


BEHIND = Behind()


@dataclass(frozen=True)
class Place:
    """A tensor and how it lies in memory.

    Args:
        shape: Its shape.
        dtype: Its type.
        order: Its axes, from the one whose elements are furthest apart to the one whose elements follow each other.
        gap: Elements between lines.
        offset: Elements before the first one, counted from an aligned address.
        step: Distance of neighbouring elements.
        repeated: Axes whose elements are all the same memory (`expand`).
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    order: tuple[int, ...] = ()
    gap: int = 0
    offset: int = 0
    step: int = 1
    repeated: tuple[int, ...] = ()

    @staticmethod
    def drawn(
        draw: random.Random, shape: tuple[int, ...], dtype: torch.dtype, *, by_columns: bool = False,
        aligned: bool = False, plain: bool = False,
    ) -> Place:  # fmt: skip
        """A matrix, or a batch of them, that lies by rows or by columns; aligned: as the TMA unit loads it."""
        dims = len(shape)
        order = (*range(dims - 2), dims - 1, dims - 2) if by_columns and dims > 1 else tuple(range(dims))
        vector = 16 // dtype.itemsize
        along = shape[order[-1]] if shape else 1
        if plain:
            return Place(shape, dtype, order)
        if aligned:
            return Place(shape, dtype, order, -along % vector + vector * draw.choice((0, 0, 1, 8)))
        gap = draw.choice((0, 0, -along % vector, draw.randint(1, 9)))
        offset = draw.choice((0, 0, 0, vector, draw.randint(1, vector)))
        step = 2 if draw.random() < 0.03 else 1
        return Place(shape, dtype, order, gap, offset, step)

    def __str__(self) -> str:
        name = str(self.dtype).removeprefix("torch.")
        more = [f"{key}={value}" for key, value in (("gap", self.gap), ("offset", self.offset)) if value]
        more += [f"step={self.step}"] if self.step > 1 else []
        more += [f"repeated={self.repeated}"] if self.repeated else []
        lying = "" if self.order == tuple(sorted(self.order)) else f" order={self.order}"
        return f"{name}{list(self.shape)}{lying}{' ' if more else ''}{' '.join(more)}"


@dataclass
class Guarded:
    """A tensor at its place.

    Args:
        whole: All memory around it, as bytes.
        base: The tensor without repeated axes.
        view: The tensor.
    """

    whole: Tensor
    base: Tensor
    view: Tensor
    before: Tensor | None = field(default=None)

    @staticmethod
    def at(place: Place, device: Any) -> Guarded:
        """Memory for a tensor, all poison."""
        sizes = tuple(1 if axis in place.repeated else size for axis, size in enumerate(place.shape))
        strides = [0] * len(sizes)
        pitch = place.step
        for number, axis in enumerate(reversed(place.order or tuple(range(len(sizes))))):
            strides[axis] = pitch
            pitch = pitch * max(sizes[axis], 1) + (place.gap if number == 0 else 0)
        element = place.dtype.itemsize
        begin = GUARD + place.offset * element
        length = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True)) + 1
        number_bytes = begin + (length if all(sizes) else 0) * element
        if BEHIND.guard:
            number_bytes = -(-(begin + max(pitch, 1) * element + BEHIND.guard) // ALIGNMENT) * ALIGNMENT
        whole = torch.full((number_bytes,), POISON, dtype=torch.uint8, device=device)
        base = whole.view(place.dtype).as_strided(sizes, strides, begin // element)
        return Guarded(whole, base, base.expand(place.shape))

    def fill(self, values: Tensor) -> None:
        """Put values at the tensor's place."""
        self.base.copy_(values)

    def remember(self) -> None:
        """Remember all bytes, for `is_unchanged`."""
        self.before = self.whole.clone()

    def is_unchanged(self) -> bool:
        """Whether every byte is as it was."""
        return self.before is None or torch.equal(self.whole, self.before)

    def poison(self) -> None:
        """Fill the tensor and everything around it."""
        self.whole.fill_(POISON)

    def written_beside(self) -> list[int]:
        """Places of the first bytes that were written beside the tensor, counted from its first one."""
        inside = torch.zeros(self.whole.shape, dtype=torch.bool, device=self.whole.device)
        size = self.base.element_size()
        strides = [stride * size for stride in self.base.stride()]
        for byte in range(size):
            inside.as_strided(self.base.shape, strides, self.base.storage_offset() * size + byte).fill_(True)
        found = ((self.whole != POISON) & ~inside).nonzero()[:12, 0]
        return [int(place) - int(self.base.storage_offset()) * size for place in found]


def values_of(mode: str, place: Place, generator: torch.Generator, device: Any) -> Tensor:
    """Values of a mode for a place without its repeated axes."""
    shape = tuple(1 if axis in place.repeated else size for axis, size in enumerate(place.shape))
    dtype = place.dtype
    if not dtype.is_floating_point:
        return torch.randint(-128, 128, shape, generator=generator, device=device).to(dtype)
    if mode == "ints":
        return torch.randint(-2, 3, shape, generator=generator, device=device).to(dtype)
    if mode == "zeros":
        return torch.zeros(shape, dtype=dtype, device=device)
    found = torch.randn(shape, generator=generator, device=device)
    if dtype == torch.float64:
        found = found.double()
    if mode == "one_signed":
        found = found.abs()
    elif mode == "denormal":
        found = found * (2.0**-18 if dtype == torch.float16 else 2.0**-7 if dtype.itemsize == 1 else 2.0**-124)
    elif mode == "large":
        found = found * (200.0 if dtype == torch.float16 else 50.0 if dtype.itemsize == 1 else 2.0**60)
    found = found.to(dtype)
    if mode == "special" and found.numel():
        flat = found.float().reshape(-1)
        places = torch.randint(0, flat.numel(), (4,), generator=generator, device=device)
        inf = float("nan") if dtype.itemsize == 1 else float("inf")
        marks = torch.tensor([inf, -inf, float("nan"), -0.0], device=device)
        flat[places] = marks
        found = flat.reshape(shape).to(dtype)
    return found
