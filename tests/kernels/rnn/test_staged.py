"""Cells of several stages a step: the kernels in Triton's interpreter, against PyTorch, and compiled for GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.interpreter import interpreted
from tests.support.shared import SharedResults

#: By example: its file, and options of the call; a graph of `steps` runs 3 steps, the last one in part.
CASES: dict[str, dict[str, Any]] = {
    f"{cell}-{dtype}": {
        "cell": cell,
        "file": cell.removesuffix("_gru"),
        "dtype": dtype,
        "options": options,
        "sizes": (2, 3, 2, 3),
        "seed": seed,
    }
    for seed, (cell, dtype, options) in enumerate(
        [
            ("mgu", "float32", {"lengths": 1, "reset": 1, "clip": 0.05, "initial": 0, "steps": 2}),
            ("rhn", "float32", {"steps": 2, "bias": 0}),
            ("scrn", "float32", {"lengths": 1, "only_hidden": 1}),
            ("layer_norm_lstm", "float32", {"reset": 1, "steps": 2}),
            ("zoneout_gru", "float32", {"lengths": 1, "steps": 2}),
            ("spiking", "float32", {"reset": 1, "initial": 0}),
            ("indrnn", "float32", {"lengths": 1}),
            ("mgu", "float16", {}),
        ]
    )
}
#: In fp32 a different order of sums; in fp16 operands of products and stored values are rounded, about 8 a step.
BOUNDS = {"float32": 1e-5, "float16": 8 * 2**-11 * 3**0.5}


@pytest.fixture(scope="module")
def errors(shared_results: SharedResults) -> dict[str, dict[str, float]]:
    function = "tests.support.staged_cells:staged_errors"
    return dict(shared_results.once(function, lambda: interpreted(function, CASES)))


@pytest.mark.parametrize("name", CASES)
def test_kernels_equal_the_loop(name: str, errors: dict[str, dict[str, float]]) -> None:
    bound = BOUNDS[CASES[name]["dtype"]]
    assert {what: error for what, error in errors[name].items() if not error <= bound} == {}


@pytest.mark.parametrize(("gpu", "is_backward"), [("h200", False), ("h200", True), ("mi300x", True)])
def test_kernels_compile_without_spills(gpu: str, is_backward: bool) -> None:
    """The layer-norm LSTM, which has the most values of all examples, with all of a head in a program."""
    pytest.importorskip("triton", reason="needs the extra [torch]: triton")
    import triton.language as tl

    from constrint.hwmodels import load_gpu
    from constrint.kernels.rnn.staged.stages import StagedStep
    from constrint.kernels.rnn.staged.text import FLAGS, stage_kernels
    from constrint.tune.compile import TritonSource, compile_triton
    from examples.cells.layer_norm_lstm import layer_norm_lstm

    model = load_gpu(gpu)
    function = stage_kernels(StagedStep(layer_norm_lstm, is_backward))[-1]
    # Triton 3.6 binds arguments in a function that has locals of these names.
    assert {"params", "specialization", "options", "backend"}.isdisjoint(function.arg_names)
    constants = {"head_dim": 768, "tile": 1024, "fast": model.vendor == "nvidia", "dtype": tl.bfloat16}
    constants |= dict.fromkeys(FLAGS[is_backward], 1)
    wide = "product", "bias", "carry", "elementwise", "limit", "of_elementwise", "result0"
    given = dict.fromkeys(wide, "*fp32") | {"remaining": "*i32", "reset": "*i8"}
    given |= dict.fromkeys(("step", "batch", "heads"), "i32")
    types = {name: given.get(name, "*bf16") for name in function.arg_names if name not in constants}
    found = compile_triton(model, TritonSource(function, types, constants, frozenset(), {"num_warps": 8}))
    assert found.spill_bytes == 0
