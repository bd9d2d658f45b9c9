"""The guide to any kernel: its Python runs in Triton's interpreter, its commands run as they stand."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.needs import needs_nvrtc, needs_triton

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "docs" / "any_kernel.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", GUIDE, flags=re.MULTILINE | re.DOTALL)
COMMANDS = [line for kind, text in BLOCKS if kind == "sh" for line in text.splitlines() if line.startswith("constrint")]


@needs_triton
@needs_nvrtc
def test_the_guides_python_runs(tmp_path: Path) -> None:
    program = "\n".join(text for kind, text in BLOCKS if kind == "python")
    assert program.count('device="cuda"') == 1
    # Triton reads the source of kernels from a file.
    (tmp_path / "guide.py").write_text(program.replace('device="cuda"', 'device="cpu"'), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "guide.py"],
        cwd=tmp_path,
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"tile: \d+, num_warps: \d", done.stdout)
    assert done.stdout.count("'ok'") or "ok Figures(" in done.stdout
    assert "h200 [{" in done.stdout
    assert "target='sm_90a'" in done.stdout


@needs_triton
@needs_nvrtc
@pytest.mark.parametrize("command", COMMANDS)
def test_the_guides_commands_run(command: str) -> None:
    words = shlex.split(command)
    done = subprocess.run(
        [sys.executable, "-m", "constrint.cli.app", *words[1:]],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
