"""A user's epilogue on the GPU of this machine, against fp64: fused, as a pass, by plans, in graphs, with gradients."""

from __future__ import annotations

import random
import unittest.mock
from typing import Any

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]: torch or triton is not installed", allow_module_level=True)

import torch
from torch import Tensor
from torch.nn import functional

from constrint.kernels.gemm import matmul
from constrint.kernels.gemm.traced import op as traced_op
from constrint.kernels.gemm.traced.parse import parsed
from constrint.kernels.launch.device import describe
from constrint.kernels.launch.plan.table import plan_states
from tests.support.traced_on_cpu import ROUNDING, exact_and_bound

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU on this machine"),
]
IS_HOPPER = torch.cuda.is_available() and describe(torch.device("cuda")).target == "sm_90"
TEXTS = (
    "gelu(acc + b) * r",
    "acc + r",
    "acc * s * t + x",
    "silu(acc * s + b) + r * r2",
    "tanh(acc) * sigmoid(r) + exp(b / 4) - x * erf(acc)",
    "gelu_tanh(acc + b) * quick_gelu(r) + relu2(s)",
    "acc if acc > -10 else r",
)


def drawn(seed: int) -> tuple[Tensor, Tensor, str, dict[str, Tensor], torch.dtype]:
    """A product of random sizes with an epilogue and its operands, ragged ones among them."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    m, n = (int(2 ** draw.uniform(0, 10.5)) for _ in range(2))
    k = 8 * int(2 ** draw.uniform(2, 7))
    n = n if draw.random() < 0.3 else 8 * -(-n // 8)
    dtype = draw.choice((torch.bfloat16, torch.float16))
    kind = draw.choice((dtype, dtype, torch.float32))
    text = draw.choice(TEXTS)
    shapes = {"b": (n,), "t": (n,), "s": (m, 1), "x": (), "r": (m, n), "r2": (m, n)}
    operands = {}
    for name in parsed(text).operands:
        other = draw.choice((dtype, dtype, torch.float32, torch.float64))
        whole = torch.randn((m, n + draw.choice((0, 8, 3))) if name in ("r", "r2") else shapes[name], device="cuda")
        operands[name] = whole.to(other)[..., :n] if name in ("r", "r2") else whole.to(other)
    a, b = torch.randn(m, k, device="cuda"), torch.randn(n, k, device="cuda") / k**0.5
    b = b.to(dtype).t() if draw.random() < 0.7 else b.to(dtype).t().contiguous()
    return a.to(dtype), b, text, operands, kind


def excess(out: Tensor, a: Tensor, b: Tensor, text: str, operands: dict[str, Tensor], *, is_rounded: bool) -> float:
    """The worst error over its bound; `is_rounded`: the product was rounded to the type of the result."""
    acc = a.double() @ b.double()
    error = a.shape[1] * 2.0**-24 * (a.double().abs() @ b.double().abs())
    if is_rounded:
        error = error + acc.abs() * ROUNDING[out.dtype]
    flat = {name: t if t.dim() else t.reshape(()) for name, t in operands.items()}
    exact, bound = exact_and_bound(parsed(text), acc, flat, out.dtype, error)
    return float(((out.double() - exact).abs() / bound).nan_to_num(nan=torch.inf).max())


@pytest.mark.parametrize("seed", range(40))
def test_results_are_right_by_every_program(seed: int) -> None:
    a, b, text, operands, kind = drawn(seed)
    for kernel in ("auto", "composition"):
        for _ in range(2):
            out = matmul(a, b, epilogue=text, operands=operands, out_dtype=kind, kernel=kernel)
            assert excess(out, a, b, text, operands, is_rounded=True) <= 1


@pytest.mark.skipif(not IS_HOPPER, reason="gemm.cuda is for Hopper")
@pytest.mark.parametrize("seed", range(100, 140))
def test_the_fused_kernel_rounds_once(seed: int) -> None:
    a, b, text, operands, kind = drawn(seed)
    if b.stride(1) == 1 and (b.shape[1] % 8 or b.shape[1] < 64):
        b = b.t().contiguous().t()  # the fused kernel takes no shorter rows across K
    poison = torch.full((a.shape[0], b.shape[1]), torch.nan, device="cuda", dtype=kind)
    del poison
    out = matmul(a, b, epilogue=text, operands=operands, out_dtype=kind, kernel="cuda")
    assert excess(out, a, b, text, operands, is_rounded=False) <= 1


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")  # of torch itself
# Torch says so of its own product, the first that runs in the thread of its gradients.
@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS:UserWarning")
def test_a_traced_function_a_graph_and_gradients() -> None:
    torch.manual_seed(0)
    options: dict[str, Any] = {"device": "cuda", "dtype": torch.bfloat16}
    a, b = torch.randn(256, 192, **options), torch.randn(128, 192, **options).t() / 14
    bias, r = torch.randn(128, **options), torch.randn(256, 128, **options)

    def end(acc: Tensor, bias: Tensor, r: Tensor) -> Tensor:
        return functional.gelu(acc + bias) * r

    out = matmul(a, b, bias, epilogue=end, operands={"r": r})
    assert excess(out, a, b, "gelu(acc + bias) * r", {"bias": bias, "r": r}, is_rounded=True) <= 1
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        again = matmul(a, b, bias, epilogue=end, operands={"r": r})
    graph.replay()
    assert torch.equal(again, out)
    compiled = torch.compile(lambda a, b: matmul(a, b, bias, epilogue=end, operands={"r": r}) + 1, fullgraph=True)
    torch.testing.assert_close(compiled(a, b), out + 1, rtol=2**-6, atol=2**-6)
    leaves = [t.detach().requires_grad_() for t in (a, b, bias, r)]
    matmul(leaves[0], leaves[1], leaves[2], epilogue=end, operands={"r": leaves[3]}).sum().backward()  # type: ignore[no-untyped-call]
    wide = [t.detach().double().requires_grad_() for t in (a, b, bias, r)]
    (functional.gelu(wide[0] @ wide[1] + wide[2]) * wide[3]).sum().backward()  # type: ignore[no-untyped-call]
    for narrow, exact in zip(leaves, wide, strict=True):
        assert narrow.grad is not None
        assert exact.grad is not None
        # The gradient of the sum is rounded to bf16 before 128 to 256 of its products are added, in random order.
        scale = exact.grad.abs().max()
        assert ((narrow.grad.double() - exact.grad).abs() <= 2.0**-7 * exact.grad.abs() + 2.0**-8 * scale).all()


def test_batches_end_in_a_pass() -> None:
    torch.manual_seed(1)
    a, b = torch.randn(3, 40, 64, device="cuda").bfloat16(), torch.randn(3, 64, 48, device="cuda").bfloat16() / 8
    r = torch.randn(3, 40, 48, device="cuda").bfloat16()
    out = matmul(a, b, epilogue="relu(acc) + r", operands={"r": r})
    expected = (a.double() @ b.double()).relu() + r.double()
    assert (
        (out.double() - expected).abs() <= 2.0**-7 * (expected.abs() + (a.double() @ b.double()).abs()) + 1e-3
    ).all()


@pytest.mark.parametrize("kernel", ["auto", "composition"])
@pytest.mark.parametrize(
    ("of_a", "of_b"),
    [((96, 256), (256, 192)), ((2, 48, 256), (256, 192)), ((3, 40, 64), (3, 64, 48)), ((256,), (256, 64))],
)
def test_later_calls_run_by_a_plan(of_a: tuple[int, ...], of_b: tuple[int, ...], kernel: str) -> None:
    """Of any shapes, with functions made anew, of which no operator sees anything."""
    torch.manual_seed(2)
    a, b = torch.randn(of_a, device="cuda").bfloat16(), torch.randn(of_b, device="cuda").bfloat16() / of_b[-2] ** 0.5
    acc = a.double() @ b.double()
    r, row = torch.randn(acc.shape, device="cuda").bfloat16(), torch.randn(of_b[-1], device="cuda").bfloat16()

    def call(factor: float) -> Tensor:
        given: dict[str, Any] = {"r": r, "row": row}
        out: Tensor = matmul(
            a, b, epilogue=lambda acc, row, r: torch.relu(acc + row) * factor + r, operands=given, kernel=kernel
        )
        return out

    for factor in (1.0, 2.0, 1.0):
        for _ in range(5):
            expected = (acc + row.double()).relu() * factor + r.double()
            error = 2.0**-8 * (2.02 * expected.abs() + factor * acc.abs()) + 1e-3
            assert ((call(factor).double() - expected).abs() <= error).all()
    torch.cuda.synchronize()
    before = plan_states()["traced_matmul"]
    with unittest.mock.patch.object(traced_op, "checked", side_effect=AssertionError("a call has no plan")):
        for _ in range(4):
            call(2.0)
    after = plan_states()["traced_matmul"]
    assert after.hits == before.hits + 4
    assert (after.entries, after.misses) == (before.entries, before.misses)
