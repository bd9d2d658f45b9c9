"""The recurrent Triton kernels in Triton's interpreter: every cell, with one program per head and with the exchange.

The interpreter needs a process of its own, runs programs one after the other (so a group of several would wait for
ever: the exchange is run with one program) and is silently wrong for bf16. On an H200 the same code was checked in
bf16, fp16 and fp32 with several programs (`benchmarks/results/h200/rnn_space.csv`, column `outcome`).
"""

from __future__ import annotations

from typing import Any

import pytest

from constrint.kernels.rnn.triton.spec import SPECS
from tests.support.interpreter import interpreted
from tests.support.shared import SharedResults

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
    "planned": False,
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
    f"{cell}, a plan with {dim} units": {
        "cell": cell, "planned": True, "sizes": [3, 4, 2, dim], "initial": True, "seed": 6,
    }
    for cell, dim in (("lstm", 20), ("gru", 33), ("slstm", 5), ("elman", 16))
}  # fmt: skip
CASES |= {
    "a plan with 20 units, 16 bits": {"planned": True, "sizes": [2, 5, 1, 20], "dtype": "float16", "bias": False},
    "a plan that sums for weights": {"planned": True, "sizes": [3, 5, 2, 24], "dtype": "float16", "initial": True},
    "a plan that sums for weights, gru": {"cell": "gru", "planned": True, "sizes": [2, 6, 3, 16], "dtype": "float16"},
    "a plan, time-major, clipped": {"planned": True, "sizes": [2, 3, 1, 24], "time_major": True, "clip": 0.05},
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
    function = "tests.support.interpreted_rnn:fused_errors"
    cases = {name: BASE | change for name, change in CASES.items()}
    return dict(shared_results.once(function, lambda: interpreted(function, cases)))


@pytest.mark.parametrize("name", CASES)
def test_states_equal_the_reference_in_double_precision(name: str, errors: dict[str, tuple[float, float]]) -> None:
    assert errors[name][0] <= BOUNDS[(BASE | CASES[name])["dtype"]]


@pytest.mark.parametrize("name", CASES)
def test_gradients_equal_those_of_the_reference(name: str, errors: dict[str, tuple[float, float]]) -> None:
    assert errors[name][1] <= BOUNDS[(BASE | CASES[name])["dtype"]]


def test_every_spec_launches_on_its_inputs_what_its_reference_says() -> None:
    config = {"tile_batch": 16, "row_split": 1, "num_warps": 2, "num_stages": 1, "split_depth": 0, "recompute": 0}
    cases = {
        spec.full_name: {
            "kernel": spec.full_name,
            "cell": spec.cell.name,
            "direction": spec.direction,
            "config": config,
        }
        for spec in SPECS
    }
    errors = interpreted("tests.support.interpreted_rnn:spec_error", cases)
    assert len(errors) == 2 * len(CELLS)
    assert {name: error for name, error in errors.items() if not error <= BOUNDS["float32"]} == {}
