"""The kernel that exchanges partial sums, run on the CPU thread by thread: its gradients, and mistakes that are seen.

What the CPU cannot show is what the matrix unit and the memory of a GPU do beside the definition of their instructions.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch") or shutil.which("g++") is None:
    pytest.skip("needs torch and g++", allow_module_level=True)

from constrint.kernels.rnn.generated.register import register_cell
from tests.support.defined_cells import my_gru
from tests.support.wgmma_on_cpu import Case, Mistake, built, run_backward


def config(units: int, rows: int, groups: int, targets: int, sources: int, first: int = 1) -> dict[str, int]:
    names = ("units", "tile_batch", "depth_groups", "targets", "sources", "first", "recompute")
    return dict(zip(names, (units, rows, groups, targets, sources, first, 0), strict=True))


#: Vectors of 16 and of 8 bytes, one window and several, rows that are shared and not, steps beyond those of the ring.
CASES = {
    "two warpgroups, vectors of four words": Case(
        "lstm", 20, 12, 1, 128, "bf16", config(32, 32, 2, 2, 4), True, "backward"
    ),
    "the gradient of h alone, two windows": Case(
        "lstm", 20, 6, 1, 128, "fp16", config(16, 32, 2, 2, 2, 0), False, "backward"
    ),
    "one warpgroup, both rows": Case("lstm", 40, 5, 1, 64, "bf16", config(16, 48, 1, 2, 4), True, "backward"),
    "units of no power of two, several heads": Case(
        "lstm", 12, 5, 2, 192, "fp16", config(24, 16, 1, 4, 8), True, "backward"
    ),
    "gates that are three": Case("gru", 33, 5, 2, 128, "fp16", config(32, 48, 2, 2, 2), True, "backward"),
    "states that are four": Case("slstm", 24, 6, 1, 64, "fp16", config(8, 32, 1, 8, 8), False, "backward"),
    "three row groups": Case("elman", 200, 4, 1, 64, "bf16", config(16, 192, 1, 2, 2), True, "backward"),
    "one block for a head": Case("elman_relu", 18, 6, 1, 64, "fp16", config(64, 32, 1, 1, 1), True, "backward"),
    "a cell that is written in Python": Case(
        register_cell(my_gru).name, 20, 6, 1, 128, "bf16", config(32, 32, 2, 2, 4), True, "backward"
    ),
}
#: Rounding of gradients and of their parts, of which some are beyond 2.
BOUNDS = {"bf16": 0.04, "fp16": 0.005}
MISTAKES = {
    "nobody waits": Mistake("partial.cuh", "if (!__any_sync(0xFFFFFFFFu, waits)) break;", "break;"),
    "rounds of the ring are not told apart": Mistake(
        "partial.cuh", "return static_cast<unsigned>(step) / 2 % 2;", "return 0;"
    ),
    "both steps of the ring are one": Mistake("partial.cuh", "(step % 2)", "0"),
    "warps of the same rows do not meet": Mistake("partial.cuh", "named_sync(1 + tile, 64);", ""),
    "sums are given before they are there": Mistake(
        "partial.cuh", "wgmma_wait<(kNumber < kOwnProducts ? 1 : 0)>();", ""
    ),
    "parts go to the next block": Mistake(
        "partial.cuh", "product * kTargets + target", "(product * kTargets + target + 1) % kBlocks"
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_the_reference(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    kernel = built(case, tmp_path)
    for seed in (1, 2):
        result = run_backward(kernel, case, seed)
        assert not result.is_stuck
        assert result.states <= BOUNDS[case.dtype]
        assert result.gates <= BOUNDS[case.dtype]


def test_a_mistake_would_be_seen(tmp_path: Path) -> None:
    case = next(iter(CASES.values()))
    kernel = built(case, tmp_path, tuple(MISTAKES.values()))
    for number, name in enumerate(MISTAKES, 1):
        result = run_backward(kernel, case, 1, number)
        assert result.is_stuck or max(result.states, result.gates) > 5 * BOUNDS[case.dtype], name
