"""A measurement in a fresh process that prints its figures as JSON in the last line."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def figures_of(command: Sequence[str], timeout_s: float) -> dict[str, Any] | str:
    """The figures, or a text that says why there are none; libraries get one thread."""
    threads = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, env={**os.environ, **threads}, check=False
        )
    except subprocess.TimeoutExpired:
        return f"> {timeout_s:.0f} s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["died"])[-1][:100]
    printed: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return printed
