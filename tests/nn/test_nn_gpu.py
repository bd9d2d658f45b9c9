"""Layers and their gradients on the GPU of this machine, against fp64 and beside torch; a patched block in training."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]: torch or triton is not installed", allow_module_level=True)

import torch
from torch import Tensor, nn
from torch.nn import functional

import constrint
from constrint.kernels.gemm.backward.plans import BACKWARD, KEEPS_SUM
from constrint.kernels.gemm.first_call import plan_of_call
from constrint.kernels.gemm.gated.passes import GATES, GRADIENTS, gate
from constrint.kernels.gemm.library.candidates import COMPOSED
from constrint.kernels.gemm.linear import _RECURRING, LINEARS, end_of
from constrint.kernels.gemm.reference import ACTIVATIONS
from constrint.kernels.launch.plan.trial import trials_are_on
from constrint.nn.linear import run
from tests.support.blocks import BLOCKS, Conv1D, Gated, Mlp

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU on this machine"),
    # Torch says so of its own product in the thread of its gradients.
    pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS:UserWarning"),
]

#: Half a unit in the last place, relative.
HALF_UNIT = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
SHAPES = ((512, 768, 1024), (333, 200, 136), (70, 45, 33), (1, 512, 256), (129, 515, 1000))


def operands(shape: tuple[int, int, int], dtype: torch.dtype, *batch: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    m, k, n = shape
    generator = torch.Generator("cuda").manual_seed(sum(shape))

    def randn(*sizes: int) -> Tensor:
        return torch.randn(sizes, device="cuda", generator=generator)

    leaves = [randn(*batch, m, k), randn(n, k) * k**-0.5, randn(n)]
    x, weight, bias = (t.to(dtype).requires_grad_() for t in leaves)
    return x, weight, bias, randn(*batch, m, n).to(dtype)


def program_of(x: Tensor, weight: Tensor, bias: Tensor, activation: str | None) -> str:
    """The program that a layer's plan calls for its product, as the plan notes it; tests try none (`conftest.py`)."""
    assert not trials_are_on()
    first = None if activation in KEEPS_SUM else activation
    operands = x.detach(), weight.detach().t(), bias.detach(), None
    return plan_of_call(operands, end_of(first)).recipe.note.split(" ")[0]


def excess(dtype: torch.dtype, shape: tuple[int, int, int], activation: str | None, *batch: int) -> dict[str, float]:
    """Errors of the result and all gradients over their bounds.

    The sum before the activation is rounded where it is stored, which moves the derivative by its steepest slope; the
    gradient before the activation is rounded once, and every result once; sums are of 32 bits. Where the program that
    ran is the library's product and a pointwise kernel, the product is rounded before the bias is added. The first
    call, which is torch's own, has to be equal to torch's.
    """
    x, weight, bias, gradient = operands(shape, dtype, *batch)
    unit, (m, k, n) = HALF_UNIT[dtype], shape
    rows = m * (batch[0] if batch else 1)
    wide = [t.detach().double() for t in (x.flatten(0, -2), weight, bias, gradient.flatten(0, -2))]
    wx, ww, wb, wg = wide
    z = wx @ ww.T + wb
    least = unit * z.abs() + k * 2.0**-23 * (wx.abs() @ ww.abs().T + wb.abs())
    program = program_of(x, weight, bias, activation)
    moved = least + unit * (z - wb).abs() if program == COMPOSED else least
    if not (k % 8 or n % 8):
        assert program != COMPOSED, "where rows are aligned, the library adds the bias before it rounds"
    worst: dict[str, float] = {}
    _RECURRING.clear()
    LINEARS.clear()  # layers with other activations may have the same product's plan
    first, own = run(x, weight, bias, activation), functional.linear(x, weight, bias)
    assert torch.equal(first, own if activation is None else ACTIVATIONS[activation](own))
    for _ in range(4):  # the first call of a plan, and later ones
        out = run(x, weight, bias, activation)
        found = torch.autograd.grad(out, (x, weight, bias), gradient)
        before, step = wg, torch.zeros_like(wg)
        slope = 2.0 * (z.abs() + moved) if activation == "relu2" else 1.2
        exact = z
        if activation == "relu":
            before, exact = torch.where(out.flatten(0, -2) > 0, wg, 0.0), z.relu()
        elif activation is not None:
            argument = z.clone().requires_grad_()
            exact = ACTIVATIONS[activation](argument)
            (before,) = torch.autograd.grad(exact, argument, wg)
            step = wg.abs() * (2.0 * moved + 2.0**-20)
        if activation is not None:
            step = step + unit * before.abs()
        of_x, of_weight, of_bias = before @ ww, before.T @ wx, before.sum(0)
        pairs: dict[str, tuple[Tensor, Tensor, Tensor]] = {
            "out": (out.detach(), exact.detach(), slope * moved),
            "x": (found[0], of_x, step @ ww.abs() + n * 2.0**-23 * (before.abs() @ ww.abs())),
            "weight": (found[1], of_weight, step.T @ wx.abs() + rows * 2.0**-23 * (before.abs().T @ wx.abs())),
            "bias": (found[2], of_bias, step.sum(0) + rows * 2.0**-23 * before.abs().sum(0)),
        }
        for name, (given, right, bound) in pairs.items():
            error = (given.double().reshape(right.shape) - right).abs() / (bound + 1.05 * unit * right.abs() + 2.0**-24)
            told = f"{name} by {program}"
            worst[told] = max(worst.get(told, 0.0), float(error.nan_to_num(float("inf")).max()))
    return worst


@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
@pytest.mark.parametrize("dtype", list(HALF_UNIT), ids=str)
def test_results_and_gradients_are_right(dtype: torch.dtype, activation: str | None) -> None:
    for shape in SHAPES:
        for name, error in excess(dtype, shape, activation).items():
            assert error <= 1.0, (shape, name)
    for name, error in excess(dtype, (65, 264, 136), activation, 3).items():
        assert error <= 1.0, ("three axes", name)


def test_the_plans_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call of each table for a step, and no kernel of torch's for the bias."""
    x, weight, bias, gradient = operands((256, 512, 384), torch.bfloat16)
    for _ in range(2):  # torch's own, and the one that chooses
        torch.autograd.grad(run(x, weight, bias, "gelu"), (x, weight, bias), gradient)
    before = LINEARS.state().hits, BACKWARD.state().hits
    for _ in range(3):
        torch.autograd.grad(run(x, weight, bias, "gelu"), (x, weight, bias), gradient)
    assert LINEARS.state().hits - before[0] >= 3
    assert BACKWARD.state().hits - before[1] >= 3


@pytest.mark.filterwarnings("ignore:Deterministic behavior was enabled:UserWarning")
def test_deterministic_algorithms_are_torch_s_in_all_calls() -> None:
    x, weight, bias, _ = operands((256, 512, 384), torch.bfloat16)
    layer = nn.Linear(512, 384, device="cuda", dtype=torch.bfloat16)
    layer.weight, layer.bias = nn.Parameter(weight.detach()), nn.Parameter(bias.detach())
    constrint.patch(layer)
    right = functional.linear(x, weight, bias)
    torch.use_deterministic_algorithms(True, warn_only=True)  # CUBLAS_WORKSPACE_CONFIG may be unset
    try:
        for _ in range(4):
            assert torch.equal(layer(x), right)
            with torch.no_grad():
                assert torch.equal(layer(x), right)
    finally:
        torch.use_deterministic_algorithms(False)


def test_gradients_have_the_order_of_their_tensors_and_the_same_bits_in_every_run() -> None:
    x, weight, bias, gradient = operands((2048, 256, 320), torch.bfloat16)
    found: list[tuple[Tensor, ...]] = []
    for _ in range(8):
        found.append(torch.autograd.grad(run(x, weight, bias, "gelu"), (x, weight, bias), gradient))
        torch.cuda.synchronize()
    assert [t.stride() for t in found[-1]] == [t.stride() for t in (x, weight, bias)]
    for one, other in zip(found[-1], found[-2], strict=True):
        assert torch.equal(one, other)


def test_a_gradient_of_gradients_is_that_of_torch() -> None:
    x, weight, bias, _ = operands((64, 128, 96), torch.float16)

    def twice(function: Any) -> tuple[Tensor, ...]:
        (first,) = torch.autograd.grad(function().float().square().sum() / 64, x, create_graph=True)
        return torch.autograd.grad(first.float().square().sum(), (x, weight))

    ours = twice(lambda: run(x, weight, bias, "gelu"))
    theirs = twice(lambda: functional.gelu(functional.linear(x, weight, bias)))
    for one, other in zip(ours, theirs, strict=True):
        scale = float(other.abs().max())
        torch.testing.assert_close(one, other, rtol=0.0, atol=0.02 * scale)


def test_autocast_gives_the_types_of_torch() -> None:
    layer = nn.Linear(256, 128, device="cuda")
    ours = copy.deepcopy(layer)
    constrint.patch(ours)
    x = torch.randn(64, 256, device="cuda")
    for has_gradients in (True, False):
        with torch.set_grad_enabled(has_gradients), torch.autocast("cuda", dtype=torch.bfloat16):
            one, other = ours(x), layer(x)
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=2.0**-6, atol=2.0**-6)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        ours(x).float().square().mean().backward()
    assert ours.weight.grad is not None
    assert ours.weight.grad.dtype == torch.float32


@pytest.mark.parametrize("is_one", [False, True], ids=["two tensors", "side by side"])
@pytest.mark.parametrize("dtype", [*HALF_UNIT, torch.float32], ids=str)
def test_a_gate_and_its_gradients_are_right(dtype: torch.dtype, is_one: bool) -> None:
    """Each result is rounded once; activations of 16-bit results are right to a sixteenth of half a unit more."""
    unit = HALF_UNIT.get(dtype, 2.0**-22)
    for shape in ((3, 65, 264), (1, 48), (4097, 1030), (7, 13)):
        generator = torch.Generator("cuda").manual_seed(shape[-1])
        z, u, gradient = (2 * torch.randn(shape, device="cuda", generator=generator).to(dtype) for _ in range(3))
        for activation in ACTIVATIONS:
            wide = [t.double().requires_grad_() for t in (z, u)]
            exact = ACTIVATIONS[activation](wide[0]) * wide[1]
            right = [exact, *torch.autograd.grad(exact, wide, gradient.double())]
            leaves = [torch.cat((z, u), -1)] if is_one else [z.clone(), u.clone()]
            with torch.no_grad():
                inner = gate(leaves[0], None if is_one else leaves[1], activation)
            out = gate(leaves[0].requires_grad_(), None if is_one else leaves[1].requires_grad_(), activation)
            found = torch.autograd.grad(out, leaves, gradient)
            assert torch.equal(inner, out)
            parts = found[0].chunk(2, dim=-1) if is_one else found
            # Activations and derivatives are right to 2^-18 of what they are multiplied with.
            scales = [(one * other).abs().double() for one, other in ((z, u), (gradient, u), (gradient, z))]
            for given, wanted, scale in zip((out, *parts), right, scales, strict=True):
                bound = 1.13 * unit * wanted.abs() + 2.0**-18 * scale + 2.0**-21
                assert bool(((given.double() - wanted).abs() <= bound).all()), (shape, activation)
    assert GATES.state().hits
    assert GRADIENTS.state().hits


PERCEPTRONS: dict[str, Callable[[], nn.Module]] = {
    "silu, gated": lambda: Gated(nn.SiLU(), 512, 1280),
    "gelu, gated": lambda: Gated(nn.GELU("tanh"), 512, 1280),
    "gelu": lambda: Mlp(nn.GELU(), nn.Linear, 512, 1280),
    "gelu of GPT-2": lambda: Mlp(nn.GELU("tanh"), lambda inner, outer: Conv1D(outer, inner), 512, 1280),
}


@pytest.mark.parametrize("name", PERCEPTRONS)
def test_a_perceptron_and_its_gradients_are_right(name: str) -> None:
    """Before and after the patch against fp64, without gradients (one launch) and with them (two, and a pass)."""
    torch.manual_seed(0)
    before = PERCEPTRONS[name]().to("cuda", torch.bfloat16)
    exact, after = copy.deepcopy(before).double(), copy.deepcopy(before)
    (replaced,) = (each for each in constrint.patch(after).replaced if not each.name)
    assert "within one call" in replaced.gain
    for shape in ((4, 96, 512), (700, 512), (1, 512)):
        x = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        wide, errors = exact(x.double()), []
        for model in (before, after, after, after):
            with torch.no_grad():
                inner = model(x)
            outs = inner, model(x)
            of = torch.autograd.grad(outs[1].float().square().mean(), list(model.parameters()))
            right = torch.autograd.grad(wide.square().mean(), list(exact.parameters()), retain_graph=True)
            pairs = [(out, wide) for out in outs] + list(zip(of, right, strict=True))
            errors.append([float((a.double() - b).detach().norm() / b.detach().norm()) for a, b in pairs])
        for found in errors[1:]:
            for error, usual in zip(found, errors[0], strict=True):
                assert error <= 1.25 * usual + 2.0**-9


@pytest.mark.parametrize("name", BLOCKS)
def test_a_patched_block_trains_as_before(name: str) -> None:
    torch.manual_seed(0)
    block = BLOCKS[name]().to("cuda", torch.bfloat16)
    exact = copy.deepcopy(block).double()
    x = torch.randn(4, 64, 32, device="cuda", dtype=torch.bfloat16)
    errors = []
    for _ in range(2):
        out = block(x)
        gradients = torch.autograd.grad(out.float().square().mean(), list(block.parameters()))
        wide = exact(x.double())
        right = torch.autograd.grad(wide.square().mean(), list(exact.parameters()))
        apart = [float((a.double() - b).norm() / (b.norm() + 1e-9)) for a, b in zip(gradients, right, strict=True)]
        errors.append((float(((out.double() - wide).norm() / wide.norm()).detach()), max(apart)))
        constrint.patch(block)
    (before, of_before), (after, of_after) = errors
    assert after <= 1.5 * before + 2.0**-9
    assert of_after <= 1.5 * of_before + 2.0**-6
