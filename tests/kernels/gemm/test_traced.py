"""`matmul` with a user's epilogue on the CPU: tracing, texts, refusals, results, gradients, and decisions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]", allow_module_level=True)

import msgspec
import torch
from torch import Tensor
from torch.nn import functional

from constrint.errors import UnknownNameError, UnsupportedError, UsageError
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm import first_call, matmul, trial
from constrint.kernels.gemm.launch import Epilogue, Machine
from constrint.kernels.gemm.library import planned as library_planned
from constrint.kernels.gemm.traced import op as traced_op
from constrint.kernels.gemm.traced import planned
from constrint.kernels.gemm.traced.expression import MOST_OPERATIONS, OPERATIONS, Expression
from constrint.kernels.gemm.traced.parse import parsed
from constrint.kernels.gemm.traced.reference import FUNCTIONS
from constrint.kernels.gemm.traced.text import _SIMPLE
from constrint.kernels.gemm.traced.trace import traced
from constrint.kernels.launch.cuda.tensor_map import TensorMap
from constrint.kernels.launch.plan.recipe import FillStep, Recipe, RecordedCall
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.launch.plan.table import IS_NEW
from constrint.kernels.launch.plan.trial import use_trials

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


class FakePlans:
    """Stands for a table of plans that knows every signature once it was asked for it."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.learnt: list[tuple[Any, ...]] = []

    def call(self, *given: Any) -> Any:
        self.calls.append(given)
        return "known" if self.learnt else IS_NEW

    def learn(self, *given: Any) -> Any:
        self.learnt.append(given)
        return "learnt"


def test_later_calls_are_one_look_up_with_the_tensors_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    plans, t = FakePlans(), operands(torch.float32)
    monkeypatch.setattr(traced_op, "_PLANS", plans)

    def call() -> Any:
        return matmul(t["a"], t["b"], t["t"], epilogue=lambda acc, bias, r, k: (acc + bias) * k + r, operands=given)

    given: dict[str, Tensor | float] = {"r": t["r"], "k": 3}
    assert call() == "learnt"
    for name in ("_asked", "checked", "_laid", "request_for"):
        monkeypatch.setattr(traced_op, name, None)  # nothing of the first call runs again
    assert call() == call() == "known"
    assert len(plans.calls) == 3
    is_inner, end, *tensors = plans.calls[-1]
    assert not is_inner
    assert end[1:] == (None, "auto", "")
    assert str(Expression.of_text(end[0])) == "((acc + bias) * 3) + r"
    assert all(one is other for one, other in zip(tensors, (t["a"], t["b"], t["t"], t["r"]), strict=True))
    (learnt,) = plans.learnt
    assert learnt[0] == end
    given["k"] = 4
    call()
    assert str(Expression.of_text(plans.calls[-1][1][0])) == "((acc + bias) * 4) + r"
    given["k"] = -0.0
    call()
    assert str(Expression.of_text(plans.calls[-1][1][0])) == "((acc + bias) * -0) + r"
    given["k"] = 0.0
    call()
    assert str(Expression.of_text(plans.calls[-1][1][0])) == "((acc + bias) * 0) + r"


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The CPU is an H200; launches are recorded without being compiled: what `recipe_of` is given."""
    given: list[Any] = []
    h200 = load_gpu("h200")

    def record(launches: Any, tensors: Any, results: Any, scratch: Any, note: str = "", **_: Any) -> RecordedCall:
        given.append((launches, tensors, results))
        outputs = [(list(t.shape), list(t.stride()), "bfloat16") for t in results]
        return RecordedCall(Recipe([FillStep(0, 0, 0)], outputs, len(results), 0, note), [])

    for module in (traced_op, planned, library_planned):
        monkeypatch.setattr(module, "recipe_of", record)
    for module in (traced_op, first_call):
        monkeypatch.setattr(module, "machine_of", lambda _: (h200, Machine.of(h200)))
    monkeypatch.setattr(traced_op, "has_nvrtc", lambda: True)
    return given


def test_the_fused_kernel_s_plan_takes_rows_of_any_shape(recorded: list[Any]) -> None:
    a, b = torch.randn(2, 128, 256).bfloat16(), torch.randn(512, 256).bfloat16().t()
    r, row = torch.randn(2, 128, 512).bfloat16(), torch.randn(512).bfloat16()
    expression = parsed("gelu(acc + row) * r")
    made = traced_op._build((a, b, row, r), (expression.text, None, "auto", ""))
    assert made.recipe.function is None
    assert made.recipe.outputs == [([2, 128, 512], [128 * 512, 512, 1], "bfloat16")]
    ((launch,), tensors, _) = recorded[0]
    assert tensors == (a, b, row, r)
    places = {t.data_ptr() for t in (a, b, row, r)}
    read = {each.data_ptr() for each in launch.arguments if isinstance(each, Tensor)}
    read |= {each.tensor.data_ptr() for each in launch.arguments if isinstance(each, TensorMap)}
    assert places <= read


def test_a_composition_runs_the_products_plan_and_that_of_the_pass(
    recorded: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = torch.randn(3, 40, 64).bfloat16(), torch.randn(3, 64, 48).bfloat16()
    r, row = torch.randn(3, 40, 48).bfloat16(), torch.randn(48).bfloat16()
    text = parsed("relu(acc + row) + r").text

    def no_plan(_: Any) -> Any:
        raise NotPlannedError("the product is no plan's part")

    monkeypatch.setattr(planned.TracedPlans, "recorded", no_plan)
    made = traced_op._build((a, b, row, r), (text, torch.float32, "auto", ""))
    ((_,), _, (out,)) = recorded[0]
    assert out.shape == (3, 40, 48), "the pass stores the result's shape"
    stated = msgspec.msgpack.decode(msgspec.msgpack.encode(made.recipe), type=Recipe).function
    assert stated is not None
    run = traced_op._function_of(stated)
    products, passes = FakePlans(), FakePlans()
    monkeypatch.setattr(traced_op, "PRODUCTS", products)
    monkeypatch.setattr(traced_op, "_PASSES", passes)
    run(a, b, row, r)
    run(a, b, row, r)
    assert len(passes.learnt) == len(products.learnt) == 1
    assert products.calls[-1] == (True, (1.0, 0.0, None, torch.float32, "auto", ""), a, b, None, None)
    assert passes.calls[-1] == (True, (text, torch.float32), "known", row, r)
    monkeypatch.setattr(products, "call", lambda *_: None)
    assert run(a, b, row, r) is None, "the caller goes on without a plan"


def test_a_product_of_our_own_and_the_pass_are_one_plan(recorded: list[Any]) -> None:
    a, b = torch.randn(3, 40, 64).bfloat16(), torch.randn(3, 64, 48).bfloat16()
    r, row = torch.randn(3, 40, 48).bfloat16(), torch.randn(48).bfloat16()
    made = traced_op._build((a, b, row, r), (parsed("relu(acc + row) + r").text, torch.float32, "auto", ""))
    assert made.recipe.function is None
    ((*product, end), tensors, (out,)) = recorded[0]
    assert product, "a batch is no product of the fused kernel's"
    assert tensors == (a, b, row, r)
    assert out.shape == (3, 40, 48)
    z, stored, *_ = end.arguments
    assert z.data_ptr() == stored.data_ptr() == out.data_ptr(), "the pass works in place"


def test_the_first_calls_try_the_fused_kernel_beside_the_librarys_product_and_a_pass(
    recorded: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def followed(product: Any, launch: Any, tensors: Any, out: Any, note: str, config: Any) -> RecordedCall:
        assert product.out.data_ptr() == out.data_ptr()
        assert product.epilogue == Epilogue()
        return RecordedCall(Recipe([FillStep(0, 0, len(config))], [], 1, 0, note), [])

    monkeypatch.setattr(planned, "followed_plan", followed)
    a, b = torch.randn(31, 3072).half(), torch.randn(11008, 3072).half().t()
    call = (a, b), (parsed("30 * tanh(acc / 30)").text, None, "auto", "")
    assert traced_op._build(*call).rivals is None
    use_trials(True)
    try:
        made = traced_op._build(*call)
        assert made.recipe.note.startswith("gemm.cuda")
        assert made.rivals is not None
        first, *others = made.rivals.labels
        assert first == made.recipe.note
        assert "gemm.composition: gemm.library" in others
        assert made.rivals.standards == [1 + others.index("gemm.composition: gemm.library")]
        assert len(made.rivals.recipes) == len(others)
        best = made.rivals.labels.index("gemm.composition: gemm.library")
        made.rivals.settled([1e-5] * len(made.rivals.labels), best)
        assert traced_op._build(*call).recipe.note == "gemm.composition: gemm.library", "the outcome is remembered"
        named = traced_op._build(call[0], (*call[1][:2], "cuda", ""))
        assert named.rivals is None
    finally:
        use_trials(False)
        trial.forget_trials()


def test_operands_that_would_be_copied_have_no_plan(recorded: list[Any]) -> None:
    a, b = torch.randn(3, 40, 64).bfloat16(), torch.randn(3, 64, 48).bfloat16()
    text = parsed("acc + r").text
    for r in (torch.randn(3, 48, 40).bfloat16().mT, torch.ones(3, 40, 48, dtype=torch.int64), torch.randn(40, 48)):
        with pytest.raises(NotPlannedError):
            traced_op._build((a, b, r), (text, None, "auto", ""))
    with pytest.raises(NotPlannedError, match="fp64"):
        traced_op._build((a.double(), b.double(), torch.randn(48)), (text, None, "auto", ""))
    with pytest.raises(RuntimeError, match="not broadcast"):
        traced_op._build((a, b, torch.randn(7)), (text, None, "auto", ""))
