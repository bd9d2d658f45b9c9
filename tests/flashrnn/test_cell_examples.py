"""Every cell of examples/cells against its published step, looped in PyTorch: values and gradients in fp64."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from constrint.kernels.rnn.language.backends import AUTO, CellCall
from constrint.kernels.rnn.language.graph import CellDefinition
from constrint.kernels.rnn.language.op import run_cell
from constrint.kernels.rnn.language.torch_code import derivative_error, input_gates, recurrent_gates
from examples.cells import loop as loop_file

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "cells"
CELLS: dict[str, tuple[CellDefinition, Any]] = {
    cell.name: (cell, plain)
    for path in sorted(FOLDER.glob("*.py"))
    if path.stem != "loop"
    for cell, plain in import_module(f"examples.cells.{path.stem}").CELLS.items()
}
B, T, D = 3, 5, 4
loop: Any = loop_file.loop


def drawn(*sizes: int) -> Tensor:
    return torch.randn(*sizes, dtype=torch.float64).requires_grad_()


def test_all_cells_of_the_list_are_here() -> None:
    assert len(CELLS) >= 16


@pytest.mark.parametrize("is_new", [False, True], ids=["goes_on", "from_the_first_states"])
@pytest.mark.parametrize("name", CELLS)
def test_a_cell_is_its_published_step(name: str, is_new: bool) -> None:
    cell, plain = CELLS[name]
    torch.manual_seed(0)
    in_x, in_r = input_gates(cell), recurrent_gates(cell)
    wx = drawn(B, T, len(in_x), 1, D)
    r, b = (drawn(len(in_r), 1, D, D), drawn(len(in_r), 1, D)) if in_r else (None, None)
    first = torch.tensor(cell.initial, dtype=torch.float64)[:, None, None, None].expand(-1, B, 1, D)
    # An empty sLSTM state has no gradient here, and in its published step one that nothing reads.
    initial = (first if is_new else first + torch.rand_like(first)).clone().requires_grad_(not is_new)
    sizes = {"unit": (1, D), "head": (1, 1), "layer": (1, 1)}
    parameters = tuple((drawn(*sizes[p.kind]) * 0.3 + p.initial).detach().requires_grad_() for p in cell.parameters)
    inputs = tuple(
        torch.rand(B, T, 1, D if each.kind == "unit" else 1, dtype=torch.float64).requires_grad_()
        for each in cell.inputs
    )
    results = run_cell(CellCall(cell, wx, r, b, initial, parameters, inputs, None, None), AUTO, trains=True)
    states = loop(
        cell,
        plain,
        {gate: wx[:, :, at, 0] for at, gate in enumerate(in_x)},
        {gate: r[at, 0] for at, gate in enumerate(in_r)} if r is not None else {},
        {gate: b[at, 0] for at, gate in enumerate(in_r)} if b is not None else {},
        {state: initial[at, :, 0] for at, state in enumerate(cell.states)},
        {p.name: value.reshape(-1) for p, value in zip(cell.parameters, parameters, strict=True)},
        {each.name: value[:, :, 0] for each, value in zip(cell.inputs, inputs, strict=True)},
    )
    wanted = torch.stack([torch.stack(states[state], 1) for state in cell.states])
    got = torch.cat([results.hidden[None], results.rest])[:, :, :, 0]
    torch.testing.assert_close(got, wanted)
    torch.testing.assert_close(results.last[:, :, 0], wanted[:, :, -1])
    leaves = [each for each in (wx, r, b, initial, *parameters, *inputs) if each is not None and each.requires_grad]
    weights = torch.randn_like(wanted)
    mine = torch.autograd.grad((got * weights).sum(), leaves, retain_graph=True)
    theirs = torch.autograd.grad((wanted * weights).sum(), leaves, allow_unused=True)
    assert any(bool(gradient.any()) for gradient in mine)
    for gradient, expected in zip(mine, theirs, strict=True):
        torch.testing.assert_close(gradient, torch.zeros_like(gradient) if expected is None else expected)


@pytest.mark.parametrize("name", CELLS)
def test_a_derivative_is_that_of_finite_differences(name: str) -> None:
    assert derivative_error(CELLS[name][0]) < 1e-7


@pytest.mark.parametrize("has_states", [False, True])
def test_the_xlstm_package_has_the_same_layer(has_states: bool) -> None:
    layers = pytest.importorskip("xlstm.blocks.slstm.layer", reason="needs the package xlstm")
    in_xlstm: Any = import_module("examples.cells.slstm").InXlstm
    torch.manual_seed(0)
    config = layers.sLSTMLayerConfig(
        embedding_dim=24, num_heads=2, backend="vanilla", recurrent_weight_init="standard", dtype="float32"
    )
    layer = layers.sLSTMLayer(config)
    layer.reset_parameters()
    x = torch.randn(3, 9, 24, requires_grad=True)
    state = {"slstm_state": torch.rand(4, 3, 24) + 0.5} if has_states else {}
    found = []
    for recurrence in (layer.slstm_cell, in_xlstm(layer.slstm_cell)):
        layer.slstm_cell = recurrence
        output = layer(x, **state)
        found.append([output, *torch.autograd.grad(output.square().sum(), [x, *layer.parameters()])])
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)
