"""Rankings, GPUs and occupancies as data frames, as text and as tables in a notebook."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from constrint import Ranking, load_gpu, occupancy, rank
from constrint.errors import UsageError
from tests.support.html_cells import Cells


@pytest.fixture(scope="module")
def ranking() -> Ranking:
    return rank("gemm", "h200", m=4096, n=4096, k=4096, dtype="bf16", top=100)


def test_a_ranking_becomes_a_data_frame_of_pandas(ranking: Ranking) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = ranking.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert len(frame) == len(ranking.candidates)
    kernels = set(frame["kernel"])
    assert len(kernels) > 1, "the test needs kernels of different parameters"
    for (_, row), candidate in zip(frame.iterrows(), ranking.candidates, strict=True):
        config = {name: row[name] for name in candidate.config}
        assert config == candidate.config
        use = candidate.resources
        if use is None:
            assert candidate.kernel == "gemm.library"
            continue
        assert row["predicted_s"] == candidate.cost.seconds
        assert row["op_per_s"] == pytest.approx(2 * 4096**3 / candidate.cost.seconds)
        assert (row["smem_bytes_per_block"], row["registers_per_thread"]) == (use.smem_bytes, use.registers_per_thread)
        assert row["part_matrix_units_s"] == candidate.cost.parts_s["matrix units"]
    lacking = frame[frame["kernel"] == "gemm.cuda"]["persistent"]
    assert len(lacking)
    assert lacking.isna().all()
    # What a kernel lacks does not make floating-point numbers of the others' integers.
    assert str(frame["split_k"].dtype) == "Int64"
    assert frame.sort_values("predicted_s")["predicted_s"].is_monotonic_increasing


def test_a_ranking_becomes_a_data_frame_of_polars(ranking: Ranking) -> None:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    frame = ranking.to_polars()
    assert isinstance(frame, polars.DataFrame)
    assert frame.rows(named=True) == list(ranking.rows())
    assert frame["split_k"].dtype == polars.Int64


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_a_missing_library_is_named(name: str, ranking: Ranking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match=rf"to_{name}\(\) needs {name}, which is not installed: pip install {name}\.$"):
        getattr(ranking, f"to_{name}")()


def test_a_ranking_is_readable(ranking: Ranking) -> None:
    assert len(repr(ranking)) < 200
    assert "gemm m=4096 n=4096 k=4096 bf16 on H200-SXM" in repr(ranking)
    lines = str(ranking).splitlines()
    assert f"{ranking.num_valid:,} of {ranking.num_product:,} configs are valid" in lines[0]
    best = ranking.candidates[0]
    assert lines[1].startswith(f"1. {best.kernel} tile_m={best.config['tile_m']} ")
    assert f"{1e6 * best.cost.seconds:,.1f} us, bound by {best.cost.bound_by}" in lines[1]
    assert lines[-1] == "... 97 more"


def test_a_ranking_is_a_table_in_a_notebook(ranking: Ranking) -> None:
    cells = Cells(ranking._repr_html_())
    assert "on H200-SXM" in cells.caption
    head, *rows, more = cells.rows
    assert len(rows) == 10
    for row, candidate in zip(rows, ranking.candidates, strict=False):
        shown = dict(zip(head, row, strict=True))
        assert shown["predicted_us"] == f"{1e6 * candidate.cost.seconds:,.1f}"
        assert shown["TFLOP/s"] == f"{ranking.rate_of(candidate):,.1f}"
        assert shown["tile_m"] == str(candidate.config.get("tile_m", "-"))
    assert "... 90 more" in more[0]


def test_every_parameter_is_in_a_table_of_one_row() -> None:
    one = rank("gemm.pointer", "mi300x", m=512, n=512, k=512, dtype="bf16", top=1)
    cells = Cells(one._repr_html_())
    assert set(one.candidates[0].config) <= set(cells.rows[0])


def test_a_gpu_is_readable() -> None:
    gpu = load_gpu("mi300x")
    assert repr(gpu) == "<GpuModel MI300X (gfx942, CDNA3): 304 CUs, 192 GB of HBM3>"
    cells = Cells(gpu._repr_html_())
    values = {row[1]: row[2] for row in cells.rows[1:]}
    assert values["max_smem_bytes_per_block"] == "65,536"
    assert "LDS per workgroup" in cells.rows[3][0]


def test_an_occupancy_is_readable() -> None:
    found = occupancy("h200", threads_per_block=256, registers_per_thread=128)
    assert str(found) == "2 blocks per SM (16 warps, 25% of what it holds), limited by registers"
    table = found._repr_html_()
    assert table is not None
    limiting = [row[0] for row in Cells(table).rows[1:] if row[2] == "limits"]
    assert limiting == ["registers"]
    many = occupancy("h200", threads_per_block=np.array([128, 256]), registers_per_thread=128)
    assert many._repr_html_() is None
    assert "blocks_per_sm=array" in str(many)
