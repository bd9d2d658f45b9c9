"""Commands on a recurrent cell of a file: the decision of a layer, and compiled configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from constrint.choose.explain import why
from constrint.kernels.registry import load_kernel
from tests.support.needs import needs_torch, needs_triton

CELL = f"{Path(__file__).parents[2] / 'examples' / 'cells' / 'peephole_lstm.py'}:peephole_lstm"


def test_why_decides_about_a_layer_of_the_cell_as_about_a_built_in_one() -> None:
    layer = why(CELL, "mi300x")
    assert layer.program.name == "triton"
    assert [step.role for step in layer.program.steps] == ["forward", "backward"]
    assert {program.name for program in layer.passed_over} >= {"cuda", "wgmma", "alternating"}
    assert why(f"{CELL}-backward", "mi300x").kernel.endswith("-backward.triton")


def test_an_implementation_of_the_cell_is_a_kernel_by_itself() -> None:
    decision = why(f"{CELL}.triton", "mi300x")
    (spec,) = load_kernel(f"{CELL}.triton").implementations
    assert decision.kernel == spec.full_name


@needs_torch
@needs_triton
@pytest.mark.slow
def test_verify_compiles_the_cell_in_other_processes(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSTRINT_CACHE", str(tmp_path))
    sizes = ("--batch", "16", "--heads", "4", "--head-dim", "32", "--time", "16")
    code, out, err = run("verify", "--kernel", f"{CELL}.triton", "--gpu", "mi300x", "--top", "1", *sizes)
    assert code == 0, err
    assert "unknown kernel" not in out
    assert "v_mfma" in out
