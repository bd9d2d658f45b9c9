"""The program that measures torch's own product: what it draws, and a run that is cut and goes on, on the CPU."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.gemm import library
from benchmarks.gemm.library import LONGEST_S, drawn, families
from benchmarks.harness.table import read_rows
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.library.cost import floor_s, place_of_row
from constrint.kernels.gemm.library.spec import inability
from tests.support.gemm import product
from tests.support.needs import missing_packages

H200 = load_gpu("h200")


@pytest.fixture(autouse=True)
def _precision() -> Iterator[None]:
    """The program lets torch multiply fp32 in tf32; what runs after it does not."""
    if missing_packages("torch"):
        yield
        return
    import torch

    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


def test_every_family_is_drawn_whole_and_soon() -> None:
    rows = drawn(H200)
    places = [place_of_row(row) for row in rows]
    assert len(rows) == sum(family.number for family in families())
    assert len(set(places)) > 0.98 * len(rows), "hardly any product is drawn twice"
    assert max(floor_s(H200, place) for place in places) <= LONGEST_S
    every = Counter((place.kind, place.layout) for place in places)
    soon = Counter((place.kind, place.layout) for place in places[: len(rows) // 5])
    assert all(soon[which] >= 0.1 * number for which, number in every.items() if number >= 20)
    plain = [place.shape for place in places if place.kind == places[0].kind]
    for axis in range(3):
        assert max(shape[axis] for shape in plain) > 8192
        assert min(shape[axis] for shape in plain) < 32


def test_products_of_8_bits_are_ones_that_torch_takes() -> None:
    for row in drawn(H200):
        if row["dtype"] in ("fp8", "int8"):
            turned = {"transpose_a": int(row["layout"][0] == "c"), "transpose_b": int(row["layout"][1] == "c")}
            asked = product(int(row["m"]), int(row["n"]), int(row["k"]), row["dtype"], **turned)
            assert inability(asked) == "", row


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["library", "--gpu", "h200", *arguments])
    library.main()


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs the extra [torch]: torch is not installed")
def test_a_run_that_was_cut_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(library, "LONGEST_S", 6e-6)
    monkeypatch.setattr(library, "MOST_ELEMENTS", 1 << 16)
    monkeypatch.setattr(library, "POOL_ELEMENTS", 1 << 17)
    out = tmp_path / "table.csv"
    asked = "--device", "cpu", "--share", "0.01", "--out", str(out)
    run(monkeypatch, *asked, "--limit", "0")
    assert "the limit of 0 s: 0 of" in capsys.readouterr().out
    assert read_rows(out) == []
    run(monkeypatch, *asked)
    assert "all " in capsys.readouterr().out
    rows = read_rows(out)
    assert len(rows) >= 100
    by_outcome = Counter(row["outcome"] == "ok" for row in rows if row["dtype"] == "bf16" and row["end"] != "wide")
    assert by_outcome[True] > 0
    assert by_outcome[False] == 0
    assert all(float(row["cold_us"]) > 0 for row in rows if row["outcome"] == "ok")
    run(monkeypatch, *asked)
    assert f"0 products to measure, {len(rows)} measured before" in capsys.readouterr().out
    assert read_rows(out) == rows
