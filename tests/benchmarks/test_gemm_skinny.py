"""The GEMM kernel for short sides: run on the CPU, compiled without spills, refused where it cannot be."""

from __future__ import annotations

import ctypes
import itertools
import random
import shutil
from pathlib import Path

import pytest

from benchmarks.gemm.skinny.cases import Case, drawn_products, operands
from benchmarks.gemm.skinny.launch import product
from benchmarks.gemm.skinny.model import candidates, modelled_s
from benchmarks.gemm.skinny.variant import ALIGNED, DTYPES, SHIFTED, STRIDED, Layout, Variant, dealt, variants
from constrint.hwmodels import load_gpu
from constrint.kernels.launch.cuda import compile_cuda
from tests.support.needs import needs_nvrtc, needs_torch
from tests.support.skinny_on_cpu import built, error_on_cpu, layout_of

H200 = load_gpu("h200")
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
#: M, N, K whose sizes divide nothing, and the numbers of blocks that share them.
PRODUCTS = [
    ((3, 141, 263), 5),
    ((1, 33, 100), 2),
    ((70, 9, 65), 7),
    ((1, 1, 1031), 3),
    ((17, 130, 1), 4),
    ((2, 2, 2), 1),
]
Lies = tuple[str, tuple[int, int, int], tuple[int, int, int], bool]
#: Layouts of A and B; elements between lines, and before the first; whether C lies by columns.
LIES: list[Lies] = [
    ("rc", (0, 0, 0), (0, 0, 0), False),
    ("rr", (16, 0, 3), (0, 0, 1), False),
    ("cr", (1, 3, 0), (5, 1, 0), True),
    ("cc", (0, 1, 2), (0, 7, 0), False),
]
#: As many warps, tiles and lines as make every index of the kernel differ.
SMALL_ONES = [Variant(2, 1, 2, 2, 8, 1, 1), Variant(1, 2, 1, 3, 16, 1, 1), Variant(2, 2, 1, 2, 3, 0, 1)]


@needs_torch
@needs_compiler
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lies", LIES, ids=lambda lies: lies[0])
def test_products_are_right_however_operands_lie(dtype: str, lies: Lies, tmp_path: Path) -> None:
    layout, gaps, offsets, by_columns = lies
    number = list(DTYPES).index(dtype) + LIES.index(lies)
    variant = SMALL_ONES[2] if dtype == "fp32" else SMALL_ONES[number % 3]
    libraries: dict[Layout, ctypes.CDLL] = {}
    for seed, (shape, blocks) in enumerate(PRODUCTS):
        case = Case(shape, dtype, layout, gaps, offsets, by_columns)
        way = layout_of(case)
        if way not in libraries:
            libraries[way] = built(variant, dtype, way, tmp_path / str(len(libraries)))
        error = error_on_cpu(libraries[way], variant, case, blocks, alpha=-0.5, seed=seed)
        assert error <= 1, (case, way, variant)


@needs_torch
@needs_compiler
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("half ? 0x7632 : 0x5410);\n  } else", "half ? 0x5410 : 0x7632);\n  } else"),
        ("if (kIsEnd && left <= 0) return zeros();", ""),
        ("if constexpr (kIsEnd) mask(v, bytes);", ""),
        ("+ (begin(block) < first)", ""),
        ("if (is_last) *counter = 0;", ""),
        ("bytes & 8 ? beyond : here", "bytes & 4 ? beyond : here"),
        ("came == static_cast<unsigned>(last - first)", "came == static_cast<unsigned>(last - first) - 1u"),
        ("warp_row * kWarpRows);\n    __syncthreads();", "warp_row * kWarpRows);"),
        ("for (int i = 0; i < groups; ++i)", "for (int i = 1; i < groups; ++i)"),
    ],
)
def test_the_test_sees_what_is_wrong(right: str, wrong: str, tmp_path: Path) -> None:
    """Each line that is broken makes some product wrong, or reads what is no operand's."""
    variant = Variant(1, 1, 2, 2, 8, 1, 1)
    errors = []
    for number, lies in enumerate(LIES[:2]):
        layout, gaps, _, by_columns = lies
        case = Case((3, 141, 263), "bf16", layout, (gaps[0], gaps[1] + 1, gaps[2]), (0, 3, 0), by_columns)
        way = layout_of(case)
        text = variant.source("bf16", way).text
        assert text.count(right) == 1
        library = built(variant, "bf16", way, tmp_path / str(number), text.replace(right, wrong))
        # Three blocks share rows; thirty share few sums.
        for other, blocks in ((case, 7), (case._replace(shape=(1, 20, 4000)), 30)):
            errors.append(error_on_cpu(library, variant, other, blocks, alpha=1.0, seed=number))
    assert max(errors) > 1


@needs_torch
def test_how_operands_lie_is_seen() -> None:
    def way(shape: tuple[int, int, int], layout: str, gap: int = 0, offset: int = 0) -> Layout:
        a, b, made = operands(Case(shape, "fp16", layout, (gap,) * 3, (offset,) * 3), "cpu", is_filled=False)
        return product(a, b, made.out, "fp16").layout

    assert way((1, 4096, 4096), "rc") == Layout(True, ALIGNED, ALIGNED)
    assert way((3, 50257, 768), "rr") == Layout(False, SHIFTED, ALIGNED)
    assert way((3, 50257, 768), "rc", offset=1) == Layout(True, SHIFTED, SHIFTED)
    assert way((1 << 12, 2, 64), "rr") == Layout(True, ALIGNED, STRIDED)
    assert way((1 << 12, 1, 64), "rr") == Layout(True, ALIGNED, ALIGNED)
    assert way((8, 4096, 64), "rr", gap=8) == Layout(False, ALIGNED, ALIGNED)


@needs_torch
def test_operands_that_lie_along_neither_axis_are_refused() -> None:
    import torch

    a, b = torch.empty(2, 64), torch.empty(128, 128)[::2, ::2]
    with pytest.raises(ValueError, match="contiguous along neither axis"):
        product(a, b, torch.empty(2, 64), "fp32")


@pytest.mark.parametrize(
    ("variant", "dtype", "fault"),
    [
        (Variant(1, 1, 1, 4, 8, 1, 1), "fp32", "take no fp32"),
        (Variant(1, 1, 1, 4, 12, 1, 1), "bf16", "eight rows"),
        (Variant(1, 1, 8, 8, 8, 1, 1), "bf16", "1,024 threads"),
        (Variant(1, 1, 4, 4, 8, 1, 6), "bf16", "so many threads"),
        (Variant(4, 8, 1, 4, 8, 1, 1), "bf16", "fit registers"),
        (Variant(4, 1, 4, 4, 64, 1, 1), "bf16", "fit shared memory"),
        (Variant(1, 0, 1, 4, 8, 1, 1), "bf16", "at least 1"),
    ],
)
def test_what_cannot_be_is_refused(variant: Variant, dtype: str, fault: str) -> None:
    assert any(fault in text for text in variant.faults(H200, dtype, Layout()))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("is_k_major", "large"), list(itertools.product((True, False), (ALIGNED, SHIFTED))))
def test_the_model_ranks_something_for_every_way_operands_lie(dtype: str, is_k_major: bool, large: int) -> None:
    layout = Layout(is_k_major, large)
    for shape in ((4096, 1, 4096), (50257, 3, 768), (1, 1, 1000000), (1 << 20, 1, 64)):
        found = list(candidates(H200, dtype, layout, shape, 8))
        assert found, shape
        for variant, blocks, seconds in found:
            assert variant.faults(H200, dtype, layout) == []
            assert 1 <= blocks <= dealt(variant, dtype, layout, shape).units
            # No faster than memory.
            assert seconds * H200.memory.dram.bandwidth_bytes_per_s > shape[0] * shape[2] * DTYPES[dtype]


def test_the_model_sees_too_few_bytes_under_way() -> None:
    shape, few, many = (8192, 1, 8192), Variant(1, 1, 1, 2, 8, 1, 1), Variant(1, 4, 1, 8, 8, 1, 2)
    assert modelled_s(H200, few, "bf16", Layout(), shape, 132) > 2 * modelled_s(
        H200, many, "bf16", Layout(), shape, 512
    )


@needs_nvrtc
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", [Layout(True), Layout(False), Layout(False, SHIFTED)], ids=["k", "rows", "shifted"])
def test_first_choices_compile_without_spilling(dtype: str, layout: Layout) -> None:
    small = 4 if dtype == "fp32" else 8
    found = [
        compile_cuda(H200, v.source(dtype, layout))
        for v, _, _ in candidates(H200, dtype, layout, (4096, small, 4096), 3)
    ]
    assert any(binary.spill_bytes == 0 for binary in found)


@needs_nvrtc
def test_drawn_variants_compile_for_as_many_blocks_as_they_say() -> None:
    draw = random.Random(5)
    for dtype in DTYPES:
        layout = Layout(draw.random() < 0.5, draw.choice([ALIGNED, SHIFTED]), draw.choice([ALIGNED, SHIFTED, STRIDED]))
        variant = draw.choice(list(variants(H200, dtype, layout)))
        binary = compile_cuda(H200, variant.source(dtype, layout))
        assert -(-binary.registers // 8) * 8 * variant.threads * variant.resident <= 65536, variant
        smem = binary.smem_bytes + variant.smem_bytes(dtype, layout)
        assert smem <= H200.sm.max_smem_bytes_per_block, variant


@needs_torch
def test_drawn_products_can_be_launched() -> None:
    for one in drawn_products(H200, 20, 3):
        assert layout_of(one.case) == one.layout
        assert one.variant.faults(H200, one.case.dtype, one.layout) == []
