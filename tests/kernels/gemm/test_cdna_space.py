"""The CDNA GEMM as a space: layouts without conflicts, registers divided statically, order of published times."""

from __future__ import annotations

from itertools import product as combinations

import numpy as np
import pytest

from constrint.errors import UnsupportedError
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.cdna.layouts import accesses, element_flips, offset_bases, solved_layout, undoes_itself
from constrint.kernels.gemm.cdna.published import (
    PUBLISHED_SIZES,
    VARIANTS,
    WINDOWS,
    predicted_sizes,
    predicted_variants,
    predicted_windows,
    report,
    variant_fits,
)
from constrint.kernels.gemm.cdna.shape import depths, share_of_registers
from constrint.kernels.gemm.cdna.spec import SIDES
from constrint.kernels.registry import load_spec
from constrint.ranking import rank
from constrint.select import Workload

MI355X, MI300X = load_gpu("mi355x"), load_gpu("mi300x")
SPEC = load_spec("gemm.cdna")


@pytest.fixture(autouse=True)
def _newest_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """The space is that of Triton 3.9, whatever is installed."""
    monkeypatch.setattr("constrint.kernels.gemm.cdna.spec.triton_version", lambda: "3.9.0")


def _tiles() -> list[tuple[str, int, int, str, bool]]:
    tiles = []
    for gpu, dtypes in ((MI355X, ("bf16", "fp8")), (MI300X, ("bf16", "fp8"))):
        for dtype, side in combinations(dtypes, SIDES):
            for tile_k in depths(gpu, dtype):
                tiles.append((gpu.name, side // 2, tile_k, dtype, True))
                if gpu is MI355X and dtype == "bf16":
                    tiles.append((gpu.name, side // 2, tile_k, dtype, False))
    return tiles


@pytest.mark.parametrize(("gpu_name", "side", "tile_k", "dtype", "is_k_major"), _tiles())
def test_every_access_of_every_slice_is_free_of_conflicts(
    gpu_name: str, side: int, tile_k: int, dtype: str, is_k_major: bool
) -> None:
    gpu = load_gpu(gpu_name)
    layout = solved_layout(gpu, side, tile_k, dtype, is_k_major=is_k_major)
    assert undoes_itself(layout)
    assert layout.num_bytes == side * tile_k * layout.tile.element_bytes
    for access in accesses(gpu, layout.tile, is_k_major=is_k_major):
        found = layout.conflicts(gpu, access)
        assert found.is_free, (access.name, str(layout))


def test_an_unsolved_layout_has_conflicts() -> None:
    layout = solved_layout(MI355X, 128, 64, "bf16")
    plain = type(layout)(layout.tile)
    read = accesses(MI355X, layout.tile, is_k_major=True)[1]
    assert plain.conflicts(MI355X, read).degree.max() > 1


def test_gluon_gets_the_layout_that_was_solved() -> None:
    layout = solved_layout(MI355X, 128, 64, "bf16")
    bases, columns = offset_bases(layout), layout.tile.columns
    for place in np.random.default_rng(0).integers(0, layout.tile.rows * columns, 200):
        row = column = 0
        for bit, (r, c) in enumerate(bases):
            if place >> bit & 1:
                row, column = row ^ r, column ^ c
        address = layout.addresses(np.array([row]), np.array([column * layout.tile.element_bytes]))
        assert address[0] == place * layout.tile.element_bytes
    assert len(element_flips(layout)) == len(layout.xor)


def test_registers_are_divided_among_all_waves() -> None:
    assert [int(share_of_registers(MI355X, waves)) for waves in (4, 8, 12, 16)] == [512, 256, 168, 128]
    # As published: with four producers no block of eight consumers has room for 256x256.
    assert {name: variant_fits(MI355X, v) for name, v in VARIANTS.items()} == dict.fromkeys(VARIANTS, True)
    assert not variant_fits(MI355X, VARIANTS["4+8, 128x256"]._replace(tile_m=256))


def test_published_times_are_predicted_in_their_order() -> None:
    sizes = predicted_sizes(MI355X)
    published = [PUBLISHED_SIZES[size] for size in sizes]
    assert sorted(sizes, key=lambda size: sizes[size]) == sorted(sizes, key=lambda size: PUBLISHED_SIZES[size])
    assert all(0.75 < sizes[size] / rate < 1.35 for size, rate in zip(sizes, published, strict=True))


def test_variants_with_producers_are_predicted_behind_those_without() -> None:
    predicted = predicted_variants(MI355X)
    assert predicted["0+8, 256x256"] == max(predicted.values())
    assert predicted["4+8, 128x256"] == min(predicted.values())


def test_windows_and_chunks_of_the_published_table_are_ordered() -> None:
    predicted = predicted_windows(MI355X)
    for size, order in WINDOWS.items():
        best = max(order, key=lambda key: order[key].tflops)
        worst = min(order, key=lambda key: order[key].tflops)
        assert predicted[size][best] > predicted[size][worst], (size, best, worst)


def test_the_report_says_modelled() -> None:
    text = report(MI355X)
    assert "modelled" in text
    assert "1610" in text


def test_solve_ranks_it_beside_the_others() -> None:
    found = rank("gemm", "mi355x", m=4096, n=4096, k=4096, transpose_b=1, top=50)
    assert "cdna" in str(found)


@pytest.mark.parametrize(
    ("gpu_name", "dtype", "options", "words"),
    [
        ("h200", "bf16", {}, "not for sm_90a"),
        ("mi355x", "bf16", {"transpose_a": 1}, "contiguous along K"),
        ("mi355x", "bf16", {"bias": 1}, "adds nothing"),
        ("mi300x", "bf16", {}, "no transposed read"),
        ("mi355x", "int8", {}, "not int8"),
    ],
)
def test_it_refuses_in_words(gpu_name: str, dtype: str, options: dict[str, int], words: str) -> None:
    workload = Workload("gemm", {"m": 4096, "n": 4096, "k": 4096}, dtype, options)
    with pytest.raises(UnsupportedError, match=words):
        SPEC.check_dtype(load_gpu(gpu_name), workload)


def test_it_refuses_an_older_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("constrint.kernels.gemm.cdna.spec.triton_version", lambda: "3.6.0")
    workload = Workload("gemm", {"m": 4096, "n": 4096, "k": 4096}, "bf16", {"transpose_b": 1})
    with pytest.raises(UnsupportedError, match=r"Triton 3\.9"):
        SPEC.check_dtype(MI355X, workload)


def test_k_has_to_be_whole_steps() -> None:
    found = rank("gemm.cdna", "mi355x", m=4096, n=4096, k=4096 + 64, transpose_b=1, top=200)
    assert {(4096 + 64) % candidate.config["tile_k"] for candidate in found.candidates} == {0}
