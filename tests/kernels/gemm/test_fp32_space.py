"""The fp32 GEMM and the one for prepared operands as parameter spaces: products they take, what they compile to."""

from __future__ import annotations

import numpy as np
import pytest

from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.candidates import decide_product
from constrint.kernels.gemm.fp32.cost import CONSTANTS
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.spec import gemm_spec
from constrint.solve import enumerate_space
from tests.support.gemm import gemm
from tests.support.needs import missing_packages, needs_nvrtc

H200 = load_gpu("h200")
FP32, PREPARED = gemm_spec("gemm.fp32"), gemm_spec("gemm.prepared")
THREE = {"three_pass": 1}

REFUSED = [
    (FP32, "h200", gemm(64, 64, 64, "bf16"), "fp32 operands"),
    (FP32, "a100", gemm(64, 64, 64, "tf32", three_pass=1), "Hopper"),
    (FP32, "h200", gemm(64, 64, 64, "tf32", three_pass=1, batch=2), "one product"),
    (FP32, "h200", gemm(64, 63, 61, "tf32", three_pass=1), "neither operand"),
    (FP32, "h200", gemm(64, 64, 64, "tf32", transpose_b=1), "along K and the other one across"),
    (PREPARED, "h200", gemm(64, 64, 64, "tf32", three_pass=1), "one pass"),
    (PREPARED, "h200", gemm(64, 64, 64, "tf32", transpose_b=1), "no operand has to be copied"),
    (PREPARED, "h200", gemm(64, 64, 64, "bf16"), "tf32"),
]


@pytest.mark.parametrize(("spec", "gpu", "workload", "reason"), REFUSED)
def test_what_they_are_not_for_is_refused(spec: object, gpu: str, workload: object, reason: str) -> None:
    assert reason in spec.refusal(load_gpu(gpu), Product.of(workload))  # type: ignore[attr-defined,arg-type]


@pytest.mark.parametrize(
    ("workload", "turned"),
    [
        (gemm(256, 4096, 4096, "tf32", **THREE), {0, 1}),
        (gemm(256, 4096, 4096, "tf32", transpose_a=1, transpose_b=1, **THREE), {0, 1}),
        (gemm(255, 4096, 4095, "tf32", **THREE), {1}),
        (gemm(256, 4096, 4096, "tf32"), {1}),
        (gemm(256, 4096, 4096, "tf32", transpose_a=1, transpose_b=1), {0}),
    ],
)
def test_wgmmas_rows_are_an_operand_that_the_tma_unit_loads(workload: object, turned: set[int]) -> None:
    columns, _ = enumerate_space(FP32.problem(H200, workload)).project(["turned", "tile_m", "tile_n"])  # type: ignore[arg-type]
    assert set(columns["turned"].tolist()) == turned


@pytest.mark.skipif(bool(missing_packages("torch", "triton")), reason="needs the extra [torch]")
@needs_nvrtc
@pytest.mark.parametrize("options", [{}, THREE, {"transpose_b": 1, **THREE}, {"bias": 1, "source": 1, **THREE}])
def test_nothing_spills(options: dict[str, int]) -> None:
    """The configurations with the most columns, for each number of consumers."""
    workload = gemm(4096, 4096, 4096, "tf32", **options)
    names = [p.name for p in FP32.params(H200, workload)]
    columns, _ = enumerate_space(FP32.problem(H200, workload)).project(names)
    wide = np.where(columns["turned"] == 1, columns["tile_m"], columns["tile_n"]) * 100 + columns["split_k"]
    for consumers in (1, 2, 3):
        row = int(np.argmax(np.where(columns["consumers"] == consumers, wide, -1)))
        config = {name: int(column[row]) for name, column in columns.items()}
        assert FP32.compile(H200, workload, config).spill_bytes == 0, config


def test_exact_products_of_large_sides_are_its_own() -> None:
    assert CONSTANTS.measured
    for sizes in ((64, 8192, 8192), (2048, 2048, 512), (4096, 4096, 4096)):
        assert decide_product(H200, Product.of(gemm(*sizes, "tf32", **THREE))).kernel == "gemm.fp32", sizes
