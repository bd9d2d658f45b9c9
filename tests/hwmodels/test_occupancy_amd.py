"""AMD: waves per SIMD equal LLVM's on every row, workgroups equal the model's with either LDS granule."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from constrint.hwmodels import AmdCu, load_all, load_gpu, occupancy

CSV = Path(__file__).parents[1] / "data" / "occupancy" / "amd.csv"
ROWS = list(csv.DictReader(CSV.read_text().splitlines()))
QUIRK = "llvm_sgpr_inflation_quirk"
GPUS = {
    "gfx908": ("MI100",),
    "gfx90a": ("MI210", "MI250-GCD", "MI250X-GCD"),
    "gfx942": ("MI300A", "MI300X", "MI308X", "MI325X"),
    "gfx950": ("MI350X", "MI355X"),
    "gfx1100": ("RX-7900-XTX", "RX-7900-XT", "PRO-W7900"),
    "gfx1151": ("Radeon-8060S",),
    "gfx1200": ("RX-9060-XT",),
    "gfx1201": ("RX-9070-XT", "RX-9070"),
}


def inputs(row: dict[str, str]) -> dict[str, Any]:
    return {
        "threads_per_block": int(row["threads_per_workgroup"]),
        "registers_per_thread": int(row["arch_vgprs"]),
        "accumulator_registers_per_thread": int(row["acc_vgprs"]),
        "sgprs_per_wave": int(row["llvm_total_sgprs"]),
        "smem_bytes_per_block": int(row["lds_bytes"]),
    }


def mode(row: dict[str, str]) -> dict[str, Any]:
    return {"wave_size": int(row["wave_size"]), "wgp_mode": row["mode"] == "wgp"}


def test_the_data_covers_every_model_and_notes_its_exceptions() -> None:
    models = [model for model in load_all() if model.vendor == "amd"]
    assert {model.name: model.arch.target for model in models} == {n: t for t, names in GPUS.items() for n in names}
    assert {row["target"] for row in ROWS} == set(GPUS)
    assert len(ROWS) == 1172
    assert Counter(row["note"] for row in ROWS) == {"": 1169, QUIRK: 3}


@pytest.mark.parametrize("target", GPUS)
def test_every_row_one_by_one(target: str) -> None:
    gpu = load_gpu(GPUS[target][0])
    assert isinstance(gpu.sm, AmdCu)
    for row in (row for row in ROWS if row["target"] == target):
        found = occupancy(gpu, **inputs(row), **mode(row))
        # The noted rows deviate from the rule inside LLVM; the rule's own value is in the model's column.
        llvm = "model_occupancy_waves_per_simd" if row["note"] == QUIRK else "llvm_occupancy_waves_per_simd"
        assert found.waves_per_simd == int(row[llvm]), row["case_id"]
        assert found.blocks_per_sm == int(row["model_workgroups_lds_hw_granule"]), row["case_id"]
        as_llvm = occupancy(gpu, lds_granularity_bytes=gpu.sm.smem_llvm_granularity_bytes, **inputs(row), **mode(row))
        assert as_llvm.blocks_per_sm == int(row["model_workgroups_per_cu_or_wgp"]), row["case_id"]
        in_hardware = occupancy(
            gpu, lds_granularity_bytes=gpu.sm.smem_alloc_granularity_bytes, **inputs(row), **mode(row)
        )
        assert in_hardware.waves_per_simd == int(row["model_occupancy_lds_hw_granule"]), row["case_id"]


@pytest.mark.parametrize(("target", "name"), [(t, n) for t, names in GPUS.items() for n in names])
def test_every_row_as_columns(target: str, name: str) -> None:
    rows = [row for row in ROWS if row["target"] == target and not row["note"]]
    for chosen in {tuple(mode(row).items()) for row in rows}:
        same = [row for row in rows if tuple(mode(row).items()) == chosen]
        columns: dict[str, Any] = {key: np.array([inputs(row)[key] for row in same]) for key in inputs(same[0])}
        found = occupancy(name, **columns, **dict(chosen))
        assert list(found.waves_per_simd) == [int(row["llvm_occupancy_waves_per_simd"]) for row in same]
        assert list(found.blocks_per_sm) == [int(row["model_workgroups_lds_hw_granule"]) for row in same]


@pytest.mark.parametrize(
    ("gpu", "steps"),
    [
        ("mi100", {24: 10, 25: 9, 29: 8, 33: 7, 37: 6, 41: 5, 49: 4, 65: 3, 85: 2, 129: 1}),
        ("mi300x", {64: 8, 65: 7, 73: 6, 81: 5, 97: 4, 129: 3, 169: 2, 257: 1, 512: 1}),
        ("7900xtx", {96: 16, 97: 12, 121: 10, 145: 9, 169: 8, 193: 7, 217: 6, 241: 5, 256: 5}),
    ],
)
def test_register_steps_executed_in_llvm(gpu: str, steps: dict[int, int]) -> None:
    found = occupancy(gpu, threads_per_block=64, registers_per_thread=list(steps))
    assert list(found.waves_per_simd) == list(steps.values())


def test_unified_file_aligns_the_accumulators() -> None:
    def waves(arch: int, acc: int) -> Any:
        kernel: dict[str, Any] = {
            "threads_per_block": 256,
            "registers_per_thread": arch,
            "accumulator_registers_per_thread": acc,
        }
        return occupancy("mi300x", **kernel).waves_per_simd

    assert (waves(100, 28), waves(101, 27)) == (4, 3)
    # Two separate files on CDNA1: the larger one counts.
    mi100 = occupancy("mi100", threads_per_block=256, registers_per_thread=64, accumulator_registers_per_thread=64)
    assert mi100.waves_per_simd == 4


def test_gfx950_gives_out_lds_in_units_of_1280_bytes() -> None:
    found = occupancy("mi355x", threads_per_block=256, registers_per_thread=16, smem_bytes_per_block=32768)
    assert (found.blocks_per_sm, found.smem_bytes_per_block) == (4, 33280)


def test_blocks_per_sm_takes_the_larger_granule_where_sources_disagree() -> None:
    kernel: dict[str, Any] = {
        "threads_per_block": 256,
        "registers_per_thread": 16,
        "smem_bytes_per_block": 43520,
        "wgp_mode": True,
    }
    found = occupancy("7900xtx", **kernel)
    assert (found.blocks_per_sm, found.waves_per_simd) == (2, 6)
    assert occupancy("7900xtx", lds_granularity_bytes=512, **kernel).blocks_per_sm == 3


def test_what_no_wave_can_have_gives_no_block() -> None:
    assert occupancy("mi300x", threads_per_block=64, registers_per_thread=513).blocks_per_sm == 0
    assert occupancy("7900xtx", threads_per_block=64, registers_per_thread=257).blocks_per_sm == 0
    # 1,024 threads are four waves per SIMD, so at most 128 registers each.
    assert occupancy("mi300x", threads_per_block=1024, registers_per_thread=128).blocks_per_sm == 1
    assert occupancy("mi300x", threads_per_block=1024, registers_per_thread=129).blocks_per_sm == 0
    assert (
        occupancy("mi300x", threads_per_block=64, registers_per_thread=16, smem_bytes_per_block=65537).limit_smem == 0
    )
    assert occupancy("mi300x", threads_per_block=1025, registers_per_thread=16).blocks_per_sm == 0


def test_scalar_registers_limit_on_cdna_only() -> None:
    kernel: dict[str, Any] = {"threads_per_block": 64, "registers_per_thread": 16, "sgprs_per_wave": 97}
    assert occupancy("mi100", **kernel).waves_per_simd == 6
    assert "sgprs" in occupancy("mi100", **kernel).limited_by
    assert occupancy("7900xtx", **kernel).waves_per_simd == 16
