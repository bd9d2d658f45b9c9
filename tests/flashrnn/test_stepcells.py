"""Cells of one step on the CPU: torch's own interface, and the gradients of loops over steps beside torch's."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint

import constrint
from constrint.flashrnn import LSTM, GRUCell, LSTMCell, RNNCell, onestep
from constrint.flashrnn.libraries import onestep as layers_of_one_step
from constrint.flashrnn.stepcells import GRADIENTS, stepped
from tests.support.steps_by_torch import StepTable, steps_by_torch

PAIRS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "lstm": (LSTMCell, nn.LSTMCell, {}),
    "gru": (GRUCell, nn.GRUCell, {}),
    "elman": (RNNCell, nn.RNNCell, {}),
    "elman_relu": (RNNCell, nn.RNNCell, {"nonlinearity": "relu"}),
}


@pytest.fixture(params=PAIRS)
def pair(request: pytest.FixtureRequest) -> tuple[str, Any, Any]:
    ours, theirs, options = PAIRS[request.param]
    torch.manual_seed(3)
    mine = ours(5, 7, **options, dtype=torch.float64)
    torch.manual_seed(3)
    return request.param, mine, theirs(5, 7, **options, dtype=torch.float64)


@pytest.fixture
def tables() -> Iterator[tuple[StepTable, StepTable]]:
    with steps_by_torch() as both:
        yield both


def test_parameters_and_options_are_torchs(pair: Any) -> None:
    _, mine, right = pair
    assert isinstance(mine, type(right))
    assert repr(mine) == repr(right)
    assert list(mine.state_dict()) == list(right.state_dict())
    assert all(torch.equal(mine.state_dict()[name], value) for name, value in right.state_dict().items())
    assert type(mine)(5, 7, False).bias_ih is None


@pytest.mark.parametrize("shape", [(5,), (3, 5)])
@pytest.mark.parametrize("has_states", [False, True])
def test_calls_on_the_cpu_are_torchs(pair: Any, shape: tuple[int, ...], has_states: bool) -> None:
    cell, mine, right = pair
    h = torch.randn(*shape[:-1], 7, dtype=torch.float64)
    states = ((h, h.flip(-1)) if cell == "lstm" else h) if has_states else None
    x = torch.randn(shape, dtype=torch.float64)
    torch.testing.assert_close(mine(x, states), right(x, states), rtol=0, atol=0)


def test_errors_are_torchs(pair: Any) -> None:
    cell, mine, right = pair
    good = torch.zeros(2, 5, dtype=torch.float64)
    h = torch.zeros(2, 7, dtype=torch.float64)

    def states(h: Tensor) -> Any:
        return (h, h) if cell == "lstm" else h

    wrong: list[tuple[Any, ...]] = [
        (torch.zeros(2, 2, 5, dtype=torch.float64),),
        (torch.zeros(2, 4, dtype=torch.float64),),
        (good, states(h[None])),
        (good, states(h[:1])),
        (good, states(h[:, :3])),
        (good.float(), states(h)),
    ]
    for call in wrong:
        with pytest.raises(Exception) as expected:  # noqa: PT011  torch's own decides
            right(*call)
        with pytest.raises(type(expected.value)) as found:
            mine(*call)
        assert str(found.value) == str(expected.value)
    with pytest.raises(TypeError):
        type(mine)(5)


def _loop(step: Callable[[Tensor, Any], Any], x: Tensor, start: Any, steps: range) -> list[Any]:
    states, made = start, []
    for t in steps:
        states = step(x[t], states)
        made.append(states)
    return made


def _planned(mine: Any, cell: str) -> Callable[[Tensor, Any], Any]:
    def run(x: Tensor, states: Any) -> Any:
        found = stepped(mine, cell, x, (None, None) if states is None else states if cell == "lstm" else (states, None))
        assert found is not None
        return found if cell == "lstm" else found[0]

    return run


def _loss(cell: str, made: list[Any]) -> Tensor:
    hidden = torch.stack([each[0] if cell == "lstm" else each for each in made])
    weights = torch.linspace(0.5, 1.5, hidden.numel(), dtype=hidden.dtype).view_as(hidden)
    loss = (hidden * weights).sum()
    return loss + made[-1][1].square().sum() if cell == "lstm" else loss


def _start(cell: str, rows: int = 3) -> Any:
    torch.manual_seed(4)
    h = torch.randn(rows, 7, dtype=torch.float64, requires_grad=True)
    c = torch.randn(rows, 7, dtype=torch.float64, requires_grad=True)
    return (h, c) if cell == "lstm" else h


def _leaves(module: Any, x: Tensor, start: Any) -> list[Tensor]:
    states = [] if start is None else [*start] if isinstance(start, tuple) else [start]
    return [*module.parameters(), x, *states]


@pytest.mark.parametrize("noted_bytes", [0, 1 << 20])
@pytest.mark.parametrize("has_start", [False, True])
def test_gradients_of_a_loop(
    pair: Any, tables: Any, has_start: bool, noted_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onestep, "NOTED_BYTES", noted_bytes)
    cell, mine, right = pair
    x = torch.randn(6, 3, 5, dtype=torch.float64, requires_grad=True)
    start = _start(cell) if has_start else None
    gradients = []
    for module, step in ((mine, _planned(mine, cell)), (right, right)):
        made = _loop(step, x, start, range(6))
        gradients.append(torch.autograd.grad(_loss(cell, made), _leaves(module, x, start)))
    for found, wanted in zip(*gradients, strict=True):
        torch.testing.assert_close(found, wanted)
    assert tables[0].learned == tables[1].learned == 6


def test_backward_passes_again_and_in_parts(pair: Any, tables: Any) -> None:
    """Two losses of one graph, one graph twice, gradients of the input alone, and two graphs whose order is mixed."""
    cell, mine, right = pair
    x = torch.randn(4, 3, 5, dtype=torch.float64, requires_grad=True)
    found: list[Tensor] = []
    wanted: list[Tensor] = []
    for module, step, into in ((mine, _planned(mine, cell), found), (right, right, wanted)):
        first, second = (_loop(step, x, _start(cell), range(4)) for _ in range(2))
        losses = _loss(cell, first[:2]), _loss(cell, first), _loss(cell, second)
        into += torch.autograd.grad(losses[0], [x], retain_graph=True)
        for loss in (losses[1], losses[0], losses[2], losses[1]):
            module.zero_grad()
            loss.backward(retain_graph=True)
            into += [each.grad.clone() for each in module.parameters()]
        into += torch.autograd.grad(losses[2], [module.weight_hh])
    for mine_one, right_one in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine_one, right_one)
    assert not mine.__dict__[GRADIENTS][0]._node[1]._sums


def test_second_derivatives(pair: Any, tables: Any) -> None:
    cell, mine, right = pair
    x = torch.randn(3, 2, 5, dtype=torch.float64, requires_grad=True)
    results = []
    for module, step in ((mine, _planned(mine, cell)), (right, right)):
        start = _start(cell, 2)
        leaves = _leaves(module, x, start)
        first = torch.autograd.grad(_loss(cell, _loop(step, x, start, range(3))), leaves, create_graph=True)
        penalty = torch.stack([each.square().sum() for each in first]).sum()
        results.append([*first, *torch.autograd.grad(penalty, leaves, allow_unused=True, materialize_grads=True)])
    for found, wanted in zip(*results, strict=True):
        torch.testing.assert_close(found, wanted)


def test_some_weights_are_frozen(pair: Any, tables: Any) -> None:
    cell, mine, right = pair
    x = torch.randn(3, 2, 5, dtype=torch.float64, requires_grad=True)
    for frozen in (["weight_hh"], ["weight_ih", "weight_hh", "bias_ih", "bias_hh"], []):
        gradients = []
        for module, step in ((mine, _planned(mine, cell)), (right, right)):
            for name, weight in module.named_parameters():
                weight.requires_grad_(name not in frozen)
            leaves = [leaf for leaf in _leaves(module, x, None) if leaf.requires_grad]
            gradients.append(torch.autograd.grad(_loss(cell, _loop(step, x, None, range(3))), leaves))
        for found, wanted in zip(*gradients, strict=True):
            torch.testing.assert_close(found, wanted)


class Doubled(nn.Module):
    """A parametrization."""

    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight


def test_parametrized_and_checkpointed_steps(pair: Any, tables: Any) -> None:
    cell, mine, right = pair
    x = torch.randn(3, 2, 5, dtype=torch.float64, requires_grad=True)
    gradients = []
    for module in (mine, right):
        parametrize.register_parametrization(module, "weight_hh", Doubled())
        step = _planned(module, cell) if module is mine else module
        loss = torch.zeros((), dtype=torch.float64)
        for is_reentrant in (False, True):
            steps = checkpoint(_loop, step, x, _start(cell, 2), range(3), use_reentrant=is_reentrant)
            loss = loss + _loss(cell, steps)
        module.zero_grad()
        loss.backward()
        gradients.append([each.grad for each in module.parameters()])
    for found, wanted in zip(*gradients, strict=True):
        torch.testing.assert_close(found, wanted)


def test_training_follows_torchs(pair: Any, tables: Any) -> None:
    """Weights change in place, are converted and loaded between steps of an optimiser; hooks see one gradient."""
    cell, mine, right = pair
    seen: list[int] = []
    mine.weight_hh.register_hook(lambda gradient: seen.append(1))
    x = torch.randn(3, 2, 5, dtype=torch.float64)
    for module, step in ((mine, _planned(mine, cell)), (right, right)):
        optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
        for turn in range(4):
            optimiser.zero_grad()
            _loss(cell, _loop(step, x, _start(cell, 2), range(3))).backward()
            optimiser.step()
            if turn == 1:
                module.float().double()
                module.load_state_dict(copy.deepcopy(module.state_dict()))
    for found, wanted in zip(mine.parameters(), right.parameters(), strict=True):
        torch.testing.assert_close(found, wanted)
    assert len(seen) == 4


def test_weights_changed_before_the_backward_pass_are_an_error(pair: Any, tables: Any) -> None:
    cell, mine, _ = pair
    x = torch.randn(2, 2, 5, dtype=torch.float64)
    loss = _loss(cell, _loop(_planned(mine, cell), x, None, range(2)))
    with torch.no_grad():
        mine.weight_hh.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_copies_and_pickles_of_a_used_cell(pair: Any, tables: Any) -> None:
    cell, mine, right = pair
    x = torch.randn(2, 2, 5, dtype=torch.float64)
    _loss(cell, _loop(_planned(mine, cell), x, None, range(2))).backward()
    for other in (copy.deepcopy(mine), pickle.loads(pickle.dumps(mine)), copy.copy(mine)):
        other.zero_grad()
        _loss(cell, _loop(_planned(other, cell), x, None, range(2))).backward()
        right.zero_grad()
        _loss(cell, _loop(right, x, None, range(2))).backward()
        for found, wanted in zip(other.parameters(), right.parameters(), strict=True):
            torch.testing.assert_close(found.grad, wanted.grad)
    assert list(mine.state_dict()) == list(right.state_dict())


def test_nothing_of_a_graph_stays(tables: Any) -> None:
    cell = LSTMCell(5, 7, dtype=torch.float64)
    x = torch.randn(3, 2, 5, dtype=torch.float64)
    made = _loop(_planned(cell, "lstm"), x, None, range(3))
    kept = [weakref.ref(each) for states in made for each in states]
    _loss("lstm", made).backward()
    del made
    gc.collect()
    assert not any(each() is not None for each in kept)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("num_layers", [1, 3])
@pytest.mark.parametrize(("cell", "theirs"), [("lstm", nn.LSTM), ("gru", nn.GRU), ("elman", nn.RNN)])
def test_layers_of_one_step(cell: str, theirs: Any, num_layers: int, batch_first: bool, tables: Any) -> None:
    ours = getattr(constrint.flashrnn, theirs.__name__)
    right = theirs(5, 7, num_layers, batch_first=batch_first, dtype=torch.float64)
    mine = ours(5, 7, num_layers, batch_first=batch_first, dtype=torch.float64)
    mine.load_state_dict(right.state_dict())
    x = torch.randn((2, 1, 5) if batch_first else (1, 2, 5), dtype=torch.float64, requires_grad=True)
    results = []
    for module, run in (
        (mine, lambda x, hx: _layer(mine, x, hx)),
        (right, right),
    ):
        states: Any = None
        for _ in range(3):
            output, states = run(x, states)
        loss = output.square().sum() + (states[1] if cell == "lstm" else states).sum()
        results.append((output, states, torch.autograd.grad(loss, [*module.parameters(), x])))
    torch.testing.assert_close(*results)
    assert tables[0].learned == tables[1].learned == 3 * num_layers


def _layer(module: Any, x: Tensor, hx: Any) -> Any:
    output, last = layers_of_one_step.run(module, x, hx)  # type: ignore[misc]
    return output, module._hidden(last)


def test_states_of_other_shapes_are_left_to_the_checks(tables: Any) -> None:
    layer = LSTM(5, 7, dtype=torch.float64)
    h = torch.zeros(1, 2, 7, dtype=torch.float64)
    for hx in ((h,), (h, h, h), (h[0], h[0]), (h, torch.zeros(2, 2, 7, dtype=torch.float64)), (h, None)):
        assert layers_of_one_step.run(layer, torch.zeros(1, 2, 5, dtype=torch.float64), hx) is None


@pytest.mark.filterwarnings("ignore:`torch.jit")  # of torch itself: DeprecationWarning, from 2.14 on FutureWarning
def test_exports_and_transforms_take_torchs_cell(pair: Any) -> None:
    cell, mine, right = pair
    x, h = torch.randn(2, 5, dtype=torch.float64), torch.randn(2, 7, dtype=torch.float64)
    states = (h, h) if cell == "lstm" else h
    wanted = right(x, states)
    torch.testing.assert_close(torch.jit.script(copy.deepcopy(mine))(x, states), wanted)
    torch.testing.assert_close(torch.jit.trace(mine, (x, states))(x, states), wanted)
    compiled = torch.compile(mine, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, states), wanted)
    exported = torch.export.export(mine, (x, states)).module()
    torch.testing.assert_close(exported(x, states), wanted)


def test_patch_replaces_cells() -> None:
    model = nn.ModuleDict({"lstm": nn.LSTMCell(3, 4), "gru": nn.GRUCell(3, 4), "rnn": nn.RNNCell(3, 4)})
    before = {name: value.data_ptr() for name, value in model.named_parameters()}
    report = constrint.patch(model)
    assert [type(each) for each in model.values()] == [LSTMCell, GRUCell, RNNCell]
    assert {each.after for each in report.replaced} == {f"constrint.flashrnn.{n}Cell" for n in ("LSTM", "GRU", "RNN")}
    assert "weight gradients once for all steps" in str(report)
    assert {name: value.data_ptr() for name, value in model.named_parameters()} == before
    assert "already" in constrint.patch(model).left[0].reason
    report.undo()
    assert [type(each) for each in model.values()] == [nn.LSTMCell, nn.GRUCell, nn.RNNCell]
