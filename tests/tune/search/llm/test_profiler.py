"""Metrics of Nsight Compute: what is read of its output, and that whatever it does costs no candidate."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from constrint.kernels.registry import load_spec
from constrint.select import Workload
from constrint.tune.search.llm.profiler import DURATION, Profiler, metrics_of
from constrint.tune.search.llm.records import PredictedConfig
from tests.support.fake_ncu import DRAM, OUTPUT, write_ncu

CANDIDATE = PredictedConfig(kernel="tiny", config={"what": 0}, predicted_s=1e-6)
WORKLOAD = Workload("tiny", {"m": 8, "n": 8, "k": 8}, "fp32")


def test_the_longest_kernel_counts_and_what_is_no_number_is_left_out() -> None:
    assert metrics_of(OUTPUT.splitlines()) == {DURATION: 180224.0, DRAM: 91.5}


@pytest.mark.parametrize(
    "output", ["", "==ERROR== no kernels were profiled\n", '"ID"\n', '"ID","x"\n"",""\n', '"\n"\n"']
)
def test_other_output_has_no_metrics(output: str) -> None:
    assert metrics_of(output.splitlines()) == {}


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for ncu is a script with a shebang")
@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n", "for administrators"),
        ("==WARNING== No kernels were profiled.\n", "No kernels were profiled"),
        ("", "it said nothing"),
    ],
)
def test_without_metrics_the_reason_is_told(tmp_path: Path, output: str, told: str) -> None:
    write_ncu(tmp_path / "ncu", output, runs_it=False)
    profiler = Profiler(str(tmp_path / "ncu"), load_spec, WORKLOAD, "h200")
    assert profiler(CANDIDATE, "tiny") == {}
    assert told in profiler.problem


def test_a_profiler_that_hangs_or_is_missing_gives_nothing(tmp_path: Path) -> None:
    missing = Profiler(str(tmp_path / "ncu"), load_spec, WORKLOAD, "h200")
    assert missing(CANDIDATE, "tiny") == {}
    assert "ncu gave nothing" in missing.problem
    if sys.platform == "win32":
        return
    (tmp_path / "ncu").write_text(f"#!{sys.executable}\nimport time\ntime.sleep(60)\n")
    (tmp_path / "ncu").chmod(0o755)
    slow = Profiler(str(tmp_path / "ncu"), load_spec, WORKLOAD, "h200", patience_s=0.3)
    assert slow(CANDIDATE, "tiny") == {}
    assert "within 0.3 s" in slow.problem
