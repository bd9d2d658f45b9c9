"""The rules of the products' Triton kernels against tables that other versions of Triton compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.resources.check import check_fresh, check_rows
from benchmarks.resources.gemm import SAMPLE, SPECS
from benchmarks.resources.sample import read_table
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.pointer import spec as pointer
from constrint.model.constraint import CERTAIN
from constrint.select import Workload
from tests.support.gemm import POINTER

DATA = Path(__file__).resolve().parents[2] / "data"
TABLES = [f"triton_gemm_{kind}_{version}.csv" for kind in ("space", "descriptor") for version in ("3_7", "3_8")]


def have(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a version of Triton be the installed one, and forget the spaces under the other."""
    monkeypatch.setattr(pointer, "triton_version", lambda: version)
    for spec in SPECS:
        monkeypatch.setattr(spec, "_known", {})


@pytest.mark.parametrize("table", TABLES)
def test_the_rules_of_a_version_hold_for_what_it_compiled(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler, rows = read_table(DATA / table)
    have(compiler.removeprefix("triton "), monkeypatch)
    assert not [row for row in rows if row["error"]]
    compiled, fresh = check_rows(SAMPLE, rows), check_fresh(SAMPLE, rows)
    assert compiled.keys() >= {"sm_90", "sm_100"}
    for target, found in compiled.items():
        assert (found.under, found.wrong) == (0, 0), target
        assert found.exact >= 0.85 * found.compiled, target
        assert (fresh[target].pruned_fit, fresh[target].valid_exceed) == (0, 0), fresh[target].wrong


def test_a_version_that_copies_nothing_past_the_registers_on_cdna4_takes_less_lds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Triton 3.7 keeps the stage that is computed in registers, 3.8 one padded buffer for every stage."""
    _, rows = read_table(DATA / "triton_gemm_space_3_7.csv")
    some = [row for row in rows if row["target"] == "gfx950"]
    excluded = {}
    for version in ("3.7.1", "3.8.0"):
        have(version, monkeypatch)
        excluded[version] = check_fresh(SAMPLE, some)["gfx950"].pruned_fit
    assert excluded["3.7.1"] == 0 < excluded["3.8.0"]


@pytest.mark.parametrize(("version", "excluded"), [("3.8.0", ["one_pack16"]), ("3.9.0", [])])
def test_a_tile_of_tf32_that_triton_3_8_fails_on_is_excluded_there(
    version: str, excluded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    have(version, monkeypatch)
    monkeypatch.setattr(POINTER, "_known", {})
    gpu, workload = load_gpu("mi300x"), Workload("gemm", {"m": 512, "n": 66, "k": 32}, "tf32")
    config = {"tile_m": 16, "tile_n": 128, "tile_k": 16, "num_warps": 2, "num_stages": 2, "split_k": 2, "persistent": 0}
    config |= {"group_m": 1, "matrix_instr_nonkdim": 16, "waves_per_eu": 1, "kpack": 2, "xcd_chunk": 0}
    rules = POINTER.problem(gpu, workload).constraints
    assert [rule.name for rule in rules if rule.kind == CERTAIN and not rule.holds(config)] == excluded
    assert all(rule.holds({**config, "tile_k": 32}) for rule in rules if rule.name.startswith("one_pack"))
