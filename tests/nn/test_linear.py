"""`constrint.nn.Linear` and `Sequential` on the CPU: torch's own results, parameters and errors, traced or not.

What they run on a GPU is in `test_nn_gpu.py`, and the plans of gradients in `tests/kernels/gemm/test_backward.py`.
"""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]: torch or triton is not installed", allow_module_level=True)

import torch
from torch import nn

import constrint
from constrint.errors import UnknownNameError, UnsupportedError
from constrint.kernels.gemm import linear as module_of_linear
from constrint.kernels.gemm.layer_nodes import _Layer, _PlainLayer
from constrint.kernels.gemm.linear import _library_function, end_of, is_layer
from constrint.kernels.gemm.op import _multiply
from constrint.kernels.gemm.reference import ACTIVATIONS
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.nn.linear import _narrow


def pair(**options: Any) -> tuple[nn.Linear, Any]:
    """Torch's layer, and ours with the same parameters."""
    torch.manual_seed(0)
    theirs = nn.Linear(12, 7, **{name: value for name, value in options.items() if name != "activation"})
    ours = constrint.nn.Linear(12, 7, **options)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
def test_results_and_gradients_are_those_of_torch(bias: bool, activation: str | None) -> None:
    theirs, ours = pair(bias=bias, activation=activation)
    x = torch.randn(2, 5, 12, requires_grad=True)
    expected, found = theirs(x), ours(x)
    expected = ACTIVATIONS[activation](expected) if activation else expected
    assert torch.equal(found, expected)
    gradient = torch.randn_like(expected)
    of_theirs = torch.autograd.grad(expected, [x, *theirs.parameters()], gradient)
    for one, other in zip(torch.autograd.grad(found, [x, *ours.parameters()], gradient), of_theirs, strict=True):
        assert torch.equal(one, other)


def test_parameters_names_and_initial_values_are_those_of_torch() -> None:
    torch.manual_seed(3)
    theirs = nn.Linear(12, 7)
    torch.manual_seed(3)
    ours = constrint.nn.Linear(12, 7, activation="gelu")
    assert isinstance(ours, nn.Linear)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert all(torch.equal(one, other) for one, other in zip(ours.parameters(), theirs.parameters(), strict=True))
    assert repr(ours) == "Linear(in_features=12, out_features=7, bias=True, activation='gelu')"


def test_an_unknown_activation_is_named() -> None:
    with pytest.raises(UnknownNameError, match="unknown activation 'swish'"):
        constrint.nn.Linear(3, 4, activation="swish")


@pytest.mark.parametrize(
    ("shape", "dtype"), [((2, 11), torch.float32), ((2, 12), torch.float64)], ids=["wrong size", "wrong dtype"]
)
def test_errors_are_those_of_torch(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    theirs, ours = pair()
    x = torch.randn(shape, dtype=dtype)
    with pytest.raises(RuntimeError) as expected:
        theirs(x)
    with pytest.raises(RuntimeError) as found:
        ours(x)
    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize("activation", [None, "gelu"])
def test_torch_compile_sees_plain_operations_in_one_graph(activation: str | None) -> None:
    _, ours = pair(activation=activation)
    graphs = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    x = torch.randn(5, 12)
    compiled: Any = torch.compile(ours, fullgraph=True, backend=backend)
    torch.testing.assert_close(compiled(x), ours(x))
    (graph,) = graphs
    assert "constrint" not in graph.code
    assert "linear" in graph.code


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_it_is_exported_traced_scripted_copied_and_pickled() -> None:
    theirs, ours = pair()
    x = torch.randn(5, 12)
    expected = theirs(x)
    exported: Any = torch.export.export(ours, (x,)).module()
    assert torch.equal(exported(x), expected)
    assert torch.equal(copy.deepcopy(ours)(x), expected)
    assert torch.equal(pickle.loads(pickle.dumps(ours))(x), expected)
    assert torch.equal(torch.func.vmap(ours)(x), expected)
    scripted = torch.jit.script(ours)
    assert torch.equal(scripted(x), expected)
    with pytest.raises(UnsupportedError, match=r"torch\.jit\.script takes"):
        torch.jit.script(constrint.nn.Linear(3, 4, activation="relu"))


def test_autocast_on_the_cpu_is_torch_s() -> None:
    theirs, ours = pair()
    x = torch.randn(5, 12)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ours(x).dtype == torch.bfloat16
        assert torch.equal(ours(x), theirs(x))


def test_a_narrow_copy_serves_all_calls_until_its_parameter_changes_or_its_graph_goes() -> None:
    weight = nn.Parameter(torch.randn(4, 4))
    first = _narrow(weight, torch.bfloat16)
    assert _narrow(weight, torch.bfloat16) is first
    assert _narrow(weight, torch.float16).dtype == torch.float16
    assert _narrow(first, torch.bfloat16) is first
    second = _narrow(weight, torch.bfloat16)
    with torch.no_grad():
        weight.add_(1.0)
    third = _narrow(weight, torch.bfloat16)
    assert third is not second
    assert torch.equal(third, weight.bfloat16())
    torch.autograd.backward((third * 2).sum())
    assert weight.grad is not None


@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
def test_the_function_behind_it_is_differentiable_twice_without_plans(activation: str | None) -> None:
    """The nodes of a layer on CPU tensors, for which no table has a plan."""
    generator = torch.Generator().manual_seed(1)
    shapes = (2, 3, 4), (5, 4), (5,)
    tensors = [torch.randn(s, generator=generator, dtype=torch.float64, requires_grad=True) for s in shapes]

    def call(*operands: torch.Tensor) -> torch.Tensor:
        product = nn.functional.linear(*(t.detach() for t in operands))
        made = product.relu() if activation == "relu" else product, _multiply
        nodes = _PlainLayer if activation is None else _Layer
        out: torch.Tensor = nodes.apply(*operands, made, *([activation, True] if activation else []))  # type: ignore[no-untyped-call]
        return out

    assert torch.autograd.gradcheck(call, tensors)
    assert torch.autograd.gradgradcheck(call, tensors)


def test_a_plan_that_calls_torch_is_given_the_weight_transposed() -> None:
    stated = {"dtype": "float32", "kind": "float32", "is_batched": False, "end": "bias", "alpha": 1.0, "beta": 0.0}
    x, weight, bias = torch.randn(3, 4), torch.randn(5, 4), torch.randn(5)
    found = _library_function(stated | {"views": {}, "shape": None, "activation": None})(x, weight, bias, None)
    torch.testing.assert_close(found, nn.functional.linear(x, weight, bias))


@pytest.mark.parametrize(
    "change",
    [
        {"x": torch.randn(4)},
        {"x": torch.randn(3, 5)},
        {"x": torch.randn(3, 4).double()},
        {"x": torch.randn(0, 4)},
        {"bias": torch.randn(4)},
        {"bias": torch.randn(5).half()},
        {"weight": torch.randn(2, 5, 4)},
    ],
)
def test_operands_of_no_layer_are_torch_s(change: dict[str, torch.Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    operands = {"x": torch.randn(3, 4), "weight": torch.randn(5, 4), "bias": torch.randn(5)}
    assert is_layer(**operands)
    operands |= change
    assert not is_layer(**operands)
    with pytest.raises(NotPlannedError):
        module_of_linear._plan_of_linear((*operands.values(), None), None)


def stack() -> tuple[nn.Sequential, Any]:
    theirs = nn.Sequential(
        *(nn.Linear(6, 9), nn.GELU(), nn.Linear(9, 9), nn.ReLU(inplace=True), nn.Linear(9, 9), nn.Linear(9, 4)),
        *(nn.Dropout(0.0), nn.SiLU(), nn.Linear(4, 4), nn.GELU("tanh"), nn.Linear(4, 4)),
    )
    ours = copy.deepcopy(theirs)
    constrint.patch(ours)
    return theirs, ours


def test_a_sequential_is_what_its_modules_are() -> None:
    theirs, ours = stack()
    assert type(ours) is constrint.nn.Sequential
    x = torch.randn(3, 6)
    assert torch.equal(ours(x), theirs(x))
    assert torch.equal(ours[1](ours[0](x)), theirs[1](theirs[0](x)))
    assert torch.equal(ours[:2](x), theirs[:2](x))
    assert torch.equal(torch.compile(ours, fullgraph=True, backend="eager")(x), theirs(x))


def test_pairs_are_one_call_unless_a_hook_looks_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[str | None] = []

    def noted(x: Any, weight: Any, bias: Any, activation: str | None) -> Any:
        ends.append(activation)
        return nn.functional.linear(x, weight, bias)

    monkeypatch.setattr("constrint.nn.sequential.run", noted)
    _, ours = stack()
    x = torch.randn(3, 6)
    ours(x)
    assert ends == ["gelu", "relu", "gelu_tanh"]
    seen: list[torch.Tensor] = []
    handle = ours[0].register_forward_hook(lambda module, args, out: seen.append(out))
    ends.clear()
    ours(x)
    assert ends == ["relu", "gelu_tanh"]
    assert torch.equal(seen[0], nn.functional.linear(x, ours[0].weight, ours[0].bias))
    handle.remove()
    ours[3].register_forward_pre_hook(lambda module, args: None)
    ends.clear()
    ours(x)
    assert ends == ["gelu", "gelu_tanh"]


def test_a_shape_has_plans_from_its_second_call_on_and_a_weight_not_for_every_shape(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module_of_linear, "_RECURRING", {})
    monkeypatch.setattr(module_of_linear, "_NUM_PLANNED", {})
    weight, other = torch.empty(5, 4), torch.empty(6, 4)
    x = torch.empty(3, 4)
    assert [module_of_linear.recurs(x, weight, None) for _ in range(3)] == [False, True, True]
    assert not module_of_linear.recurs(x, weight, end_of("gelu"))
    assert not module_of_linear.recurs(x.half(), weight, None)
    most = module_of_linear.MOST_SHAPES
    planned = 0
    for rows in range(10, 10 + most + 5):
        module_of_linear.recurs(torch.empty(rows, 4), weight, None)
        planned += module_of_linear.recurs(torch.empty(rows, 4), weight, None)
    assert planned == most - 1
    assert [module_of_linear.recurs(x, other, None) for _ in range(2)] == [False, True]
    assert module_of_linear.recurs(x, weight, None)
