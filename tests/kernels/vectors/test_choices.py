"""What the model of `gemv.triton` chooses among configurations that were timed, beside the best of them. No GPU."""

from __future__ import annotations

import statistics
from pathlib import Path

from benchmarks.gemv_configs import shapes_of
from benchmarks.harness.table import read_rows
from constrint.hwmodels import load_gpu

FILE = Path(__file__).parents[3] / "benchmarks" / "results" / "h200" / "gemv_configs.csv"


def test_first_choices_are_near_the_best_time() -> None:
    shapes = shapes_of(read_rows(FILE), load_gpu("h200"))
    assert len(shapes) == 6
    lost = {shape.name: shape.choice()[0] for shape in shapes}
    assert all(len(shape.us) > 40 for shape in shapes)
    assert statistics.geometric_mean(lost.values()) < 1.04
    assert max(lost.values()) < 1.08
    assert lost["fp32 4096x4096"] < 1.035
    assert lost["bf16 4096x4096"] < 1.035
