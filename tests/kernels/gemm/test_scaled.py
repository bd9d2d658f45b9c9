"""`scaled_matmul`: its reference, what it refuses, and what its kernel compiles to. GPUs: `test_scaled_gpu.py`."""

from __future__ import annotations

import pytest

from tests.support.needs import missing_packages, needs_nvrtc

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]", allow_module_level=True)

import numpy as np
import torch

from constrint.errors import UnsupportedError, UsageError
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.scaled import scaled_matmul
from constrint.kernels.registry import load_spec
from constrint.select import Workload
from constrint.solve import enumerate_space

SPEC, H200 = load_spec("scaled_gemm.cuda"), load_gpu("h200")


def workload(m: int, n: int, k: int, blocks: int) -> Workload:
    return Workload("scaled_gemm", {"m": m, "n": n, "k": k}, "fp8", {"blocks": 1} if blocks else {})


@pytest.mark.parametrize("blocks", [0, 1])
def test_every_number_has_the_scale_of_its_row_and_block(blocks: int) -> None:
    m, n, k = 5, 150, 300
    inputs = SPEC.inputs(H200, workload(m, n, k, blocks), device="cpu", seed=1)
    a, b, scale_a, scale_b = (inputs[name].double() for name in ("a", "b", "scale_a", "scale_b"))
    expected = torch.zeros(m, n, dtype=torch.float64)
    for i in range(m):
        for j in range(n):
            for begin in range(0, k, 128):
                at = slice(begin, begin + 128)
                block = begin // 128 if blocks else 0
                scale = scale_a[i, block] * scale_b[block, j // 128 if blocks else j]
                expected[i, j] += scale * (a[i, at] @ b[at, j])
    out = scaled_matmul(**inputs, out_dtype=torch.float32)
    torch.testing.assert_close(out.double(), expected, rtol=1e-4, atol=1e-3)
    bias = torch.randn(n)
    torch.testing.assert_close(scaled_matmul(**inputs, bias=bias, out_dtype=torch.float32), out + bias)


def test_scales_of_other_shapes_are_refused() -> None:
    inputs = SPEC.inputs(H200, workload(5, 150, 300, 1), device="cpu", seed=1)
    for change, told in (
        ({"scale_a": torch.ones(5, 2)}, r"\(5, 1\).*\(5, 3\)"),
        ({"scale_b": torch.ones(1, 149)}, r"\(1, 150\)"),
        ({"scale_a": torch.ones(5, 3).half()}, "fp32 scales"),
        ({"a": torch.ones(5, 300)}, "float8_e4m3fn"),
        ({"bias": torch.ones(3)}, r"bias \(150,\)"),
        ({"a": inputs["a"][:, :200]}, r"\(M, K\)"),
    ):
        with pytest.raises(UsageError, match=told):
            scaled_matmul(**(inputs | change))


def test_other_gpus_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="Hopper"):
        SPEC.check_workload(load_gpu("b200"), workload(64, 64, 128, 0))


@needs_nvrtc
@pytest.mark.parametrize("blocks", [0, 1])
def test_nothing_spills(blocks: int) -> None:
    """The configurations with the most columns, for each number of consumers and both orders."""
    asked = workload(4096, 4096, 4096, blocks)
    columns, _ = enumerate_space(SPEC.problem(H200, asked)).project([p.name for p in SPEC.params(H200, asked)])
    wide = np.where(columns["turned"] == 1, columns["tile_m"], columns["tile_n"]) * 100 + columns["split_k"]
    for consumers, turned in ((1, 0), (2, 0), (3, 0), (2, 1), (3, 1)):
        is_kind = (columns["consumers"] == consumers) & (columns["turned"] == turned)
        row = int(np.argmax(np.where(is_kind, wide, -1)))
        config = {name: int(column[row]) for name, column in columns.items()}
        assert SPEC.compile(H200, asked, config).spill_bytes == 0, config
