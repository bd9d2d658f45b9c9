"""The GEMM for short sides: the products that are drawn to check it, and the fit of its cost model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.needs import missing_packages

if missing_packages("torch"):
    pytest.skip("needs the extra [torch]", allow_module_level=True)

from benchmarks.gemm.skinny.fit import NAMES, config_of, fit, read_measured
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.skinny.cost import ASSUMED, CONSTANTS
from constrint.kernels.gemm.skinny.shape import SkinnyLayout
from tests.support.skinny_products import columns_of, config_at, drawn_products, launch_of_case, operands

H200 = load_gpu("h200")
RESULTS = Path(__file__).parents[2] / "benchmarks/results/h200/gemm_skinny_bf16.csv"


def test_drawn_products_are_of_the_space_and_can_be_launched() -> None:
    for one in drawn_products(H200, 30, 3):
        launch = launch_of_case(H200, one.case, one.config, operands(one.case, "cpu", is_filled=False), one.blocks)
        assert one.blocks in (0, launch.grid[0])
        assert launch.source.macros["K_MAJOR"] == int(one.layout.is_k_major)


def test_candidates_of_drawn_products_are_read_as_configurations(tmp_path: Path) -> None:
    config = config_of("fma1 t1 u2 w1x8 r1", "bf16", SkinnyLayout(), turned=True)
    told = " ".join(f"{name}={value}" for name, value in config.items())
    table = tmp_path / "drawn.csv"
    table.write_text(
        "# measured\nm,n,k,dtype,layout,kernel,config,place,predicted_us,us,cublas_us,note\n"
        f"1,4096,4096,bf16,rc,gemm.skinny,{told},0,9,9.5,8.0,\n1,4096,4096,bf16,rc,gemm.pointer,tile_m=16,0,9,9,8.0,\n"
    )
    (one,) = read_measured(table)
    assert {name: column.tolist() for name, column in one.columns.items()} == {n: [v] for n, v in config.items()}
    assert one.predicted(H200, CONSTANTS)[0] > 0


def test_the_constants_in_use_are_those_that_a_fit_of_the_results_finds() -> None:
    """What `--write` has written; its digits are three."""
    measured = read_measured(RESULTS)
    assert len({(p.product.m, p.product.n, p.product.k) for p in measured}) == 37
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
