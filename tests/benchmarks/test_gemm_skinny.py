"""The benchmark of the GEMM for short sides: its cases, its names, and the fit of the kernel's cost model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.needs import missing_packages

if missing_packages("torch"):
    pytest.skip("needs the extra [torch]", allow_module_level=True)

from benchmarks.gemm.skinny.cases import drawn_products, launch_of_case, operands
from benchmarks.gemm.skinny.configs import SPEC, candidates, columns_of, config_at, config_of, named
from benchmarks.gemm.skinny.fit import NAMES, fit, read_measured
from benchmarks.gemm.skinny.run import SHAPES, Tried, cases_to_time
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.skinny.cost import ASSUMED, CONSTANTS
from constrint.kernels.gemm.skinny.shape import SkinnyLayout
from tests.support.gemm import broken_rules, product

H200 = load_gpu("h200")
RESULTS = Path(__file__).parents[2] / "benchmarks/results/h200/gemm_skinny_bf16.csv"


@pytest.mark.parametrize("name", ["mma8 t2 u8 w1x8 r2", "fma3 t1 u2 w4x2 r1", "mma64 t1 u1 w1x8 r1 s2 f8"])
@pytest.mark.parametrize("turned", [True, False])
def test_a_name_is_read_back_as_the_configuration(name: str, turned: bool) -> None:
    for layout in (SkinnyLayout(), SkinnyLayout(False)):
        assert named(config_of(name, "bf16", layout, turned=turned), "bf16", layout) == name


def test_drawn_products_are_of_the_space_and_can_be_launched() -> None:
    for one in drawn_products(H200, 30, 3):
        launch = launch_of_case(H200, one.case, one.config, operands(one.case, "cpu", is_filled=False), one.blocks)
        assert one.blocks in (0, launch.grid[0])
        assert launch.source.macros["K_MAJOR"] == int(one.layout.is_k_major)


def test_candidates_are_of_the_space_and_differ() -> None:
    for shape, transpose_b in (((1, 4096, 4096), 1), ((3, 50257, 768), 0), ((1 << 20, 1, 64), 0)):
        asked = product(*shape, transpose_b=transpose_b)
        found = [config for config, _ in candidates(H200, asked, SkinnyLayout(bool(transpose_b)), 8)]
        assert len({str(config) for config in found}) == len(found) == 8
        for config in found:
            assert not broken_rules(SPEC.product_problem(H200, asked), config)


def test_what_is_timed_is_tried_in_every_way_that_is_asked_for() -> None:
    tried = Tried(2, {"num_stages": [1, 2], "fan_in": [0, 8], "split_k": [64]})
    (timed,) = cases_to_time(H200, [(4, 64, 65536)], ["bf16"], ["rc"], tried)
    ways = {(config["num_stages"], config["fan_in"], config["split_k"]) for config, _ in timed.found}
    assert ways == {(stages, fan_in, 64) for stages in (1, 2) for fan_in in (0, 8)}


def test_the_constants_in_use_are_those_that_a_fit_of_the_results_finds() -> None:
    """What `--write` has written; its digits are three."""
    measured = read_measured(RESULTS)
    assert {(p.product.m, p.product.n, p.product.k) for p in measured} == set(SHAPES)
    found = fit(H200, measured, NAMES, ASSUMED)
    for name in NAMES:
        assert getattr(CONSTANTS, name) == pytest.approx(getattr(found, name), rel=0.02), name


def test_constants_are_found_again_from_times_of_the_model() -> None:
    truth = replace(ASSUMED, launch_s=7e-6, dram_share=0.75, sm_bytes_per_clk=25.0)
    measured = []
    for one in read_measured(RESULTS)[::5]:
        every = columns_of(H200, one.product)
        rows = range(0, len(every["tile_m"]), max(1, len(every["tile_m"]) // 40))
        configs = [config_at(every, row) for row in rows]
        if configs:
            columns = {name: np.array([config[name] for config in configs]) for name in configs[0]}
            whole = replace(one, columns=columns, blocks=None)
            measured.append(replace(whole, seconds=whole.predicted(H200, truth)))
    found = fit(H200, measured, ("launch_s", "dram_share", "sm_bytes_per_clk"), ASSUMED)
    for name in ("launch_s", "dram_share", "sm_bytes_per_clk"):
        assert getattr(found, name) == pytest.approx(getattr(truth, name), rel=0.05)
