"""Cells and layers of one step on a GPU, beside torch's cells in fp64 on the CPU; plans, capture, streams, modes."""

from __future__ import annotations

import copy
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

import constrint
from constrint.flashrnn import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell
from constrint.kernels.rnn.onestep.plans import BACKWARD, FORWARD
from tests.support.needs import gpu_capability

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(gpu_capability() is None or torch.version.hip is not None, reason="needs an NVIDIA GPU"),
]
CELLS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "lstm": (LSTMCell, nn.LSTMCell, {}),
    "gru": (GRUCell, nn.GRUCell, {}),
    "elman": (RNNCell, nn.RNNCell, {}),
    "elman_relu": (RNNCell, nn.RNNCell, {"nonlinearity": "relu"}),
}
LAYERS: dict[str, tuple[Any, Any]] = {"lstm": (LSTM, nn.LSTM), "gru": (GRU, nn.GRU), "elman": (RNN, nn.RNN)}
#: Of the largest value: sums in another order; some roundings of stored values.
BOUNDS = {torch.float32: 2e-5, torch.bfloat16: 6 * 2**-8, torch.float16: 6 * 2**-11}


def pair(cell: str, inputs: int, width: int, dtype: torch.dtype, **options: Any) -> tuple[Any, Any]:
    """A cell on the GPU and torch's with the same weights in fp64 on the CPU."""
    ours, theirs, own = CELLS[cell]
    torch.manual_seed(0)
    mine = ours(inputs, width, **own, **options).to(dtype)
    right = theirs(inputs, width, **own, **options).double()
    right.load_state_dict(mine.state_dict())
    return mine.cuda(), right


def results(cell: str, module: Any, x: Tensor, start: Tensor | None, weights: Tensor) -> list[Tensor]:
    """Hidden states of all steps, the last states, and all gradients, in fp64 on the CPU."""
    parameter = next(module.parameters())

    def moved(t: Tensor) -> Tensor:
        return t.to(parameter.device, parameter.dtype, copy=True).requires_grad_()

    x = moved(x)
    states = cast(Any, None)
    leaves = [*module.parameters(), x]
    if start is not None:
        start = moved(start)
        leaves.append(start)
        states = (start[0], start[1]) if cell == "lstm" else start[0]
    hidden = []
    for t in range(x.shape[1]):
        states = module(x[:, t], states)
        hidden.append(states[0] if cell == "lstm" else states)
    every = torch.stack(hidden)
    loss = (every * weights.to(every)).sum() + (states[1].sum() if cell == "lstm" else 0)
    last = states if cell == "lstm" else (states,)
    found = [every, *last, *torch.autograd.grad(loss, leaves)]
    return [each.detach().double().cpu() for each in found]


def errors_in_norm(found: list[Tensor], wanted: list[Tensor]) -> list[float]:
    """Norms of errors: a relu whose input is next to zero is on or off by rounding, and single gradients with it."""
    return [float((f - w).norm() / w.norm().clamp(min=1e-30)) for f, w in zip(found, wanted, strict=True)]


def assert_near(found: list[Tensor], wanted: list[Tensor], bound: float) -> None:
    """Errors relative to the largest value of each."""
    errors = [float((f - w).abs().max() / w.abs().max().clamp(min=1e-30)) for f, w in zip(found, wanted, strict=True)]
    assert max(errors) < bound, errors


@pytest.mark.parametrize("dtype", BOUNDS, ids=["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("sizes", [(1, 8, 16), (3, 5, 7), (16, 96, 128), (300, 33, 257)], ids=str)
@pytest.mark.parametrize("cell", CELLS)
def test_a_loop_is_torchs(cell: str, sizes: tuple[int, int, int], dtype: torch.dtype) -> None:
    rows, inputs, width = sizes
    for has_bias, has_start in ((True, True), (False, False)):
        mine, right = pair(cell, inputs, width, dtype, bias=has_bias)
        x = torch.randn(rows, 6, inputs).to(dtype)
        start = torch.randn(2 if cell == "lstm" else 1, rows, width).to(dtype) if has_start else None
        weights = torch.randn(6, rows, width).to(dtype)
        before = FORWARD.state().hits, BACKWARD.state().hits
        found = results(cell, mine, x, start, weights)
        assert FORWARD.state().hits > before[0]
        assert BACKWARD.state().hits > before[1]
        wanted = results(cell, right, x, start, weights)
        if cell == "elman_relu" and dtype is not torch.float32:
            # Gradients are as near as those of torch's own cell of this type, to a factor of two.
            assert_near(found[:2], wanted[:2], BOUNDS[dtype])
            theirs = results(cell, copy.deepcopy(right).to(dtype).cuda(), x, start, weights)
            errors, allowed = errors_in_norm(found[2:], wanted[2:]), max(errors_in_norm(theirs[2:], wanted[2:]))
            assert max(errors) < 2 * allowed + BOUNDS[dtype], (errors, allowed)
        else:
            assert_near(found, wanted, BOUNDS[dtype])


@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize("cell", LAYERS)
def test_layers_of_one_step_are_torchs(cell: str, num_layers: int) -> None:
    ours, theirs = LAYERS[cell]
    torch.manual_seed(0)
    mine = ours(24, 40, num_layers)
    right = theirs(24, 40, num_layers).double()
    right.load_state_dict(mine.state_dict())
    mine.cuda()
    x = torch.randn(1, 5, 24)
    made = []
    before = FORWARD.state().hits
    for module in (mine, right):
        parameter = next(module.parameters())
        at = x.to(parameter.device, parameter.dtype, copy=True).requires_grad_()
        states = cast(Any, None)
        for _ in range(4):
            output, states = module(at, states)
        loss = output.square().sum() + (states[1] if cell == "lstm" else states).sum()
        found = [output, *(states if cell == "lstm" else [states])]
        found += torch.autograd.grad(loss, [*module.parameters(), at])
        made.append([each.detach().double().cpu() for each in found])
    assert_near(made[0], made[1], 2e-5)
    assert FORWARD.state().hits > before
    assert mine.why(x.cuda()).program.name == "onestep"


def test_errors_are_torchs() -> None:
    mine, right = LSTMCell(5, 7).cuda(), nn.LSTMCell(5, 7).cuda()
    x, h = torch.zeros(2, 5, device="cuda"), torch.zeros(2, 7, device="cuda")
    for call in (
        (x[:, :4],),
        (x, (h[:1], h)),
        (x.half(), (h, h)),
        (x[None, None],),
        (x, (h, h[:, :3])),
        (x, (h, h.cpu())),
    ):
        with pytest.raises(Exception) as expected:  # noqa: PT011  torch's own decides
            right(*call)
        with pytest.raises(type(expected.value)) as found:
            mine(*call)
        assert str(found.value).splitlines()[0] == str(expected.value).splitlines()[0]
    layer = LSTM(5, 7).cuda()
    for bad in ((x[None, :, :4],), (x[None], (h, h)), (x[None], (h[None, :1], h[None])), (x[None].half(),)):
        with pytest.raises((RuntimeError, ValueError)):
            layer(*bad)


def test_calls_of_one_vector_of_a_strided_batch_and_of_none() -> None:
    for cell in CELLS:
        mine, right = pair(cell, 12, 20, torch.float32)
        x = torch.randn(12)
        found, wanted = mine(x.cuda()), right(x.double())
        torch.testing.assert_close(_cpu(found), _cpu(wanted), rtol=1e-5, atol=1e-5)
        batch = torch.randn(12, 6)
        found, wanted = mine(batch.cuda().t()), right(batch.double().t())
        torch.testing.assert_close(_cpu(found), _cpu(wanted), rtol=1e-5, atol=1e-5)
        assert _cpu(mine(torch.zeros(0, 12, device="cuda")))[0].shape == (0, 20)


def _cpu(states: Any) -> list[Tensor]:
    return [each.detach().double().cpu() for each in (states if isinstance(states, tuple) else (states,))]


@pytest.mark.parametrize("cell", CELLS)
def test_second_derivatives(cell: str) -> None:
    mine, right = pair(cell, 6, 9, torch.float32)
    x = torch.randn(3, 4, 6)
    made = []
    for module in (mine, right):
        parameter = next(module.parameters())
        at = x.to(parameter.device, parameter.dtype, copy=True).requires_grad_()
        states = cast(Any, None)
        for t in range(4):
            states = module(at[:, t], states)
        loss = (states[0] if cell == "lstm" else states).square().sum()
        first = torch.autograd.grad(loss, [*module.parameters(), at], create_graph=True)
        penalty = torch.stack([each.square().sum() for each in first]).sum()
        second = torch.autograd.grad(penalty, [*module.parameters(), at], allow_unused=True)
        made.append([each.detach().double().cpu() for each in (*first, *second) if each is not None])
    assert_near(made[0], made[1], 1e-4)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler imports what torch deprecates
def test_autocast_transforms_and_compilers_run_torchs_cell() -> None:
    mine, _ = pair("lstm", 8, 16, torch.float32)
    right = nn.LSTMCell(8, 16).cuda()
    right.load_state_dict(mine.state_dict())
    x = torch.randn(4, 8, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        torch.testing.assert_close(mine(x), right(x), rtol=0, atol=0)
    compiled = torch.compile(mine, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), right(x), rtol=1e-5, atol=1e-5)
    gradient = torch.func.grad(lambda x, module: module(x)[0].sum(), 0)
    torch.testing.assert_close(gradient(x, mine), gradient(x, right), rtol=1e-4, atol=1e-5)


# The warm-up before a capture runs on a stream of its own, as torch's documentation asks for.
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream does not match")
def test_a_captured_loop_follows_its_inputs() -> None:
    mine, _ = pair("lstm", 16, 32, torch.bfloat16)
    x = torch.randn(3, 4, 16, device="cuda", dtype=torch.bfloat16)

    def run() -> list[Tensor]:
        states = cast(Any, None)
        for t in range(3):
            states = mine(x[t], states)
        loss = states[0].float().square().sum()
        return [states[0].detach(), *torch.autograd.grad(loss, list(mine.parameters()))]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run()
    x.copy_(torch.randn_like(x))
    graph.replay()
    torch.testing.assert_close(captured, run(), rtol=0, atol=0)


def test_a_loop_repeats_bit_by_bit_and_on_another_stream() -> None:
    mine, _ = pair("gru", 64, 96, torch.bfloat16)
    x = torch.randn(20, 32, 64, device="cuda", dtype=torch.bfloat16)

    def run() -> list[Tensor]:
        state = cast(Any, None)
        for t in range(20):
            state = mine(x[t], state)
        return [state.detach(), *torch.autograd.grad(state.float().sum(), list(mine.parameters()))]

    first = run()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    for turn in range(10):
        with torch.cuda.stream(side if turn % 2 else torch.cuda.current_stream()):
            again = run()
        torch.cuda.synchronize()
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_patched_cells_train_as_torchs() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.out = nn.LSTMCell(8, 32), nn.GRUCell(32, 32), nn.Linear(32, 1)

        def forward(self, x: Tensor) -> Tensor:
            one = two = None
            for t in range(x.shape[0]):
                one = self.first(x[t], one)
                two = self.second(one[0], two)
            return self.out(two)  # type: ignore[no-any-return]

    torch.manual_seed(0)
    right = Model().cuda()
    mine = copy.deepcopy(right)
    constrint.patch(mine, linear=False)
    x, y = torch.randn(10, 16, 8, device="cuda"), torch.randn(16, 1, device="cuda")
    for model in (right, mine):
        optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
        for _ in range(20):
            optimiser.zero_grad()
            (model(x) - y).square().mean().backward()
            optimiser.step()
    torch.testing.assert_close(mine(x), right(x), rtol=1e-3, atol=1e-3)
