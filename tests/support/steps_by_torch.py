"""Stands in for the tables of one step's plans: the same operands and results by torch's operators, on any device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.nn.functional import linear

from constrint.flashrnn import onestep
from constrint.kernels.launch.plan.table import IS_NEW, WANTS_GRAD
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.reference import STEPS


class StepTable:
    """A table whose every call is new."""

    def __init__(self, function: Any) -> None:
        self.function, self.learned = function, 0

    def call(self, is_inner: bool, extra: Any, *tensors: Any) -> Any:
        """See `PlanTable.call`."""
        needs = any(t is not None and t.requires_grad for t in tensors)
        return WANTS_GRAD if not is_inner and needs and torch.is_grad_enabled() else IS_NEW

    def learn(self, extra: Any, *tensors: Any) -> Any:
        """See `PlanTable.learn`."""
        self.learned += 1
        with torch.no_grad():
            results = self.function(extra, *tensors)
        return results[0] if len(results) == 1 else tuple(results)


def _forward(extra: Any, x: Tensor, h: Any, c: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Any, b_hh: Any) -> Any:
    kind, width = CELLS[extra.cell], w_hh.shape[1]
    states = _states(kind.num_states, h, c, len(x), width, x)
    parts = linear(x, w_ih, b_ih).chunk(kind.num_gates, 1)
    others = linear(states[0], w_hh, b_hh).chunk(kind.num_gates, 1)
    slots = [one + other for one, other in zip(parts, others, strict=True)]
    if kind.keeps_parts_apart:
        slots = [*slots[:-1], parts[-1], others[-1]]
    results = [state.clone() for state in STEPS[extra.cell](slots, states)]
    return [*results, torch.cat(slots, 1)] if extra.trains else results


def _backward(
    extra: Any, grad_h: Any, grad_c: Any, h: Any, c: Any, new_c: Any, slots: Tensor, w_ih: Tensor, w_hh: Tensor
) -> Any:
    kind, width = CELLS[extra.cell], w_hh.shape[1]
    with torch.enable_grad():
        p = [each.detach().requires_grad_() for each in slots.chunk(kind.num_slots, 1)]
        states = [s.detach().requires_grad_() for s in _states(kind.num_states, h, c, len(slots), width, slots)]
        made = STEPS[extra.cell](p, tuple(states))
        pairs = [(s, g) for s, g in zip(made, (grad_h, grad_c), strict=False) if g is not None]
        found = torch.autograd.grad([s for s, _ in pairs], [*p, *states], [g for _, g in pairs], allow_unused=True)
    full = [torch.zeros_like(x) if g is None else g for x, g in zip([*p, *states], found, strict=True)]
    of_p, of_states = full[: len(p)], full[len(p) :]
    of_input = torch.cat(of_p[: kind.num_gates], 1)
    of_hidden = torch.cat([*of_p[: kind.num_gates - 1], of_p[-1]], 1)
    results = [of_input, of_hidden] if kind.keeps_parts_apart else [of_input]
    if extra.of_x:
        results.append(of_input @ w_ih)
    if extra.of_h:
        results.append(of_hidden @ w_hh + of_states[0])
    if extra.of_c:
        results.append(of_states[1])
    return results


def _states(number: int, h: Any, c: Any, rows: int, width: int, like: Tensor) -> tuple[Tensor, ...]:
    zeros = like.new_zeros(rows, width)
    return tuple(zeros if state is None else state for state in (h, c)[:number])


@contextmanager
def steps_by_torch() -> Iterator[tuple[StepTable, StepTable]]:
    """The tables in whose place torch computes: forward and backward."""
    forward, backward = StepTable(_forward), StepTable(_backward)
    with mock.patch.object(onestep, "FORWARD", forward), mock.patch.object(onestep, "BACKWARD", backward):
        yield forward, backward
