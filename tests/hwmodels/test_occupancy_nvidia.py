"""NVIDIA occupancy equals cuda_occupancy.h in every column of every row of the executed header."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from constrint.hwmodels import UNLIMITED, load_all, occupancy

CSV = Path(__file__).parents[1] / "data" / "occupancy" / "nvidia.csv"
ROWS = list(csv.DictReader(CSV.read_text().splitlines()))
GPUS = {
    "V100": "V100-SXM2",
    "T4": "T4",
    "A100": "A100-SXM4-80GB",
    "RTX3090": "RTX-3090",
    "RTX4090": "RTX-4090",
    "H100SXM": "H100-SXM5",
    "B200": "B200",
    "RTX5090": "RTX-5090",
    "ORIN": "AGX-Orin-64GB",
    "B300": "B300",
    "THOR": "AGX-Thor",
    "GB10": "GB10",
}
#: Models that share a compute capability have the same occupancy.
SAME = {
    "A100-SXM4-80GB": ("A100-SXM4-40GB", "A30", "A800-SXM4-80GB"),
    "RTX-3090": ("A10", "A40", "RTX-A6000"),
    "RTX-4090": ("L4", "L20", "L40", "L40S", "RTX-4070", "RTX-4070-Ti", "RTX-4080", "RTX-4080-SUPER", "RTX-6000-Ada"),
    "H100-SXM5": ("H100-PCIe", "H100-NVL", "H200-SXM", "GH200", "H20", "H800-SXM5"),
    "B200": ("GB200",),
    "B300": ("GB300",),
    "RTX-5090": ("RTX-5070", "RTX-5070-Ti", "RTX-5080", "RTX-PRO-6000"),
}


def number(text: str) -> int:
    return UNLIMITED if text == "inf" else int(text)


def inputs(row: dict[str, str]) -> dict[str, Any]:
    return {
        "threads_per_block": int(row["threads_per_block"]),
        "registers_per_thread": int(row["regs_per_thread"]),
        "smem_bytes_per_block": int(row["static_smem_bytes"]) + int(row["dynamic_smem_bytes"]),
        "smem_opt_in": row["smem_optin"] == "1",
        "carveout_percent": int(row["carveout_percent"]),
        "barriers_per_block": int(row["block_barriers"]),
    }


def expected(row: dict[str, str]) -> dict[str, Any]:
    columns = {
        "blocks_per_sm": "active_blocks_per_sm",
        "warps_per_sm": "active_warps_per_sm",
        "limit_warps": "limit_warps",
        "limit_registers": "limit_regs",
        "limit_smem": "limit_smem",
        "limit_blocks": "limit_blocks",
        "limit_barriers": "limit_barriers",
        "registers_per_block": "alloc_regs_per_block",
        "smem_bytes_per_block": "alloc_smem_per_block",
    }
    limited_by = row["limiting_factors"].replace("regs", "registers").replace("|", "+")
    return {name: number(row[column]) for name, column in columns.items()} | {"limited_by": limited_by}


def test_the_data_covers_every_model_and_is_free_of_errors() -> None:
    models = {model.name for model in load_all() if model.vendor == "nvidia"}
    assert models == {*GPUS.values(), *(name for same in SAME.values() for name in same)}
    assert {row["gpu"] for row in ROWS} == set(GPUS)
    assert {row["error_code"] for row in ROWS} == {"0"}
    assert len(ROWS) == 1980


@pytest.mark.parametrize("short", GPUS)
def test_every_row_one_by_one(short: str) -> None:
    for row in (row for row in ROWS if row["gpu"] == short):
        found = occupancy(GPUS[short], **inputs(row))
        got = {name: getattr(found, name) for name in expected(row)}
        assert got == expected(row), row["case_id"]
        assert f"{found.occupancy:.4f}" == row["occupancy"], row["case_id"]
        assert found.waves_per_simd is None
        assert found.limit_sgprs == UNLIMITED


@pytest.mark.parametrize("short", GPUS)
@pytest.mark.parametrize("opt_in", ["0", "1"])
def test_every_row_as_columns_and_on_models_of_the_same_capability(short: str, opt_in: str) -> None:
    rows = [row for row in ROWS if row["gpu"] == short and row["smem_optin"] == opt_in]
    assert rows
    names = [name for name in inputs(rows[0]) if name != "smem_opt_in"]
    columns: dict[str, Any] = {name: np.array([inputs(row)[name] for row in rows]) for name in names}
    for name in (GPUS[short], *SAME.get(GPUS[short], ())):
        found = occupancy(name, smem_opt_in=opt_in == "1", **columns)
        for key in expected(rows[0]):
            assert list(getattr(found, key)) == [expected(row)[key] for row in rows], (name, key)


def test_registers_are_counted_per_sub_partition() -> None:
    # 9 warps x 192 x 32 registers would fit 65,536, but one partition would hold three warps of 6,144.
    too_many = occupancy("h200", threads_per_block=288, registers_per_thread=192)
    assert (too_many.blocks_per_sm, too_many.limited_by) == (0, "registers")
    assert occupancy("h200", threads_per_block=256, registers_per_thread=192).blocks_per_sm == 1


def test_reserved_shared_memory_is_charged_per_block() -> None:
    assert occupancy("h200", threads_per_block=32, registers_per_thread=16).limit_smem == 228
    assert occupancy("v100", threads_per_block=32, registers_per_thread=16).limit_smem == UNLIMITED


def test_opt_in_decides_above_48_kib_and_the_limit_itself_is_allowed() -> None:
    largest: dict[str, Any] = {"threads_per_block": 128, "registers_per_thread": 32, "smem_bytes_per_block": 232448}
    assert occupancy("h200", **largest).blocks_per_sm == 1
    assert occupancy("h200", **largest, smem_opt_in=False).blocks_per_sm == 0
    assert occupancy("h200", **{**largest, "smem_bytes_per_block": 232449}).blocks_per_sm == 0


def test_the_headers_256_registers_are_accepted_and_257_are_not() -> None:
    assert occupancy("h200", threads_per_block=128, registers_per_thread=256).blocks_per_sm == 2
    assert occupancy("h200", threads_per_block=128, registers_per_thread=257).blocks_per_sm == 0


def test_kernel_without_registers_and_blocks_of_more_than_1024_threads() -> None:
    assert occupancy("h200", threads_per_block=128, registers_per_thread=0).limit_registers == UNLIMITED
    assert occupancy("h200", threads_per_block=1025, registers_per_thread=16).blocks_per_sm == 0
