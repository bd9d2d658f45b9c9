"""Sweeps in CUDA C++ run on the CPU thread by thread, those in Triton by its interpreter: beside fp64."""

from __future__ import annotations

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
from constrint.kernels.jacobi.launch import SweepCall, sweep_launches
from constrint.kernels.jacobi.reference import sweeps_reference
from constrint.kernels.jacobi.star import star_of
from tests.support.interpreter import interpreted
from tests.support.jacobi_on_cpu import built, launched

H200 = load_gpu("h200")
FLAT = {"steps_per_launch": 3, "vector": 4, "rows": 1, "lanes": 32, "groups": 2, "depth": 3, "chunks": 3}
DEEP = {"steps_per_launch": 2, "vector": 2, "rows": 4, "lanes": 32, "groups": 4, "depth": 2, "chunks": 2}
#: Offsets of unequal reach, and along one axis of three none.
UNEVEN = {(0, -1): 0.3, (0, 2): 0.2, (-2, 0): 0.1, (1, 0): 0.3, (0, 0): -0.1, "f": 0.7}
ONE_SIDED = {(0, 0, -3): 0.3, (0, 2, 0): 0.2, (-1, 0, 0): 0.1, "f": 2.0}


@dataclass(frozen=True)
class Case:
    """Sweeps of a grid by a configuration; elements before the first one of each tensor shift its address."""

    shape: tuple[int, ...]
    steps: int
    config: dict[str, int]
    stencil: Any = None
    dtype: torch.dtype = torch.float32
    has_f: bool = True
    skipped: int = 0
    more: dict[str, int] = field(default_factory=dict)


CASES = (
    Case((40, 200), 3, FLAT),
    Case((41, 300), 4, FLAT, more={"depth": 2, "chunks": 1}),  # two launches of two steps each
    Case((2, 23, 130), 2, FLAT, UNEVEN, more={"lanes": 16}),  # rows that are no whole pieces, tiles of half a warp
    Case((30, 72), 2, FLAT, dtype=torch.float64, has_f=False, skipped=1),
    Case(
        (21, 136), 1, FLAT, {(0, -4): 0.3, (0, 3): 0.2, (-2, 0): 0.1}, more={"steps_per_launch": 1}
    ),  # no halo along x
    Case((12, 30, 72), 2, DEEP, more={"steps_per_launch": 1}),
    Case((12, 30, 70), 2, DEEP),
    Case((13, 29, 140), 3, DEEP, more={"steps_per_launch": 3, "vector": 4, "lanes": 16, "rows": 2, "groups": 8}),
    Case((9, 13, 21), 1, DEEP, ONE_SIDED, more={"vector": 4}),
)


def tensors(case: Case) -> tuple[Tensor, Tensor | None]:
    draw = torch.Generator().manual_seed(1)

    def grid() -> Tensor:
        number = int(torch.Size(case.shape).numel()) + case.skipped
        return torch.randn(number, dtype=case.dtype, generator=draw)[case.skipped :].view(case.shape)

    return grid(), grid() if case.has_f else None


@pytest.mark.parametrize("case", CASES, ids=str)
def test_tiles_give_what_whole_sweeps_give(case: Case, tmp_path: Path) -> None:
    """Every point is written, whatever tile owns it; values that nobody may read are NaN."""
    u, f = tensors(case)
    star = star_of(case.stencil, len(case.shape))
    out = torch.full_like(u, float("nan"))
    for number, launch in enumerate(
        sweep_launches(H200, SweepCall(u, f, out, star, case.steps), {**case.config, **case.more})
    ):
        launched(built(launch.source.macros, tmp_path / str(number)), launch, seed=number)
    exact = sweeps_reference(u.double(), None if f is None else f.double(), star, case.steps)
    unit = torch.finfo(case.dtype).eps / 2
    weight = sum(abs(factor) for _, factor in star.terms) + abs(star.right_side)
    bound = (len(star.terms) + 2) * case.steps * unit * max(1.0, weight) ** case.steps * 4
    assert (out.double() - exact).abs().max() <= bound * u.abs().max()


def interpreted_sweeps(case: dict[str, Any]) -> float:
    """Largest error of the kernel in Triton, in units of fp32 around 1."""
    shape, steps = case["shape"], case["steps"]
    from constrint.kernels.jacobi.pointer.launch import sweep_launches as pointer_launches

    draw = torch.Generator().manual_seed(1)
    u, f = (torch.randn(shape, generator=draw) for _ in range(2))
    star = star_of(UNEVEN if case["is_uneven"] else None, len(shape))
    out = torch.full_like(u, float("nan"))
    config = {"block_x": 16, "block_y": 4, "num_warps": 1}
    for launch in pointer_launches(SweepCall(u, f, out, star, steps), config):
        launch.run()
    error = (out.double() - sweeps_reference(u.double(), f.double(), star, steps)).abs().max().item()
    return error / 2**-24


def test_the_kernel_in_triton() -> None:
    cases: dict[str, dict[str, Any]] = {
        "two axes": {"shape": [7, 21], "steps": 2, "is_uneven": False},
        "uneven": {"shape": [2, 7, 18], "steps": 1, "is_uneven": True},
        "three axes": {"shape": [4, 5, 17], "steps": 2, "is_uneven": False},
    }
    errors = interpreted("tests.kernels.jacobi.test_on_cpu:interpreted_sweeps", cases)
    assert errors.keys() == cases.keys()
    for name, error in errors.items():
        assert error <= 32, name  # 2 steps x up to 8 roundings of values up to 2
