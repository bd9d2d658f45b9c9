"""The backward pass of a product: every result of its plan in Triton's interpreter, and how a plan is recorded."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from typing import Any

import pytest

from tests.support.interpreter import interpreted
from tests.support.needs import missing_packages
from tests.support.shared import SharedResults

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]: torch or triton is not installed", allow_module_level=True)

import torch

from constrint.choose import decide
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm import first_call
from constrint.kernels.gemm.backward import plans
from constrint.kernels.gemm.backward.launch import activation_launch, gradient_launch
from constrint.kernels.gemm.candidates import request_of
from constrint.kernels.gemm.launch import Machine
from constrint.kernels.gemm.layer_nodes import _apply_plain as _apply_plain_layer
from constrint.kernels.gemm.layer_nodes import recorded as with_node
from constrint.kernels.gemm.library.launch import LibraryLaunch
from constrint.kernels.gemm.op import _apply_biased, _apply_plain, _multiply, _Product
from constrint.kernels.gemm.reference import ACTIVATIONS
from constrint.kernels.launch.plan.nodes import apply_of
from constrint.kernels.launch.plan.recipe import FillStep, ProductStep, Recipe, RecordedCall
from constrint.kernels.launch.plan.scratch import NotedScratch
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.tune.compile import build_triton
from tests.support.decisions import begin_anew
from tests.support.gemm import product

H200 = load_gpu("h200")
SMALL = {"sizes": [40, 48, 64]}
PLANS: dict[str, dict[str, Any]] = {
    "plain": SMALL,
    "bias": SMALL | {"bias": "fp16"},
    "bias of 32 bits": SMALL | {"bias": "fp32"},
    "relu": SMALL | {"activation": "relu", "bias": "fp16"},
    "gelu": SMALL | {"activation": "gelu", "bias": "fp16"},
    "silu": SMALL | {"activation": "silu"},
    "tanh gelu": SMALL | {"activation": "gelu_tanh", "bias": "fp16"},
    "sigmoid": SMALL | {"activation": "sigmoid"},
    "quick gelu": SMALL | {"activation": "quick_gelu"},
    "squared relu": SMALL | {"activation": "relu2"},
    "tanh": SMALL | {"activation": "tanh"},
    "a layer": SMALL | {"activation": "gelu", "bias": "fp16", "is_linear": True},
    "a layer on three axes": SMALL | {"is_linear": True, "batch": [3], "bias": "fp16"},
    "both by columns": SMALL | {"by_columns": True},
    "expanded gradient": SMALL | {"expanded": True, "bias": "fp16"},
    "wide gradient": SMALL | {"gradient": "fp32", "bias": "fp16"},
    "alpha": SMALL | {"alpha": 0.5, "activation": "silu"},
    "ragged": {"sizes": [45, 35, 70], "activation": "gelu", "bias": "fp16"},
    "fp32": SMALL | {"dtype": "fp32", "activation": "gelu", "bias": "fp32"},
    "weights alone": SMALL | {"of_a": False, "activation": "relu", "bias": "fp16"},
    "input alone": SMALL | {"of_b": False, "activation": "relu"},
    "the pass alone": {"sizes": [700, 35, 8], "of_a": False, "of_b": False, "of_sum": True, "activation": "gelu"},
    "sums of many chunks": {"sizes": [3000, 40, 8], "of_a": False, "of_b": False, "bias": "fp16", "sm_count": 1},
    "sums of more chunks than rows of a tile": {"sizes": [9000, 24, 8], "of_a": False, "of_b": False}
    | {"bias": "fp32", "sm_count": 60, "activation": "silu", "of_sum": True},
    "sums of one chunk": {"sizes": [70, 300, 8], "of_a": False, "of_b": False, "bias": "fp16", "sm_count": 0},
}
FLAT = {f"{name} {num}": {"activation": name, "num": num} for name in ACTIVATIONS for num in (5, 40_000)}


@pytest.fixture(scope="module")
def outcomes(shared_results: SharedResults) -> dict[str, bool]:
    function = "tests.support.interpreted_backward:plan_is_right"
    return dict(shared_results.once(function, lambda: interpreted(function, PLANS)))


@pytest.fixture(scope="module")
def flat_outcomes(shared_results: SharedResults) -> dict[str, bool]:
    function = "tests.support.interpreted_backward:activation_is_right"
    return dict(shared_results.once(function, lambda: interpreted(function, FLAT)))


@pytest.mark.parametrize("name", PLANS)
def test_every_result_of_a_plan_is_the_gradient(name: str, outcomes: dict[str, bool]) -> None:
    assert outcomes[name]


@pytest.mark.parametrize("name", FLAT)
def test_the_activation_alone_rounds_once(name: str, flat_outcomes: dict[str, bool]) -> None:
    assert flat_outcomes[name]


@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
def test_the_pass_compiles_for_hopper_without_spills(activation: str | None) -> None:
    g = torch.empty(8192, 4096, dtype=torch.bfloat16, device="meta")
    sums = torch.empty(4096, dtype=torch.bfloat16, device="meta")
    kept, out = (g, g) if activation else (None, None)
    launch = gradient_launch(g, kept, activation, out, sums, H200.device.sm_count, NotedScratch())
    assert launch.compile(H200).spill_bytes == 0
    if activation:
        assert activation_launch(g, activation, out, 132).compile(H200).spill_bytes == 0  # type: ignore[arg-type]


def recorded(
    monkeypatch: pytest.MonkeyPatch, key: plans.BackwardKey, *tensors: torch.Tensor | None
) -> tuple[Recipe, list[Any]]:
    """The recipe of a backward pass by the library, recorded without a device, and the launches of the pass."""
    launches: list[Any] = []

    def record(of_call: Any, _: Any, results: Any, scratch: Any, note: str = "", **__: Any) -> RecordedCall:
        launches.extend(of_call)
        outputs = [(list(t.shape), list(t.stride()), str(t.dtype).removeprefix("torch.")) for t in results]
        steps: list[Any] = [FillStep(0, 0, 0) for _ in of_call]  # in place of kernels
        return RecordedCall(Recipe(steps, outputs, len(results), 0, note), [])

    monkeypatch.setattr(plans, "recipe_of", record)
    monkeypatch.setattr("constrint.kernels.launch.plan.driver.has_blas", lambda: True)
    monkeypatch.setattr(LibraryLaunch, "run", lambda _: None)
    monkeypatch.setattr(first_call, "machine_of", lambda _: (H200, Machine.of(H200)))
    monkeypatch.setattr(first_call, "decide_or_none", lambda asked: decide(replace(asked, kernel="library")))
    begin_anew(monkeypatch)
    recipe = plans._plan_of_backward(tensors, key).recipe
    return recipe, launches


def test_a_layer_s_plan_is_the_products_of_its_tensors_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots: gradient, x, weight, saved, then the gradients of x and of the weight."""
    g, x, w = (torch.empty(shape, dtype=torch.bfloat16) for shape in ((2, 256, 4096), (2, 256, 4096), (4096, 4096)))
    key = plans.BackwardKey(1.0, None, True, True, None, False, True, "auto")
    recipe, launches = recorded(monkeypatch, key, g, x, w, None)
    assert launches == []
    assert [(shape, strides) for shape, strides, _ in recipe.outputs] == [
        ([2, 256, 4096], [256 * 4096, 4096, 1]),
        ([4096, 4096], [4096, 1]),
    ]
    first, second = recipe.steps
    assert isinstance(first, ProductStep)
    assert isinstance(second, ProductStep)
    # C' = B' A': the gradient of x is g @ weight, that of the weight g^T @ x; both by rows.
    assert (first.slots, first.operations, first.sizes) == ((2, 0, 4), (0, 0), (4096, 512, 4096))
    assert (second.slots, second.operations, second.sizes) == ((1, 0, 5), (0, 1), (4096, 4096, 512))


def test_the_pass_writes_memory_of_the_plan_s_own_that_the_library_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    g, x, w = (torch.empty(shape, dtype=torch.bfloat16) for shape in ((512, 4096), (512, 4096), (4096, 4096)))
    z = torch.empty_like(g)
    key = plans.BackwardKey(1.0, "gelu", True, True, torch.bfloat16, False, True, "auto")
    recipe, launches = recorded(monkeypatch, key, g, x, w, z)
    assert recipe.num_results == 3
    assert [shape for shape, _, _ in recipe.outputs] == [[512, 4096], [4096, 4096], [4096], [512, 4096]]
    (launch,) = launches
    assert launch.arguments["activation"] == "gelu"
    slots = [step.slots for step in recipe.steps if isinstance(step, ProductStep)]
    assert slots == [(2, 7, 4), (1, 7, 5)]


def test_batches_by_the_library_have_no_single_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    g, x, w = (torch.empty(shape, dtype=torch.bfloat16) for shape in ((2, 512, 4096), (2, 512, 4096), (4096, 4096)))
    key = plans.BackwardKey(1.0, None, True, True, None, False, False, "auto")
    with pytest.raises(NotPlannedError, match="sums over the batch"):
        recorded(monkeypatch, key, g, x, w.expand(3, 4096, 4096), None)


@pytest.mark.parametrize("gpu", ["h200", "h100", "a100"])
@pytest.mark.parametrize("layout", ["rr", "rc", "cr", "cc"])
def test_the_library_competes_for_the_products_of_training_in_any_layout(gpu: str, layout: str) -> None:
    asked = product(512, 4096, 4096)
    a, b = replace(asked.a, is_k_major=layout[0] == "r"), replace(asked.b, is_k_major=layout[1] == "c")
    decision = decide(request_of(load_gpu(gpu), replace(asked, a=a, b=b)))
    (library,) = (program for program in decision.programs if program.name == "gemm.library")
    assert not library.refusal


@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
def test_without_plans_gradients_are_operations_that_can_be_differentiated_again(activation: str | None) -> None:
    """`_Product` on CPU tensors, for which no table has a plan."""
    generator = torch.Generator().manual_seed(3)
    shapes = (2, 3, 4), (4, 5), (5,), (2, 3, 5)
    tensors = [torch.randn(s, generator=generator, dtype=torch.float64, requires_grad=True) for s in shapes]

    def call(*operands: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = _Product.apply(  # type: ignore[no-untyped-call]
            *operands, (0.5, 2.0, activation, None, "auto", "")
        )
        return out

    assert torch.autograd.gradcheck(call, tensors)
    assert torch.autograd.gradgradcheck(call, tensors)


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_gradients_of_a_product_with_an_activation_alone_can_be_differentiated_again(activation: str) -> None:
    """The node that `matmul` shares with layers, on CPU tensors: a batch, and one matrix for all rows."""
    generator = torch.Generator().manual_seed(3)
    for shapes in (((2, 3, 4), (4, 5), (5,)), ((2, 3, 4), (2, 4, 5))):
        tensors = [torch.randn(s, generator=generator, dtype=torch.float64, requires_grad=True) for s in shapes]

        def call(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
            product = a.detach() @ b.detach() + (0.0 if bias is None else bias.detach())
            made = product.relu() if activation == "relu" else product
            return with_node(a, b, bias, made, activation, _multiply, is_linear=False)

        assert torch.autograd.gradcheck(call, tensors)
        assert torch.autograd.gradgradcheck(call, tensors)


@pytest.mark.parametrize("has_bias", [False, True])
def test_a_plain_product_s_gradients_can_be_differentiated_again(has_bias: bool) -> None:
    """`_Plain` and `_Biased` on CPU tensors, likewise; and those of layers, whose weights are transposed."""
    generator = torch.Generator().manual_seed(3)
    shapes = ((2, 3, 4), (4, 5), (5,))[: 2 + has_bias]
    tensors = [torch.randn(s, generator=generator, dtype=torch.float64, requires_grad=True) for s in shapes]

    def call(*operands: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = (_apply_biased if has_bias else _apply_plain)(*operands)
        return out

    def layer(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        made = torch.nn.functional.linear(x.detach(), weight.detach().t(), None if bias is None else bias.detach())
        out: torch.Tensor = _apply_plain_layer(x, weight.t(), bias, (made, _multiply))
        return out

    for function in (call, layer):
        assert torch.autograd.gradcheck(function, tensors)
        assert torch.autograd.gradgradcheck(function, tensors)


def test_the_engine_calls_a_backward_pass_itself() -> None:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return 2 * x

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:
            callers.append(sys._getframe(1).f_code.co_name)
            return 2 * gradient

    callers: list[str] = []
    x = torch.ones(3, requires_grad=True)
    apply_of(Doubled)(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0] * 3
    assert "apply" not in callers


def test_a_trial_ends_with_nothing_slower_than_the_librarys_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all pairs of candidates those of the library's first algorithms are the standard."""

    def candidates(*_: Any) -> list[Any]:
        scratch = NotedScratch()
        ours = plans._Part([], scratch, None, "ours", 1.0, False)
        return [ours, plans._Part([], scratch, None, "library", 2.0, True), ours._replace(label="other")]

    monkeypatch.setattr(plans, "_candidates", candidates)
    gradient, a, b = torch.empty(40, 48), torch.empty(40, 64), torch.empty(64, 48)
    made = plans._plan_of_backward((gradient, a, b, None), (1.0, None, True, True, None, False, False, "auto"))
    assert made.rivals is not None
    assert len(made.rivals.labels) == 9
    assert [made.rivals.labels[place] for place in made.rivals.standards] == ["library, library"]


@pytest.mark.parametrize(("n", "widest"), [(320, "v4"), (328, "v4"), (324, "v2"), (325, "")])
def test_rows_are_read_as_wide_as_they_are_aligned(n: int, widest: str) -> None:
    """Triton sees multiples of 16 columns alone: of eight it read single elements, at a fraction of the bandwidth."""
    gradient, saved, out = (torch.empty(64, n, dtype=torch.bfloat16, device="meta") for _ in range(3))
    launch = gradient_launch(gradient, saved, "gelu", out, None, 132, NotedScratch())
    text = build_triton(H200, launch.source()).asm["ptx"]
    assert set(re.findall(r"(?:ld|st)\.global\.(v\d)?", text)) == {widest}
