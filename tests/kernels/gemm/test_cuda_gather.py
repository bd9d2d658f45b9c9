"""Gathered operands of the CUDA GEMM on the CPU: every byte of a slice lies where the swizzle says, and none is stray.

The maps are those of the launch; the arithmetic of `source/gather.cuh` is compiled by g++, beside a TMA unit that does
what its definition says.
"""

from __future__ import annotations

import ctypes
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]", allow_module_level=True)

import numpy as np
import torch

from constrint.kernels.gemm.cuda.gather import Gathered
from constrint.kernels.gemm.cuda.launch import gathered_maps
from constrint.kernels.gemm.cuda.source import FOLDER

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
SUPPORT = Path(__file__).parents[2] / "support" / "gather_on_cpu"
#: An element of each size that the kernel has.
DTYPES = {1: ("fp8", torch.uint8), 2: ("bf16", torch.int16), 4: ("tf32", torch.int32)}


class Variant(NamedTuple):
    """What the arithmetic is compiled for: a slice of so many rows of the operand, loaded by so many blocks."""

    element: int
    is_k_major: bool
    width: int
    shares: int


VARIANTS = (
    Variant(2, True, 128, 1),
    Variant(2, True, 152, 2),
    Variant(2, False, 200, 1),
    Variant(2, False, 256, 2),
    Variant(2, False, 8, 1),
    Variant(4, True, 72, 2),
    Variant(1, True, 64, 1),
)


def built(variant: Variant, folder: Path) -> ctypes.CDLL:
    names = {"ELEMENT": variant.element, "K_MAJOR": int(variant.is_k_major)}
    names |= {"WIDTH": variant.width, "SHARES": variant.shares}
    macros = [f"-D{name}={value}" for name, value in names.items()]
    made = folder / "gather.so"
    command = ["g++", "-O1", "-w", "-std=c++17", "-shared", "-fPIC", f"-I{FOLDER}", *macros, str(SUPPORT / "main.cc")]
    subprocess.run([*command, "-o", str(made)], check=True)
    return ctypes.CDLL(str(made))


def operand(draw: random.Random, variant: Variant, rows: int, length: int) -> torch.Tensor:
    """Random elements, rows of which start anywhere: (rows, length) as it lies in memory."""
    gap = draw.choice((0, 0, 1, 2, 3, 5, 8))
    # Rows of 8-bit elements are an even number of bytes apart; of a pitch of 1 nobody could tell how the operand lies.
    pitch = max(2, length + gap + (variant.element == 1 and (length + gap) % 2))
    start = draw.randrange(17)
    kind = DTYPES[variant.element][1]
    bound = torch.iinfo(kind).max
    memory = torch.randint(1, bound, (start + rows * pitch + 64,), dtype=kind)
    return memory[start : start + rows * pitch].view(rows, pitch)[:, :length]


def slice_of(side: torch.Tensor, variant: Variant, first: int, k: int, *, in_order: bool) -> np.ndarray[Any, Any]:
    """What a slice of (size, K) has to be: groups of 64 lines of 128 bytes, of which 16 are swizzled by their line."""
    depth = 128 // variant.element
    groups = -(-variant.width // (64 if variant.is_k_major else depth))
    lines = np.zeros((groups * 64, depth), dtype=side.numpy().dtype)
    values = side.numpy() if variant.is_k_major else side.numpy().T
    for line in range(len(lines)):
        row = first + line if variant.is_k_major else k + line % 64
        column = k if variant.is_k_major else first + line // 64 * depth
        if row < len(values) and column < values.shape[1]:
            part = values[row, column : column + depth]
            lines[line, : len(part)] = part
    if not in_order:
        place = np.arange(64)
        lines = lines.reshape(groups, 64, depth)[:, place % 8 * 8 + place // 8].reshape(-1, depth)
    units = lines.view(np.uint8).reshape(len(lines), 8, 16)
    line = np.arange(len(lines))[:, None]
    return units[line, np.arange(8) ^ line % 8].reshape(-1)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_every_byte_lies_where_the_swizzle_says_and_nothing_else_is_read(variant: Variant, tmp_path: Path) -> None:
    library, draw = built(variant, tmp_path), random.Random(str(variant))
    torch.manual_seed(draw.randrange(1000))
    depth = 128 // variant.element
    for _ in range(40):
        # Fewer rows than maps, a few, and several tiles; edges of both kinds within the slice and before it.
        size, k_size = (draw.choice((1, 3, 7, 8, 9, 65, 129, 300)) + draw.choice((0, 0, 1, 2)) for _ in range(2))
        lies = operand(draw, variant, *((size, k_size) if variant.is_k_major else (k_size, size)))
        side = lies if variant.is_k_major else lies.T
        first = draw.randrange(-(-size // variant.width)) * variant.width
        k = draw.randrange(-(-k_size // depth)) * depth
        *maps, starts = gathered_maps(side, DTYPES[variant.element][0])
        table = np.array(
            [(each.data_ptr(), each.shape[0], each.shape[1], each.stride * variant.element) for each in maps], np.int64
        )
        assert all(each.box == (8, depth) and each.data_ptr() % 16 == 0 for each in maps)
        in_order = draw.random() < 0.8
        expected = slice_of(side, variant, first, k, in_order=in_order)
        found = np.zeros_like(expected)
        pitch, begin = lies.stride(0) * variant.element, lies.data_ptr()
        end = begin + (lies.shape[0] - 1) * pitch + lies.shape[1] * variant.element
        pointers = [ctypes.c_void_p(address) for address in (table.ctypes.data, begin, end, found.ctypes.data)]
        sizes = [ctypes.c_int64(number) for number in (pitch, lies.shape[1] * variant.element)]
        numbers = int(starts), first, k, lies.shape[0], int(in_order)
        wrong = library.gather(*pointers, *sizes, *(ctypes.c_int(number & 0xFFFFFFFF) for number in numbers))
        assert wrong == 0
        assert np.array_equal(found, expected), (size, k_size, first, k, in_order)


def test_a_wrong_order_is_seen(tmp_path: Path) -> None:
    """Lines that nobody swapped are where another order has them: the check above would tell."""
    variant = Variant(2, True, 64, 1)
    side = operand(random.Random(1), variant, 64, 65)
    ordered, other = (slice_of(side, variant, 0, 0, in_order=in_order) for in_order in (True, False))
    assert not np.array_equal(ordered, other)


def test_where_lines_of_both_are_rows_of_k_both_are_gathered_and_none_is_put_in_order() -> None:
    both = Gathered.of_needs(False, True, False, False)
    assert both[:2] == (True, True)
    assert both.swaps == (False, False)
    # A along K has its order from memory: B's rows are put in it.
    assert Gathered.of_needs(False, True, True, False)[:2] == (False, True)
    assert Gathered.of_needs(False, True, True, False).swaps == (False, True)
    assert Gathered.of_needs(True, True, True, True).swaps == (True, True)
    assert Gathered.of_needs(False, False, False, False)[:2] == (False, False)
