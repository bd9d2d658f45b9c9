"""The benchmark of the exchange through memory: what it would run, and what it said of an H200."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.table import read_rows
from benchmarks.rnn.exchange import (
    BUFFERED,
    COPIED_AT,
    THREADS,
    Case,
    cases,
    launch_of,
    num_blocks,
)
from constrint.errors import CompileError
from constrint.hwmodels import load_gpu
from tests.support.needs import needs_nvrtc

TABLE = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "h200" / "rnn_exchange.csv"
H200 = load_gpu("h200")


def test_the_table_has_every_case_of_the_program() -> None:
    rows = read_rows(TABLE)
    found = [Case(int(r["step_bytes"]), r["way"], int(r["cluster"]), int(r["copy_bytes"])) for r in rows]
    assert found == list(cases(H200))
    for row in rows:
        assert float(row["bytes_per_clk"]) == pytest.approx(int(row["step_bytes"]) / int(row["mean_clk"]), rel=0.01)
        assert float(row["mean_clk"]) <= float(row["max_clk"])


def test_whole_pieces_take_half_the_time_of_rows_and_copies_gain_little() -> None:
    """Why the ring stands as it does, and is read by plain loads."""
    clks: dict[tuple[int, str], float] = {}
    for row in read_rows(TABLE):
        key = int(row["step_bytes"]), row["way"]
        clks[key] = min(float(row["mean_clk"]), clks.get(key, float("inf")))
    for step_bytes in {size for size, _ in clks}:
        pieces = clks[step_bytes, "pieces"]
        assert clks[step_bytes, "rows"] > 1.9 * pieces
        assert min(clks[step_bytes, "copies"], clks[step_bytes, "multicast"]) > 0.85 * pieces


def test_a_gpu_is_given_what_it_has_the_instructions_and_the_memory_for() -> None:
    assert {case.way for case in cases(load_gpu("a100"))} == {"rows", "pieces"}
    assert {case.way for case in cases(H200)} == {"rows", "pieces", "copies", "multicast"}
    largest = max(case.step_bytes for case in cases(load_gpu("rtx-5090")) if case.copy_bytes)
    assert largest == 65536 < load_gpu("rtx-5090").sm.max_smem_bytes_per_block


@pytest.mark.parametrize("name", ["a100", "l4", "h200", "b200", "rtx-5090"])
def test_blocks_that_wait_for_each_other_have_an_sm_each(name: str) -> None:
    gpu = load_gpu(name)
    for case in cases(gpu):
        launch = launch_of(gpu, case, (None, None, None))
        assert launch.grid == (num_blocks(gpu, case),)
        assert 0 < launch.grid[0] <= gpu.device.sm_count
        assert launch.grid[0] % case.cluster == 0
        assert launch.is_cooperative == (case.cluster == 1)
        assert launch.smem_bytes <= gpu.sm.max_smem_bytes_per_block
        assert 2 * (launch.smem_bytes + gpu.sm.smem_reserved_bytes_per_block) > gpu.sm.smem_bytes_per_sm
        if case.copy_bytes:
            assert launch.smem_bytes >= COPIED_AT + case.step_bytes


@needs_nvrtc
@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("a100", Case(196608, "rows")),
        ("h200", Case(65536, "pieces")),
        ("h200", Case(65536, "copies", 1, 1024)),
        ("b200", Case(65536, "multicast", 4, 4096)),
    ],
)
def test_cases_compile_without_spilling(name: str, case: Case) -> None:
    gpu = load_gpu(name)
    compiled = launch_of(gpu, case, (None, None, None)).compile(gpu)
    assert compiled.spill_bytes == 0
    assert compiled.registers_per_thread <= 255


@needs_nvrtc
def test_a_gpu_without_clusters_has_no_multicast() -> None:
    a100 = load_gpu("a100")
    with pytest.raises(CompileError, match="refuses the kernel for sm_80"):
        launch_of(a100, Case(65536, "multicast", 2, 1024), (None, None, None)).compile(a100)


def test_the_source_and_the_program_agree_about_sizes() -> None:
    from benchmarks.rnn.exchange import SOURCE, WAYS

    text = SOURCE.read_text(encoding="utf-8")
    stated: dict[str, Any] = {"WARPS": THREADS // 32, "BUFFERED": BUFFERED, "COPIED_AT": COPIED_AT}
    for name, value in stated.items():
        assert f"{name} = {value}" in text
    for way, number in WAYS.items():
        assert f"#define {way.upper()} {number} " in text
