"""`jacobi` on the CPU: the definition point by point, gradients, transforms, odd sizes, refusals, the space."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs torch and triton", allow_module_level=True)

import torch
from torch import Tensor

import constrint
from constrint.errors import UnknownNameError, UsageError
from constrint.hwmodels import load_gpu
from constrint.kernels.jacobi.launch import SweepCall, steps_of_launches, sweep_launches
from constrint.kernels.jacobi.op import jacobi
from constrint.kernels.jacobi.shape import SweepTile
from constrint.kernels.jacobi.sizes import Grid
from constrint.kernels.jacobi.source_text import coefficients_of, source_of
from constrint.kernels.jacobi.star import poisson, star_of
from constrint.kernels.registry import load_kernel
from constrint.select.workload import Workload

decided: Any = jacobi.why  # type: ignore[attr-defined]
UNEVEN = {(0, -1): 0.3, (0, 2): 0.2, (-2, 0): 0.1, (1, 0): 0.5, (0, 0): -0.2, "f": 0.7}
SEVEN = dict.fromkeys(((0, 0, 1), (0, 0, -1), (0, 1, 0), (0, -1, 0), (1, 0, 0), (-1, 0, 0)), 1 / 6)


def grid(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 1) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def point_by_point(u: Tensor, f: Tensor, stencil: dict[Any, float], steps: int) -> Tensor:
    factors = {key: value for key, value in stencil.items() if key != "f"}
    widths = [max(abs(offset[axis]) for offset in factors) for axis in range(u.dim())]
    for _ in range(steps):
        swept = u.clone()
        for place in itertools.product(*(range(w, n - w) for w, n in zip(widths, u.shape, strict=True))):
            near = (factor * u[tuple(map(sum, zip(place, o, strict=True)))] for o, factor in factors.items())
            swept[place] = sum(near) + stencil.get("f", 1.0) * f[place]
        u = swept
    return u


def test_the_definition() -> None:
    u, f = grid(6, 7), grid(6, 7, seed=2)
    torch.testing.assert_close(jacobi(u, f, 3, stencil=UNEVEN), point_by_point(u, f, UNEVEN, 3))
    u, f = grid(4, 5, 6), grid(4, 5, 6, seed=2)
    expected = point_by_point(u, f, {**SEVEN, "f": 1 / 6}, 2)
    torch.testing.assert_close(constrint.jacobi(u, f, 2), expected)
    torch.testing.assert_close(
        jacobi(u.expand(2, -1, -1, -1), f.expand(2, -1, -1, -1), 2, stencil="7-point")[1], expected
    )
    torch.testing.assert_close(jacobi(u, torch.zeros_like(u), 2), jacobi(u, None, 2))
    across = u.movedim(0, -1).contiguous().movedim(-1, 0)
    torch.testing.assert_close(jacobi(across, f, 2), expected)


@pytest.mark.parametrize("shape", [(0, 5), (1, 9), (2, 2), (3, 0), (2, 9)])
def test_a_grid_that_is_all_border_stays(shape: tuple[int, ...]) -> None:
    u = grid(*shape)
    out = jacobi(u, torch.full_like(u, float("nan")), 3)
    assert torch.equal(out, u)
    assert out.data_ptr() != u.data_ptr() or not u.numel()
    assert torch.equal(jacobi(grid(5, 5), grid(5, 5), 0), grid(5, 5))


def test_what_is_not_finite_spreads_one_radius_a_step() -> None:
    u = torch.zeros(9, 9)
    u[4, 4] = float("inf")
    assert jacobi(u, None, 2).isinf().sum() == 9  # with 0.25 * inf at all points at a distance of 0 or 2
    f = torch.zeros(9, 9)
    f[4, 4] = float("nan")
    assert jacobi(torch.zeros(9, 9), f, 3).isnan().sum() == 13


@pytest.mark.parametrize("stencil", [None, UNEVEN, {(0, 1): 0.5, (0, -2): 0.4, "f": 0.0}])
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_gradients(stencil: Any, steps: int) -> None:
    u, f = grid(6, 7).requires_grad_(), grid(6, 7, seed=2).requires_grad_()

    def swept(u: Tensor, f: Tensor) -> Tensor:
        return jacobi(u, f, steps, stencil=stencil)

    assert torch.autograd.gradcheck(swept, (u, f))
    assert torch.autograd.gradgradcheck(swept, (u, f), fast_mode=True)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_transforms_and_compiled_graphs() -> None:
    u, f = grid(5, 6), grid(5, 6, seed=2)

    def swept(u: Tensor) -> Tensor:
        return jacobi(u, f, 2, stencil=UNEVEN)

    torch.testing.assert_close(torch.func.jacrev(swept)(u), torch.func.jacfwd(swept)(u))
    torch.testing.assert_close(torch.vmap(swept)(torch.stack([u, f]))[1], swept(f))
    compiled = torch.compile(swept, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(u), swept(u))
    arguments = (u.clone().requires_grad_(), f, *star_of(UNEVEN, 2).plain, 2)
    torch.library.opcheck(torch.ops.constrint.jacobi.default, arguments)


def test_memory_of_the_callers() -> None:
    u, f = grid(8, 9), grid(8, 9, seed=2)
    expected = jacobi(u, f, 3)
    out = torch.full((9, 16), float("nan"), dtype=u.dtype).T[:8, :9]
    assert jacobi(u, f, 3, out=out) is out
    assert torch.equal(out, expected)
    assert torch.equal(jacobi(u, f, 3, out=u), expected)
    with pytest.raises(RuntimeError, match="no part in gradients"):
        jacobi(grid(3, 3).requires_grad_(), None, 1, out=grid(3, 3))


def test_sixteen_bits_are_rounded_once() -> None:
    u, f = (grid(20, 20, seed=s).bfloat16() for s in (1, 2))
    exact = jacobi(u.double(), f.double(), 5)
    assert torch.equal(jacobi(u, f, 5), exact.float().bfloat16())


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"steps": -1}, UsageError, "from 0 on"),
        ({"steps": 1.5}, TypeError, "whole number"),
        ({"f": torch.zeros(3)}, RuntimeError, "shape, type and device"),
        ({"kernel": "nonsense"}, UnknownNameError, "nonsense"),
        ({"config": {"steps": 1}}, UsageError, "needs a kernel"),
        ({"stencil": {(1, 1): 0.5}}, UsageError, "along an axis"),
        ({"stencil": {(0, 5): 0.5}}, UsageError, "at most 4"),
        ({"stencil": {(0, 1): float("nan")}}, UsageError, "finite"),
        ({"stencil": {(0, 1): 1.0, (0, 0, 1): 1.0}}, UsageError, "one number of axes"),
        ({"stencil": {"f": 1.0}}, UsageError, "at least one offset"),
        ({"stencil": "9-point"}, UnknownNameError, "9-point"),
        ({"stencil": "7-point"}, RuntimeError, "3 axes"),
        ({"stencil": {(0, 1): torch.ones(())}}, UsageError, "finite"),
        ({"u": torch.zeros(4)}, UsageError, "two or three axes"),
        ({"u": torch.zeros(4, 4, dtype=torch.int32)}, RuntimeError, "fp32, fp64"),
        ({"u": None}, TypeError, "tensor"),
    ],
)
def test_arguments_that_are_refused(arguments: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        jacobi(**{"u": torch.zeros(4, 4), **arguments})


def test_steps_are_dealt_to_as_few_launches_as_there_can_be() -> None:
    assert steps_of_launches(10, 8) == [5, 5]
    assert steps_of_launches(11, 4) == [4, 4, 3]
    assert steps_of_launches(3, 8) == [3]


def test_factors_are_arguments_and_offsets_are_compiled_in() -> None:
    tile = SweepTile(2, 4, 1, 32, 4, 3, "fp32", (1, 0, 1), is_3d=False)
    u = torch.empty(64, 64)
    config = {"steps_per_launch": 2, "vector": 4, "rows": 1, "lanes": 32, "groups": 4, "depth": 3, "chunks": 1}
    other = star_of({offset: 0.1 for offset, _ in poisson(2).terms}, 2)
    first, second = (
        sweep_launches(load_gpu("h200"), SweepCall(u, u.clone(), u.clone(), star, 2), config)[0]
        for star in (poisson(2), other)
    )
    assert first.source is second.source
    assert first.arguments[-1] != second.arguments[-1]
    assert len(coefficients_of(other, "fp64").tobytes()) == 26 * 8
    assert int(tile.smem_bytes) == (3 + 1 + 3) * 4 * 128 * 4
    assert source_of(tile, poisson(2)).macros["MS"] == 0b10001


@pytest.mark.parametrize("sizes", [{"ny": 1000, "nx": 1000, "nz": 1}, {"ny": 100, "nx": 60, "nz": 30}])
def test_the_space(sizes: dict[str, int]) -> None:
    """Halos fit tiles; fp64 takes twice the memory; AMD's GPUs have the kernel in Triton."""
    h200 = load_gpu("h200")
    spec = load_kernel("jacobi.cuda").implementations[0]
    for dtype in ("fp32", "fp64"):
        workload = Workload("jacobi", {**sizes, "steps": 7}, dtype, {"radius": 2})
        ranking = constrint.rank("jacobi.cuda", "h200", workload=workload, top=5)
        widths, is_3d = Grid.of(workload).widths, sizes["nz"] > 1
        for candidate in ranking.candidates:
            tile = SweepTile.of(candidate.config, dtype, widths, is_3d=is_3d, aligned=Grid.of(workload).is_aligned)
            assert tile.used_x >= tile.per_piece
            assert tile.used_y >= 1
            assert candidate.resources is not None
            assert int(tile.smem_bytes) == candidate.resources.smem_bytes <= h200.sm.max_smem_bytes_per_block
            assert candidate.config["steps_per_launch"] in (1, 2, 3, 4, 7)
            assert spec.figures(h200, workload, candidate.config)["useful share of sums"] <= 1
    amd = constrint.rank("jacobi", "mi300x", workload=workload, top=1)
    assert amd.candidates[0].kernel == "jacobi.pointer"
    large = torch.empty(4096, 4096, device="meta")
    assert decided(large, steps=16, gpu="h200").program.name == "jacobi.cuda"  # a launch for each step moves more
