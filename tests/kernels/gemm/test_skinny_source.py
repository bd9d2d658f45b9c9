"""The source of the GEMM for short sides, run on the CPU: any strides and ends, any blocks that share tiles."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch"):
    pytest.skip("needs the extra [torch]", allow_module_level=True)

from benchmarks.gemm.skinny.fit import config_of
from constrint.kernels.gemm.epilogue.compiled import CompiledEpilogue
from constrint.kernels.gemm.skinny.shape import ALIGNED, RAGGED_LARGE, RAGGED_SMALL, SHIFTED, STRIDED, SkinnyLayout
from constrint.kernels.gemm.skinny.source import DTYPES, source_of
from tests.support.skinny_on_cpu import built, ends_of_case, error_on_cpu, layout_of
from tests.support.skinny_products import PLAIN, Case, Config, End

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
SMALL_ONES = ["mma8 t2 u1 w2x2 r1", "mma16 t1 u2 w1x3 r1", "fma3 t2 u2 w1x2 r1"]
#: The same with two steps under way, with neighbours that add their sums first, and with both.
VARIANTS = ["", " s2", " f2", " s2 f3"]
ENDS = [PLAIN, End(-0.5), End(0.5, True, -2.0, "relu"), End(1.0, True, 0.0, "silu"), End(2.0, False, 1.0, "gelu")]


def made(name: str, case: Case, layout: SkinnyLayout) -> Config:
    return config_of(name, case.dtype, layout, turned=case.shape[1] >= case.shape[0])


def kept(libraries: dict[object, ctypes.CDLL], config: Config, case: Case, end: End, folder: Path) -> ctypes.CDLL:
    """The kernel of a configuration, built once for all cases whose operands lie alike."""
    way = layout_of(case)
    if (key := (way, *config.items())) not in libraries:
        ends = ends_of_case(case, end)
        libraries[key] = built(config, case.dtype, way, ends, folder / str(len(libraries)))
    return libraries[key]


@needs_compiler
@pytest.mark.parametrize(
    ("lies", "dtype"),
    # Every type with two layouts, every layout with half of the types.
    [(lies, dtype) for at, lies in enumerate(LIES) for of, dtype in enumerate(DTYPES) if (at + of) % 2 == 0],
    ids=lambda one: one if isinstance(one, str) else one[0],
)
def test_products_are_right_however_operands_lie(dtype: str, lies: Lies, tmp_path: Path) -> None:
    layout, gaps, offsets, by_columns = lies
    number = list(DTYPES).index(dtype) + LIES.index(lies)
    name = SMALL_ONES[2] if dtype == "tf32" else SMALL_ONES[number % 3]
    end = PLAIN if dtype == "int8" else ENDS[number % len(ENDS)]
    libraries: dict[object, ctypes.CDLL] = {}
    # Half of the products, the other half with the next type.
    for seed, (shape, blocks) in list(enumerate(PRODUCTS))[number % 2 :: 2]:
        case = Case(shape, dtype, layout, gaps, offsets, by_columns)
        way = layout_of(case)
        config = made(name, case, way)
        library = kept(libraries, config, case, end, tmp_path)
        error = error_on_cpu(library, config, case, blocks, seed, end)
        assert error <= 1, (case, way, config)


@needs_compiler
@pytest.mark.parametrize("variant", VARIANTS[1:])
@pytest.mark.parametrize("lies", LIES[:2], ids=lambda lies: lies[0])
def test_steps_under_way_and_neighbours_that_add_first(variant: str, lies: Lies, tmp_path: Path) -> None:
    """Many tiles of a block, and many blocks of a tile, few and many sums of which are added."""
    layout, gaps, offsets, by_columns = lies
    libraries: dict[object, ctypes.CDLL] = {}
    # Either way to multiply with either way to lie.
    name = ("mma8 t1 u1 w2x2 r1", "fma1 t1 u1 w1x2 r1")[(VARIANTS.index(variant) + LIES.index(lies)) % 2]
    for seed, (shape, blocks) in enumerate((((1, 400, 300), 3), ((1, 40, 3000), 40), ((1, 900, 129), 2))):
        case = Case(shape, "bf16", layout, gaps, offsets, by_columns)
        config = made(name + variant, case, layout_of(case))
        library = kept(libraries, config, case, PLAIN, tmp_path)
        assert error_on_cpu(library, config, case, blocks, seed) <= 1, (case, name, blocks)


@needs_compiler
@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "int8"])
def test_every_type_of_result_and_of_what_is_added(dtype: str, turned: int, tmp_path: Path) -> None:
    """int8 with floating results, and every end, with either side of C the short one."""
    shape = (3, 141, 70) if turned else (141, 3, 70)
    # Every end with either side of C the short one, in one of both types.
    own = [end for at, end in enumerate(ENDS) if at == 0 or at % 2 == (turned + (dtype == "bf16")) % 2]
    for number, end in enumerate(own if dtype != "int8" else [PLAIN]):
        case = Case(shape, dtype, "rc", is_out_by_columns=bool(number % 2))
        way = layout_of(case)
        config = made(SMALL_ONES[0], case, way)
        library = built(config, dtype, way, ends_of_case(case, end), tmp_path / str(number))
        for blocks in (1, 7):
            assert error_on_cpu(library, config, case, blocks, number, end) <= 1, (case, end)


@needs_compiler
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("half ? 0x7632 : 0x5410);\n  } else", "half ? 0x5410 : 0x7632);\n  } else"),
        ("if (kIsEnd && !kMayEnd && left <= 0) return zeros();", ""),
        ("min(static_cast<long long>(end - at), 16ll)", "16"),
        ("return left >= (kReaches ? kVector : 0);", "return left >= 0;"),
        ("if (left * s.pitch < kVector) return false;", ""),
        ("if constexpr (kIsEnd) mask(v, bytes);", ""),
        ("+ (begin(block) < first)", ""),
        ("if (is_last) *counter = 0;", ""),
        ("bytes & 8 ? beyond : here", "bytes & 4 ? beyond : here"),
        ("came == static_cast<unsigned>(others)", "came == static_cast<unsigned>(others) - 1u"),
        ("warp_row * kWarpRows);\n  __syncthreads();", "warp_row * kWarpRows);"),
        ("for (int i = 0; i < groups; ++i)", "for (int i = 1; i < groups; ++i)"),
        ("TURNED ? of_x : of_w, TURNED ? of_w : of_x", "TURNED ? of_w : of_x, TURNED ? of_x : of_w"),
    ],
)
def test_the_test_sees_what_is_wrong(right: str, wrong: str, tmp_path: Path) -> None:
    """Each line that is broken makes some product wrong, or reads what is no operand's."""
    assert any(error > 1 for error in errors_with(right, wrong, tmp_path))


def errors_with(right: str, wrong: str, folder: Path) -> Iterator[float]:
    """Errors of products by a source in which `wrong` stands for `right`."""
    # In the last product the rows of A end with a vector.
    for number, (lies, depth) in enumerate(((LIES[0], 263), (LIES[1], 263), (LIES[0], 264))):
        layout, gaps, _, by_columns = lies
        case = Case((3, 141, depth), "bf16", layout, (gaps[0], gaps[1] + 1, gaps[2]), (0, 3, 0), by_columns)
        way, end = layout_of(case), ENDS[2]
        config = made("mma8 t1 u1 w2x2 r1", case, way)
        ends = ends_of_case(case, end)
        text = source_of(config, "bf16", way, ends).text
        assert text.count(right) == 1
        library = built(config, "bf16", way, ends, folder / str(number), text.replace(right, wrong))
        # Three blocks share rows; thirty share few sums.
        for other, blocks in ((case, 7), (case._replace(shape=(1, 20, 4000)), 30)):
            yield error_on_cpu(library, config, other, blocks, number, end)


def test_how_operands_lie_is_seen() -> None:
    def way(shape: tuple[int, int, int], layout: str, gap: int = 0, offset: int = 0) -> SkinnyLayout:
        return layout_of(Case(shape, "fp16", layout, (gap,) * 3, (offset,) * 3))

    assert way((1, 4096, 4096), "rc") == SkinnyLayout(True, ALIGNED, ALIGNED)
    assert way((3, 50257, 768), "rr") == SkinnyLayout(False, SHIFTED, ALIGNED)
    assert way((3, 50257, 768), "rc", offset=1) == SkinnyLayout(True, SHIFTED, SHIFTED, RAGGED_LARGE | RAGGED_SMALL)
    assert way((3, 4096, 100), "rc", gap=4) == SkinnyLayout(True, ALIGNED, ALIGNED, RAGGED_LARGE | RAGGED_SMALL)
    assert way((3, 4096, 100), "rr") == SkinnyLayout(False, ALIGNED, SHIFTED, RAGGED_SMALL)
    assert way((1 << 12, 2, 64), "rr") == SkinnyLayout(True, ALIGNED, STRIDED)
    assert way((1 << 12, 1, 64), "rr") == SkinnyLayout(True, ALIGNED, ALIGNED)
    assert way((8, 4096, 64), "rr", gap=8) == SkinnyLayout(False, ALIGNED, ALIGNED)


def test_every_configuration_has_macros_of_its_own() -> None:
    """What is compiled tells apart what is compiled differently."""
    ends = CompiledEpilogue("bf16")
    names = [
        "mma8 t1 u2 w2x4 r2",
        "mma8 t2 u1 w2x4 r2",
        "mma8 t1 u2 w4x2 r2",
        "fma8 t1 u2 w2x4 r2",
        "mma8 t1 u2 w2x4 r1",
    ]
    sources = [
        source_of(config_of(name, "bf16", SkinnyLayout(), turned=True), "bf16", SkinnyLayout(), ends) for name in names
    ]
    assert len({str(source.macros) for source in sources}) == len(names)
