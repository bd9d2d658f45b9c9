"""The recurrent Triton kernels in Triton's interpreter: every cell, with one program per head and with the exchange.

The interpreter needs a process of its own, runs programs one after the other (so a group of several would wait for
ever: the exchange is run with one program) and is silently wrong for bf16. On an H200 the same code was checked in
bf16, fp16 and fp32 with several programs (`benchmarks/results/h200/rnn_space.csv`, column `outcome`).
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
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.interface import RnnInputs, RnnUpstream
from constrint.kernels.rnn.reference import rnn_reference
from constrint.kernels.rnn.spec import workload_of
from constrint.kernels.rnn.triton import launch
from constrint.select.first_choice import Choice

def difference(actual, expected):
    return ((actual.double() - expected).norm() / expected.norm()).item()

def run(case):
    cell, dtype = CELLS[case["cell"]], getattr(torch, case["dtype"])
    batch, time, heads, dim = case["sizes"]
    gates, states = cell.num_gates, cell.num_states
    generator = torch.Generator().manual_seed(case["seed"])
    def draw(*sizes):
        return torch.randn(sizes, generator=generator)
    wx = draw(batch, time, gates, heads, dim).to(dtype)
    if case["time_major"]:
        wx = wx.transpose(0, 1).contiguous().transpose(0, 1)
    r = (draw(gates, heads, dim, dim) / dim**0.5).to(dtype)
    b = 0.3 * draw(gates, heads, dim).to(dtype) if case["bias"] else None
    initial = 0.5 * draw(states, batch, heads, dim) if case["initial"] else None
    if initial is not None and cell.name == "slstm":
        initial[2] = initial[2].abs() + 1.0
    lengths = torch.randint(0, time + 1, (batch,), generator=generator) if case["lengths"] else None
    reset = torch.rand((batch, time), generator=generator) < 0.2 if case["reset"] else None
    # In 16 bits the gradient of a stabiliser is ill-posed: max() flips with the rounding.
    only_h = dtype != torch.float32
    grad = draw(states, batch, time, heads, dim).to(dtype)
    grad_last = draw(states, batch, heads, dim)
    if only_h:
        grad[1:], grad_last[1:] = 0, 0
    exact = [None if x is None else x.double().requires_grad_(True) for x in (wx, r, b, initial)]
    out, last = rnn_reference(cell.name, *exact, lengths=lengths, reset=reset, clip=case["clip"])
    given = [x for x in exact if x is not None]
    wanted = torch.autograd.grad((out * grad.double()).sum() + (last * grad_last.double()).sum(), given)
    name = {"float32": "fp32", "float16": "fp16"}[case["dtype"]]
    choice = Choice(
        None, cell.name + ".triton", case["config"], workload=workload_of(cell.name, (batch, time, heads, dim), name)
    )
    inputs = RnnInputs(cell.name, wx, r, b, initial, lengths, reset)
    saved = launch.forward(inputs, choice, save_gates=case["save"])
    if only_h:
        grad, grad_last = (grad[0], *[None] * (states - 1)), (grad_last[0], *[None] * (states - 1))
    upstream = RnnUpstream(tuple(grad), tuple(grad_last))
    found = launch.backward(inputs, saved, upstream, choice, clip=case["clip"])
    gradients = [g for g in (found.wx, found.r, found.b, found.initial) if g is not None]
    return difference(saved.states, out), max(difference(g, w) for g, w in zip(gradients, wanted, strict=True))

print(json.dumps([run(case) for case in json.loads(sys.stdin.read())]))
"""

BASE: dict[str, Any] = {
    "cell": "lstm",
    "dtype": "float32",
    "sizes": [3, 5, 2, 48],
    "seed": 1,
    "bias": True,
    "initial": False,
    "lengths": False,
    "reset": False,
    "time_major": False,
    "clip": 0.0,
    "save": True,
    "config": {"tile_batch": 16, "row_split": 1, "split_depth": 0, "num_warps": 4, "num_stages": 1},
}
EXCHANGE = {"config": BASE["config"] | {"exchange": 1}}
SLICED = {"config": BASE["config"] | {"exchange": 1, "split_depth": 1, "num_warps": 2}}
EVERYTHING = {"initial": True, "lengths": True, "reset": True}
CELLS = ("lstm", "gru", "slstm", "elman", "elman_relu")
CASES = {f"{cell}, {name}": {"cell": cell} | change for cell in CELLS for name, change in {
    "ragged": EVERYTHING | {"seed": 2},
    "exchange": EXCHANGE | EVERYTHING | {"seed": 3},
    "sliced exchange": SLICED | {"initial": True, "save": False, "seed": 4},
    "16 bits": {"dtype": "float16", "seed": 5},
}.items()}  # fmt: skip
CASES |= {
    "one step": {"sizes": [2, 1, 1, 16], "initial": True},
    "one sequence, no bias, gates again": {"sizes": [1, 7, 1, 32], "bias": False, "save": False},
    "more rows than a tile": {"sizes": [17, 3, 2, 16], "lengths": True},
    "time-major inputs": {"time_major": True, "cell": "gru"},
    "clipped": {"clip": 0.05, "initial": True},
    "clipped gru, exchange": EXCHANGE | {"clip": 0.05, "cell": "gru", "reset": True},
    "depth of two parts": EXCHANGE | {"sizes": [2, 3, 1, 96], "cell": "gru"},
}
#: Relative errors by the rounding of states and operands: fp32 2^-23 and fp16 2^-11, for the sums of a few steps.
BOUNDS = {"float32": 32 * 2.0**-23, "float16": 8 * 2.0**-11}


@pytest.fixture(scope="module")
def errors(shared_results: SharedResults) -> dict[str, tuple[float, float]]:
    return dict(shared_results.once(__file__, interpreted_errors))


def interpreted_errors() -> dict[str, tuple[float, float]]:
    missing = [name for name in ("torch", "triton") if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"needs the extra [torch]: {', '.join(missing)} not installed")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps([BASE | change for change in CASES.values()]),
        env=os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(CASES, json.loads(done.stdout.splitlines()[-1]), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_states_equal_the_reference_in_double_precision(name: str, errors: dict[str, tuple[float, float]]) -> None:
    assert errors[name][0] <= BOUNDS[(BASE | CASES[name])["dtype"]]


@pytest.mark.parametrize("name", CASES)
def test_gradients_equal_those_of_the_reference(name: str, errors: dict[str, tuple[float, float]]) -> None:
    assert errors[name][1] <= BOUNDS[(BASE | CASES[name])["dtype"]]


SPECS_SCRIPT = """
import json
from constrint.hwmodels import load_gpu
from constrint.kernels.rnn.spec import workload_of
from constrint.kernels.rnn.triton.spec import SPECS

CONFIG = {"tile_batch": 16, "row_split": 1, "num_warps": 2, "num_stages": 1, "split_depth": 0, "recompute": 0}

def run(spec):
    gpu, workload = load_gpu("h200"), workload_of(spec.cell.name, (3, 4, 2, 16), "fp32", spec.direction)
    inputs = spec.inputs(gpu, workload, device="cpu", seed=1)
    outputs = spec.outputs(gpu, workload, inputs)
    for launch in spec.launches(gpu, workload, CONFIG, inputs, outputs):
        launch.run()
    exact = spec.reference(workload, inputs)
    return max(float((outputs[n].double() - x).norm() / x.norm().clamp(min=1e-9)) for n, x in exact.items())

print(json.dumps({spec.full_name: run(spec) for spec in SPECS}))
"""


def test_every_spec_launches_on_its_inputs_what_its_reference_says() -> None:
    for name in ("torch", "triton"):
        pytest.importorskip(name, reason="needs the extra [torch]")
    done = subprocess.run(
        [sys.executable, "-c", SPECS_SCRIPT],
        env=os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    errors = json.loads(done.stdout.splitlines()[-1])
    assert len(errors) == 2 * len(CELLS)
    assert max(errors.values()) <= BOUNDS["float32"]
