"""The GEMM's resource rules on every target against kernels that Triton compiled, of this GEMM and of another."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel, load_all, load_gpu
from constrint.kernels.gemm.pointer.spec import smem_bytes
from constrint.kernels.gemm.rules import registers_per_thread
from constrint.kernels.gemm.spec import GemmSpec
from constrint.kernels.gemm.units import unit
from constrint.model import Problem, Var
from constrint.select import BlockUse
from tests.support.gemm import DESCRIPTOR, POINTER, gemm, product, smem_of, use_of

DATA = Path(__file__).resolve().parents[2] / "data" / "triton_gemm_space.csv"
GPUS = {
    "sm_75": "t4",
    "sm_80": "a100-sxm4-80gb",
    "sm_86": "rtx-3090",
    "sm_89": "rtx-4090",
    "sm_90": "h200",
    "sm_100": "b200",
    "sm_120": "rtx-5090",
    "gfx908": "mi100",
    "gfx90a": "mi210",
    "gfx942": "mi300x",
    "gfx950": "mi355x",
    "gfx1100": "7900xtx",
    "gfx1201": "rx-9070-xt",
}
PARAMS = ("tile_m", "tile_n", "tile_k", "num_warps", "num_stages", "split_k", "persistent")
VARIABLES = {name: Var(name) for name in PARAMS}


@cache
def compiled() -> tuple[dict[str, str], ...]:
    with DATA.open() as file:
        assert file.readline().startswith("# compiled, not measured: triton 3.9.0")
        return tuple(row for row in csv.DictReader(file) if not row["error"])


def rows_of(target: str) -> list[dict[str, str]]:
    """Kernels of a target that use its matrix unit, if Triton has code for one."""
    return [r for r in compiled() if r["target"] == target and (r["instruction"] or target == "sm_75")]


@cache
def space_of(spec: GemmSpec, target: str, dtype: str, sizes: tuple[int, int, int]) -> tuple[Problem, BlockUse]:
    gpu, workload = load_gpu(GPUS[target]), gemm(*sizes, dtype)
    problem = spec.problem(gpu, workload)
    return problem, use_of(spec, gpu, workload, problem)


def figures(row: dict[str, str]) -> tuple[int, int]:
    """Shared memory and registers as the rules have it."""
    spec = DESCRIPTOR if row["descriptor"] == "1" else POINTER
    problem, use = space_of(spec, row["target"], row["dtype"], (int(row["m"]), int(row["n"]), int(row["k"])))
    config = {name: int(row.get(name) or 0) for name in problem.variables}
    return smem_of(use, config), use.registers_per_thread.value(config)


#: Share of kernels whose shared memory is stated to the byte. An output of 32 bits that is stored through descriptors
#: is stated as Triton 3.6 places it (sm_90 and later), that of plain FMA as its largest.
EXACT = {
    **dict.fromkeys(GPUS, 0.92),
    "sm_75": 0.8,
    "sm_80": 0.99,
    "sm_86": 0.99,
    "gfx1100": 0.9,
}


@pytest.mark.parametrize("target", GPUS)
def test_shared_memory_is_never_stated_too_low_and_mostly_to_the_byte(target: str) -> None:
    pairs = [(figures(row)[0], int(row["smem_bytes"])) for row in rows_of(target)]
    assert len(pairs) >= 35
    assert all(stated >= actual for stated, actual in pairs)
    assert np.mean([stated == actual for stated, actual in pairs]) >= EXACT[target]


@pytest.mark.parametrize("target", GPUS)
def test_register_estimates_are_near_the_compiled_counts(target: str) -> None:
    most = min(512, load_gpu(GPUS[target]).sm.max_registers_per_thread)
    errors = [
        abs(figures(row)[1] / int(row["registers"]) - 1)
        for row in rows_of(target)
        if row["spill_bytes"] == "0" and int(row["waves_per_eu"] or 0) <= 1 and int(row["registers"]) < most - 3
    ]
    assert len(errors) >= 8
    assert np.median(errors) <= 0.12


def predicted_smem(row: dict[str, str]) -> int:
    gpu, plain = load_gpu(GPUS[row["target"]]), product(4096, 4096, 4096, row["dtype"])
    return smem_bytes(gpu, plain, VARIABLES).value(config(row))


def config(row: dict[str, str]) -> dict[str, int]:
    return {name: int(row[name]) for name in PARAMS}


def median_register_error(rows: list[dict[str, str]], gpu: GpuModel) -> float:
    errors = []
    for row in rows:
        estimate = registers_per_thread(gpu, row["dtype"], VARIABLES).value(config(row))
        errors.append(abs(estimate - int(row["registers"])) / int(row["registers"]))
    return float(np.median(errors))


def test_every_gpu_and_dtype_either_has_a_unit_or_says_why_not() -> None:
    found = 0
    for gpu in load_all():
        for dtype in POINTER.dtypes:
            # The plain units of GPUs before Ampere take fp16 alone.
            missing = not gpu.matrix_shapes(dtype) or (gpu.arch.target in ("sm_70", "sm_75") and dtype != "fp16")
            if missing:
                with pytest.raises(UnsupportedError, match=f"{gpu.name}|{gpu.arch.target}"):
                    unit(gpu, dtype)
            else:
                assert unit(gpu, dtype).shapes
                found += 1
    assert found >= 26 * 3


PLAIN = DATA.with_name("triton_gemm_plain.csv")


@pytest.mark.parametrize(
    ("target", "exact", "register_error"),
    [
        ("sm_80", 0.9, 0.15),
        ("sm_90", 1.0, 0.10),
        ("sm_100", 0.95, 0.30),
        ("gfx90a", 1.0, 0.15),
        ("gfx942", 1.0, 0.15),
        ("gfx950", 0.0, 0.15),
    ],
)
def test_rules_carry_over_to_another_kernel(target: str, exact: float, register_error: float) -> None:
    """The same figures for a plain GEMM that nothing here was fitted to."""
    gpu = load_gpu(GPUS[target])
    with PLAIN.open() as file:
        file.readline()
        rows = [r | {"split_k": "1", "persistent": "0"} for r in csv.DictReader(file) if r["target"] == target]
    assert len(rows) >= 33
    pairs = [(predicted_smem(row), int(row["smem_bytes"])) for row in rows]
    assert all(predicted >= actual for predicted, actual in pairs)
    assert np.mean([predicted == actual for predicted, actual in pairs]) >= exact
    clean = [row for row in rows if row["spills"] == "0"]
    assert median_register_error(clean, gpu) <= register_error
