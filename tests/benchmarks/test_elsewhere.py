"""`benchmarks.elsewhere`: published times as data, the halves of shapes, what is judged, and what is written."""

from __future__ import annotations

import json
import subprocess
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from benchmarks.elsewhere import data, experts, library, peers, short, written
from benchmarks.elsewhere.data import BLOCKS, FITTED, JUDGING, Expert, Time, best_times, half_of, sources, times
from benchmarks.elsewhere.judge import (
    QUANTISING_ELEMENT_S,
    Judged,
    as_timed,
    figures,
    judged,
    quantising_s,
    size_of,
    table_lines,
    timed_bytes,
)
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm import measured
from constrint.kernels.gemm.library.cost import path_of, published_path
from constrint.select.streams import DISPATCH_S


def timed(us: float, dtype: str = "bf16", m: int = 64) -> Time:
    return Time("mi355x", dtype, m, 8192, 8192, 1, us, "asm", data.KERNEL, "aiter", True)


def row(predicted_us: float, us: float = 100.0, dtype: str = "bf16") -> Judged:
    return Judged(timed(us, dtype), "MI355X", predicted_us, 50.0, "gemm.pointer", {"tile_m": 16})


def test_every_time_has_a_source_with_a_licence_and_half_of_the_shapes_judge() -> None:
    every = list(times())
    known = sources()
    assert {time.source for time in every} <= known.keys()
    assert all(known[name]["licence"] and known[name]["by"] and known[name]["what"] for name in known)
    assert all(time.us > 0 for time in every)
    halves = [time.half for time in every]
    assert 0.45 < halves.count(JUDGING) / len(halves) < 0.55
    assert (half_of(1, 2304, 16384), half_of(128, 8192, 8192)) == (JUDGING, FITTED), "fits of others rest on it"


def test_the_best_time_of_a_product_counts_and_none_with_block_scales() -> None:
    least: dict[tuple[object, ...], float] = {}
    for time in times():
        if time.what != BLOCKS:
            least[time[:6]] = min(time.us, least.get(time[:6], time.us))
    every, sampled = best_times(all_of_them=True), best_times()
    assert {time[:6]: time.us for time in every} == least
    assert {time[:6] for time in sampled} < {time[:6] for time in every}
    assert all(time.dtype != "fp8_block" for time in every)


def test_the_shipped_tables_are_made_of_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = {path.name: path.read_text() for path in published_path("a100").parent.iterdir()}
    monkeypatch.setattr(library, "published_path", lambda gpu: tmp_path / published_path(gpu).name)
    library.write_tables()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == shipped
    assert not any(path_of(name).is_file() for name in library.NAMES.values())
    assert not published_path("H200-SXM").is_file(), "this project's own table answers"
    assert sum(map(len, shipped.values())) < 220_000


def test_figures_are_of_predicted_over_measured() -> None:
    found = figures([row(50.0), row(100.0), row(100.0), row(200.0)])
    assert found is not None
    assert (found.n, found.median, found.off) == (4, 1.0, 0.5)
    assert found.mean == pytest.approx(1.0)
    assert (found.order, found.share_order) == (None, None), "too few for an order"
    many = figures([row(predicted, us) for predicted, us in ((k, 10.0 * k) for k in range(1, 11))])
    assert many is not None
    assert many.order == pytest.approx(1.0)
    assert figures([]) is None
    assert [size_of(us) for us in (9.9, 10.0, 99.0, 100.0)] == ["< 10 us", "10-100 us", "10-100 us", "> 100 us"]
    (line,) = list(table_lines([row(110.0), row(90.0, 5.0)]))[2:]
    assert line.startswith("| MI355X bf16 (2) | 18.00 (1) | - | 1.10 (1) | 0% |")


def test_a_few_products_are_judged_by_kernels_of_this_package_alone(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [one for gpu in ("mi210", "gb300") for one in islice(judged([gpu], all_of_them=True), 8)]
    assert {one.gpu for one in rows} <= {"MI210", "GB300"}
    assert len(rows) > 4
    assert {one.kernel for one in rows} <= {"gemm.pointer", "gemm.descriptor", "gemm.skinny"}
    assert all(one.predicted_us >= one.roofline_us > 0 for one in rows)
    assert all(one.time.half == JUDGING for one in rows)


def published(gpu: str, m: int, n: int, k: int, us: float = 50.0, dtype: str = "bf16") -> Time:
    what = data.QUANTISES if dtype == "fp8" else data.LIBRARY
    return Time(gpu, dtype, m, n, k, 1, us, "cuBLAS", what, "aiconfigurator", True)


def test_small_weights_are_timed_from_the_l2_where_it_is_faster_than_the_dram() -> None:
    l40s, h100 = load_gpu("l40s"), load_gpu("h100")
    rates = [
        as_timed(l40s, published("l40s", 5, n, 1024)).memory.dram.bandwidth_bytes_per_s for n in (1024, 17000, 65536)
    ]
    assert rates[0] > rates[1] > rates[2] == l40s.memory.dram.bandwidth_bytes_per_s
    assert as_timed(h100, published("h100", 5, 1024, 1024)) is h100, "DRAM is as fast"
    # Five layers of 6 MB fit the A100's L2 of 40 MB, and none of its two parts, of which each has its own copy.
    a100, few, many = load_gpu("a100"), *(published("a100", 5, n, 1024) for n in (1024, 3072))
    assert as_timed(a100, few) is not a100
    assert as_timed(a100, many) is a100
    aiter = timed(50.0)
    assert as_timed(load_gpu("mi355x"), aiter).memory == load_gpu("mi355x").memory
    assert timed_bytes(aiter, 1 << 25) == float("inf"), "its tuner goes through copies of all operands"
    # Five layers of 2 MB at most, and as many as exceed the L2 of larger ones.
    assert timed_bytes(published("l40s", 1, 1024, 1024), 1 << 30) == 5 * 2**21 + 2048 + 2048
    assert timed_bytes(published("l40s", 1, 1024, 1024), 3 << 20) == 2 * 2**21 + 2048 + 2048


def test_quantising_takes_what_tiny_published_products_say_and_half_of_the_dram() -> None:
    b200, l40s = load_gpu("b200"), load_gpu("l40s")
    tiny = [quantising_s(gpu, published("", 1, 64, 1, dtype="fp8")) for gpu in (b200, l40s)]
    assert tiny == [pytest.approx(3.4e-6, rel=1e-3), pytest.approx(1.85e-6, rel=1e-3)]
    large = quantising_s(b200, published("", 8192, 64, 8192, dtype="fp8")) - tiny[0]
    blocks_s = 8192 / 148 * DISPATCH_S + 8192 * QUANTISING_ELEMENT_S
    assert large - blocks_s == pytest.approx(3 * 8192 * 8192 / (0.5 * 0.81 * 7.7e12), rel=0.02)


def test_quantising_takes_a_block_for_each_row_which_reads_the_row_twice() -> None:
    b200 = load_gpu("b200")
    few, many = (quantising_s(b200, published("", m, 64, 16, dtype="fp8")) for m in (1, 8192))
    assert many - few == pytest.approx(8191 / 148 * DISPATCH_S, rel=0.05), "16 columns are next to no bytes"
    deep = quantising_s(b200, published("", 1, 64, 51200, dtype="fp8"))
    assert deep - few == pytest.approx(51184 * QUANTISING_ELEMENT_S, rel=0.05)


def test_classes_out_of_their_band_are_said_with_shapes_and_kernels() -> None:
    shallow = Judged(timed(50.0)._replace(k=64), "MI355X", 40.0, 20.0, "gemm.pointer", {})
    deep = Judged(timed(50.0)._replace(n=256, k=8192, kernel="ck"), "MI355X", 25.0, 20.0, "gemm.pointer", {})
    good = Judged(timed(200.0), "MI355X", 200.0, 20.0, "gemm.pointer", {})
    wrong = [shallow] * 6 + [deep] * 4
    different = [row._replace(time=row.time._replace(us=50.0 + 1e-4 * place)) for place, row in enumerate(wrong)]
    found = list(short.lines([*different, good, good]))
    (line,) = [line for line in found if line.startswith("| MI355X bf16, 10-100 us")]
    assert "0.66, 0.80 (10)" in line
    assert "K up to 128 0.80 (6), deep 0.50 (4)" in line
    assert "asm 0.80 (6), ck 0.50 (4)" in line
    assert not any("> 100 us |" in line for line in found)
    below = good._replace(roofline_us=300.0)
    assert list(short.warm_lines([good, below]))[-1] == "| MI355X | 2 | 1 | 1.50 |"


def test_an_experts_price_in_its_set_is_over_the_best_of_the_sets_values(monkeypatch: pytest.MonkeyPatch) -> None:
    base = {"tile_k": 64, "num_warps": 4, "num_stages": 2, "split_k": 1, "group_m": 4}
    configs = [{"tile_m": m, "tile_n": n, **base} for m, n in ((64, 64), (128, 128), (16, 16))]
    monkeypatch.setattr(
        experts, "experts", lambda: iter(Expert("mi300x", "bf16", 4096, 4096, 4096, "x", None, c) for c in configs)
    )
    rows = list(experts.priced())
    own = [one.own_price for one in rows]
    assert min(price for price in own if price is not None) == 1.0
    assert all(one.own_price is not None and one.price is not None for one in rows)
    assert all(one.own_price <= one.price * 1.02 for one in rows if one.own_price and one.price), "fewer to choose from"


def test_experts_configurations_are_found_in_the_space_or_say_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"tile_m": 64, "tile_n": 128, "tile_k": 64, "num_warps": 4, "num_stages": 2, "split_k": 1, "group_m": 4}
    strange = {**config, "tile_k": 512}
    monkeypatch.setattr(
        experts,
        "experts",
        lambda: iter(Expert("mi300x", "bf16", 512, 4096, 4096, "x", None, c) for c in (config, strange)),
    )
    first, second = experts.priced()
    assert (first.is_in_space, first.is_in_order, first.missing) == (True, True, ())
    assert first.price is not None
    assert first.price > 0.5
    if "tile_k" in second.missing:
        assert not second.is_in_space
        assert "tile_k 512" in list(experts.table_lines([second]))[-1]


def test_pages_are_filled_between_their_marks_and_nowhere_else(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- figures -->\nold\n<!-- end of figures -->\nafter\n")
    written.fill(page, "figures", ["new", "lines"])
    written.fill(page, "figures", ["new", "lines"])
    assert page.read_text() == "before\n<!-- figures -->\n\nnew\nlines\n\n<!-- end of figures -->\nafter\n"
    with pytest.raises(ValueError, match="no place for experts"):
        written.fill(page, "experts", [])


def test_what_is_written_is_read_by_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "held.json"
    monkeypatch.setattr(written, "HELD_FILE", file)
    monkeypatch.setattr(measured, "HELD_FILE", file)
    written.write_held([row(120.0), row(80.0, 90.0), row(100.0, 90.0, "fp8")], "2026-01-01")
    measured.held_file.cache_clear()
    try:
        rows = measured.held_of(load_gpu("mi355x"))
        assert [(one.dtype, one.size, one.n) for one in rows] == [
            ("bf16", "10-100 us", 1),
            ("bf16", "> 100 us", 1),
            ("fp8", "10-100 us", 1),
        ]
        assert "1.20 (1.20 to 1.20; n 1) for > 100 us" in measured.sentence(load_gpu("mi355x"), "bf16")
        assert "held against nothing on H200" in measured.sentence(load_gpu("h200"), "bf16")
    finally:
        measured.held_file.cache_clear()


def test_the_shipped_file_and_the_pages_are_of_one_run() -> None:
    date = measured.held_file().date
    readme, page = written.FIGURES.read_text(), written.PAGE.read_text()
    judged_on = f"Judged on {date}: "
    assert judged_on in readme
    assert judged_on in page
    for gpu, rows in measured.held_file().gpus.items():
        assert load_gpu(gpu).name == gpu
        assert f"| {gpu} |" in readme
        for dtype in {one.dtype for one in rows}:
            number = sum(one.n for one in rows if one.dtype == dtype)
            assert f"| {gpu} {dtype} ({number}) |" in page


def test_a_peer_that_pip_does_not_install_is_left_out_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        wrong = "install" in command
        return subprocess.CompletedProcess(command, int(wrong), "", "ERROR: no such wheel" if wrong else "")

    monkeypatch.setattr(subprocess, "run", run)
    lines = list(peers.table_lines([row(100.0)], tmp_path, None))
    assert lines[-2] == "Origami 0.0.3 is left out: pip install rocm-origami==0.0.3 failed: ERROR: no such wheel"


def test_answers_of_a_peer_stand_beside_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        jobs = json.loads(options["input"])
        answers = [{"us": 200.0, "tile": [16, 1, 1]} if job["dtype"] == "bf16" else {"error": "no"} for job in jobs]
        return subprocess.CompletedProcess(command, 0, f"noise\n{json.dumps(answers)}", "")

    monkeypatch.setattr(subprocess, "run", run)
    lines = list(peers.table_lines([row(100.0), row(100.0, dtype="fp8")], tmp_path, tmp_path))
    assert lines[2:] == [
        "| Origami 0.0.3 | MI355X bf16 (1) | 2.00 | 0.00 | 1.00 | 0.00 | 0% |",
        "| Origami 0.0.3 | MI355X fp8 (0) | no | | | | |",
    ]
