"""Layers under what looks into them: the meta device, forward-mode AD, torch.func, and derivatives of any order."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.utils.rnn import pack_sequence

from constrint.flashrnn import GRU, LSTM, RNN, SLSTM, recurrence, rnn
from constrint.kernels.launch.plan.table import WANTS_GRAD
from constrint.kernels.rnn import plans
from constrint.kernels.rnn.cells import CELLS
from tests.support.layers import flat, same
from tests.support.rnn_cases import make_case

#: torch scripts its own derivatives when forward-mode AD is first used.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")

CELL_MODULES = (LSTM, GRU, RNN, SLSTM)
LAYERS: dict[str, tuple[Any, dict[str, Any]]] = {
    **{module.__name__: (module, {}) for module in CELL_MODULES},
    "heads": (LSTM, {"num_heads": 2}),
    "both": (GRU, {"bidirectional": True, "num_layers": 2}),
    "projection": (LSTM, {"proj_size": 3}),
    "clip": (RNN, {"gradient_recurrent_clip": 100.0}),
    "loop": (LSTM, {"backend": "alternating"}),
}
every_layer = pytest.mark.parametrize("name", LAYERS)
X = torch.randn(4, 3, 6, generator=torch.Generator().manual_seed(0))


def make(name: str, **options: Any) -> Any:
    torch.manual_seed(1)
    module, extra = LAYERS[name]
    return module(6, 8, **extra, **options)


@every_layer
def test_meta_tensors_have_the_shapes_of_results(name: str) -> None:
    there, here = make(name, device="meta", dtype=torch.bfloat16), make(name, dtype=torch.bfloat16)
    x, packed = X.bfloat16(), pack_sequence([X[:n, 0].bfloat16() for n in (4, 2)])
    states = here(x)[1]
    away = tuple(t.detach().to("meta") for t in flat(states))
    calls: list[tuple[Any, Any, dict[str, Any]]] = [
        (x, x.to("meta"), {}),
        (x[:, 0], x[:, 0].to("meta"), {}),
        (packed, cast(Any, packed).to("meta"), {}),
        (x, x.to("meta"), {"lengths": [4, 1, 2]}),
        (x, x.to("meta"), {"lengths": torch.tensor([4, 1, 2])}),
    ]
    for known, given, options in calls:
        expected, found = flat(here(known, **options)), flat(there(given, **options))
        assert [(t.shape, t.dtype) for t in found] == [(t.shape, t.dtype) for t in expected]
        assert all(t.is_meta for t in found)
    found = flat(there(x.to("meta"), away if len(away) > 1 else away[0]))
    assert [t.shape for t in found] == [t.shape for t in flat(here(x, states))]
    found[0].sum().backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is not None and p.grad.is_meta for p in there.parameters())


@every_layer
def test_forward_mode_gives_what_torch_func_and_differences_give(name: str) -> None:
    layer, x, way = make(name, dtype=torch.float64), X.double(), torch.randn(X.shape).double()

    def output(x: Tensor) -> Tensor:
        found: Tensor = layer(x)[0]
        return found

    ad: Any = forward_ad
    with ad.dual_level():
        tangent = ad.unpack_dual(output(ad.make_dual(x, way))).tangent
    assert tangent is not None
    same(torch.func.jvp(output, (x,), (way,))[1], tangent, 1e-12)
    same((output(x + 1e-6 * way) - output(x - 1e-6 * way)) / 2e-6, tangent, 1e-7)


@every_layer
def test_per_sample_gradients_are_those_of_each_sample_alone(name: str) -> None:
    layer = make(name)
    weights = {key: p.detach() for key, p in layer.named_parameters()}

    def loss(weights: dict[str, Tensor], sample: Tensor) -> Tensor:
        output: Tensor = torch.func.functional_call(layer, weights, (sample.unsqueeze(1),))[0]
        return output.square().sum()

    found = torch.func.vmap(torch.func.grad(loss), (None, 1))(weights, X)
    for row in range(X.shape[1]):
        layer.zero_grad()
        layer(X[:, row : row + 1])[0].square().sum().backward()
        for key, weight in layer.named_parameters():
            same(found[key][row], weight.grad)


@pytest.mark.parametrize("optional", ["", "bs", "bslr"])
@pytest.mark.parametrize("cell", CELLS)
def test_derivatives_up_to_the_third_are_those_of_the_reference(cell: str, optional: str) -> None:
    case = make_case(cell, (2, 3, 2, 4), torch.float64, 3, optional)
    found = []
    for backend in ("auto", "reference"):
        t = {name: x.detach().requires_grad_() for name, x in case.tensors.items()}
        options: dict[str, Any] = {"lengths": case.lengths, "reset": case.reset, "backend": backend}
        every, last = rnn(**t, cell=cell, **options)
        total = every[0].pow(2).sum() + last.pow(3).sum()
        own = []
        for keeps in (True, True, False):
            gradients = torch.autograd.grad(total, list(t.values()), create_graph=keeps)
            own += [g.detach() for g in gradients]
            total = torch.stack([g.square().sum() for g in gradients]).sum()
        found.append(own)
    same(found[0], found[1], 1e-9)


@pytest.mark.parametrize("cell", CELLS)
def test_the_way_of_plans_can_be_differentiated_twice_too(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU a call goes by its plan, and keeps its input's place in the graph, but not its elements."""

    def call(is_inner: bool, *_: Any) -> object:
        return None if is_inner else WANTS_GRAD

    case = make_case(cell, (2, 3, 2, 4), torch.float64, 4, "bs")
    found = []
    for by_plan in (False, True):
        if by_plan:
            monkeypatch.setattr(plans.FORWARD, "call", call)
            monkeypatch.setattr(plans.BACKWARD, "call", lambda *_: None)
        t = {name: x.detach().requires_grad_() for name, x in case.tensors.items()}
        scaled = {name: 0.7 * x for name, x in t.items()}  # results of operations, not leaves
        states = scaled.pop("states")
        options = recurrence.RnnOptions(cell, "auto", hidden_only=False)
        every, end_h, end_rest = (
            recurrence.by_plan(options, **scaled, initial=states, start=None, check=None)
            if by_plan
            else recurrence.through_operator(options, **scaled, initial=states, lengths=None, reset=None)
        ) or pytest.fail("there is no plan")
        total = every.pow(2).sum() + end_h.sum() + (0.0 if end_rest is None else end_rest.sum())
        gradients = torch.autograd.grad(total, list(t.values()), create_graph=True)
        second = torch.autograd.grad(torch.stack([g.square().sum() for g in gradients]).sum(), list(t.values()))
        found.append([*(g.detach() for g in gradients), *second])
    same(found[1], found[0], 1e-10)
