"""The jobs of a first day: one is done, and one that fails says where."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("triton", reason="the jobs hold kernels in Triton")
from benchmarks.first_day import JOBS, ROOT, row_of

HALF = JOBS[2]


def test_a_job_is_done_with_its_commands_alone() -> None:
    cells = [cell.strip() for cell in row_of(HALF, ROOT).strip("|").split("|")]
    assert cells[:3] == [HALF.title, "4", "11"]
    assert cells[-1] == "done"


def test_a_job_ends_at_the_first_command_that_fails() -> None:
    broken = replace(HALF, commands=("echo 'it is broken' >&2; exit 3", "touch never"))
    assert row_of(broken, ROOT).endswith("| it is broken |")
