"""The fit of what gathering operands takes finds constants from which times were made, in a table as it is written."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch"):
    pytest.skip("needs the extra [torch]", allow_module_level=True)

import numpy as np

from benchmarks.gemm.constants_fit import fitted
from benchmarks.gemm.wgmma.odd import TIMES
from benchmarks.gemm.wgmma.odd_cases import SPEC, Places, explored_cases, product_of, timed_cases
from benchmarks.gemm.wgmma.odd_fit import NAMES, STIFFNESS, judge, read_measured
from benchmarks.gemm.wgmma.products import End
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.cuda.unaligned.constants import ASSUMED
from constrint.kernels.gemm.cuda.unaligned.cost import UnalignedModel
from tests.support.gemm import broken_rules

H200 = load_gpu("h200")


def test_constants_are_found_again(tmp_path: Path) -> None:
    truth = replace(ASSUMED, block_clk=800.0, smem_bytes_per_clk=100.0)
    table = tmp_path / "times.csv"
    with table.open("w", encoding="utf-8") as file:
        writer = csv.DictWriter(file, TIMES)
        writer.writeheader()
        for case in explored_cases(H200, 8, 12, 3):
            product = product_of(case.shape, case.dtype, case.layout, End(), Places())
            columns = {name: np.array([value]) for name, value in case.config.items()}
            seconds = float(UnalignedModel(H200, product, columns, truth).cost(product).seconds[0])
            writer.writerow(case.facts | {"us": seconds * 1e6})
            writer.writerow(case.facts | {"us": 1.0, "note": "wrong: 7"})
    measured = read_measured(table)
    assert len(measured) == 8
    assert sum(len(each.seconds) for each in measured) > 60
    seconds_of = [each.seconds for each in measured]
    found = fitted(ASSUMED, NAMES, seconds_of, lambda at: [each.predicted(H200, at) for each in measured], STIFFNESS)
    assert found.block_clk == pytest.approx(800, rel=0.1)
    assert found.smem_bytes_per_clk == pytest.approx(100, rel=0.1)
    assert "8 products" in judge(H200, measured, found)


def test_every_product_that_is_timed_is_one_that_the_kernel_is_for() -> None:
    cases = timed_cases(H200, 3, ("bf16",))
    assert len({(case.shape, case.layout) for case in cases}) == 11
    for case in cases:
        product = product_of(case.shape, case.dtype, case.layout, case.end, case.places)
        assert SPEC.refusal(H200, product) == ""
        # The order of tiles, which takes no part in the ranking, is one of eight rows everywhere.
        assert broken_rules(SPEC.product_problem(H200, product), case.config) <= {"group_in_grid"}
