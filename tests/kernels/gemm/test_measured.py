"""The first choices against the best of all configurations that were timed on one H200."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TABLE = ROOT / "benchmarks" / "results" / "h200" / "gemm_exhaustive_bf16.csv.gz"


@pytest.mark.slow
def test_first_choices_are_close_to_the_best_configuration_measured() -> None:
    command = [sys.executable, "-m", "benchmarks.space", "score", str(TABLE), "--choices", "model", "--gpu", "h200"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "not measured" not in printed, printed
    figures = re.findall(
        r"best/(first|first 8): geometric mean ([\d.]+)(?:, 5th percentile [\d.]+)?, worst ([\d.]+) of (\d+) shapes",
        printed,
    )
    found = {name: (float(mean), float(worst), int(shapes)) for name, mean, worst, shapes in figures}
    mean, worst, shapes = found["first"]
    assert shapes >= 12
    assert mean >= 0.97
    assert worst >= 0.9
    assert found["first 8"][0] >= 0.99
