"""What the model chooses among candidates that were timed, beside the best of them. No GPU."""

from __future__ import annotations

import statistics
from pathlib import Path

from benchmarks.harness.table import read_rows
from benchmarks.sparse.fit import candidates_of, choice
from constrint.hwmodels import load_gpu

FILE = Path(__file__).parents[3] / "benchmarks" / "results" / "h200" / "spmv_candidates.csv"


def test_first_choices_are_near_the_best_time() -> None:
    groups = candidates_of(read_rows(FILE), load_gpu("h200"))
    matrices = list(dict.fromkeys(group.matrix for group, _ in groups))
    assert len(matrices) >= 15
    lost = [choice([each for each in groups if each[0].matrix == matrix]) for matrix in matrices]
    assert statistics.geometric_mean(lost) < 1.08
    assert sum(each <= 1.1 for each in lost) >= 0.75 * len(lost)
