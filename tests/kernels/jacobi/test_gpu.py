"""Sweeps on a GPU, by launches and by plans: random grids beside fp64, memory of the callers, gradients."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs torch and triton", allow_module_level=True)

import torch
from torch import Tensor

from constrint.kernels.jacobi.launch import SweepCall, sweep_launches
from constrint.kernels.jacobi.op import jacobi
from constrint.kernels.jacobi.reference import NARROW, sweeps_reference
from constrint.kernels.jacobi.star import StarStencil, star_of
from constrint.kernels.launch.device import gpu_of

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def is_right(out: Tensor, u: Tensor, f: Tensor | None, star: StarStencil, steps: int) -> bool:
    """Whether errors are within roundings of every step's sums, and of its result for 16 bits."""
    exact = sweeps_reference(u.double(), None if f is None else f.double(), star, steps)
    weight = sum(abs(factor) for _, factor in star.terms)
    sums = torch.float32 if u.dtype in NARROW else u.dtype
    of_step = torch.finfo(sums).eps * (len(star.terms) + 1)
    of_step += torch.finfo(u.dtype).eps / 2 if u.dtype in NARROW else 0.0
    largest = max(u.abs().max().item(), exact.abs().max().item(), 0.0 if f is None else f.abs().max().item())
    growth = sum(max(weight, 1e-3) ** step for step in range(steps))
    return bool((out.double() - exact).abs().max() <= of_step * growth * largest * (1 + abs(star.right_side)))


def drawn_star(draw: random.Random, axes: int) -> dict[Any, float]:
    """Factors of some offsets of up to 4 along each axis, whose magnitudes sum to at most 1."""
    offsets = {(0,) * axes}
    for axis in range(axes):
        for step in draw.sample([-4, -3, -2, -1, 1, 2, 3, 4], draw.randint(0 if axis else 1, 4)):
            offsets.add(tuple(step if other == axis else 0 for other in range(axes)))
    kept = sorted(offsets)
    return {offset: draw.uniform(-1, 1) / len(kept) for offset in kept} | {"f": draw.uniform(-1, 1)}


@pytest.mark.parametrize("seed", range(24))
def test_random_grids(seed: int) -> None:
    """Ragged sizes, addresses that are no multiples of 16 bytes, batches, no right side; twice, and by every kernel."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    axes, dtype = draw.choice((2, 3)), draw.choice(DTYPES)
    shape = [draw.randint(1, 300 if axes == 2 else 70) for _ in range(axes)]
    shape = [draw.choice((1, 2, 3))] * draw.randint(0, 1) + shape
    stencil: Any = drawn_star(draw, axes) if draw.random() < 0.5 else f"{2 * axes + 1}-point"
    steps, skipped = draw.randint(1, 12), draw.choice((0, 0, 1))

    def grid() -> Tensor:
        flat = torch.randn(int(torch.Size(shape).numel()) + skipped, device="cuda").to(dtype)
        return flat[skipped:].view(shape)

    u, f = grid(), grid() if draw.random() < 0.8 else None
    star = star_of(stencil, len(shape))
    for kernel in ("auto", "pointer", "torch"):
        first, second = (jacobi(u, f, steps, stencil=stencil, kernel=kernel) for _ in range(2))
        assert torch.equal(first, second), kernel
        assert is_right(first, u, f, star, steps), kernel
    out = torch.full_like(u, float("nan"))
    assert jacobi(u, f, steps, stencil=stencil, out=out) is out
    assert torch.equal(out, jacobi(u, f, steps, stencil=stencil))


def _has_copies() -> bool:
    return torch.version.hip is None and torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 0)


@pytest.mark.skipif(not _has_copies(), reason="needs a GPU of NVIDIA with asynchronous copies")
@pytest.mark.parametrize("shape", [(130, 260), (30, 60, 72)])
def test_configurations_give_equal_bits_and_write_no_more(shape: tuple[int, ...]) -> None:
    """fp32 and fp64: whatever the tile, the steps of a launch and the parts; memory around the result stays."""
    gpu = gpu_of(torch.device("cuda", 0))
    assert gpu is not None
    for dtype in (torch.float32, torch.float64):
        u, f = (torch.randn(shape, device="cuda", dtype=dtype) for _ in range(2))
        star, found = star_of(None, len(shape)), []
        for steps, vector, chunks in ((1, 4, 1), (2, 4, 3), (3, 2, 2)):
            tile = {"rows": 1, "lanes": 32, "groups": 2} if len(shape) == 2 else {"rows": 4, "lanes": 16, "groups": 8}
            config = {"steps_per_launch": steps, "vector": vector, "depth": 3, "chunks": chunks, **tile}
            around = torch.full((u.numel() + 64,), float("nan"), device="cuda", dtype=dtype)
            out = around[32:-32].view(shape)
            for launch in sweep_launches(gpu, SweepCall(u, f, out, star, 6), config):
                launch.run()
            found.append(out)
            assert around[:32].isnan().all()
            assert around[-32:].isnan().all()
        assert all(torch.equal(found[0], other) for other in found[1:])
        assert is_right(found[0], u, f, star, 6)


def test_many_steps_and_other_memory() -> None:
    u, f = (torch.randn(90, 64, 40, device="cuda").movedim(0, 2) for _ in range(2))
    assert not u.is_contiguous()
    assert is_right(jacobi(u, f, 3), u, f, star_of(None, 3), 3)
    flat = torch.randn(50, 60, device="cuda", dtype=torch.float64)
    assert is_right(jacobi(flat, None, 1000), flat, None, star_of(None, 2), 1000)
    other = flat.clone()
    jacobi(other, flat, 5, out=other)
    torch.testing.assert_close(other, jacobi(flat, flat, 5))
    graph = torch.cuda.CUDAGraph()
    jacobi(flat, flat, 7)
    with torch.cuda.graph(graph):
        captured = jacobi(flat, flat, 7)
    graph.replay()
    assert torch.equal(captured, jacobi(flat, flat, 7))


def test_gradients_and_infinities() -> None:
    u, f = (torch.randn(40, 50, dtype=torch.float64, requires_grad=True) for _ in range(2))
    gradient = torch.randn(40, 50, dtype=torch.float64)
    expected = torch.autograd.grad(jacobi(u, f, 9), (u, f), gradient)
    on_gpu = [t.detach().cuda().requires_grad_() for t in (u, f)]
    found = torch.autograd.grad(jacobi(on_gpu[0], on_gpu[1], 9), on_gpu, gradient.cuda())
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.cpu(), other)
    wild = torch.randn(70, 90)
    wild[30, 40], wild[10, 11], wild[0, 5] = float("inf"), float("nan"), float("-inf")
    expected_wild, found_wild = jacobi(wild, None, 6), jacobi(wild.cuda(), None, 6).cpu()
    torch.testing.assert_close(found_wild, expected_wild, equal_nan=True)
