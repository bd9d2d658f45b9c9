"""The kernels that sum the gradients of r and b: where they run, in what blocks, and that they are right.

In Triton's interpreter, which is wrong for bf16, they run in fp16.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]", allow_module_level=True)

import torch

from constrint.hwmodels import load_gpu
from constrint.kernels.launch.plan.scratch import Scratch
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.weights.launch import (
    LEAST_PART_TILES,
    is_one_product,
    num_tiles,
    part_rows,
    tiles_of,
    weight_launches,
)
from tests.support.interpreter import interpreted
from tests.support.needs import needs_triton
from tests.support.shared import SharedResults

H200 = load_gpu("h200")
BASE: dict[str, Any] = {
    "cell": "lstm", "sizes": [3, 7, 2, 16], "dtype": "float16", "bias": "float16", "initial": True, "tiles": None,
    "seed": 1,
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "lstm": {},
    "gru, whose last gate has two slots, several tiles and parts": {
        "cell": "gru", "sizes": [5, 61, 3, 24], "tiles": [32, 16, 16, 4, 2], "bias": "float32", "seed": 2,
    },
    "slstm": {"cell": "slstm", "sizes": [2, 5, 2, 32], "seed": 3},
    "elman, no bias, no initial states": {
        "cell": "elman", "sizes": [9, 11, 2, 40], "bias": None, "initial": False, "seed": 4,
    },
    "more sequences than a part has steps": {"sizes": [300, 1, 2, 16], "seed": 5},
    "a last part with one step": {"cell": "elman", "sizes": [1, 257, 2, 16], "seed": 6},
    "a bias and no initial states": {"sizes": [2, 70, 2, 24], "initial": False, "tiles": [64, 32, 32, 4, 2], "seed": 7},
}  # fmt: skip


@pytest.fixture(scope="module")
def judged(shared_results: SharedResults) -> dict[str, list[Any]]:
    function = "tests.support.weight_gradients:interpreted"
    cases = {name: BASE | change for name, change in CASES.items()}
    return dict(shared_results.once(function, lambda: interpreted(function, cases)))


@pytest.mark.parametrize("name", CASES)
def test_the_sums_are_those_of_double_precision_rounded(name: str, judged: dict[str, list[Any]]) -> None:
    over_bound, is_exact, is_repeatable = judged[name]
    assert over_bound <= 1.0
    assert is_exact
    assert is_repeatable


@pytest.mark.parametrize(
    ("heads", "dim", "element_bytes", "gpu", "is_one"),
    [
        (12, 64, 2, "h200", True),
        (4, 256, 2, "h200", True),
        (2, 640, 2, "h200", False),  # fifty of the library's blocks take less time
        (24, 32, 2, "a100-sxm4-80gb", True),
        (1, 64, 2, "h200", False),  # one product for all gates already
        (12, 64, 4, "h200", False),
        (12, 20, 2, "h200", False),
        (4, 1024, 2, "h200", False),  # the library's blocks are many
        (12, 64, 2, "t4", False),
        (12, 64, 2, "mi300x", False),
        (12, 64, 2, None, False),
    ],
)
def test_it_takes_what_a_library_leaves_to_few_sms(
    heads: int, dim: int, element_bytes: int, gpu: str | None, is_one: bool
) -> None:
    assert is_one_product(heads, dim, element_bytes, None if gpu is None else load_gpu(gpu)) == is_one


@pytest.mark.parametrize("num_rows", [1, 37, 560, 16 * 1024, 256 * 1024])
@pytest.mark.parametrize(("cell", "heads", "dim"), [("lstm", 12, 64), ("gru", 6, 128), ("lstm", 2, 640)])
def test_parts_cover_all_steps_and_are_resident_together(cell: str, heads: int, dim: int, num_rows: int) -> None:
    tiles = tiles_of(CELLS[cell], dim, H200)
    num_blocks = heads * num_tiles(CELLS[cell], dim, tiles)
    rows = part_rows(tiles, num_rows, num_blocks, 132)
    num_parts = math.ceil(num_rows / rows)
    assert rows % tiles.k == 0
    assert rows >= LEAST_PART_TILES * tiles.k
    assert num_parts == 1 or num_parts * num_blocks <= tiles.blocks_per_sm * 132


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("gpu", ["h200", "a100-sxm4-80gb", "rtx-4090", "b200"])
@pytest.mark.parametrize(("cell", "heads", "dim"), [("lstm", 12, 64), ("slstm", 4, 256), ("gru", 2, 40)])
def test_the_kernels_compile_without_spills_for_what_fits_an_sm(gpu: str, cell: str, heads: int, dim: int) -> None:
    kind, model = CELLS[cell], load_gpu(gpu)

    def meta(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    slots, h = meta(16, 1024, kind.num_slots, heads, dim), meta(16, 1024, heads, dim)
    initial, r = meta(kind.num_states, 16, heads, dim, dtype=torch.float32), meta(kind.num_gates, heads, dim, dim)
    assert is_one_product(heads, dim, 2, model)
    tiles = tiles_of(kind, dim, model)
    for launch in weight_launches(kind, slots, h, initial, r, meta(*r.shape[:3]), model, Scratch()):
        compiled = launch.compile(model)
        assert compiled.spill_bytes == 0
        assert tiles.blocks_per_sm * (compiled.smem_bytes + 1024) <= model.sm.smem_bytes_per_sm
        assert compiled.registers_per_thread * 32 * tiles.num_warps <= 65536
