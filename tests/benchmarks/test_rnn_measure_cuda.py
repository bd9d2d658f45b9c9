"""Which loops of the table are measured again after the CUDA kernels have changed, and what is made of them."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

pytest.importorskip("scipy", reason="the table is that of a fit, which needs scipy")

from benchmarks.harness.table import read_rows
from benchmarks.rnn import measure_cuda
from constrint.select.candidate import CompiledKernel
from tests.support.needs import needs_torch

TABLE = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "h200" / "rnn_cuda_space.csv"
FACTS = CompiledKernel("sm_90a", "nvrtc 13.0", 65_536, 200, 0, 8, "")


def test_loops_that_stream_or_wait_for_several_windows_or_round_are_measured_again() -> None:
    rows = read_rows(TABLE)
    concerned = [row for row in rows if measure_cuda.is_concerned(row)]
    assert all(row in concerned for row in rows if int(row["streamed_pairs"]) or row["dtype"] == "fp32")
    others = [row for row in rows if row not in concerned]
    assert {row["placement"] for row in others} == {"0", "1", "2"}
    assert {row["dtype"] for row in others if row["placement"] != "1"} == {"bf16", "fp16"}


@needs_torch
def test_what_is_measured_takes_the_place_of_older_loops_and_the_others_stay(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, out = tmp_path / "space.csv", tmp_path / "new.csv"
    rows = read_rows(TABLE)
    stays = next(row for row in rows if not measure_cuda.is_concerned(row))
    again, fails = [row for row in rows if row["head_dim"] == "2688"][:2]
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(stays), lineterminator="\n")
        writer.writeheader()
        writer.writerows([again, stays, fails])
    told = {measure_cuda.place(again): FACTS, measure_cuda.place(fails): "it does not compile"}
    monkeypatch.setattr(
        measure_cuda, "compiled_all", lambda jobs, name, rows: [told[measure_cuda.place(r)] for r in rows]
    )
    monkeypatch.setattr(measure_cuda.Loops, "ms", lambda self, row: 1.5)
    monkeypatch.setattr(sys, "argv", ["measure_cuda", str(table), "--gpu", "h200", "--out", str(out)])
    measure_cuda.main()
    assert "it does not compile" in capsys.readouterr().out
    kept, measured = read_rows(out)
    assert kept == stays
    results = {"registers": "200", "spill_bytes": "8", "smem_bytes": "65536", "loop_ms": "1.5000"}
    assert measured == again | results
