"""The fp32 GEMM in CUDA C++, run on the CPU thread by thread: results to fp32's precision, in every layout.

The CPU cannot show what the memory and the matrix units of a GPU do beyond the definition of their instructions.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton") or shutil.which("g++") is None:
    pytest.skip("needs torch, triton and g++", allow_module_level=True)

import torch
from torch import Tensor

from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.fp32.launch import fp32_launches
from constrint.kernels.gemm.launch import Epilogue, GemmCall, Machine
from constrint.tune.compile import build_triton
from tests.support.cuda_gemm_on_cpu import run
from tests.support.fp32_gemm_on_cpu import built

H200 = load_gpu("h200")
USUAL = {"tile_m": 16, "tile_n": 128, "tile_k": 32, "num_stages": 2, "consumers": 2, "turned": 1, "split_k": 1}


@dataclass(frozen=True)
class Case:
    """One product: M, N and K, the order of A and B in memory, and what differs from the usual configuration."""

    shape: tuple[int, int, int]
    layout: str
    precision: str = "tf32x3"
    blocks: int = 2
    has_ends: bool = False
    config: dict[str, int] = field(default_factory=dict)


CASES = {
    "rows across K": Case((20, 136, 100), "rr"),
    "rows along K": Case((20, 130, 100), "rc"),
    "columns across K": Case((20, 136, 72), "cr"),
    "not turned, along K": Case((70, 30, 68), "rr", config={"tile_m": 64, "tile_n": 24, "consumers": 1, "turned": 0}),
    "not turned, across K": Case((72, 30, 70), "cc", config={"tile_m": 64, "tile_n": 16, "consumers": 1, "turned": 0}),
    "three consumers and ends": Case(
        (9, 200, 64), "rr", has_ends=True, config={"tile_m": 8, "tile_n": 192, "consumers": 3}
    ),
    "K in parts": Case((16, 64, 420), "rr", blocks=5, config={"tile_n": 64, "consumers": 1, "split_k": 3}),
    "tf32": Case((20, 136, 100), "rr", "tf32", config={"tile_m": 24}),
    "tf32, not turned": Case(
        (72, 30, 100), "cc", "tf32", config={"tile_m": 64, "tile_n": 32, "consumers": 1, "turned": 0, "split_k": 2}
    ),
}


def matrix(rows: int, columns: int, order: str) -> Tensor:
    t = torch.randn((rows, columns) if order == "r" else (columns, rows))
    return t if order == "r" else t.T


def split_columns(arguments: dict[str, Any]) -> None:
    """Write the parts of wgmma's columns as the kernel that splits them is to write them."""
    source, target, padded = arguments["source_ptr"], arguments["target_ptr"], arguments["padded"]
    wide = torch.zeros(source.shape[0], padded)
    wide[:, : source.shape[1]] = source
    if arguments["in_fours"]:
        # Places 2 j, 2 j + 1, 2 j + 8 and 2 j + 9 of sixteen have the numbers 4 j to 4 j + 3.
        place_of = [2 * (k // 4) + k % 2 + 8 * (k % 4 // 2) for k in range(16)]
        order = torch.empty(16, dtype=torch.long)
        order[place_of] = torch.arange(16)
        wide = wide.view(source.shape[0], -1, 16)[:, :, order].reshape(source.shape[0], padded)
    high = wide.bfloat16()
    middle = (wide - high.float()).bfloat16()
    low = (wide - high.float() - middle.float()).bfloat16()
    target.copy_(torch.cat([high, middle, low], 1))


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_results_are_exact_to_the_precision(case: Case, tmp_path: Path) -> None:
    torch.manual_seed(1)
    (m, n, k), config = case.shape, USUAL | case.config
    a, b = matrix(m, k, case.layout[0]), matrix(k, n, case.layout[1])
    if case.precision == "tf32":  # as the TMA unit rounds them
        a, b = (((t.view(torch.int32) + (1 << 12)) & -(1 << 13)).view(torch.float32) for t in (a, b))
    out = torch.full((1, m, n), float("nan"))
    bias, source = (torch.randn(n), torch.randn(1, m, n)) if case.has_ends else (None, None)
    end = Epilogue(bias, source, 2.0, 0.5, "relu") if case.has_ends else Epilogue()
    call = GemmCall(a[None], b[None], out, Machine.of(H200), end, case.precision)
    launches = fp32_launches(call, config)
    for launch in launches[:-1]:
        split_columns(dict(launch.arguments))
    library = built(launches[-1], tmp_path)
    for seed in (1, 2):
        out.fill_(float("nan"))
        assert run(library, launches[-1], case.blocks, seed) == 0
        exact = a.double() @ b.double()
        bound = (a.double().abs() @ b.double().abs()) * (2.0**-20 + k * 2.0**-24)
        if bias is not None and source is not None:
            exact = (2.0 * exact + bias.double() + 0.5 * source[0].double()).relu()
            bound = 2.0 * bound + 2.0**-22 * (1.0 + exact.abs())
        assert ((out[0].double() - exact).abs() <= bound + 2.0**-24 * exact.abs()).all()


@pytest.mark.parametrize("layout", ["rr", "rc"])
def test_infinities_and_nan_are_where_they_belong(layout: str, tmp_path: Path) -> None:
    torch.manual_seed(2)
    a, b = matrix(20, 40, layout[0]), matrix(40, 64, layout[1])
    a[3, 5], a[7, 9], a[11, 2], b[6, 8] = float("inf"), float("nan"), 3.402e38, -float("inf")
    a[11, 3:], a[5, :] = 0.0, 1e-3
    b[2, :] = b[2, :].clamp(-0.5, 0.5)
    out = torch.full((1, 20, 64), 7.0)
    call = GemmCall(a[None], b[None], out, Machine.of(H200), Epilogue(), "tf32x3")
    *splitting, launch = fp32_launches(call, USUAL | {"tile_n": 64, "consumers": 1, "tile_m": 24})
    split_columns(dict(splitting[0].arguments))
    assert run(built(launch, tmp_path), launch, 1, 3) == 0
    expected = a @ b
    assert torch.equal(out[0].isnan(), expected.isnan())
    assert torch.equal(out[0].isinf(), expected.isinf())
    torch.testing.assert_close(out[0], expected, rtol=1e-4, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize(("gap", "widest"), [(0, "v4.b32"), (5, "b32"), (8, "b32")])
def test_columns_are_read_no_wider_than_they_are_aligned(gap: int, widest: str) -> None:
    """A stride that Triton does not know to be even allows no pairs; Triton 3.6 read pairs of them before."""
    a, b = torch.empty_strided((1, 128, 40), (0, 1, 128 + gap), device="meta"), torch.empty(1, 16, 48, device="meta").mT
    out = torch.empty(1, 128, 16, device="meta")
    call = GemmCall(a, b[:, :40], out, Machine.of(H200), Epilogue(), "tf32x3")
    split = fp32_launches(call, USUAL | {"tile_m": 32, "tile_n": 64, "consumers": 1})[0]
    assert split.values()["in_fours"]
    loads = set(re.findall(r"ld\.global[\w:]*\.((?:v\d\.)?b32)", build_triton(H200, split.source()).asm["ptx"]))
    assert loads == {widest}
