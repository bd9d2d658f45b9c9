"""The space of the GEMM for short sides: what cannot be is refused by name, other products say why, who chooses it."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from constrint.choose import Decision, decide
from constrint.errors import InfeasibleError, UnsupportedError
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm import candidates
from constrint.kernels.gemm.candidates import decide_product, request_of
from constrint.kernels.gemm.product import MatrixLayout, Product
from constrint.kernels.gemm.skinny import spec as skinny_spec
from constrint.kernels.gemm.skinny.cost import ASSUMED
from constrint.kernels.gemm.skinny.shape import SkinnyTile, StepSchedule, asked_blocks
from constrint.select import rank
from constrint.select.cost import CostColumns
from constrint.solve import enumerate_space
from tests.support.gemm import CUDA, SKINNY, broken_rules, gemm, product

H200 = load_gpu("h200")
#: The long operand along K or along its rows, with either side of C the short one.
LAYOUTS: tuple[dict[str, int], ...] = ({"transpose_b": 1}, {}, {"transpose_a": 1, "transpose_b": 1}, {"transpose_a": 1})


def config_of(tile_m: int, tile_n: int, tile_k: int, num_warps: int, warps_k: int, **others: int) -> dict[str, int]:
    usual = {"mma": 1, "resident": 1, "turned": 1, "split_k": 1, "num_stages": 1, "fan_in": 0, "persistent": 0}
    sizes = {"tile_m": tile_m, "tile_n": tile_n, "tile_k": tile_k, "num_warps": num_warps, "warps_k": warps_k}
    return sizes | usual | others


@pytest.mark.parametrize(
    ("config", "rule"),
    [
        (config_of(8, 32, 2048, 8, 8), ""),
        (config_of(4, 32, 2048, 8, 8, mma=0), ""),
        (config_of(8, 32, 256, 8, 8, split_k=4), ""),
        (config_of(4, 32, 2048, 8, 8), "instruction_columns"),
        (config_of(2, 32, 2048, 8, 8, mma=0), "short_side"),
        (config_of(64, 32, 256, 8, 8, mma=0), "short_tile_by_numbers"),
        (config_of(128, 32, 256, 8, 8), "short_tile"),
        (config_of(8, 32, 2048, 8, 16), "warps_dealt"),
        (config_of(8, 16, 256, 8, 4), "tile_n_whole"),
        (config_of(8, 256, 256, 8, 8), "most_tiles"),
        (config_of(8, 32, 128, 8, 8), "lines_whole"),
        (config_of(8, 256, 512, 16, 1), "most_lines"),
        (config_of(8, 64, 2048, 8, 8, resident=8), "registers_under_way"),
        (config_of(8, 32, 512, 32, 16, resident=3), "resident_threads"),
        (config_of(32, 128, 512, 16, 16, resident=2), "resident_smem"),
        (config_of(8, 32, 2048, 8, 8, turned=0), "turned_to_the_long_side"),
        (config_of(16, 32, 256, 8, 8), "short_in_size"),
        (config_of(8, 32, 2048, 8, 8, split_k=3), "split_k_in_k"),
        (config_of(8, 32, 2048, 8, 8, split_k=2, persistent=1), "persistent_whole_k"),
    ],
)
def test_what_cannot_be_is_refused_by_the_rule_that_says_so(config: dict[str, int], rule: str) -> None:
    broken = broken_rules(SKINNY.problem(H200, gemm(4, 4096, 4096, transpose_b=1)), config)
    assert rule in broken if rule else not broken


def test_either_side_may_be_the_short_one() -> None:
    for m, n in ((3, 5000), (5000, 3)):
        best = rank(SKINNY, H200, gemm(m, n, 4096, transpose_a=0, transpose_b=1), top=1).candidates[0].config
        assert best["turned"] == int(n > m)
        assert best["tile_m" if n > m else "tile_n"] in (4, 8)


def test_longer_sides_are_refused_by_a_rule_with_a_reason() -> None:
    rank(SKINNY, H200, gemm(64, 4096, 4096), top=1)
    with pytest.raises(InfeasibleError, match="one tile has the whole short side, of up to 64"):
        rank(SKINNY, H200, gemm(65, 4096, 4096), top=1)


def test_fp32_is_multiplied_as_it_is() -> None:
    """No matrix instruction rounds it, so that three passes and one are the same product."""
    for options in ({}, {"three_pass": 1}):
        best = rank(SKINNY, H200, gemm(4, 4096, 4096, "tf32", **options), top=1).candidates[0].config
        assert best["mma"] == 0


@pytest.mark.parametrize(
    ("name", "asked", "reason"),
    [
        ("t4", product(4, 4096, 4096, "fp16"), "sm_80 and later"),
        ("mi300x", product(4, 4096, 4096), "sm_80 and later"),
        ("h200", product(4, 2**30 + 8, 16), "sizes of up to 1073741824"),
        (
            "h200",
            replace(product(4, 4096, 4096), b=MatrixLayout(is_scattered=True)),
            "follow each other along an axis",
        ),
    ],
)
def test_products_that_it_does_not_compute_are_refused_with_a_reason(name: str, asked: Product, reason: str) -> None:
    assert reason in SKINNY.refusal(load_gpu(name), asked)
    if asked == Product.of(asked.workload):
        with pytest.raises(UnsupportedError, match=reason):
            SKINNY.check_dtype(load_gpu(name), asked.workload)


@pytest.mark.parametrize("name", ["a100", "l40s", "h200", "b200"])
def test_nvidia_gpus_from_ampere_on_have_a_space(name: str) -> None:
    gpu = load_gpu(name)
    for dtype in ("bf16", "fp16", "tf32", "int8"):
        best = rank(SKINNY, gpu, gemm(1, 4096, 4096, dtype), top=1).candidates[0]
        # No faster than memory.
        moved = SKINNY.moved_bytes(gemm(1, 4096, 4096, dtype))
        assert best.cost.seconds > moved / gpu.memory.dram.bandwidth_bytes_per_s


def test_strides_that_are_odd_copy_nothing_and_are_no_reason_to_refuse() -> None:
    odd, even = product(3, 50257, 767), product(3, 50256, 768)
    assert odd.b.is_copied
    assert not even.b.is_copied
    assert not SKINNY.refusal(H200, odd)
    # Two vectors are loaded for each, which leaves registers for fewer.
    of_odd, of_even = (len(enumerate_space(SKINNY.problem(H200, p.workload))) for p in (odd, even))
    assert 0 < of_odd < of_even


@pytest.mark.parametrize(
    ("blocks", "contributors", "is_whole"),
    [(4, 1, True), (8, 3, False), (12, 4, False), (1000, 10, False), (2, 1, True)],
)
def test_blocks_share_steps_evenly(blocks: int, contributors: int, is_whole: bool) -> None:
    """Four tiles of ten steps: a block has whole tiles, or a tile several blocks."""
    config = config_of(8, 32, 256, 8, 8)
    shape = SkinnyTile.of(config, "bf16", a_is_k_major=True, b_is_k_major=True)
    dealt = StepSchedule.of(shape, config, (128, 3, 2560), blocks)
    assert (dealt.tiles, dealt.steps, dealt.blocks) == (4, 10, min(blocks, 40))
    assert (dealt.contributors, dealt.is_whole) == (contributors, is_whole)
    by_groups = StepSchedule.of(shape, config | {"fan_in": 2}, (128, 3, 2560), blocks)
    assert (dealt.counters, by_groups.counters) == (1, 1 + -(-contributors // 2))


def test_as_many_blocks_are_asked_for_as_are_resident_or_as_share_tiles() -> None:
    assert asked_blocks(config_of(8, 32, 256, 8, 8, split_k=3), 100, 132) == 300
    assert asked_blocks(config_of(8, 32, 256, 8, 8, resident=2, persistent=1), 100, 132) == 264


def test_more_under_way_is_faster_until_memory_is_busy() -> None:
    def seconds(**others: int) -> float:
        config = config_of(8, 32, 256, 8, 8) | others
        columns = {name: np.array([value]) for name, value in config.items()}
        asked = product(1, 16384, 16384, transpose_b=1)
        priced: CostColumns = SKINNY.price(H200, asked, columns, np.ones(1))
        return float(priced.seconds[0])

    assert seconds(num_warps=2, warps_k=2, tile_k=64, resident=1) > 1.5 * seconds(tile_k=1024, resident=2)


@pytest.fixture
def _assumed(monkeypatch: pytest.MonkeyPatch, _tables_of_its_own: None) -> None:
    """As if no time were measured."""
    monkeypatch.setattr(skinny_spec, "CONSTANTS", ASSUMED)


@pytest.fixture
def _calibrated(monkeypatch: pytest.MonkeyPatch, _choices_anew: None) -> None:
    """As if the constants were measured."""
    monkeypatch.setattr(type(SKINNY), "uncalibrated", lambda self: "")


def choose(asked: Product) -> Decision:
    return decide_product(H200, replace(asked, no_library="our kernels are tested"))


@pytest.mark.usefixtures("_assumed")
def test_times_that_are_assumed_choose_nothing_and_are_said_to_be() -> None:
    asked = product(3, 50257, 768)
    assert SKINNY.uncalibrated()
    assert choose(asked).kernel != SKINNY.full_name
    ranking = rank(SKINNY, H200, asked.workload, top=1)
    assert any("gemm.skinny" in line and "assumptions" in line for line in ranking.assumptions)


@pytest.mark.usefixtures("_calibrated")
def test_rows_that_others_copy_are_left_to_it_and_long_sides_to_others() -> None:
    assert choose(product(3, 50257, 768)).kernel == SKINNY.full_name
    # Sides that were not measured, and those that it does not compute.
    assert choose(product(17, 50257, 768)).kernel != SKINNY.full_name
    assert choose(product(4096, 4096, 4096)).kernel != SKINNY.full_name


@pytest.mark.usefixtures("whole_tables", "_calibrated")
# Every layout, and either end with another one.
@pytest.mark.parametrize(
    "options",
    [{}, {"transpose_a": 1, "transpose_b": 1}, {"transpose_b": 1, "bias": 1}, {"transpose_a": 1, "source": 1}],
    ids=str,
)
def test_tables_hold_valid_configurations_near_the_best_of_the_whole_space(
    options: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # By the model alone: what it was off by is another matter.
    monkeypatch.setattr(candidates, "corrector_of", lambda *_: None)
    # No table of another kernel is made that takes as long.
    monkeypatch.setattr(type(CUDA), "uncalibrated", lambda self: "not asked here")
    draw = random.Random(11)
    shares = []
    for _ in range(6):
        short, long, k = draw.randint(1, 64), int(2 ** draw.uniform(4, 17)), int(2 ** draw.uniform(5, 15))
        m, n = (short, long) if draw.random() < 0.7 else (long, short)
        asked = product(m, n, k, **options)
        if not enumerate_space(SKINNY.problem(H200, asked.workload)):
            # Sums of 64 rows leave no registers for vectors that begin anywhere.
            assert short > 32
            assert min(asked.a.width_bytes, asked.b.width_bytes) < 16
            continue
        choice = decide(request_of(H200, asked, kernel="skinny"))
        assert not broken_rules(SKINNY.problem(H200, asked.workload), choice.config), asked
        best = rank(SKINNY, H200, asked.workload, top=1).candidates[0].cost.seconds * SKINNY.optimism
        shares.append(best / choice.seconds)
    assert float(np.exp(np.mean(np.log(shares)))) >= 0.97
    assert min(shares) >= 0.85
