"""The GEMM in CUDA C++ on a Hopper GPU: random products, layouts, strides and ends against fp64, by launches and plans.

Every element is compared under a bound that follows from the dtype and K; what lies beside the results stays as it was.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]", allow_module_level=True)

import torch

from benchmarks.gemm.cuda.fit import product_of
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm import matmul
from constrint.kernels.gemm.operator import PLANS
from constrint.kernels.gemm.reference import gemm_reference
from constrint.kernels.launch.device import gpu_of
from tests.support.cuda_products import SPEC, Case, End, exact_product, launch_of, made, random_cases, ranked, share_of


def _hopper() -> GpuModel | None:
    gpu = gpu_of(torch.device("cuda", 0)) if torch.cuda.is_available() else None
    return gpu if gpu is not None and gpu.arch.target.startswith("sm_90") else None


HOPPER = _hopper()
GPU = HOPPER or load_gpu("h200")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(HOPPER is None, reason="needs a Hopper GPU on this machine")]
#: Tiles that Triton cannot express, and schedules of every kind, for a product that each of them is valid for.
SHAPE = (1100, 904, 712)
NUM_DRAWN = 48
HALF: dict[str, Any] = {"device": "cuda", "dtype": torch.float16}


def check(case: Case) -> None:
    """Launch twice, so that counters have to be left at zero, and compare."""
    given = made(case.shape, case.dtype, case.layout, case.end, pad=case.pad)
    launch = launch_of(GPU, case.config, given, case.end)
    for _ in range(2):
        launch.run()
    torch.cuda.synchronize()
    off = share_of(exact_product(given, case.dtype, case.end), given)
    assert off <= 1, f"{off:.3g} of what rounding allows: {case}"


@cache
def drawn() -> list[Case]:
    return list(random_cases(GPU, NUM_DRAWN, 20261123))


@pytest.mark.parametrize("number", range(NUM_DRAWN))
def test_random_products_configurations_and_ends(number: int) -> None:
    check(drawn()[number])


@pytest.mark.parametrize("layout", ["rr", "rc", "cr", "cc"])
@pytest.mark.parametrize("schedule", [(1, 1, 0), (2, 1, 0), (2, 2, 0), (2, 1, 1), (3, 1, 0)], ids=str)
def test_every_schedule_in_every_cluster_turned_and_not(schedule: tuple[int, int, int], layout: str) -> None:
    """Of each the one that the model ranks first."""
    product = product_of(SHAPE, "bf16", layout)
    seen = set()
    for config in ranked(GPU, product, 10**6):
        kind = (config["cluster_m"], config["cluster_n"], config["turned"])
        if (config["consumers"], config["by_columns"], config["in_turns"]) == schedule and kind not in seen:
            seen.add(kind)
            check(Case(SHAPE, "bf16", layout, config))
    assert len(seen) == 8


@pytest.mark.parametrize("depth", [1, 64])
def test_odd_numbers_of_boxes_a_tile_do_not_run_into_each_other(depth: int) -> None:
    """Of a tile with an odd number of boxes the last one is still read when the next tile's first is written."""
    dealt = {"consumers": 1, "by_columns": 1, "in_turns": 0, "cluster_m": 1, "cluster_n": 1, "group_m": 8}
    config = dealt | {"tile_m": 192, "tile_n": 8, "tile_k": 64, "num_stages": 6, "turned": 0, "split_k": 1}
    check(Case((1000, 1000, depth), "bf16", "cr", config | {"only_last": 0}))


@pytest.mark.parametrize("only_last", [0, 1])
@pytest.mark.parametrize("split_k", [2, 3, 8])
def test_tiles_in_parts_are_added_in_order(split_k: int, only_last: int) -> None:
    """Two launches give the same bits."""
    shape = (3000, 3000, 1024)
    draw, product = random.Random(split_k), product_of(shape, "fp16", "rc")
    asked = {"split_k": split_k, "only_last": only_last}
    able = [c for c in ranked(GPU, product, 10**6) if all(c[name] == value for name, value in asked.items())]
    config = draw.choice(able[:200])
    given = made(shape, "fp16", "rc", End())
    launch = launch_of(GPU, config, given, End())
    launch.run()
    first = given.out.clone()
    launch.run()
    assert torch.equal(first, given.out)
    assert share_of(exact_product(given, "fp16", End()), given) <= 1


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`matmul` is asked for this kernel by name, with plans of its own."""
    PLANS.clear()
    yield
    PLANS.clear()


@pytest.mark.usefixtures("chosen")
@pytest.mark.parametrize("seed", range(12))
def test_matmul_by_plans_is_right_in_the_first_call_and_later(seed: int) -> None:
    draw = random.Random(seed)
    # Rows no shorter than a line: shorter ones across K are left to kernels that copy them.
    m, n, k = (8 * int(2 ** draw.uniform(3, 8)) for _ in range(3))
    x, y = torch.randn(m, k, **HALF), torch.randn(n, k, **HALF).T if seed % 2 else torch.randn(k, n, **HALF)
    bias = torch.randn(n, **HALF) if seed % 3 == 0 else None
    c = torch.randn(m, n, **HALF) if seed % 4 == 0 else None
    ends: dict[str, Any] = {"alpha": 0.5, "beta": 2.0 if c is not None else 0.0, "c": c}
    ends |= {"activation": draw.choice((None, "relu", "gelu", "silu"))}
    exact = gemm_reference(x.double(), y.double(), bias, out_dtype=torch.float64, **ends)
    for _ in range(3):
        actual = matmul(x, y, bias, kernel="cuda", **ends)
        assert torch.allclose(actual.double(), exact, rtol=4e-3, atol=4e-3 * k**0.5)


@pytest.mark.usefixtures("chosen")
def test_matmul_in_a_graph_and_on_two_streams() -> None:
    x, y = torch.randn(64, 16384, **HALF), torch.randn(16384, 256, **HALF)
    expected = matmul(x, y, kernel="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outs = [matmul(x, y, kernel="cuda") for _ in range(10)]
    cuda: Any = torch.cuda
    other = cuda.Stream()
    for _ in range(5):
        for out in outs:
            out.fill_(float("nan"))
        torch.cuda.synchronize()
        graph.replay()
        with torch.cuda.stream(other):
            direct = [matmul(x, y, kernel="cuda") for _ in range(10)]
        torch.cuda.synchronize()
        assert all(torch.equal(t, expected) for t in (*outs, *direct))


@pytest.mark.usefixtures("chosen")
def test_sizes_of_zero_and_what_it_refuses() -> None:
    assert matmul(torch.empty(0, 8, **HALF), torch.empty(8, 4, **HALF), kernel="cuda").shape == (0, 4)
    assert bool((matmul(torch.empty(3, 0, **HALF), torch.empty(0, 4, **HALF), kernel="cuda") == 0).all())
    from constrint.errors import UnsupportedError

    with pytest.raises(UnsupportedError, match="copies no operand"):
        matmul(torch.randn(64, 65, **HALF), torch.randn(65, 64, **HALF), kernel="cuda")


@pytest.mark.usefixtures("chosen")
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_not_finite_spread_as_in_torch(value: float) -> None:
    x, y = torch.randn(40, 64, **HALF), torch.randn(64, 72, **HALF)
    x[1, 2], y[5, 6] = value, value
    expected = (x.float() @ y.float()).half()
    actual = matmul(x, y, kernel="cuda")
    assert torch.allclose(actual.float(), expected.float(), rtol=2e-3, atol=2e-2, equal_nan=True)


def test_the_spec_is_the_one_that_is_checked() -> None:
    assert SPEC.full_name == "gemm.cuda"
