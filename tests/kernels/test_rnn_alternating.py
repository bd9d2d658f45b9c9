"""The alternating back-end's kernels in Triton's interpreter, against the same recurrence in PyTorch.

The interpreter needs a process of its own (TRITON_INTERPRET=1). It is silently wrong for bf16: fp32 and fp16 are used.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.shared import SharedResults

SCRIPT = """
import json, sys
import torch
from constrint.kernels.rnn.alternating import graphs
from constrint.kernels.rnn.alternating.loop import loop_backward, loop_forward
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.interface import RnnInputs, RnnUpstream

graphs.MAX_STEPS = 4  # several chunks, the last one not full

def run(case):
    torch.manual_seed(case["seed"])
    cell, (batch, time, heads, dim) = case["cell"], case["sizes"]
    gates, states = CELLS[cell].num_gates, CELLS[cell].num_states
    dtype = getattr(torch, case["dtype"])
    full = case["optional"]
    initial = torch.randn(states, batch, heads, dim) if full else None
    if full and cell == "slstm":
        initial[2] = initial[2].abs() + 1.5
    inputs = RnnInputs(
        cell,
        torch.randn(batch, time, gates, heads, dim).to(dtype),
        (torch.randn(gates, heads, dim, dim) / (2 * dim**0.5)).to(dtype),
        torch.randn(gates, heads, dim) if full else None,
        initial,
        torch.tensor([time, 0, 3, 5][:batch], dtype=torch.int32) if full else None,
        torch.rand(batch, time) < 0.3 if full else None,
    )
    every = tuple(torch.randn(batch, time, heads, dim).to(dtype) for _ in range(states))
    last = tuple(torch.randn(batch, heads, dim).to(dtype) for _ in range(states))
    if not full:
        every, last = (every[0], *[None] * (states - 1)), (None,) * states
    upstream, clip = RnnUpstream(every, last), 0.05 if full else 0.0
    found, expected = (f(inputs, save_gates=True) for f in (graphs.graph_forward, loop_forward))
    pairs = {"states": (found.states, expected.states), "gates": (found.gates, expected.gates)}
    # From the same saved tensors, so that each direction is compared on its own; with stored and recomputed gates.
    for name, saved in (("stored", expected), ("recomputed", type(expected)(expected.states, None))):
        a, b = (f(inputs, saved, upstream, clip=clip) for f in (graphs.graph_backward, loop_backward))
        for field in ("wx", "r", "b", "initial"):
            if getattr(b, field) is not None:
                pairs[f"{name} {field}"] = getattr(a, field), getattr(b, field)
    # Past a sequence's end pre-activations are nobody's business.
    if inputs.lengths is not None:
        runs = (torch.arange(time) < inputs.lengths[:, None])[:, :, None, None, None]
        pairs["gates"] = tuple(torch.where(runs, x, 0) for x in pairs["gates"])
    return {
        name: float((a.double() - b.double()).abs().max() / b.double().abs().max().clamp(min=1e-30))
        for name, (a, b) in pairs.items()
    }

print(json.dumps([run(case) for case in json.loads(sys.stdin.read())]))
"""

CASES: dict[str, dict[str, Any]] = {
    f"{cell}-{dtype}-{'all' if optional else 'plain'}": {
        "cell": cell,
        "dtype": dtype,
        "optional": optional,
        "sizes": (4, 6, 2, 24),
        "seed": seed,
    }
    for seed, (cell, dtype, optional) in enumerate(
        (cell, dtype, optional)
        for cell in ("lstm", "gru", "slstm", "elman", "elman_relu")
        for dtype, optional in (("float32", True), ("float32", False), ("float16", False))
    )
}
#: In fp32 a different order of sums; in fp16 results and gradients are rounded at other places, about 8 a step.
BOUNDS = {"float32": 1e-5, "float16": 8 * 2**-11 * 6**0.5}


@pytest.fixture(scope="module")
def errors(shared_results: SharedResults) -> dict[str, dict[str, float]]:
    return dict(shared_results.once(__file__, interpreted_errors))


def interpreted_errors() -> dict[str, dict[str, float]]:
    missing = [name for name in ("torch", "triton") if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"needs the extra [torch]: {', '.join(missing)} not installed")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps(list(CASES.values())),
        env=os.environ
        | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(CASES, json.loads(done.stdout.splitlines()[-1]), strict=True))


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
    from constrint.kernels.rnn import kernel_cells
    from constrint.kernels.rnn.alternating import kernel
    from constrint.tune.compile import TritonSource, compile_triton

    model = load_gpu(gpu)
    function = getattr(kernel, f"pointwise_{direction}_kernel")
    constants = {
        "head_dim": 768,
        "num_gates": 4,
        "num_slots": 4,
        "num_states": 4,
        "fast": model.vendor == "nvidia",
        "tile": 128,
        "cell": getattr(kernel_cells, f"slstm_{direction}"),
    }
    constants |= (
        {"has_bias": True, "save_gates": True}
        if direction == "forward"
        else {"upstream_mask": 1, "has_clip": True, "shift_free": True}
    )
    given = {"carry": "*fp32", "recurrent": "*fp32", "through": "*fp32", "bias": "*fp32", "clip": "*fp32"}
    given |= {"remaining": "*i32", "reset": "*i8"} | dict.fromkeys(("step", "batch", "num_heads", "num_steps"), "i32")
    types = {name: given.get(name, "*bf16") for name in function.arg_names if name not in constants}
    found = compile_triton(model, TritonSource(function, types, constants, frozenset(), {"num_warps": 4}))
    assert (found.smem_bytes, found.spill_bytes) == (0, 0)
    assert found.registers_per_thread <= 128
