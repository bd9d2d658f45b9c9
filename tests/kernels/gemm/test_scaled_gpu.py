"""`scaled_matmul` on a GPU, against fp64."""

from __future__ import annotations

import pytest
import torch

from constrint.kernels.gemm.scaled import scaled_matmul
from constrint.kernels.launch.device import gpu_of
from constrint.kernels.registry import load_spec
from constrint.select import Workload

SHAPES = [(1, 256, 512), (64, 2112, 7168), (333, 1000, 400), (7, 130, 144), (2048, 1024, 1536)]
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]


@pytest.mark.parametrize("blocks", [0, 1])
@pytest.mark.parametrize(
    "shape", [(1, 256, 512), (64, 2112, 7168), (333, 1000, 400), (7, 130, 144), (2048, 1024, 1536)]
)
def test_results_are_those_of_fp64(shape: tuple[int, int, int], blocks: int) -> None:
    gpu, spec = gpu_of(torch.device("cuda")), load_spec("scaled_gemm.cuda")
    if gpu is None or gpu.arch.target != "sm_90a":
        pytest.skip("written for Hopper")
    sizes = dict(zip("mnk", shape, strict=True))
    asked = Workload("scaled_gemm", sizes, "fp8", {"blocks": 1} if blocks else {})
    inputs = spec.inputs(gpu, asked, device="cuda", seed=3)
    exact = spec.reference(asked, inputs)["out"]
    weight = spec.reference(asked, {n: t.float().abs() if n in "ab" else t for n, t in inputs.items()})["out"]
    bound = 1.01 * weight * (2.0**-13 + sizes["k"] * 2.0**-24) + 2.0**-8 * exact.abs() + 2.0**-24
    for _ in range(2):
        assert ((scaled_matmul(**inputs).double() - exact).abs() <= bound).all()
