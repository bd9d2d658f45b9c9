"""One step of a cell by a plan: its products and kernels on the CPU, and what is compiled for named GPUs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from constrint.hwmodels import load_gpu
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.onestep.plans import StepForward, _build_forward, step_launch
from tests.support.interpreter import interpreted

STEP_CELLS = ("lstm", "gru", "elman", "elman_relu")
USUAL = {"sizes": (3, 5, 20), "steps": 4, "bias": True, "initial": True, "of_x": True, "dtype": "float32"}
CASES: dict[str, dict[str, Any]] = {cell: {"cell": cell, **USUAL} for cell in STEP_CELLS}
CASES |= {f"{cell}-plain": {**CASES[cell], "bias": False, "initial": False, "of_x": False} for cell in STEP_CELLS}
CASES |= {f"{cell}-fp16": {**CASES[cell], "dtype": "float16"} for cell in STEP_CELLS}
CASES |= {"wide": {**CASES["lstm"], "sizes": (2, 7, 300), "steps": 2}}


@pytest.fixture(scope="module")
def errors() -> dict[str, Any]:
    return interpreted("tests.support.interpreted_step:step_errors", CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_loop_over_steps_is_torchs(errors: dict[str, Any], name: str) -> None:
    bound = 4 * 2**-10 if name.endswith("fp16") else 2e-6
    assert max(errors[name]) < bound, errors[name]


@pytest.mark.parametrize("gpu", ["h200", "a100", "mi300x"])
@pytest.mark.parametrize("cell", STEP_CELLS)
def test_kernels_compile_without_spills(cell: str, gpu: str) -> None:
    kind, rows, width = CELLS[cell], 4, 1024

    def memory(columns: int, exists: bool = True) -> Any:
        return torch.empty(rows, columns, dtype=torch.bfloat16) if exists else None

    has_c, is_apart = kind.num_states > 1, kind.keeps_parts_apart
    states = {"h": memory(width, is_apart), "c": memory(width, has_c), "new_c": memory(width, has_c)}
    slots, sums = memory(kind.num_slots * width), memory(kind.num_gates * width)
    other = memory(kind.num_gates * width, is_apart)
    forward = {"of_input": sums, "of_hidden": other, "bias_ih": sums[0], "bias_hh": sums[1], "new_h": memory(width)}
    backward = {"grad_h": memory(width), "grad_c": memory(width, has_c), "of_input": sums, "of_hidden": other}
    backward |= {"old_h": memory(width, is_apart), "old_c": memory(width, has_c)}
    for arguments in (forward, backward):
        launch = step_launch(cell, {**arguments, **states, "slots": slots}, rows, width, None, None)
        assert launch.compile(load_gpu(gpu)).spill_bytes == 0


def test_operands_that_do_not_go_together_have_no_plan() -> None:
    x, h, w, r = torch.zeros(2, 3), torch.zeros(2, 4), torch.zeros(16, 3), torch.zeros(16, 4)
    wrong = {
        "features": (torch.zeros(2, 5), h, h, w, r, None, None),
        "rows": (x, h[:1], h, w, r, None, None),
        "dtype": (x.half(), h, h, w, r, None, None),
        "double": tuple(None if t is None else t.double() for t in (x, h, h, w, r, None, None)),
        "empty": (x[:0], h[:0], h[:0], w, r, None, None),
        "gates": (x, h, h, w[:12], r[:12], None, None),
        "bias": (x, h, h, w, r, torch.zeros(15), None),
        "strided": (x, h.t().contiguous().t(), h, w, r, None, None),
    }
    for name, tensors in wrong.items():
        with pytest.raises(NotPlannedError):
            pytest.fail(f"{name}: {_build_forward(tensors, StepForward('lstm', True))}")
