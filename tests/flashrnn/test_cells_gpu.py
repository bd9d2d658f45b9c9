"""Every cell of examples/cells on a GPU, by what `auto` takes and by `staged`, against fp64: values and gradients."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from constrint.kernels.rnn.language.backends import CellCall
from constrint.kernels.rnn.language.dispatch import backend_of
from constrint.kernels.rnn.language.looped import TORCH_BACKEND
from tests.support.needs import gpu_capability
from tests.support.staged_cells import apart, drawn_call, worst

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(gpu_capability() is None, reason="needs a GPU"),
]
FOLDER = Path(__file__).resolve().parents[2] / "examples" / "cells"
CELLS = {
    cell.name: cell
    for path in sorted(FOLDER.glob("*.py"))
    if path.stem != "loop"
    for cell in import_module(f"examples.cells.{path.stem}").CELLS
}
#: fp32: tanh and exp of the device, and products in other orders, over 37 steps; else some roundings of stored values.
BOUNDS = {torch.float32: 5e-5, torch.bfloat16: 4 * 2**-7, torch.float16: 4 * 2**-10}


def on_gpu(call: CellCall, dtype: torch.dtype | None = None) -> CellCall:
    """The call with its tensors on the GPU, floating ones in `dtype`."""

    def moved(tensor: Any) -> Any:
        if tensor is None:
            return None
        return tensor.cuda() if dtype is None or not tensor.is_floating_point() else tensor.cuda().to(dtype)

    names = "wx", "r", "b", "initial", "lengths", "reset"
    fields: dict[str, Any] = {name: moved(getattr(call, name)) for name in names}
    fields |= {name: tuple(map(moved, getattr(call, name))) for name in ("parameters", "inputs")}
    return replace(call, **fields)


RUNS = [(name, backend) for name in CELLS for backend in ("auto", "staged")]


@pytest.mark.parametrize(
    ("dtype", "options"),
    [(torch.float32, {"lengths": 1, "reset": 1, "initial": 0}), (torch.bfloat16, {"clip": 0.05}), (torch.float16, {})],
    ids=["fp32-lengths-reset", "bf16-clip", "fp16"],
)
@pytest.mark.parametrize(("name", "backend"), RUNS)
def test_a_cell_is_itself_in_fp64(name: str, backend: str, dtype: torch.dtype, options: dict[str, Any]) -> None:
    if name == "spiking" and dtype != torch.float32:
        pytest.skip("a spike is 0 or 1 on either side of a rounding")
    if name == "indrnn" and dtype == torch.float16:
        pytest.skip("its states grow beyond the largest number of fp16")
    torch.manual_seed(0)
    drawn = drawn_call(CELLS[name], (5, 37, 2, 72), dtype, options)
    call, exact = on_gpu(drawn), on_gpu(drawn, torch.float64)
    runner = backend_of(call, backend)
    got, wanted = runner.forward(call, saves=True), TORCH_BACKEND.forward(exact, saves=True)
    upstream = [torch.randn_like(each).to(dtype) for each in (wanted.hidden, wanted.rest, wanted.last)]
    # The scale m of the sLSTM jumps where its maximum changes sides, which a rounding can do: h alone has gradients.
    # c and n are in units of exp(m).
    is_scaled = name == "xlstm_slstm" and dtype != torch.float32
    given = upstream[:1] if is_scaled else upstream
    none = [None] * (3 - len(given))
    mine = runner.backward(call, got, *given, *none)
    theirs = TORCH_BACKEND.backward(exact, wanted, *(each.double() for each in given), *none)
    pairs: list[tuple[Tensor | None, Tensor | None]] = [
        *((getattr(got, each), getattr(wanted, each)) for each in ("hidden", "rest", "last")[: 1 if is_scaled else 3]),
        *((getattr(mine, each), getattr(theirs, each)) for each in ("wx", "r", "b", "initial")),
        *zip(mine.parameters, theirs.parameters, strict=True),
        *zip(mine.inputs, theirs.inputs, strict=True),
    ]
    # A unit of LiGRU whose sum is near 0 is on or off by a rounding: its gradients are compared as a whole.
    measure = apart if name == "ligru" and dtype != torch.float32 else worst
    errors = [measure(None if mine is None else mine.double(), theirs) for mine, theirs in pairs]
    assert max(errors) <= BOUNDS[dtype], errors
