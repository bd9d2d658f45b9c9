"""Tables that other processes make are those that a choice finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gemm.tables import make_tables
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm import tables
from constrint.kernels.gemm.candidates import decide_product
from constrint.kernels.gemm.product import Product
from tests.support.decisions import forget_products
from tests.support.gemm import gemm


def test_tables_are_made_once_for_each_kind_of_product(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [gemm(4096, 4096, 4096, "fp16"), gemm(512, 1024, 2048, "fp16"), gemm(512, 1024, 2047, "fp16")]
    assert make_tables("a100-sxm4-80gb", cases) == 2  # nothing is kept in tests: nothing is made
    monkeypatch.setenv("CONSTRINT_CACHE", str(tmp_path))
    assert make_tables("a100-sxm4-80gb", cases) == 2
    assert any(path.is_file() for path in tmp_path.rglob("*"))

    def made_anew(*_: object) -> None:
        raise AssertionError("a table is made that should have been found")

    monkeypatch.setattr(tables, "whole_space", made_anew)
    forget_products()
    try:
        for case in cases:
            assert decide_product(load_gpu("a100-sxm4-80gb"), Product.of(case)).seconds > 0
    finally:
        monkeypatch.undo()
        forget_products()
