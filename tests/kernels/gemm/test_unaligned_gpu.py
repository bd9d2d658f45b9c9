"""The GEMM that gathers operands, on a Hopper GPU: random sizes, strides, addresses, layouts and ends against fp64."""

from __future__ import annotations

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]", allow_module_level=True)

import torch

from benchmarks.gemm.cuda import odd_cases as odd
from benchmarks.gemm.cuda.configs import ranked
from benchmarks.gemm.cuda.products import End, exact_product, share_of
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.launch.device import gpu_of


def _hopper() -> GpuModel | None:
    gpu = gpu_of(torch.device("cuda", 0)) if torch.cuda.is_available() else None
    return gpu if gpu is not None and gpu.arch.target.startswith("sm_90") else None


HOPPER = _hopper()
GPU = HOPPER or load_gpu("h200")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(HOPPER is None, reason="needs a Hopper GPU on this machine")]


def check(case: odd.Case) -> None:
    """Launch twice, so that counters have to be left at zero, and compare."""
    given = case.made()
    launch = case.launch(GPU, given)
    for _ in range(2):
        launch.run()
    torch.cuda.synchronize()
    off = share_of(exact_product(given, case.dtype, case.end), given)
    assert off <= 1, f"{off:.3g} of what rounding allows: {case}"


@pytest.mark.parametrize("case", list(odd.random_cases(GPU, 24, 20261123)), ids=lambda case: str(case.shape))
def test_random_products_whose_operands_stand_amid_nan(case: odd.Case) -> None:
    check(case)


@pytest.mark.parametrize("layout", ["rr", "rc", "cr", "cc"])
@pytest.mark.parametrize("schedule", [(1, 1, 0), (2, 1, 0), (2, 2, 0), (2, 1, 1), (3, 1, 0)], ids=str)
def test_every_schedule_turned_and_not(schedule: tuple[int, int, int], layout: str) -> None:
    """Of each the one that the model ranks first."""
    shape, places = (1101, 903, 713), odd.Places((1, 0), (3, 1))
    product = odd.product_of(shape, "bf16", layout, End(), places)
    names = ("consumers", "by_columns", "in_turns", "turned")
    first: dict[tuple[int, ...], dict[str, int]] = {}
    for config in ranked(GPU, product, 1_000_000, spec=odd.SPEC):
        first.setdefault(tuple(config[name] for name in names), config)
    for turned in (0, 1):
        chosen = first.get((*schedule, turned))
        if chosen is not None:
            check(odd.Case(shape, "bf16", layout, chosen, places=places))
