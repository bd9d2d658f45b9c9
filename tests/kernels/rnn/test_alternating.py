"""The alternating back-end's kernels in Triton's interpreter, against the same recurrence in PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.interpreter import interpreted
from tests.support.shared import SharedResults

CASES: dict[str, dict[str, Any]] = {
    f"{cell}-{dtype}-{'all' if optional else 'plain'}": {
        "cell": cell,
        "dtype": dtype,
        "optional": optional,
        "sizes": (4, 7, 2, 24),
        "seed": seed,
    }
    for seed, (cell, dtype, optional) in enumerate(
        (cell, dtype, optional)
        for cell in ("lstm", "gru", "slstm", "elman", "elman_relu")
        for dtype, optional in (("float32", True), ("float32", False), ("float16", False))
    )
}
#: In fp32 a different order of sums; in fp16 results and gradients are rounded at other places, about 8 a step.
BOUNDS = {"float32": 1e-5, "float16": 8 * 2**-11 * 7**0.5}


@pytest.fixture(scope="module")
def errors(shared_results: SharedResults) -> dict[str, dict[str, float]]:
    function = "tests.support.interpreted_rnn:alternating_errors"
    return dict(shared_results.once(function, lambda: interpreted(function, CASES)))


@pytest.mark.parametrize("name", CASES)
def test_kernels_equal_the_loop(name: str, errors: dict[str, dict[str, float]]) -> None:
    bound = BOUNDS[CASES[name]["dtype"]]
    assert {what: error for what, error in errors[name].items() if not error <= bound} == {}


@pytest.mark.parametrize("gpu", ["a100", "h200", "b200", "mi250x", "mi300x", "mi355x"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_kernels_compile_for_every_architecture_without_spills(gpu: str, direction: str) -> None:
    """A program holds its units in registers: no memory is touched but operands and results."""
    pytest.importorskip("triton", reason="needs the extra [torch]: triton")
    from constrint.hwmodels import load_gpu
    from constrint.kernels.rnn.alternating import kernel
    from constrint.kernels.rnn.equations import slstm
    from constrint.kernels.rnn.generated.triton import step_function
    from constrint.tune.compile import TritonSource, compile_triton

    model = load_gpu(gpu)
    function = getattr(kernel, f"pointwise_{direction}_kernel")
    constants = {
        "head_dim": 768,
        "num_gates": 4,
        "num_slots": 4,
        "num_states": 4,
        "num_params": 0,
        "fast": model.vendor == "nvidia",
        "tile": 128,
        "cell": step_function(slstm, direction),
    }
    constants |= (
        {"has_bias": True, "save_gates": True}
        if direction == "forward"
        else {"upstream_mask": 1, "has_clip": True, "shift_free": True}
    )
    given = {"carry": "*fp32", "recurrent": "*fp32", "through": "*fp32", "bias": "*fp32", "clip": "*fp32"}
    given |= {"remaining": "*i32", "reset": "*i8", "unit_params": "*fp32", "grad_params": "*fp32"}
    given |= dict.fromkeys(("step", "batch", "num_heads", "num_steps"), "i32")
    types = {name: given.get(name, "*bf16") for name in function.arg_names if name not in constants}
    found = compile_triton(model, TritonSource(function, types, constants, frozenset(), {"num_warps": 4}))
    assert (found.smem_bytes, found.spill_bytes) == (0, 0)
    assert found.registers_per_thread <= 128
