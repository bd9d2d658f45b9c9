"""Variants of the CUDA GEMM that benchmarks time: each one compiles without spilling, and what cannot be is refused."""

from __future__ import annotations

import random

import pytest

from benchmarks.gemm.wgmma.run import candidates
from benchmarks.gemm.wgmma.variant import DTYPES, Variant, variants, waves
from constrint.hwmodels import load_gpu
from constrint.kernels.launch.cuda import compile_cuda
from tests.support.needs import needs_nvrtc

H200 = load_gpu("h200")
#: Tiles that Triton cannot express.
TILES = (
    Variant(256, 152, 4, cluster_rows=2),
    Variant(128, 168, 5, cluster_columns=2, turned=1),
    Variant(128, 256, 3, 2, 2),
)


@needs_nvrtc
@pytest.mark.parametrize("dtype", DTYPES)
def test_variants_compile_without_spilling(dtype: str) -> None:
    most = max(variants(H200, dtype), key=lambda v: v.sums)
    drawn = random.Random(7).sample(list(variants(H200, dtype)), 1)
    for variant in (most, *drawn):
        binary = compile_cuda(H200, variant.source(dtype, rows_k_major=True, columns_k_major=True))
        assert binary.spill_bytes == 0, variant
        assert binary.smem_bytes + variant.smem_bytes(dtype) <= H200.sm.max_smem_bytes_per_block, variant
        threads = (variant.consumers + 1) * 128
        assert binary.registers * threads * variant.resident <= 65536, variant


@needs_nvrtc
@pytest.mark.parametrize("variant", TILES, ids=str)
@pytest.mark.parametrize(
    "majors", [(True, True), (False, True), (True, False)], ids=["both along K", "columns", "rows"]
)
def test_tiles_in_steps_of_eight_compile(variant: Variant, majors: tuple[bool, bool]) -> None:
    along = {"rows_k_major": majors[0], "columns_k_major": majors[1]}
    if variant.columns == 152 and not majors[1]:
        # 152 columns that do not lie along K take as much shared memory as 192.
        assert variant.faults(H200, "bf16", **along) == ["the ring fits shared memory"]
        return
    assert variant.faults(H200, "bf16", **along) == []
    binary = compile_cuda(H200, variant.source("bf16", **along))
    assert binary.spill_bytes == 0


@pytest.mark.parametrize(
    ("variant", "fault"),
    [
        (Variant(96, 128, 4), "whole blocks of 64 rows"),
        (Variant(128, 132, 4), "columns in steps of 8"),
        (Variant(256, 200, 3), "leave registers"),
        (Variant(128, 128, 4, 3, 1, 1), "two consumers take turns"),
        (Variant(128, 312, 3, 2, 2, cluster_rows=2), "up to 256 rows"),
        (Variant(256, 152, 5), "fits shared memory"),
    ],
)
def test_what_cannot_be_is_refused(variant: Variant, fault: str) -> None:
    assert any(fault in text for text in variant.faults(H200, "bf16"))


def test_columns_that_do_not_lie_along_k_are_dealt_by_slabs() -> None:
    beside = Variant(128, 160, 4, 2, 2)
    assert beside.faults(H200, "bf16") == []
    assert beside.faults(H200, "bf16", columns_k_major=False) == ["a consumer's columns begin with a slab"]


def test_a_last_wave_is_full_where_the_tile_is_a_solution() -> None:
    """5,000 columns are 32.9 tiles of 152: what cuBLAS launches there wastes a fifth of what 256 columns do."""
    assert waves(Variant(256, 152, 4, cluster_rows=2), 132, 5000, 5000)[1] > 0.97
    assert waves(Variant(128, 256, 4), 132, 5000, 5000)[1] < 0.86


@pytest.mark.parametrize("layout", ["rr", "rc", "cr", "cc"])
def test_candidates_can_run(layout: str) -> None:
    sides = (layout[0] == "r", layout[1] == "c")
    for variant, schedule in candidates(H200, (5000, 5000, 5000), "bf16", layout, 12):
        rows, columns = sides[:: -1 if variant.turned else 1]
        assert variant.faults(H200, "bf16", rows_k_major=rows, columns_k_major=columns) == []
        assert schedule.parts >= 1
