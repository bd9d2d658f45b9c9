"""Shared memory and registers of the recurrent kernels against tables of compiled ones, by two versions of Triton."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from constrint.hwmodels import load_gpu
from constrint.kernels.rnn.sample import with_inputs
from constrint.kernels.rnn.spec import workload_of
from constrint.kernels.rnn.triton.registers import REGISTER_MODELS, model_key, register_terms
from constrint.kernels.rnn.triton.spec import SPECS as TRITON_SPECS
from constrint.model import Problem, Var
from constrint.select.first_choice import choose
from constrint.select.limits import BlockUse, most_registers

SPECS = {spec.operation: spec for spec in TRITON_SPECS}
ROOT = Path(__file__).resolve().parents[2]
TABLES = {version: ROOT / "tests" / "data" / f"triton_rnn_resources_{version}.csv" for version in ("3.6.0", "3.9.0")}
TARGETS = ("sm_80", "sm_90a", "sm_100a", "gfx90a", "gfx942", "gfx950")
KEYS = ("tile_batch", "tile_out", "row_split", "num_warps", "num_stages", "split_depth", "recompute")
RULES = ("registers", "register_file", "smem", "warps_busy", "warps_busy_exchange", "warps_side_by_side")
#: A spill of so few bytes a thread (16 registers) was measured to cost little.
LIGHT_BYTES = 64


class Row(NamedTuple):
    """A compiled kernel beside what is predicted for it."""

    version: str
    kind: str
    gpu: str
    target: str
    layer: tuple[str, tuple[int, int, int, int], str, str]
    config: dict[str, int]
    has_inputs: bool
    smem: int
    registers: int
    spill: int
    predicted_smem: int
    estimate: int
    bound: int
    most: int
    is_valid: bool

    @property
    def is_capped(self) -> bool:
        """Whether the count says what was allowed, not what was needed."""
        return self.registers >= self.most - 3


@cache
def rules(gpu_name: str, cell: str, dim: int, dtype: str, direction: str) -> tuple[Problem, BlockUse]:
    gpu, workload = load_gpu(gpu_name), workload_of(cell, (64, 1024, 1, dim), dtype, direction)
    spec = SPECS[workload.operation]
    return spec.problem(gpu, workload), spec.use(gpu, workload, {key: Var(key) for key in KEYS})


@cache
def rows() -> tuple[Row, ...]:
    return tuple(row for version, path in TABLES.items() for row in read(version, path))


def read(version: str, path: Path) -> Iterator[Row]:
    with path.open() as file:
        assert file.readline().startswith(f"# compiled, not measured: triton {version}")
        for row in csv.DictReader(file):
            gpu, config = load_gpu(row["gpu"]), {key: int(row[key]) for key in KEYS}
            dim, dtype, cell, direction = int(row["head_dim"]), row["dtype"], row["cell"], row["direction"]
            problem, use = rules(row["gpu"], cell, dim, dtype, direction)
            most = most_registers(gpu, Var("num_warps")).value(config)
            bound = use.registers_needed.value(config)
            if row["error"]:
                # Spills without end: nothing is known of it but that it must not be called valid.
                smem, registers, spill = 0, most, 1 << 20
            else:
                smem, registers, spill = (int(row[name]) for name in ("smem_bytes", "registers", "spill_bytes"))
            yield Row(
                version, row["kind"], row["gpu"], row["target"],
                (cell, (int(row["batch"]), 1024, int(row["heads"]), dim), dtype, direction), config,
                row["inputs"] == "1", smem, registers, spill, use.smem_bytes.value(config),
                use.registers_per_thread.value(config), bound, most,
                all(c.holds(config) for c in problem.constraints if c.name in RULES),
            )  # fmt: skip


def of(target: str, *versions: str) -> list[Row]:
    return [row for row in rows() if row.target == target and row.version in (versions or TABLES)]


def test_tables_cover_six_targets_by_both_versions() -> None:
    for target in TARGETS:
        assert len(of(target, "3.9.0")) >= 100
        assert len(of(target, "3.6.0")) >= 15
        assert {row.layer[0] for row in of(target)} == {"lstm", "gru", "slstm", "elman"}
        assert {row.config["row_split"] > 1 for row in of(target)} == {False, True}
        assert {row.has_inputs for row in of(target)} == {False, True}


def test_shared_memory_is_never_underpredicted() -> None:
    """With any optional input, by either version."""
    assert not [row for row in rows() if row.predicted_smem < row.smem]


@pytest.mark.parametrize("target", TARGETS)
def test_shared_memory_is_exact_for_most_layers_without_optional_inputs(target: str) -> None:
    plain = [row for row in of(target) if not row.has_inputs and row.is_valid]
    assert np.mean([row.predicted_smem == row.smem for row in plain]) >= 0.7
    assert np.mean([row.predicted_smem <= 1.1 * row.smem for row in plain]) >= 0.85
    # A head that is split is larger, and its rule tighter.
    assert np.mean([row.predicted_smem == row.smem for row in plain if row.config["row_split"] > 1]) >= 0.85


@pytest.mark.parametrize("target", TARGETS)
def test_register_estimates_are_near_in_the_median(target: str) -> None:
    """Of kernels whose count says what they need."""
    free = [row for row in of(target) if not row.has_inputs and row.spill == 0 and not row.is_capped]
    assert len(free) >= 50
    assert np.median([abs(row.estimate / row.registers - 1) for row in free]) <= 0.08
    assert all(row.estimate <= row.most for row in of(target))


def test_no_kernel_that_spills_more_than_lightly_is_called_valid() -> None:
    """Of layers without optional inputs; choices are made without knowing them, and they cost a few registers more."""
    spilling = [row for row in rows() if row.spill > LIGHT_BYTES]
    plain, more = ([row for row in spilling if row.has_inputs is has_inputs] for has_inputs in (False, True))
    assert len(plain) >= 80
    assert not [row for row in plain if row.is_valid]
    assert np.mean([row.is_valid for row in more]) <= 0.25


@pytest.mark.parametrize("target", TARGETS)
def test_few_kernels_that_do_not_spill_are_excluded(target: str) -> None:
    clean = [row for row in of(target) if row.spill == 0 and row.predicted_smem <= smem_limit(row.gpu)]
    excluded = [row for row in clean if not row.is_valid]
    assert len(excluded) <= 0.08 * len(clean)
    # What the bound excludes is large.
    assert not excluded or np.median([row.registers / row.most for row in excluded]) >= 0.5


def smem_limit(gpu: str) -> int:
    return load_gpu(gpu).sm.max_smem_bytes_per_block


def test_what_was_fastest_on_the_gpu_is_valid() -> None:
    measured = [row for row in rows() if row.kind == "measured" and row.spill == 0]
    assert len(measured) >= 200
    assert np.mean([row.is_valid for row in measured]) >= 0.95


def test_first_choices_fit_and_do_not_spill() -> None:
    first = [row for row in rows() if row.kind == "first" and row.is_valid]
    assert {row.target for row in first} >= set(TARGETS)
    assert len(first) >= 150
    # The table is of these rules: most of it is still what is chosen.
    workloads = [(row, workload_of(*row.layer)) for row in first[::7]]
    chosen = [choose(SPECS[w.operation], load_gpu(row.gpu), w).config == row.config for row, w in workloads]
    assert np.mean(chosen) >= 0.8
    assert not [row for row in first if row.smem > smem_limit(row.gpu)]
    plain = [row for row in first if not row.has_inputs]
    assert not [row for row in plain if row.spill > LIGHT_BYTES]
    # A tile of 8 rows by 128 columns takes all registers there are; the next best is far slower.
    assert np.mean([row.spill > 0 for row in plain]) <= 0.1
    assert np.mean([row.spill > LIGHT_BYTES for row in first]) <= 0.05


def test_weights_name_terms_that_exist() -> None:
    existing: dict[str, set[str]] = {key: set() for key in REGISTER_MODELS}
    for name in ("h200", "mi300x", "mi355x", "rx-7900-xtx"):
        gpu = load_gpu(name)
        for spec in SPECS.values():
            for dtype in ("bf16", "fp32", "tf32"):
                layer = spec.layer(workload_of(spec.cell.name, (16, 16, 1, 112), dtype, spec.direction))
                for is_split in (False, True):
                    terms = register_terms(gpu, layer, {k: Var(k) for k in KEYS}, is_split)
                    existing[model_key(gpu, layer, is_split)] |= with_inputs(terms).keys()
    for key, model in REGISTER_MODELS.items():
        assert set(model.estimate) | set(model.bound) <= existing[key]
