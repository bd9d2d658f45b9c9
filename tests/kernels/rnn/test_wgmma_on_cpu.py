"""The kernels for many sequences, run on the CPU thread by thread: their results, and that mistakes would be seen.

What the CPU cannot show is what the matrix unit and the memory of a GPU do beside the definition of their instructions.
"""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch") or shutil.which("g++") is None:
    pytest.skip("needs torch and g++", allow_module_level=True)

from constrint.kernels.rnn.generated.register import register_cell
from tests.support.defined_cells import my_gru
from tests.support.wgmma_on_cpu import Case, Mistake, built, run, run_backward


def config(units: int, rows: int, depths: int, window: int, chunk: int, probe: int = 1) -> dict[str, int]:
    names = ("units", "tile_batch", "depth_groups", "window", "chunk", "probe", "recompute")
    return dict(zip(names, (units, rows, depths, window, chunk, probe, 0), strict=True))


#: Shared depths, whole and part of a window, sequences that fill no tile, steps beyond those of the ring.
CASES = {
    "two depth groups, several rounds of the ring": Case("lstm", 20, 40, 1, 128, "bf16", config(32, 64, 2, 4, 2), True),
    "one depth group, a window of a part of the depth": Case("lstm", 40, 6, 1, 128, "fp16", config(64, 64, 1, 4, 1, 0)),
    "two row groups": Case("lstm", 150, 6, 1, 128, "bf16", config(32, 128, 2, 4, 2), True),
    "three row groups": Case("elman", 200, 5, 1, 64, "fp16", config(32, 192, 1, 4, 2), True),
    "four row groups": Case("elman", 250, 4, 1, 64, "bf16", config(32, 256, 1, 4, 2)),
    "units of no power of two, several heads": Case("lstm", 12, 5, 2, 192, "bf16", config(24, 16, 1, 6, 2, 0), True),
    "gates that are three": Case("gru", 33, 5, 2, 128, "fp16", config(32, 48, 2, 4, 4, 0), True),
    "states that are four": Case("slstm", 24, 6, 1, 64, "fp16", config(16, 32, 1, 4, 2)),
    "one block for a head": Case("elman_relu", 18, 6, 1, 64, "fp16", config(64, 32, 1, 4, 4)),
}
#: The same of the backward kernel; those with optional inputs have gradients of all states.
BACKWARD = {
    "two depth groups, several rounds of the ring": Case(
        "lstm", 20, 40, 1, 128, "bf16", config(32, 64, 2, 4, 2), True, "backward"
    ),
    "the gradient of h alone": Case("lstm", 20, 6, 1, 128, "fp16", config(32, 32, 2, 8, 4), False, "backward"),
    "units of no power of two, several heads": Case(
        "lstm", 12, 5, 2, 192, "fp16", config(24, 16, 1, 6, 2, 0), True, "backward"
    ),
    "gates that are three": Case("gru", 33, 5, 2, 128, "fp16", config(32, 48, 2, 4, 2, 0), True, "backward"),
    "states that are four": Case("slstm", 24, 6, 1, 64, "fp16", config(16, 32, 1, 4, 2), False, "backward"),
    "three row groups": Case("elman", 200, 5, 1, 64, "bf16", config(8, 192, 1, 4, 2), True, "backward"),
    "one block for a head": Case("elman_relu", 18, 6, 1, 64, "fp16", config(64, 32, 1, 4, 4), True, "backward"),
    "a cell that is written in Python": Case(
        register_cell(my_gru).name, 20, 6, 1, 128, "bf16", config(32, 32, 2, 4, 2), True, "backward"
    ),
}
#: Rounding of states in 16 bits, of which some are beyond 2; those of cells whose states are no tanh grow.
BOUNDS = {"bf16": 0.02, "fp16": 0.0025}
GROWING = {"slstm": 20, "elman_relu": 4}
#: Rounding of gradients, of which some are beyond 2.
BACKWARD_BOUNDS = {"bf16": 0.03, "fp16": 0.004}


#: A mistake of the forward kernel by what it is.
MISTAKES = {
    "words are forgotten before all have read them": Mistake(
        "forward.cu", "target.forget(t - 2);", "target.forget(t);"
    ),
    "words are never forgotten": Mistake("forward.cu", "target.forget(t - 2);", ""),
    "nobody waits": Mistake("product.cuh", "if (!__any_sync(0xFFFFFFFFu, waits)) break;", "break;"),
    "warps of the same rows do not meet": Mistake("sums.cuh", "named_sync(1 + tile, 64);", ""),
    "registers are used while they are multiplied": Mistake("product.cuh", "wgmma_wait<1>();", ""),
    "sums are used before they are there": Mistake("product.cuh", "  wgmma_wait<0>();\n", ""),
    "weights are not exchanged within their lines": Mistake(
        "weights.cuh", "depth % 64 / 8 ^ column % 8", "depth % 64 / 8"
    ),
}


#: Mistakes of the backward kernel.
BACKWARD_MISTAKES = {
    "words are forgotten before all have read them": Mistake(
        "meeting.cuh", "target.forget(step - 2);", "target.forget(step);"
    ),
    "words are never forgotten": Mistake("meeting.cuh", "target.forget(step - 2);", ""),
    "the last product takes the states of the step before": Mistake(
        "meeting.cuh", "product(sums, source, step, weights);", "product(sums, source, step - 1, weights);"
    ),
    "gradients flow through a restart": Mistake(
        "backward.cu", "if (is_on) of[state] = restarts ? 0.0f : d[state];", "if (is_on) of[state] = d[state];"
    ),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ctypes.CDLL]:
    """Builds a case's kernel, once, with every mistake that it can make."""

    @cache
    def build(name: str) -> ctypes.CDLL:
        return built(CASES[name], tmp_path_factory.mktemp("kernel"), tuple(MISTAKES.values()))

    return build


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_the_reference(name: str, library: Callable[[str], ctypes.CDLL]) -> None:
    case = CASES[name]
    bound = BOUNDS[case.dtype] * GROWING.get(case.cell, 1)
    for seed in (1, 2):
        result = run(library(name), case, seed)
        assert not result.is_stuck
        assert result.states <= bound
        assert result.gates <= 2 * BOUNDS[case.dtype]


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_would_be_seen(name: str, library: Callable[[str], ctypes.CDLL]) -> None:
    first, windowed, *_ = CASES
    alone = windowed if "registers" in name else first
    result = run(library(alone), CASES[alone], 1, 1 + list(MISTAKES).index(name))
    assert result.is_stuck or result.states > 5 * BOUNDS[CASES[alone].dtype]


@pytest.mark.parametrize("name", BACKWARD)
def test_gradients_are_those_of_the_reference(name: str, tmp_path: Path) -> None:
    case = BACKWARD[name]
    kernel = built(case, tmp_path)
    for seed in (1, 2):
        result = run_backward(kernel, case, seed)
        assert not result.is_stuck
        assert result.states <= BACKWARD_BOUNDS[case.dtype]
        assert result.gates <= BACKWARD_BOUNDS[case.dtype]


def test_a_mistake_of_the_backward_kernel_would_be_seen(tmp_path: Path) -> None:
    case = next(iter(BACKWARD.values()))
    kernel = built(case, tmp_path, tuple(BACKWARD_MISTAKES.values()))
    for number, name in enumerate(BACKWARD_MISTAKES, 1):
        result = run_backward(kernel, case, 1, number)
        assert result.is_stuck or max(result.states, result.gates) > 5 * BACKWARD_BOUNDS[case.dtype], name
