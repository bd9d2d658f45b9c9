"""Backward passes in Triton's interpreter, run by `tests.support.interpreter`: are all results of a plan right?

Every function takes a case read from JSON and says whether the result is within the bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from constrint.hwmodels import load_gpu
from constrint.kernels.gemm import first_call
from constrint.kernels.gemm.backward import plans
from constrint.kernels.gemm.backward.launch import activation_launch
from constrint.kernels.gemm.gated.passes import gate_gradient_launch, gate_launch
from constrint.kernels.gemm.launch import Machine
from constrint.kernels.gemm.reference import ACTIVATIONS
from constrint.kernels.launch.plan.recipe import Recipe, RecordedCall
from constrint.kernels.launch.plan.scratch import NotedScratch

DTYPES = {"fp16": torch.float16, "fp32": torch.float32}
ROUNDOFF = {torch.float16: 2.0**-11, torch.float32: 2.0**-24}


def plan_is_right(case: dict[str, Any]) -> bool:
    """All results of a backward pass as its plan lists its launches, against gradients in fp64."""
    gpu = load_gpu("h200")
    setattr(first_call, "machine_of", lambda _: (gpu, Machine(case.get("sm_count", 4))))  # noqa: B010
    setattr(first_call, "has_nvrtc", lambda: False)  # noqa: B010 - Triton's kernels alone can be interpreted
    setattr(plans, "recipe_of", _run)  # noqa: B010
    dtype, wide = DTYPES[case.get("dtype", "fp16")], torch.float64
    m, n, k = case["sizes"]
    generator = torch.Generator().manual_seed(m * n + k)

    def randn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    a = randn(*case.get("batch", ()), m, k)
    b = randn(n, k) if case.get("is_linear") else randn(k, n)
    if case.get("by_columns"):
        a, b = a.mT.contiguous().mT, b.mT.contiguous().mT
    activation, alpha = case.get("activation"), case.get("alpha", 1.0)
    gradient = randn(*a.shape[:-1], n).to(DTYPES[case.get("gradient", case.get("dtype", "fp16"))])
    if case.get("expanded"):
        gradient = gradient[..., :1].expand(gradient.shape)
    saved = randn(*a.shape[:-1], n) if activation else None
    bias = DTYPES[case["bias"]] if case.get("bias") else None
    key = (alpha, activation, case.get("of_a", True), case.get("of_b", True), bias, case.get("of_sum", False))
    recipe = plans._plan_of_backward((gradient, a, b, saved), (*key, bool(case.get("is_linear")), "kernels")).recipe
    found = _RESULTS[: recipe.num_results]
    before = gradient.double()
    if activation == "relu":
        before = torch.where(saved.double() <= 0, 0.0, before)  # type: ignore[union-attr]
    elif activation is not None:
        z = saved.double().requires_grad_()  # type: ignore[union-attr]
        (before,) = torch.autograd.grad(ACTIVATIONS[activation](z), z, before)
    rows, flat = before.reshape(-1, n), a.reshape(-1, k).double()
    # The gradient before the activation is rounded once, its derivative is right to 2^-21 of the gradient.
    step = 2.0**-20 * gradient.double().abs() + (ROUNDOFF[dtype] * before.abs() if activation or bias else 0)
    step = (step + ROUNDOFF[dtype] * before.abs()).reshape(-1, n) + 2.0**-24
    of_b = b.double() if case.get("is_linear") else b.double().mT  # (N, K)
    expected: list[tuple[Tensor, Tensor]] = []
    if key[2]:
        sums = rows.abs() @ of_b.abs()
        exact = alpha * rows @ of_b
        bound = alpha * (step @ of_b.abs() + n * 2.0**-23 * sums) + ROUNDOFF[dtype] * exact.abs() + 2.0**-24
        expected.append((exact.reshape(a.shape), bound.reshape(a.shape)))
    if key[3]:
        exact = alpha * rows.mT @ flat
        bound = alpha * (step.mT @ flat.abs() + len(rows) * 2.0**-23 * (rows.abs().mT @ flat.abs()))
        bound = bound + ROUNDOFF[dtype] * exact.abs() + 2.0**-24
        expected.append((exact, bound) if case.get("is_linear") else (exact.mT, bound.mT))
    if bias is not None:
        exact = rows.sum(0)
        bound = 2.0**-20 * gradient.double().abs().reshape(-1, n).sum(0) + len(rows) * 2.0**-23 * rows.abs().sum(0)
        expected.append((exact, bound + ROUNDOFF[bias] * exact.abs() + 2.0**-24))
    if key[5]:
        expected.append((before, step.reshape(before.shape)))
    assert len(found) == len(expected)
    for out, (exact, bound) in zip(found, expected, strict=True):
        assert out.shape == exact.shape
        if not bool(((out.to(wide) - exact).abs() <= 1.01 * bound).all()):
            return False
    orders = [t.stride() == like.stride() for t, like in zip(found, (a, b), strict=False) if key[2] and key[3]]
    return all(orders)


_RESULTS: list[Tensor] = []


def _run(
    launches: Sequence[Any], tensors: Any, results: Sequence[Tensor], scratch: NotedScratch, note: str = "", **_: Any
) -> RecordedCall:
    """Run the launches of a plan in place of recording them; those of a trial, without results, only once more."""
    if results:
        for t in (*results, *scratch.fresh):
            t.fill_(float("nan"))
        for t in (*scratch.zeroed, *scratch.counted):
            t.zero_()
        for launch in launches:
            launch.run()
        assert all(not counter.any() for counter in scratch.counted), "counters are left at zero"
        _RESULTS[:] = results
    return RecordedCall(Recipe([], [], 0, 0, note), [])


def activation_is_right(case: dict[str, Any]) -> bool:
    """The activation of a flat tensor, rounded once."""
    z = 4 * torch.randn(case["num"], generator=torch.Generator().manual_seed(case["num"])).half()
    out = torch.full_like(z, float("nan"))
    activation_launch(z, case["activation"], out, case.get("sm_count", 1)).run()
    exact = ACTIVATIONS[case["activation"]](z.double())
    # Half a unit, and a tenth of that for the polynomials of 16-bit results.
    return bool(
        ((out.double() - exact).abs() <= 1.1 * 2.0**-11 * exact.abs() + 2.0**-21 * z.double().abs() + 2.0**-24).all()
    )


def gate_is_right(case: dict[str, Any]) -> bool:
    """activation(z) * u and both gradients, each rounded once, from two tensors or from one with both side by side."""
    dtype, (m, n), activation = DTYPES[case.get("dtype", "fp16")], case["sizes"], case["activation"]
    generator = torch.Generator().manual_seed(m * n)
    z, u, gradient = (torch.randn((m, n), generator=generator).to(dtype) for _ in range(3))
    out = torch.full_like(z, float("nan"))
    if case["is_one"]:
        both = torch.cat((z, u), dim=1)
        of_both = torch.full_like(both, float("nan"))
        gate_launch(both, None, out, activation).run()
        gate_gradient_launch(gradient, both, None, of_both, None, activation).run()
        of_z, of_u = of_both.chunk(2, dim=1)
    else:
        of_z, of_u = torch.full_like(z, float("nan")), torch.full_like(z, float("nan"))
        gate_launch(z, u, out, activation).run()
        gate_gradient_launch(gradient, z, u, of_z, of_u, activation).run()
    wide = [t.double().requires_grad_() for t in (z, u)]
    exact = ACTIVATIONS[activation](wide[0]) * wide[1]
    right = [exact, *torch.autograd.grad(exact, wide, gradient.double())]
    # Activations and derivatives are right to 2^-18 of what they are multiplied with.
    scales = [(one * other).abs().double() for one, other in ((z, u), (gradient, u), (gradient, z))]
    for found, wanted, scale in zip((out, of_z, of_u), right, scales, strict=True):
        bound = 1.1 * ROUNDOFF[dtype] * wanted.abs() + 2.0**-18 * scale + 2.0**-24
        if not bool(((found.double() - wanted).abs() <= bound).all()):
            return False
    return True
