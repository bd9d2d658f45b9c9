"""The GEMM's resource rules against kernels that Triton compiled (`tests/data/triton_gemm_resources.csv`)."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel, load_all, load_gpu
from constrint.kernels.gemm import resources
from constrint.kernels.gemm.spec import SPEC
from constrint.model import Var
from constrint.select import Workload

DATA = Path(__file__).resolve().parents[1] / "data" / "triton_gemm_resources.csv"
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


def compiled() -> Iterator[dict[str, str]]:
    with DATA.open() as file:
        assert file.readline().startswith("# compiled, not measured: triton 3.9.0")
        yield from csv.DictReader(file)


ROWS = [row for row in compiled() if not row["error"]]


def config(row: dict[str, str]) -> dict[str, int]:
    return {name: int(row[name]) for name in PARAMS}


def uses_unit(row: dict[str, str]) -> bool:
    return bool(row["instruction"]) or row["target"] == "sm_75"


def predicted_smem(row: dict[str, str]) -> int:
    return resources.smem_bytes(load_gpu(GPUS[row["target"]]), row["dtype"], VARIABLES).value(config(row))


def test_table_covers_every_target() -> None:
    counts: dict[str, int] = defaultdict(int)
    for row in ROWS:
        counts[row["target"]] += 1
    assert set(counts) == set(GPUS)
    assert min(counts.values()) >= 25


@pytest.mark.parametrize("target", GPUS)
def test_shared_memory_is_never_underpredicted(target: str) -> None:
    for row in ROWS:
        if row["target"] == target and uses_unit(row):
            assert predicted_smem(row) >= int(row["smem_bytes"]), row


def test_shared_memory_is_exact_for_wgmma_and_nearly_so_elsewhere() -> None:
    exact: dict[str, list[bool]] = defaultdict(list)
    for row in ROWS:
        if not uses_unit(row):
            continue
        kind = row["instruction"].split(" ")[0].split("_16")[0].split("_32")[0] or "fma"
        kind = row["target"] if kind.startswith("v_") else kind
        exact[kind].append(predicted_smem(row) == int(row["smem_bytes"]))
    share = {kind: float(np.mean(hits)) for kind, hits in exact.items()}
    assert share["wgmma.mma_async"] == 1.0
    assert share["gfx1100"] >= 0.98
    assert share["gfx1201"] >= 0.98
    for target in ("gfx908", "gfx90a", "gfx942"):
        assert share[target] >= 0.93, share
    # The store's staging is an upper bound for these two.
    assert share["mma.sync"] >= 0.78, share
    assert share["tcgen05.mma"] >= 0.75, share


def test_gfx950_padding_is_at_most_a_sixteenth() -> None:
    checked = 0
    for row in ROWS:
        if row["target"] != "gfx950" or not uses_unit(row) or row["num_stages"] == "1":
            continue
        if predicted_smem(row) <= 163840:
            assert int(row["smem_bytes"]) <= predicted_smem(row) <= 1.07 * int(row["smem_bytes"]) + 64 or (
                # Operands too small for a direct copy keep one stage less.
                int(row["smem_bytes"]) < predicted_smem(row)
            )
            checked += 1
    assert checked > 20


def median_register_error(rows: list[dict[str, str]], gpu: GpuModel) -> float:
    errors = []
    for row in rows:
        estimate = resources.registers_per_thread(gpu, row["dtype"], VARIABLES).value(config(row))
        errors.append(abs(estimate - int(row["registers"])) / int(row["registers"]))
    return float(np.median(errors))


@pytest.mark.parametrize("target", GPUS)
def test_register_estimates_are_near_the_compiled_counts(target: str) -> None:
    gpu = load_gpu(GPUS[target])
    limit = gpu.sm.max_registers_per_thread
    rows = [
        row
        for row in ROWS
        if row["target"] == target
        and uses_unit(row)
        and not int(row["spill_bytes"])
        and int(row["waves_per_eu"]) <= 1
        and int(row["registers"]) < min(limit, 512) - 3
    ]
    assert len(rows) >= 8
    assert median_register_error(rows, gpu) <= 0.2


def test_configs_the_compiler_refuses_are_not_in_the_space() -> None:
    """An error of the compiler, or a dot that falls back to plain FMA, must be excluded by a rule."""
    refused = [row for row in compiled() if row["target"] != "sm_75" and (row["error"] or not row["instruction"])]
    assert len(refused) >= 10
    for row in refused:
        gpu = load_gpu(GPUS[row["target"]])
        problem = SPEC.problem(gpu, Workload("gemm", {"m": 4096, "n": 4096, "k": 4096}, row["dtype"]))
        chosen = config(row)
        if gpu.vendor == "amd":
            sizes = [int(row["matrix_instr_nonkdim"])] if int(row["matrix_instr_nonkdim"]) else [16, 32]
            knobs = {"waves_per_eu": int(row["waves_per_eu"]), "kpack": int(row["kpack"]), "xcd_chunk": 0}
        else:
            sizes, knobs = [0], {}
        for size in sizes:
            full = chosen | knobs | {"group_m": 8, "matrix_instr_nonkdim": size, "descriptor": 0, "epilogue_subtile": 1}
            full = {name: value for name, value in full.items() if name in problem.variables}
            in_domains = all(full[name] in domain for name, domain in problem.variables.items())
            assert not in_domains or not all(c.holds(full) for c in problem.constraints), row


def test_every_gpu_and_dtype_either_has_a_unit_or_says_why_not() -> None:
    found = 0
    for gpu in load_all():
        for dtype in SPEC.dtypes:
            # The plain units of GPUs before Ampere take fp16 alone.
            missing = not gpu.matrix_shapes(dtype) or (gpu.arch.target in ("sm_70", "sm_75") and dtype != "fp16")
            if missing:
                with pytest.raises(UnsupportedError, match=f"{gpu.name}|{gpu.arch.target}"):
                    resources.unit(gpu, dtype)
            else:
                assert resources.unit(gpu, dtype).shapes
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
