"""`matmul` with a user's epilogue on the CPU: tracing, texts, refusals, results, gradients, and decisions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]", allow_module_level=True)

import torch
from torch import Tensor
from torch.nn import functional

from constrint.errors import UnknownNameError, UnsupportedError, UsageError
from constrint.kernels.gemm import matmul
from constrint.kernels.gemm.traced.expression import MOST_OPERATIONS, OPERATIONS, Expression
from constrint.kernels.gemm.traced.parse import parsed
from constrint.kernels.gemm.traced.reference import FUNCTIONS
from constrint.kernels.gemm.traced.text import _SIMPLE
from constrint.kernels.gemm.traced.trace import traced

#: Functions of torch, and the texts that say the same.
PAIRS: dict[str, tuple[Callable[..., Any], str]] = {
    "residual": (lambda acc, r: acc + r, "acc + r"),
    "scales": (lambda acc, s, t: acc * s * t, "acc * s * t"),
    "gelu times": (lambda acc, t, r: functional.gelu(acc + t) * r, "gelu(acc + t) * r"),
    "tanh gelu": (lambda acc: functional.gelu(acc, approximate="tanh"), "gelu_tanh(acc)"),
    "clamp": (lambda acc, x: torch.clamp(acc, -1, 2) / (1 + torch.exp(-x)), "min(max(acc, -1), 2) / (1 + exp(-x))"),
    "where": (
        lambda acc, r: torch.where((acc > 0) & ~(r <= 1), acc, -r),
        "acc if acc > 0 and not r <= 1 else -r",
    ),
    "powers": (lambda acc, r: acc**2 * (r**2 + 1) ** -0.5, "acc ** 2 * rsqrt(r ** 2 + 1)"),
    "methods": (lambda acc, r: acc.tanh() * r.sigmoid() + acc.erf(), "tanh(acc) * sigmoid(r) + erf(acc)"),
    "logarithm": (lambda acc, r: torch.log(torch.abs(acc) + 2) + (r * r).sqrt(), "log(abs(acc) + 2) + sqrt(r * r)"),
    "no sum": (lambda acc, r: r * 2, "r * 2"),
}


def operands(dtype: torch.dtype = torch.float64, *, grad: bool = False) -> dict[str, Tensor]:
    torch.manual_seed(0)
    shapes = {"a": (2, 3, 16), "b": (16, 10), "r": (2, 3, 10), "s": (2, 3, 1), "t": (10,), "x": ()}
    return {name: torch.randn(shape, dtype=dtype).requires_grad_(grad) for name, shape in shapes.items()}


def of(text: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensors[name] for name in parsed(text).operands}


@pytest.mark.parametrize("name", PAIRS)
def test_a_function_and_its_text_are_one_expression_and_give_torchs_results(name: str) -> None:
    function, text = PAIRS[name]
    tensors = operands()
    given = of(text, tensors)
    out = matmul(tensors["a"], tensors["b"], epilogue=function, operands=given)
    torch.testing.assert_close(out, function(tensors["a"] @ tensors["b"], **given).expand(out.shape))
    assert torch.equal(out, matmul(tensors["a"], tensors["b"], epilogue=text, operands=given))


@pytest.mark.parametrize("name", PAIRS)
def test_gradients_are_right(name: str) -> None:
    function, text = PAIRS[name]
    tensors = operands(grad=True)
    names = parsed(text).operands

    def product(a: Tensor, b: Tensor, *given: Tensor) -> Tensor:
        out: Tensor = matmul(a, b, epilogue=function, operands=dict(zip(names, given, strict=True)))
        return out

    leaves = [tensors["a"], tensors["b"], *(tensors[each] for each in names)]
    assert torch.autograd.gradcheck(product, leaves)
    assert torch.autograd.gradgradcheck(product, leaves)


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_has_a_function_a_text_and_a_gradient(name: str) -> None:
    known = OPERATIONS[name]
    assert name in FUNCTIONS
    assert name in _SIMPLE or name == "exp"
    if known.takes in ("n", "nn") and known.gives == "n":
        text = f"{name}({', '.join(['x * x + 1'] + ['2 * x'] * (len(known.takes) - 1))})"
        x = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
        a = torch.eye(2, dtype=torch.float64)
        assert torch.autograd.gradcheck(lambda x: matmul(a, a, epilogue=text, operands={"x": x}), [x])


def test_a_tape_reads_back_as_it_was_written() -> None:
    for _, text in PAIRS.values():
        expression = parsed(text)
        assert Expression.of_text(expression.text) == expression
    for text in (
        "",
        "acc;add 0",
        "acc;add 0 1",
        "acc;mul 0 -1",
        "acc;constant x",
        "acc;lt 0 0",
        "gelu 0",
        "acc;gelu 0.5",
    ):
        with pytest.raises(UsageError):
            Expression.of_text(text)


def test_numbers_are_compiled_in_and_bias_and_c_are_operands() -> None:
    t = operands()
    out = matmul(t["a"], t["b"], t["t"], c=t["r"], epilogue="(acc + bias) * k + c", operands={"k": 3})
    torch.testing.assert_close(out, (t["a"] @ t["b"] + t["t"]) * 3 + t["r"])


def test_a_function_is_traced_anew_where_what_it_reads_changes() -> None:
    t = operands()
    for factor in (2.0, 3.0):
        out = matmul(t["a"], t["b"], epilogue=lambda acc: acc * factor)  # noqa: B023
        torch.testing.assert_close(out, factor * (t["a"] @ t["b"]))


@pytest.mark.parametrize(
    "text",
    [
        *("gelu(acc", "acc + __import__('os')", "acc.real", "acc[0]", "lambda: 0", "acc ** r", "max(acc)", "acc + 'x'"),
        *("acc if acc else 0", "acc < 1", "f(acc)", "acc @ r", "exp()", "acc, r", "", "acc = 1", "acc + 1" + "0" * 400),
        *("(" * 300 + "acc" + ")" * 300, "x" * 3000, " + ".join(f"acc * {i}" for i in range(MOST_OPERATIONS))),
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parsed(text)


@pytest.mark.parametrize(
    "function",
    [
        *(lambda acc: acc if acc > 0 else -acc, lambda acc: min(acc, 1), lambda acc: torch.cumsum(acc, 0)),
        *(lambda acc: acc.sum(), lambda acc: acc + torch.ones(3), lambda acc: None, lambda *acc: acc[0], lambda: 1),
        *(lambda acc: acc > 0, lambda acc: acc**5, lambda acc: functional.gelu(acc, approximate="other")),
        *(lambda acc: acc + True, lambda acc: acc + 10**400),
    ],
)
def test_other_functions_are_refused(function: Callable[..., Any]) -> None:
    with pytest.raises((UsageError, TypeError)):
        traced(function)


def test_arguments_that_do_not_go_together_are_refused() -> None:
    t = operands()
    a, b = t["a"], t["b"]
    with pytest.raises(UsageError, match="operands are r; operands has none"):
        matmul(a, b, epilogue="acc + r")
    with pytest.raises(UsageError, match="in place of alpha"):
        matmul(a, b, epilogue="acc", alpha=2)
    with pytest.raises(UsageError, match="belong to an epilogue"):
        matmul(a, b, operands={"r": t["r"]})
    with pytest.raises(RuntimeError, match="not broadcast"):
        matmul(a, b, epilogue="acc + r", operands={"r": torch.randn(4, 10)})
    with pytest.raises(TypeError, match="tensor or a number"):
        matmul(a, b, epilogue="acc + r", operands={"r": "1"})  # type: ignore[dict-item]
    with pytest.raises(UnknownNameError):
        matmul(a, b, epilogue="acc", kernel="pointer")
    with pytest.raises(UsageError, match="config needs"):
        matmul(a, b, epilogue="acc", config={"tile_m": 64})
    with pytest.raises(UsageError, match="function or a text"):
        matmul(a, b, epilogue=3)  # type: ignore[arg-type]


def test_torch_compile_sees_one_operator() -> None:
    t = operands(torch.float32)

    def function(a: Tensor, r: Tensor) -> Tensor:
        out: Tensor = matmul(a, t["b"], epilogue=lambda acc, r: functional.gelu(acc) * r, operands={"r": r})
        return out + 1

    compiled = torch.compile(function, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(t["a"], t["r"]), function(t["a"], t["r"]))


# torch looks at the gradients of its own copies, and hides its warning where warnings are no errors.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_the_operator_keeps_its_contract() -> None:
    t = operands(grad=True)
    a, r = t["a"].detach().reshape(-1, 16).requires_grad_(), t["r"].detach().reshape(-1, 10).requires_grad_()
    matmul(a, t["b"], epilogue="acc + r", operands={"r": r})  # the operator is registered by its first use
    text = parsed("gelu(acc) * r + t").text
    named = [r, t["t"].detach()[None].requires_grad_()]
    torch.library.opcheck(torch.ops.constrint.traced_gemm.default, (a, t["b"], named, text, torch.float64, "auto", ""))


def test_transforms_and_batches_run_plain_torch() -> None:
    t = operands()
    each = torch.func.vmap(lambda a: matmul(a, t["b"], epilogue="relu(acc) + t", operands={"t": t["t"]}))(t["a"])
    torch.testing.assert_close(each, (t["a"] @ t["b"]).relu() + t["t"])
    b = torch.randn(2, 16, 10, dtype=torch.float64)
    out = matmul(t["a"], b, epilogue="relu(acc) + r", operands={"r": t["r"]})
    torch.testing.assert_close(out, (t["a"] @ b).relu() + t["r"])


def test_the_decision_compares_one_launch_with_a_product_and_a_pass() -> None:
    shapes = (8192, 768), (768, 3072), (8192, 3072)
    a, b, r = (torch.empty(shape, dtype=torch.bfloat16, device="meta") for shape in shapes)

    def why(text: str, gpu: str, kernel: str = "auto", **given: Tensor) -> Any:
        return matmul.why(a, b, epilogue=text, operands=given, gpu=gpu, kernel=kernel)  # type: ignore[attr-defined]

    on_hopper = why("gelu(acc) * r", "h200", r=r)
    assert {program.name for program in on_hopper.programs} == {"gemm.cuda", "gemm.composition"}
    assert "gelu(acc) * r" in str(on_hopper)
    plain, costly = (
        why(text, "h200", "cuda", r=r).program.seconds for text in ("acc + r", "acc + r + erf(r) + log(r)")
    )
    assert plain < costly
    with_matrix = why("acc + r", "h200", "composition", r=r).program.seconds
    assert with_matrix > why("acc + 1", "h200", "composition").program.seconds
    elsewhere = why("gelu(acc) * r", "a100", r=r)
    assert elsewhere.program.name == "gemm.composition"
    with pytest.raises(UnsupportedError, match=r"gemm\.cuda"):
        why("gelu(acc) * r", "a100", "cuda", r=r)
