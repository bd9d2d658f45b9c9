"""Steps of cells by their plans on the CPU: products by torch, kernels in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from constrint.flashrnn import onestep
from constrint.flashrnn.stepcells import stepped
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.launch.plan.table import IS_NEW, WANTS_GRAD
from constrint.kernels.rnn.onestep import plans

THEIRS = {"lstm": nn.LSTMCell, "gru": nn.GRUCell, "elman": nn.RNNCell, "elman_relu": nn.RNNCell}


class RunTable:
    """Stands for a table of plans: every call is new, and builds and runs its plan."""

    def __init__(self, build: Any) -> None:
        self.build, self.learned = build, 0

    def call(self, is_inner: bool, extra: Any, *tensors: Any) -> Any:
        """A call that has to be recorded, or is new."""
        needs = any(t is not None and t.requires_grad for t in tensors)
        return WANTS_GRAD if not is_inner and needs and torch.is_grad_enabled() else IS_NEW

    def learn(self, extra: Any, *tensors: Any) -> Any:
        """The results of a call, a tensor or a tuple of them; None where it has no plan."""
        self.learned += 1
        try:
            with torch.no_grad():
                results = self.build(tensors, extra)
        except NotPlannedError:
            return None
        return results[0] if len(results) == 1 else tuple(results)


def _run(
    tensors: Any, results: list[Tensor], num_results: int, products: Any, launch: Any, *, products_first: bool
) -> list[Tensor]:
    """Run what would be recorded."""
    for each in results:
        each.fill_(float("nan"))
    if not products_first:
        launch.run()
    for a, b, out, adds in products:
        out.copy_(a @ b + (out if adds else 0))
    if products_first:
        launch.run()
    return results[:num_results]


@contextmanager
def steps_by_interpreter() -> Iterator[tuple[RunTable, RunTable]]:
    """The tables in whose place plans run on the CPU: forward and backward."""
    forward, backward = RunTable(plans._build_forward), RunTable(plans._build_backward)
    with (
        mock.patch.object(plans, "_recorded", _run),
        mock.patch.object(onestep, "FORWARD", forward),
        mock.patch.object(onestep, "BACKWARD", backward),
    ):
        yield forward, backward


def step_errors(case: dict[str, Any]) -> tuple[float, float]:
    """The largest relative error of states, and of gradients, of a loop over steps beside torch's cell in fp64."""
    torch.manual_seed(0)
    cell, (rows, inputs, width) = case["cell"], case["sizes"]
    options = {"nonlinearity": "relu"} if cell == "elman_relu" else {}
    right = THEIRS[cell](inputs, width, bias=case["bias"], **options).double()
    mine = THEIRS[cell](inputs, width, bias=case["bias"], **options)
    mine.load_state_dict(right.state_dict())
    dtype = getattr(torch, case["dtype"])
    mine = mine.to(dtype)
    right.load_state_dict({name: value.double() for name, value in mine.state_dict().items()})
    drawn = torch.randn(rows, case["steps"], inputs).to(dtype)
    first = torch.randn(2, rows, width).to(dtype) if case["initial"] else None
    weighs = torch.randn(case["steps"], rows, width).to(dtype)
    made = []
    with steps_by_interpreter() as (forward, backward):
        for module, kind in ((mine, dtype), (right, torch.float64)):
            x = drawn.to(kind, copy=True).requires_grad_(case["of_x"])
            start = None if first is None else first.to(kind, copy=True).requires_grad_()
            states: Any = (None, None) if start is None else (start[0], start[1])
            outs = []
            for t in range(case["steps"]):
                if module is mine:
                    found = stepped(module, cell, x[:, t], states)
                    assert found is not None
                    states = (*found, None)[:2]
                elif cell == "lstm":
                    states = module(x[:, t], None if states[0] is None else states)
                else:
                    states = module(x[:, t], states[0]), None
                outs.append(states[0])
            result = torch.stack(outs)
            loss = (result * weighs.to(kind)).sum()
            if cell == "lstm":
                loss = loss + states[1].square().sum()
            leaves = [*module.parameters(), *(each for each in (x, start) if each is not None and each.requires_grad)]
            made.append(([result, *(s for s in states if s is not None)], torch.autograd.grad(loss, leaves)))
        assert forward.learned == backward.learned == case["steps"]
    (mine_states, mine_grads), (right_states, right_grads) = made
    return _worst(mine_states, right_states), _worst(mine_grads, right_grads)


def _worst(found: Any, wanted: Any) -> float:
    return max(
        float((one.double() - other).abs().max() / other.abs().max()) for one, other in zip(found, wanted, strict=True)
    )
