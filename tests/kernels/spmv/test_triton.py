"""The Triton kernels of `spmv`: right in Triton's interpreter, and compiled for GPUs of both vendors."""

from __future__ import annotations

from typing import Any

import pytest

from constrint.choose import Request, decide
from constrint.hwmodels import load_gpu
from constrint.kernels.registry import load_spec
from constrint.select.workload import Workload
from tests.support.interpreter import interpreted
from tests.support.needs import missing_packages

VECTOR = {"rows_per_block": 8, "threads_per_row": 4, "num_warps": 1}
ELL = {"slice_height": 8, "window": 0, "unroll": 2, "num_warps": 1}
CASES: dict[str, dict[str, Any]] = {
    "vector": {"kernel": "vector", "config": VECTOR, "source": True},
    "vector of 3 columns": {"kernel": "vector", "config": VECTOR, "source": True, "width": 3},
    "vector fp64": {"kernel": "vector", "config": {**VECTOR, "threads_per_row": 1}, "dtype": "float64"},
    "near": {"kernel": "near", "config": VECTOR, "source": True},
    "near fp64": {"kernel": "near", "config": {**VECTOR, "threads_per_row": 1}, "dtype": "float64"},
    "ell": {"kernel": "ell", "config": ELL},
    "ell sorted": {"kernel": "ell", "config": {**ELL, "window": 16}, "source": True, "written": "not"},
    "ell of values that changed": {"kernel": "ell", "config": ELL, "written": "swapped", "dtype": "float64"},
}


def test_products_in_the_interpreter() -> None:
    errors = interpreted("tests.support.interpreted_spmv:largest_error", CASES)
    assert {name: error for name, error in errors.items() if not error < 2e-5} == {}


@pytest.mark.parametrize("gpu", ["h200", "mi300x"])
def test_the_best_configurations_compile(gpu: str) -> None:
    if missing_packages("torch", "triton"):
        pytest.skip("needs torch and triton")
    model = load_gpu(gpu)
    sizes = {"rows": 1 << 20, "cols": 1 << 20, "nnz": 5 << 20}
    workload = Workload("spmv", sizes, "fp64", {"longest": 5, "spread": 2, "scattered": 8, "span": 2049})
    for kernel in ("vector", "near", "ell"):
        decision = decide(Request("spmv", workload, model, kernel=kernel))
        compiled = load_spec(f"spmv.{kernel}").compile(model, workload, decision.config)
        assert compiled.target == model.arch.target.rstrip("a")
        assert compiled.spill_bytes == 0
