"""Cells of several stages in Triton's interpreter, beside PyTorch: the worst differences of results and gradients."""

from __future__ import annotations

from importlib import import_module
from typing import Any
from unittest import mock

import torch

from constrint.kernels.rnn.language.backends import CellCall
from constrint.kernels.rnn.language.looped import TORCH_BACKEND
from constrint.kernels.rnn.language.torch_code import input_gates, recurrent_gates


def drawn_call(cell: Any, sizes: tuple[int, int, int, int], dtype: torch.dtype, options: dict[str, Any]) -> CellCall:
    """A call of a cell (B, T, N, D) with random operands; options: lengths, reset, initial, clip."""
    batch, time, heads, dim = sizes
    in_x, in_r = len(input_gates(cell)), len(recurrent_gates(cell))
    shapes = {"unit": (heads, dim), "head": (heads, 1), "layer": (1, 1)}
    first = torch.tensor(cell.initial)[:, None, None, None] + torch.rand(len(cell.states), batch, heads, dim)
    return CellCall(
        cell,
        torch.randn(batch, time, in_x, heads, dim).to(dtype),
        (torch.randn(in_r, heads, dim, dim) / dim**0.5).to(dtype) if in_r else None,
        torch.randn(in_r, heads, dim).to(dtype) * 0.3 if in_r and options.get("bias", True) else None,
        first if options.get("initial", True) else None,
        tuple(torch.randn(*shapes[each.kind]) * 0.3 + each.initial for each in cell.parameters),
        tuple(torch.rand(batch, time, *(shapes["unit"] if each.kind == "unit" else (1, 1))) for each in cell.inputs),
        torch.randint(0, time + 1, (batch,), dtype=torch.int32) if options.get("lengths") else None,
        torch.rand(batch, time) > 0.7 if options.get("reset") else None,
        options.get("clip", 0.0),
        True,
    )


def staged_errors(case: dict[str, Any]) -> dict[str, float]:
    """The largest difference of every result and gradient of a case, relative to its largest value or 1."""
    from constrint.kernels.rnn.staged import graphs

    torch.manual_seed(case["seed"])
    cells = import_module(f"examples.cells.{case['file']}").CELLS
    cell = next(each for each in cells if each.name == case["cell"])
    call = drawn_call(cell, tuple(case["sizes"]), getattr(torch, case["dtype"]), case["options"])
    steps = case["options"].get("steps", call.wx.shape[1])
    with mock.patch.object(graphs, "steps_of_graph", return_value=steps):
        wanted, got = TORCH_BACKEND.forward(call, saves=True), graphs.staged_forward(call, saves=True)
        errors = {
            each: worst(getattr(got, each), getattr(wanted, each)) for each in ("hidden", "rest", "last", "saved")
        }
        if call.lengths is not None:  # padding of pre-activations is anything
            del errors["saved"]
        upstream: list[Any] = [torch.randn_like(each) for each in (wanted.hidden, wanted.rest, wanted.last)]
        if case["options"].get("only_hidden"):
            upstream[1:] = [None, None]
        mine = graphs.staged_backward(call, wanted, *upstream)
    theirs = TORCH_BACKEND.backward(call, wanted, *upstream)
    for each in ("wx", "r", "b", "initial"):
        errors[f"d_{each}"] = worst(getattr(mine, each), getattr(theirs, each))
    for sort, given, right in (("p", mine.parameters, theirs.parameters), ("x", mine.inputs, theirs.inputs)):
        errors |= {f"d_{sort}{i}": worst(a, b) for i, (a, b) in enumerate(zip(given, right, strict=True))}
    return errors


def worst(got: torch.Tensor | None, wanted: torch.Tensor | None) -> float:
    """The largest difference, relative to the largest value or 1."""
    assert (got is None) == (wanted is None)
    if got is None or wanted is None or not wanted.numel():
        return 0.0
    assert got.shape == wanted.shape
    return float((got - wanted).abs().max() / wanted.abs().max().clamp(min=1))


def apart(got: torch.Tensor | None, wanted: torch.Tensor | None) -> float:
    """The difference of all values together, relative to them (2-norms)."""
    assert (got is None) == (wanted is None)
    if got is None or wanted is None or not wanted.numel():
        return 0.0
    assert got.shape == wanted.shape
    return float((got - wanted).norm() / wanted.norm().clamp(min=1))
