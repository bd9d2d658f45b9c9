"""What NVRTC makes of the GEMM for short sides: nothing spills, registers and shared memory are as stated."""

from __future__ import annotations

import random
from typing import Any

import pytest

from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.epilogue.compiled import CompiledEpilogue
from constrint.kernels.gemm.skinny.shape import ALIGNED, SHIFTED, STRIDED, SkinnyLayout, line, vector
from constrint.kernels.gemm.skinny.source import source_of
from constrint.kernels.launch.cuda import compile_cuda
from constrint.select import Workload
from constrint.solve import enumerate_space
from tests.support.fresh import seed_of
from tests.support.gemm import SKINNY, gemm, use_of
from tests.support.needs import missing_packages, needs_nvrtc

pytestmark = [needs_nvrtc, pytest.mark.skipif(bool(missing_packages("torch")), reason="needs the extra [torch]")]

H200 = load_gpu("h200")
DTYPES = ("bf16", "fp16", "tf32", "fp8", "int8")
#: Files, below the package, that decide what is compiled and what is said of it.
SOURCES = ("kernels/gemm/skinny/**/*.py", "kernels/gemm/skinny/source/*", "select/limits.py")
ENDS = (
    CompiledEpilogue("fp32", "fp32", "fp32", "silu"),
    CompiledEpilogue("fp16", "bf16", "", "gelu"),
    CompiledEpilogue("bf16", "", "fp64", "relu"),
    CompiledEpilogue("int32"),
)


def drawn(gpu: GpuModel, workload: Workload, number: int, draw: random.Random) -> list[dict[str, int]]:
    """Some of all configurations."""
    problem = SKINNY.problem(gpu, workload)
    columns, _ = enumerate_space(problem).project(list(problem.variables))
    rows = range(len(columns["tile_m"]))
    return [
        {name: int(column[row]) for name, column in columns.items()}
        for row in draw.sample(rows, min(number, len(rows)))
    ]


def check(gpu: GpuModel, workload: Workload, config: dict[str, int]) -> None:
    problem = SKINNY.problem(gpu, workload)
    use = use_of(SKINNY, gpu, workload, problem)
    compiled = SKINNY.compile(gpu, workload, config)
    assert compiled.spill_bytes == 0, config
    assert compiled.smem_bytes == use.smem_bytes.value(config), config
    assert compiled.registers_per_thread <= use.registers_per_thread.value(config), config


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transpose_b", [0, 1])
def test_nothing_spills_and_what_is_stated_is_true(dtype: str, transpose_b: int) -> None:
    """Of the whole space, for even and odd rows, with either side of C the short one; others when the rules change."""
    draw = random.Random(f"{dtype} {transpose_b} {seed_of(SOURCES)}")
    for m, n, k in draw.sample(((1, 65536, 65536), (16, 65535, 65535), (50001, 3, 4096), (40, 4096, 4096)), 2):
        options: dict[str, Any] = {"transpose_b": transpose_b}
        if draw.random() < 0.3 and dtype != "int8":
            options |= {"bias": 1, "source": 1}
        workload = gemm(m, n, k, dtype, **options)
        for config in drawn(H200, workload, 1, draw):
            check(H200, workload, config)


@pytest.mark.slow
def test_nothing_spills_in_a_sample_of_all_layouts() -> None:
    draw = random.Random(seed_of(SOURCES))
    for _ in range(7):
        short = draw.choice((1, 2, 4, 8, 16, 32, 64))
        long, k = (65536 - draw.choice((0, 0, 1)) for _ in range(2))
        options = {"transpose_a": draw.randint(0, 1), "transpose_b": draw.randint(0, 1)}
        sizes = (short, long) if draw.random() < 0.7 else (long, short)
        workload = gemm(*sizes, k, draw.choice(DTYPES), **options)
        for config in drawn(H200, workload, 1, draw):
            check(H200, workload, config)


@pytest.mark.parametrize(
    ("name", "dtype", "sizes", "transposed", "tile"),
    [
        ("b200", "int8", (8, 4096, 4096), (0, 1), (8, 128, 256, 2, 1, 1, 4)),
        ("b300", "int8", (65536, 4, 65536), (0, 1), (64, 8, 1024, 4, 4, 1, 1)),
        ("rtx-5090", "int8", (16, 65536, 65536), (0, 1), (16, 128, 512, 4, 1, 1, 2)),
        ("h200", "int8", (16, 65536, 65536), (1, 1), (16, 64, 256, 4, 1, 1, 4)),
        ("a100", "int8", (8, 65536, 65536), (1, 1), (8, 64, 512, 4, 1, 0, 2)),
        ("b200", "int8", (8, 65536, 65536), (1, 1), (8, 128, 1024, 8, 2, 1, 1)),
        ("h200", "int8", (65536, 4, 65536), (0, 0), (128, 8, 256, 8, 1, 1, 2)),
        ("b300", "int8", (8, 65535, 65536), (1, 0), (8, 128, 128, 2, 2, 1, 2)),
        ("rtx-5090", "fp16", (64, 65536, 65536), (0, 0), (64, 256, 32, 4, 1, 1, 1)),
    ],
)
def test_what_once_spilled_is_not_valid_or_spills_no_more(
    name: str, dtype: str, sizes: tuple[int, int, int], transposed: tuple[int, int], tile: tuple[int, ...]
) -> None:
    """Kernels that counted fewer registers than NVRTC 13.5 needed."""
    gpu, workload = load_gpu(name), gemm(*sizes, dtype, transpose_a=transposed[0], transpose_b=transposed[1])
    names = ("tile_m", "tile_n", "tile_k", "num_warps", "warps_k", "mma", "resident")
    config = dict(zip(names, tile, strict=True)) | {
        "turned": int(sizes[1] >= sizes[0]), "num_stages": 1, "split_k": 1, "fan_in": 0, "persistent": 0
    }  # fmt: skip
    problem = SKINNY.problem(gpu, workload)
    if all(rule.holds(config) for rule in problem.constraints):
        check(gpu, workload, config)


@pytest.mark.parametrize("name", ["a100", "l40s", "b200", "rtx-5090"])
def test_it_compiles_for_nvidia_gpus_from_ampere_on(name: str) -> None:
    gpu = load_gpu(name)
    able = [dtype for dtype in DTYPES if gpu.matrix_shapes(dtype) and gpu.dot_unit(dtype) is not None]
    for dtype in random.Random(name).sample(able, 2):
        workload = gemm(8, 4096, 4096, dtype, transpose_b=1)
        for config in drawn(gpu, workload, 1, random.Random(dtype)):
            check(gpu, workload, config)


@pytest.mark.parametrize(
    "layout", [SkinnyLayout(), SkinnyLayout(False, SHIFTED, STRIDED), SkinnyLayout(True, ALIGNED, SHIFTED)], ids=str
)
@pytest.mark.parametrize("ends", ENDS, ids=str)
def test_every_end_compiles_without_spilling(ends: CompiledEpilogue, layout: SkinnyLayout) -> None:
    config = {"tile_m": 8, "tile_n": 64, "tile_k": 256, "num_warps": 8, "warps_k": 4, "mma": 1, "resident": 1}
    dtype = "int8" if ends.output == "int32" else "bf16"
    if not layout.is_k_major:
        config |= {"tile_n": 8 * vector(dtype) * 2, "tile_k": 4 * line(dtype)}
    # Of vectors that begin anywhere two are loaded for each, so that two steps of them are too many for registers.
    is_even = ENDS.index(ends) % 2 == 0
    way = {"num_stages": 2, "fan_in": 4} if layout.large == ALIGNED and is_even else {"num_stages": 1, "fan_in": 0}
    source = source_of(config | way | {"turned": 1}, dtype, layout, ends)
    assert compile_cuda(H200, source).spill_bytes == 0


def test_a_tile_that_no_matrix_instruction_has_is_refused_by_the_compiler_too() -> None:
    """The source asserts what the rules say."""
    from constrint.errors import CompileError

    config = {"tile_m": 4, "tile_n": 128, "tile_k": 256, "num_warps": 8, "warps_k": 4, "mma": 1, "resident": 1}
    config |= {"turned": 1, "num_stages": 1, "fan_in": 0}
    with pytest.raises(CompileError, match="eight rows of X"):
        compile_cuda(H200, source_of(config, "bf16", SkinnyLayout(), CompiledEpilogue("bf16")))
