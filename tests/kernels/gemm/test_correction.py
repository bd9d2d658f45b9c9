"""What models were off by: as it was fitted, held within what was measured, and only for what is like it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from benchmarks.gemm.correct import Measured, Rows, fitted, judge, left_out
from constrint.choose import forget
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm import candidates
from constrint.kernels.gemm.candidates import decide_product
from constrint.kernels.gemm.correction import (
    COMMON,
    FIRST,
    GROUPS,
    PREDICTED,
    Corrector,
    corrector_of,
    correctors,
    feature_names,
    features,
)
from tests.support.gemm import product

H200 = load_gpu("h200")
COLUMNS = {"tile_m": [64, 128], "tile_n": [128, 32], "tile_k": [64, 64], "split_k": [1, 4], "num_warps": [4, 8]}


def test_features_are_what_they_are_named() -> None:
    names = feature_names(["split_k", "num_warps"])
    found = features(H200, product(100, 1000, 512), COLUMNS, np.array([8e-6, 16e-6]), names)
    first, second = (dict(zip(names, row, strict=True)) for row in found)
    assert first["m"] == pytest.approx(np.log2(100))
    assert (first["step_a"], first["step_b"], first["width_c"]) == (7, 4, 4), "rows of 1,024 and of 2,000 bytes"
    assert (first["a_along_k"], first["b_along_k"]) == (1, 0)
    assert (first["predicted"], second["predicted"]) == (3, 4)
    assert 2 ** first["blocks"] == pytest.approx(2 * 8)
    assert 2 ** second["blocks"] == pytest.approx(1 * 32 * 4)
    assert 2 ** second["waves"] == pytest.approx(128 / H200.device.sm_count)
    assert (first["steps"], second["steps"]) == (3, 1)
    assert 2 ** first["rows_used"] == pytest.approx(100 / 128)
    assert 2 ** second["columns_used"] == pytest.approx(1000 / 1024)
    assert 2 ** second["split_k"] == pytest.approx(5)
    assert 2 ** second["num_warps"] == pytest.approx(9)


def drawn_rows(number: int, seed: int) -> Rows:
    """Rows whose error is a quadratic function of two features, and a little noise."""
    draw = np.random.default_rng(seed)
    found = draw.uniform(0, 10, (number, len(COMMON)))
    off = 0.3 + 0.02 * found[:, 0] - 0.004 * found[:, 0] * found[:, 1] + draw.normal(0, 0.01, number)
    return Rows(COMMON, found, off, np.arange(number) // 4)


def test_a_fit_finds_what_models_are_off_by_and_says_so_of_what_it_has_not_seen() -> None:
    rows = drawn_rows(1500, 1)
    error = rows.off - left_out(rows)
    assert np.median(np.abs(error)) < 0.02 < np.median(np.abs(rows.off - rows.off.mean()))
    # What is stored gives the same: through JSON, and for rows of another draw.
    correction = fitted(rows)
    kept = msgspec.json.decode(msgspec.json.encode(correction), type=type(correction))
    other = drawn_rows(200, 2)
    assert np.median(np.abs(other.off - Corrector(kept).logarithms(other.found))) < 0.02


def test_nothing_is_predicted_beyond_what_was_measured() -> None:
    ready = Corrector(fitted(drawn_rows(400, 3)))
    edge, beyond = np.full((1, len(COMMON)), 10.0), np.full((1, len(COMMON)), 1e6)
    assert ready.logarithms(beyond) == pytest.approx(ready.logarithms(edge), abs=0.02)
    rows = drawn_rows(400, 3)
    wild = replace_of(fitted(rows), constant=50.0)
    assert (wild.shortest, len(wild.low), len(wild.high)) == (0, 10, 10), "predictions of 1 us to a millisecond"
    near = rows.off[np.floor(rows.found[:, PREDICTED]) == 9]
    for constant, bound, wanted in (
        (50.0, wild.high, np.quantile(near, 0.95)),
        (-50.0, wild.low, np.quantile(near, 0.05)),
    ):
        assert np.all(Corrector(replace_of(wild, constant=constant)).logarithms(edge) == bound[-1])
        assert bound[-1] == pytest.approx(wanted, rel=1e-3)


def replace_of(correction: Any, **changes: Any) -> Any:
    return msgspec.structs.replace(correction, **changes)


def test_what_is_shipped_is_asked_for_plain_products_of_the_gpu_that_was_measured() -> None:
    asked = product(512, 512, 512)
    shipped = correctors(H200.name, GROUPS["bf16"])
    assert len(shipped) >= 4
    for kernel in shipped:
        assert corrector_of(H200, kernel, asked) is shipped[kernel]
        for other in (
            product(512, 512, 512, "tf32"),
            product(512, 512, 512, batch=2),
            product(512, 512, 512, source=1),
        ):
            assert corrector_of(H200, kernel, other) is None
    assert corrector_of(load_gpu("a100-sxm4-80gb"), "gemm.pointer", asked) is None
    change: Any = msgspec.structs.replace
    slower = change(H200, device=change(H200.device, sm_count=66))
    assert corrector_of(slower, "gemm.pointer", asked) is None, "half a GPU has the name, not the figures"


def test_the_first_choice_is_what_is_expected_to_be_fastest_of_the_first_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each kernel; a correction that turns the order of the first ones round turns the choice round."""
    asked = replace(product(512, 768, 1024), no_library="our kernels are tested")
    table, rows, seconds = next(iter(candidates.priced(H200, asked)))
    order = rows[np.argsort(seconds, kind="stable")][: FIRST + 1]
    wanted = table.config(int(order[FIRST - 1]))

    class Turned:
        parameters, errors = tuple(wanted), (0.1, 0.2)

        def factors(self, gpu: Any, product: Any, columns: Any, seconds: Any) -> Any:
            of_table = [columns[name] == value for name, value in wanted.items() if name in columns]
            is_wanted = np.all(of_table, axis=0) & (len(of_table) == len(wanted))
            return np.where(is_wanted, 0.1, 1.0)

    monkeypatch.setattr(candidates, "corrector_of", lambda gpu, kernel, product: Turned())
    forget()
    chosen = decide_product(H200, asked)
    forget()
    assert chosen.kernel == table.spec.full_name
    assert {name: chosen.config[name] for name in wanted} == wanted
    assert chosen.seconds == pytest.approx(0.1 * float(np.sort(seconds)[FIRST - 1]))


def test_a_judgement_counts_the_library_where_our_kernels_are_not_expected_to_be_faster_by_enough() -> None:
    said: list[str] = []
    kernel, place = np.array(["a", "b", "a"]), np.array([0, 0, 1])
    seconds, library = np.array([2.0, 1.0, 4.0]), np.array([1.5, 1.5, 2.0])
    measured = Measured(kernel, place, seconds, seconds, library, np.array([9.0, 9.0, 3.9]))
    judge(measured, np.array([1.0, 3.0, 4.0]), "by hand", said.append)
    assert "by hand, 2 products" in said[0]
    assert "worst 0.500" in said[1], "4 for 2 seconds; the first choice of the other takes 2 for 1.5"
    assert "worst 0.750" in said[2], "the second is left to the library"
    assert "geometric mean 0.707" in said[3]
