"""`quantised_matmul` on a GPU, against fp64."""

from __future__ import annotations

import random

import pytest
import torch

from constrint.kernels.gemm.quantised import quantised_matmul
from constrint.kernels.gemm.quantised.stream.launch import stream_launches
from constrint.kernels.gemm.quantised.weights import random_weight
from constrint.kernels.launch.device import gpu_of
from constrint.kernels.registry import load_spec
from constrint.select import Workload
from constrint.solve import enumerate_space

STREAM = load_spec("quantised_gemm.stream")
SHAPES = [(1, 4096, 4096), (3, 130, 200), (8, 1000, 1111), (16, 4096, 11008)]
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("bits", "group"), [(4, 128), (4, 64), (8, 128)])
@pytest.mark.parametrize("shape", SHAPES)
def test_results_are_those_of_fp64(shape: tuple[int, int, int], bits: int, group: int, dtype: torch.dtype) -> None:
    m, n, k = shape
    generator = torch.Generator("cuda").manual_seed(m + n)
    weight = random_weight(n, k, bits, group, dtype, device="cuda", generator=generator)
    x = torch.randn((m, k), device="cuda", generator=generator).to(dtype)
    wide = weight.dense(torch.float64)
    exact, terms = x.double() @ wide.T, x.double().abs() @ wide.abs().T
    half = 2.0**-8 if dtype == torch.bfloat16 else 2.0**-11
    bound = 1.01 * terms * (2.0**-22 + k * 2.0**-24) + half * exact.abs() + 2.0**-24
    for _ in range(2):
        assert ((quantised_matmul(x, weight).double() - exact).abs() <= bound).all()


@pytest.mark.parametrize("split_k", [1, 2, 4, 8])
@pytest.mark.parametrize("seed", range(8))
def test_the_streaming_kernel_gives_what_fp64_does(seed: int, split_k: int) -> None:
    """Configurations and sizes drawn at random; results are poisoned, and X may begin at any element."""
    draw = random.Random(8 * seed + split_k)
    generator = torch.Generator("cuda").manual_seed(seed)
    m, n, k = draw.randint(1, 16), draw.choice((130, 777, 1000, 4096, 20000)), draw.choice((700, 1111, 4096, 11008))
    bits, group = draw.choice(((4, 128), (4, 64), (4, 1024), (8, 128), (8, 32)))
    dtype, offset = draw.choice((torch.bfloat16, torch.float16)), draw.choice((0, 0, 1, 8))
    gpu = gpu_of(torch.device("cuda"))
    assert gpu is not None
    name = "bf16" if dtype == torch.bfloat16 else "fp16"
    workload = Workload("quantised_gemm", {"m": m, "n": n, "k": k}, name, {"bits": bits, "group": group})
    problem = STREAM.problem(gpu, workload)
    columns, _ = enumerate_space(problem).project(list(problem.variables))
    rows = [at for at, split in enumerate(columns["split_k"]) if split == split_k]
    if not rows:
        pytest.skip("no configuration divides K so often")
    weight = random_weight(n, k, bits, group, dtype, device="cuda", generator=generator)
    x = torch.randn((m, k + offset), device="cuda", generator=generator).to(dtype)[:, offset:]
    wide = weight.dense(torch.float64)
    exact, terms = x.double() @ wide.T, x.double().abs() @ wide.abs().T
    half = 2.0**-8 if dtype == torch.bfloat16 else 2.0**-11
    bound = 1.01 * terms * (2.0**-22 + k * 2.0**-24) + half * exact.abs() + 2.0**-24
    for _ in range(2):
        at = draw.choice(rows)
        config = {name: int(column[at]) for name, column in columns.items()}
        out = torch.full((m, n), float("nan"), dtype=dtype, device="cuda")
        (launch,) = stream_launches(gpu, x, weight, out, config)
        for _ in range(3):
            out.fill_(float("nan"))
            launch.run()
            assert ((out.double() - exact).abs() <= bound).all(), (workload, config, offset)
