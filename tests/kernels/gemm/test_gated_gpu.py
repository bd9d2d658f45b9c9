"""Gated pairs on the GPU of this machine, against fp64: by plans, in graphs, with poison where results will be."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]: torch or triton is not installed", allow_module_level=True)

import torch

from constrint.kernels.gemm.epilogue.activations import ACTIVATIONS
from constrint.kernels.gemm.gated import gated_matmul
from constrint.kernels.gemm.gated.reference import gated_reference
from constrint.kernels.gemm.reference import ACTIVATIONS as REFERENCES
from constrint.kernels.launch.device import describe

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU on this machine"),
]
IS_HOPPER = torch.cuda.is_available() and describe(torch.device("cuda")).target == "sm_90"


def drawn(seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A pair of random sizes and layouts, and its options."""
    draw = random.Random(seed)
    m, n, k = int(2 ** draw.uniform(0, 11)), 8 * int(2 ** draw.uniform(1, 9)), 8 * int(2 ** draw.uniform(3, 8))
    dtype = draw.choice((torch.bfloat16, torch.float16))

    def one(*sizes: int) -> torch.Tensor:
        return torch.randn(sizes, device="cuda").to(dtype)

    if draw.random() < 0.5:
        both = (one(2 * n, k) / k**0.5).t()
    else:
        n = 64 * -(-n // 64)
        both = one(k, 2 * n) / k**0.5
    pair = (both,) if draw.random() < 0.5 else (both[:, :n], both[:, n:])
    options: dict[str, Any] = {"activation": draw.choice(tuple(ACTIVATIONS))}
    if draw.random() < 0.5:
        options |= {"bias_gate": one(n), "bias_up": one(n)}
    return (one(m, k), *pair), options


def excess(out: torch.Tensor, tensors: tuple[Any, ...], options: dict[str, Any], *, is_fused: bool) -> float:
    """The worst error over its bound: sums in fp32, one rounding; three where factors are rounded in between."""
    a, gate = tensors[0], tensors[1]
    half = gate.shape[1] // 2
    gate, up = (gate[:, :half], gate[:, half:]) if len(tensors) == 2 else tensors[1:]
    wide = {name: t.double() if isinstance(t, torch.Tensor) else t for name, t in options.items()}
    z = a.double() @ gate.double() + wide.get("bias_gate", 0.0)
    u = a.double() @ up.double() + wide.get("bias_up", 0.0)
    act = REFERENCES[options["activation"]](z)
    exact = act * u
    # Sums in fp32 are off by their terms; slopes are at most 1.13, that of relu2 twice its argument.
    off = [2.0**-24 * (8 + a.shape[1]) * (a.double().abs() @ w.double().abs() + 4.0) for w in (gate, up)]
    slope = 2 * z.abs() + off[0] if options["activation"] == "relu2" else 1.13
    # Of a number of 16 bits, half a unit, and a sixteenth for the activation (tanh: an eighth); three roundings where
    # factors are rounded in between.
    unit = 2.0**-8 if out.dtype == torch.bfloat16 else 2.0**-11
    roundings = 1.3 if is_fused else 3.5
    if not is_fused:
        # A library may round what is activated, before and after its bias is added.
        off[0] = off[0] + 2 * unit * z.abs() + unit * (z - wide.get("bias_gate", 0.0)).abs()
        off[1] = off[1] + unit * u.abs() + unit * (u - wide.get("bias_up", 0.0)).abs()
    bound = exact.abs() * unit * roundings + slope * off[0] * u.abs() + (act.abs() + off[0]) * off[1] + 2.0**-24
    return float(((out.double() - exact).abs() / bound).nan_to_num(float("inf")).max())


@pytest.mark.skipif(not IS_HOPPER, reason="the fused kernel is written for Hopper")
@pytest.mark.parametrize("seed", range(24))
def test_pairs_in_one_launch_are_right_in_the_first_call_and_later(seed: int) -> None:
    tensors, options = drawn(seed)
    for _ in range(3):
        poison = torch.full((tensors[0].shape[0], 4096), float("nan"), device="cuda", dtype=tensors[0].dtype)
        del poison
        out = gated_matmul(*tensors, kernel="cuda", **options)
        assert excess(out, tensors, options, is_fused=True) <= 1.0


@pytest.mark.parametrize("seed", range(200, 216))
def test_pairs_in_triton_are_right_in_the_first_call_and_later(seed: int) -> None:
    tensors, options = drawn(seed)
    if seed % 2:
        # Rows of odd length, and sizes that no tile divides.
        tensors = (tensors[0][:, :-3], *(weights[:-3] for weights in tensors[1:]))
    for _ in range(2):
        poison = torch.full((tensors[0].shape[0], 4096), float("nan"), device="cuda", dtype=tensors[0].dtype)
        del poison
        out = gated_matmul(*tensors, kernel="pointer", **options)
        assert excess(out, tensors, options, is_fused=True) <= 1.0


@pytest.mark.parametrize("seed", range(6))
def test_pairs_that_are_decided_and_composed_are_right(seed: int) -> None:
    tensors, options = drawn(100 + seed)
    for kernel in ("auto", "composition"):
        out = gated_matmul(*tensors, kernel=kernel, **options)
        assert excess(out, tensors, options, is_fused=False) <= 1.0


def test_a_pair_in_a_graph_gives_the_same() -> None:
    tensors, options = drawn(7)
    expected = gated_matmul(*tensors, **options)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = gated_matmul(*tensors, **options)
    out.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, expected)


def test_gradients_are_near_those_of_fp64() -> None:
    torch.manual_seed(1)
    a, gate, up = (torch.randn(shape, device="cuda") / 8 for shape in ((96, 64), (64, 80), (64, 80)))
    ours = [t.bfloat16().requires_grad_() for t in (a, gate, up)]
    exact = [t.detach().double().requires_grad_() for t in ours]
    mine = torch.autograd.grad(gated_matmul(*ours).float().sum(), ours)
    theirs = torch.autograd.grad(gated_reference(exact[0], exact[1], exact[2]).sum(), exact)
    for one, other in zip(mine, theirs, strict=True):
        assert float((one.double() - other).norm() / other.norm()) < 0.02
