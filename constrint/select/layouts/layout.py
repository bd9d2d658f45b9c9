"""Layouts of a tile in shared memory: XOR masks on the byte offset, or padding; as text, as addresses, as bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from constrint.errors import UsageError
from constrint.hwmodels.bank_accesses import MAX_BYTES, Tile, TileAccess
from constrint.hwmodels.banks import BankConflicts, bank_conflicts
from constrint.hwmodels.schema import GpuModel

#: Log2 of the bytes that NVIDIA's TMA moves as one, and its three modes by the bytes of a row.
TMA_UNIT, TMA_SHIFT = 4, 3
TMA_MODES = {"32B": 1, "64B": 2, "128B": 3}
_SWIZZLE = re.compile(r"swizzle<(\d{1,2}),(\d{1,2}),(\d{1,2})>")
_XOR = re.compile(r"xor\((\d{1,2}->\d{1,2}(?:,\d{1,2}->\d{1,2})*)\)")
_PAD = re.compile(r"pad\((\d{1,7}):\+(\d{1,5})(?:,rows=(\d{1,4}))?\)")
_STRIDE = re.compile(r"stride\((\d{1,7})\)")
FORMS = "none, swizzle<B,M,S>, 32B, 64B, 128B, xor(9->5,10->4), stride(BYTES), pad(1024:+16) or pad(1024:+16,rows=28)"


@dataclass(frozen=True)
class SharedLayout:
    """Where each byte of a tile lies.

    A tile's byte has the offset `row * row_bytes + byte`. Rows may be reordered, bits of the offset flip lower ones
    (XOR), and after every interval some bytes are left free.

    Args:
        tile: The tile.
        xor: Pairs of bits (source, target): the target is flipped where the source is set.
        interval: Bytes after which padding follows; 0 for none.
        pad: Bytes of padding.
        row_bits: Bits of a row's number in which the rows of one interval differ; 0 for rows in their order.
    """

    tile: Tile
    xor: tuple[tuple[int, int], ...] = ()
    interval: int = 0
    pad: int = 0
    row_bits: int = 0

    @property
    def num_bytes(self) -> int:
        """Bytes of shared memory that the tile takes."""
        plain = self.tile.rows * self.tile.row_bytes
        return plain + (self.pad * (-(-plain // self.interval) - 1) if self.interval else 0)

    def addresses(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.int64]:
        """The address of each byte, given by its row and the byte in the row."""
        if self.row_bits:
            every = range((self.tile.rows - 1).bit_length())
            order = sorted(every, key=lambda bit: (not self.row_bits >> bit & 1, bit))
            rows = sum((rows >> bit & 1) << place for place, bit in enumerate(order)) + np.zeros_like(rows)
        offsets = rows * self.tile.row_bytes + columns
        flips = np.zeros_like(offsets)
        for source, target in self.xor:
            flips ^= (offsets >> source & 1) << target
        offsets = offsets ^ flips
        return offsets + offsets // self.interval * self.pad if self.interval else offsets

    def places(self, access: TileAccess) -> NDArray[np.int64]:
        """The addresses of an access, by instruction and lane.

        The lanes of a copy follow each other in shared memory; they fetch what belongs there.
        """
        if access.copies_whole_warps:
            return access.rows * self.tile.row_bytes + access.columns
        return self.addresses(access.rows, access.columns)

    def conflicts(self, gpu: GpuModel, access: TileAccess) -> BankConflicts:
        """The clocks of an access to the tile in this layout."""
        return bank_conflicts(gpu, self.places(access), access.width_bits, access.kind)

    def __str__(self) -> str:
        if self.pad or self.row_bits:
            if self.interval == self.tile.row_bytes and not self.row_bits:
                return f"stride({self.interval + self.pad})"
            return f"pad({self.interval}:+{self.pad}{f',rows={self.row_bits}' if self.row_bits else ''})"
        if not self.xor:
            return "none"
        if (swizzle := as_swizzle(self.xor)) is not None:
            return "swizzle<{},{},{}>".format(*swizzle)
        return f"xor({','.join(f'{source}->{target}' for source, target in self.xor)})"

    @property
    def formula(self) -> str:
        """The address as an expression of C in the offset `o`."""
        terms = [f"((o >> {source} & 1) << {target})" for source, target in self.xor]
        if (swizzle := as_swizzle(self.xor)) is not None:
            count, low, shift = swizzle
            terms = [f"((o >> {shift}) & {((1 << count) - 1) << low})"]
        text = " ^ ".join(["o", *terms])
        return f"o + o / {self.interval} * {self.pad}" if self.pad else text

    def faults(self) -> str:
        """A sentence about a layout that is none, else nothing."""
        plain = self.tile.rows * self.tile.row_bytes
        for source, target in self.xor:
            if source <= target:
                return f"bit {source} flips bit {target}; only a higher bit may flip a lower one."
            if plain % (2 << target):
                return f"it flips bit {target}, and the tile's {plain} bytes are no multiple of {2 << target}."
        if self.pad and not 1 <= self.interval <= MAX_BYTES:
            return f"an interval has 1 to {MAX_BYTES:,} bytes."
        if not self.row_bits:
            return ""
        if self.interval != self.tile.row_bytes << self.row_bits.bit_count():
            return f"an interval of {self.interval} bytes does not hold rows that differ in bits {self.row_bits}."
        if self.row_bits >= self.tile.rows or self.tile.rows & (self.tile.rows - 1):
            return f"its rows are not 2^n, or the bits of {self.row_bits} lie beyond their numbers."
        return ""


def as_swizzle(xor: tuple[tuple[int, int], ...]) -> tuple[int, int, int] | None:
    """B, M and S of CUTLASS where the flips are those of `swizzle<B,M,S>`, else None."""
    pairs = sorted(xor, key=lambda pair: pair[1])
    low, shift = (pairs[0][1], pairs[0][0] - pairs[0][1]) if pairs else (0, 0)
    is_one = bool(pairs) and pairs == [(low + i + shift, low + i) for i in range(len(pairs))]
    return (len(pairs), low, shift) if is_one else None


def swizzle(tile: Tile, count: int, low: int, shift: int) -> SharedLayout:
    """`swizzle<B,M,S>`: bits [M, M + B) are flipped by the bits S above them."""
    return SharedLayout(tile, tuple((low + i + shift, low + i) for i in range(count)))


def parse_layout(text: str, tile: Tile) -> SharedLayout:
    """A layout from its text, of `FORMS`.

    Raises:
        UsageError: When it has another form, or is no layout of the tile.
    """
    layout, plain = None, SharedLayout(tile)
    if text == "none":
        layout = plain
    elif text in TMA_MODES:
        layout = swizzle(tile, TMA_MODES[text], TMA_UNIT, TMA_SHIFT)
    elif hit := _SWIZZLE.fullmatch(text):
        layout = swizzle(tile, *map(int, hit.groups()))
    elif hit := _XOR.fullmatch(text):
        pairs = (pair.split("->") for pair in hit[1].split(","))
        layout = replace(plain, xor=tuple((int(source), int(target)) for source, target in pairs))
    elif hit := _PAD.fullmatch(text):
        layout = replace(plain, interval=int(hit[1]), pad=int(hit[2]), row_bits=int(hit[3] or 0))
    elif hit := _STRIDE.fullmatch(text):
        layout = replace(plain, interval=tile.row_bytes, pad=int(hit[1]) - tile.row_bytes)
        if layout.pad < 0:
            raise UsageError(
                f"layout {text}: a row of the tile {tile} has {tile.row_bytes} bytes, more than this stride."
            )
    if layout is None:
        raise UsageError(f"layout {text!r}: give {FORMS}.")
    if fault := layout.faults():
        raise UsageError(f"layout {text} of the tile {tile}: {fault}")
    return layout
