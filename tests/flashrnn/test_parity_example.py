"""The parity example on a small scale: what is learnt on short sequences holds on long ones."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.clock import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]


def test_parity_is_learnt_beyond_the_training_length() -> None:
    arguments = "--cell elman --hidden-size 32 --batch 64 --train-length 12 --test-lengths 12 100 --device cpu"
    done = subprocess.run(
        [sys.executable, "examples/parity.py", *arguments.split()],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    accuracies = {int(n): float(a) for n, a in re.findall(r"length (\d+): accuracy ([\d.]+)", done.stdout)}
    assert set(accuracies) == {12, 100}
    assert min(accuracies.values()) >= 0.99, done.stdout
