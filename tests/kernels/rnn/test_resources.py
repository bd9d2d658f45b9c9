"""Shared memory and registers of the recurrent kernels against tables of compiled ones, by versions of Triton."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
import pytest

from benchmarks.resources.rnn import with_inputs
from constrint.hwmodels import load_gpu
from constrint.kernels.rnn.spec import workload_of
from constrint.kernels.rnn.triton.spec import (
    REGISTER_MODELS,
    families,
    least_registers,
    models_of,
    register_terms,
    spilling,
)
from constrint.kernels.rnn.triton.spec import SPECS as TRITON_SPECS
from constrint.model import Problem, Var
from constrint.model.constraint import CERTAIN
from constrint.select.core_space import chance_of
from constrint.select.limits import BlockUse, most_registers, spill_chance
from tests.support.calibration import check_count, log_loss, rate_loss

SPECS = {spec.operation: spec for spec in TRITON_SPECS}
ROOT = Path(__file__).resolve().parents[3]
#: Versions that keep weights in registers, and one that reads them from shared memory in every step (NVIDIA).
KEPT, AGAIN = ("3.6.0", "3.9.0"), "3.8.0"
#: Tables that weights are fitted to, and others.
FITTED, OTHERS = (*KEPT, AGAIN), ("3.7.1", "3.8.0_amd")
NVIDIA = ("sm_80", "sm_90a", "sm_100a")
TARGETS = (*NVIDIA, "gfx90a", "gfx942", "gfx950")
KEYS = ("tile_batch", "tile_out", "row_split", "num_warps", "num_stages", "split_depth", "recompute")
WARP_RULES = ("warps_busy", "warps_busy_exchange", "warps_side_by_side")


class Row(NamedTuple):
    """A compiled kernel beside what is predicted for it.

    Args:
        version: Of Triton.
        kind: How it was drawn.
        gpu: What it was compiled for.
        target: The compiler's name of that.
        layer: What it computes.
        config: How.
        has_inputs: Whether it has all optional inputs.
        smem: Shared memory that it takes; None where the compiler gave up.
        registers: What the compiler gave a thread.
        spill: Bytes of a thread that it spills.
        stated_smem: Shared memory that is stated, with any optional input.
        needed_smem: Shared memory that it is said to need at least.
        estimate: Estimated registers.
        least: Registers that it is said to need at least.
        most: Registers that its warps leave a thread.
        chance: The chance to spill.
        excluded: The certain rules that it breaks.
        is_of_space: Whether no rule on warps leaves it out: tables may be older than these.
    """

    version: str
    kind: str
    gpu: str
    target: str
    layer: tuple[str, tuple[int, int, int, int], str, str]
    config: dict[str, int]
    has_inputs: bool
    smem: int | None
    registers: int
    spill: int
    stated_smem: int
    needed_smem: int
    estimate: int
    least: int
    most: int
    chance: float
    excluded: tuple[str, ...]
    is_of_space: bool

    @property
    def spills(self) -> bool:
        """Whether any register goes to memory."""
        return self.spill > 0

    @property
    def is_free(self) -> bool:
        """Whether the count says what is needed, not what was allowed."""
        return not self.has_inputs and not self.spills and self.registers < self.most - 3


@cache
def rules(version: str, gpu_name: str, cell: str, dim: int, dtype: str, direction: str) -> tuple[Problem, BlockUse]:
    gpu, workload = load_gpu(gpu_name), workload_of(cell, (64, 1024, 1, dim), dtype, direction)
    spec = SPECS[workload.operation].under(version)
    use = spec.use(gpu, workload, {key: Var(key) for key in KEYS})
    # Its expressions take longest, and the problem's are of the same variables.
    with mock.patch.object(type(spec), "use", return_value=use):
        return spec.problem(gpu, workload), use


@cache
def rows() -> tuple[Row, ...]:
    folder = ROOT / "tests" / "data"
    return tuple(row for name in (*FITTED, *OTHERS) for row in read(folder / f"triton_rnn_resources_{name}.csv"))


def read(path: Path) -> Iterator[Row]:
    with path.open() as file:
        told = re.match(r"# compiled, not measured: triton ([\d.]+),", file.readline())
        assert told is not None
        version = told[1]
        for row in csv.DictReader(file):
            gpu, config = load_gpu(row["gpu"]), {key: int(row[key]) for key in KEYS}
            dim, dtype, cell, direction = int(row["head_dim"]), row["dtype"], row["cell"], row["direction"]
            problem, use = rules(version, row["gpu"], cell, dim, dtype, direction)
            most = most_registers(gpu, Var("num_warps")).value(config)
            smem: int | None = None
            if row["error"]:
                # Spills without end: nothing else is known of it.
                assert "takes more" in row["error"]
                registers, spill = most, 1 << 20
            else:
                smem, registers, spill = (int(row[name]) for name in ("smem_bytes", "registers", "spill_bytes"))
            broken = [rule for rule in problem.constraints if not rule.holds(config)]
            assert use.least_registers is not None
            yield Row(
                version, row["kind"], row["gpu"], row["target"],
                (cell, (int(row["batch"]), 1024, int(row["heads"]), dim), dtype, direction), config,
                row["inputs"] == "1", smem, registers, spill, use.smem_stated.value(config),
                use.smem_needed.value(config), use.registers_per_thread.value(config),
                use.least_registers.value(config), most,
                float(spill_chance(gpu, use, {key: np.array([value]) for key, value in config.items()})[0]),
                tuple(rule.name for rule in broken if rule.kind == CERTAIN),
                not any(rule.name in WARP_RULES for rule in broken),
            )  # fmt: skip


def kept() -> list[Row]:
    """Rows of compilers that keep weights in registers."""
    return [row for row in rows() if row.version in KEPT]


def of(target: str, *versions: str) -> list[Row]:
    return [row for row in rows() if row.target == target and row.version in (versions or KEPT)]


def smem_limit(gpu: str) -> int:
    return load_gpu(gpu).sm.max_smem_bytes_per_block


def test_tables_cover_six_targets() -> None:
    for target in TARGETS:
        assert len(of(target, "3.9.0")) >= 100
        assert len(of(target, "3.6.0")) >= 15
        assert {row.layer[0] for row in of(target)} == {"lstm", "gru", "slstm", "elman"}
        assert {row.config["row_split"] > 1 for row in of(target)} == {False, True}
        assert {row.has_inputs for row in of(target)} == {False, True}
        assert len(of(target, "3.7.1")) >= 6
        assert len(of(target, AGAIN)) >= (100 if target in NVIDIA else 8)
    for target in NVIDIA:
        assert {row.config["row_split"] > 1 for row in of(target, AGAIN)} == {False, True}
        assert {row.has_inputs for row in of(target, AGAIN)} == {False, True}


def test_shared_memory_is_never_more_than_is_stated() -> None:
    """With any optional input, by any version."""
    compiled = [row for row in rows() if row.smem is not None]
    assert not [row for row in compiled if row.smem is not None and row.stated_smem < row.smem]
    # Without optional inputs there is less of it for some layers.
    assert not [row for row in rows() if row.needed_smem > row.stated_smem]
    assert [row for row in rows() if row.needed_smem < row.stated_smem]


@pytest.mark.parametrize("target", TARGETS)
def test_shared_memory_is_exact_for_most_layers_without_optional_inputs(target: str) -> None:
    plain = [row for row in of(target) if not row.has_inputs and row.is_of_space and row.smem is not None]
    assert len(plain) >= 100
    for row in plain:
        assert row.smem is not None
    smem = {id(row): row.smem or 0 for row in plain}
    assert np.mean([row.stated_smem == smem[id(row)] for row in plain]) >= 0.7
    assert np.mean([row.stated_smem <= 1.1 * smem[id(row)] for row in plain]) >= 0.85
    # A head that is split is larger, and its rule tighter.
    split = [row for row in plain if row.config["row_split"] > 1]
    assert np.mean([row.stated_smem == smem[id(row)] for row in split]) >= 0.85


@pytest.mark.parametrize("target", NVIDIA)
def test_weights_that_are_read_again_in_every_step_take_shared_memory_beside_the_loops_buffers(target: str) -> None:
    """Triton 3.8: what is stated is near, and for one row in two more than another version takes."""
    plain = [row for row in of(target, AGAIN) if not row.has_inputs and row.smem is not None]
    stated = np.array([row.stated_smem / (row.smem or 1) for row in plain])
    assert np.mean(stated <= 1.1) >= 0.7
    assert np.median(stated) <= 1.02
    layers = [(row, rules("3.9.0", row.gpu, row.layer[0], row.layer[1][3], *row.layer[2:])[1]) for row in plain]
    assert np.mean([(row.smem or 0) > use.smem_stated.value(row.config) for row, use in layers]) >= 0.5


def test_no_row_that_a_certain_rule_excludes_compiles_within_the_limits() -> None:
    excluded = [row for row in rows() if row.excluded]
    assert excluded
    wrong = [row for row in excluded if row.smem is not None and row.smem <= smem_limit(row.gpu) and not row.spills]
    assert wrong == []


def test_no_row_that_the_certain_rules_allow_exceeds_shared_memory_or_the_register_file() -> None:
    """Some of them spill, as often as the chances say.

    What an optional input adds is estimated, and what tiles take beside weights that are read again: what exceeds the
    limit with it is doubted.
    """
    allowed = [row for row in rows() if not row.excluded and row.smem is not None]
    assert len(allowed) >= 1500
    beyond = [row for row in allowed if row.smem is not None and row.smem > smem_limit(row.gpu)]
    assert len([row for row in beyond if row.version in KEPT]) <= 1
    for row in beyond:
        assert row.has_inputs or row.version == AGAIN
        assert row.stated_smem > smem_limit(row.gpu)
        gpu, (cell, (*_, dim), *kind) = load_gpu(row.gpu), row.layer
        problem, use = rules(row.version, row.gpu, cell, dim, *kind)
        assert chance_of(gpu, use, problem.estimates, row.config) > 0.5
    assert [row for row in allowed if row.registers > row.most] == []


@pytest.mark.parametrize("target", TARGETS)
def test_register_estimates_are_near_in_the_median(target: str) -> None:
    """Of kernels whose count says what they need."""
    free = [row for row in of(target) if row.is_free]
    assert len(free) >= 50
    assert np.median([abs(row.estimate / row.registers - 1) for row in free]) <= 0.08


def test_no_kernel_does_with_fewer_registers_than_are_said_to_be_needed() -> None:
    clean = [row for row in rows() if not row.spills]
    assert not [row for row in clean if row.registers < row.least]
    # Of an sLSTM's four states three are kept in fp32 from step to step: here 64 elements each, and an address.
    gpu, spec = load_gpu("h200"), SPECS["slstm"]
    layer = spec.layer(workload_of("slstm", (64, 1024, 1, 256), "bf16"))
    config = dict(zip(KEYS, (32, 256, 1, 4, 1, 0, 0), strict=True))
    assert least_registers(gpu, layer, {key: Var(key) for key in KEYS}).value(config) == 3 * 64 + 1


@pytest.mark.parametrize("target", NVIDIA)
def test_registers_are_estimated_by_weights_of_their_own_where_recurrent_weights_are_read_again(target: str) -> None:
    free = [row for row in of(target, AGAIN) if row.is_free]
    assert np.median([abs(row.estimate / row.registers - 1) for row in free]) <= 0.15
    plain = [row for row in of(target, AGAIN) if not row.has_inputs and not row.excluded]
    check_count([row.chance for row in plain], [row.spills for row in plain])


@pytest.mark.parametrize("target", TARGETS)
def test_as_many_recorded_kernels_spill_as_the_chances_add_up_to(target: str) -> None:
    """Of layers without optional inputs: choices are made without knowing them."""
    plain = [row for row in of(target) if not row.has_inputs and row.is_of_space and not row.excluded]
    chances, spills = [row.chance for row in plain], [row.spills for row in plain]
    assert sum(spills) >= 5
    check_count(chances, spills)
    for least, most in ((0.0, 0.1), (0.1, 0.5), (0.5, 0.9), (0.9, 1.0)):
        part = [number for number, chance in enumerate(chances) if least <= chance <= most]
        check_count([chances[number] for number in part], [spills[number] for number in part])
    assert log_loss(chances, spills) <= 0.7 * rate_loss(spills)


def test_optional_inputs_make_spills_more_likely_and_their_chances_no_worse_than_the_rate() -> None:
    """They cost a few registers more, which the chances do not know of: the launch looks before it runs."""
    more = [row for row in kept() if row.has_inputs and row.is_of_space and not row.excluded]
    chances, spills = [row.chance for row in more], [row.spills for row in more]
    assert sum(spills) > sum(chances)
    assert log_loss(chances, spills) <= 0.7 * rate_loss(spills)


def test_what_was_fastest_on_the_gpu_is_in_the_space() -> None:
    """A bound on registers excluded some of it; chances leave it in."""
    measured = [row for row in kept() if row.kind == "measured"]
    assert len(measured) >= 200
    assert not [row for row in measured if row.excluded]


def test_first_choices_fit_and_hardly_spill() -> None:
    first = [row for row in kept() if row.kind == "first" and row.is_of_space]
    assert {row.target for row in first} >= set(TARGETS)
    assert len(first) >= 150
    assert not [row for row in first if row.excluded or (row.smem or 0) > smem_limit(row.gpu)]
    plain = [row for row in first if not row.has_inputs]
    check_count([row.chance for row in plain], [row.spills for row in plain])
    assert np.mean([row.spills for row in plain]) <= 0.1


def test_weights_name_terms_that_exist() -> None:
    existing: dict[str, set[str]] = {key: set() for key in REGISTER_MODELS}
    for name in ("a100", "h200", "b200", "mi210", "mi300x", "mi355x", "rx-7900-xtx"):
        gpu = load_gpu(name)
        for spec in SPECS.values():
            for dtype in ("bf16", "fp32", "tf32"):
                layer = spec.layer(workload_of(spec.cell.name, (16, 16, 1, 112), dtype, spec.direction))
                for is_split in (False, True):
                    terms = with_inputs(register_terms(gpu, layer, {k: Var(k) for k in KEYS}, is_split)).keys()
                    for family in (*families(gpu, layer, is_split), *families(gpu, layer, is_split, reads_again=True)):
                        for key in {family.name, family.own} & REGISTER_MODELS.keys():
                            existing[key] |= terms
    for key, model in REGISTER_MODELS.items():
        assert set(model.estimate) <= existing[key], key


@pytest.mark.parametrize("name", ["h200", "mi300x", "b200"])
def test_layers_have_the_curve_of_the_way_that_a_head_is_dealt(name: str) -> None:
    gpu = load_gpu(name)
    spec = SPECS["lstm"]
    layer = spec.layer(workload_of("lstm", (64, 1024, 1, 256), "bf16"))
    curve = spilling(gpu, layer, {key: Var(key) for key in KEYS}, REGISTER_MODELS)
    models = models_of(gpu, layer, REGISTER_MODELS)
    assert models[0] != models[1]
    for row_split, model in ((1, models[0]), (4, models[1])):
        columns = {key: np.array([16]) for key in KEYS} | {"row_split": np.array([row_split])}
        for figure, expected in ((curve.at_percent, model.at_percent), (curve.slope_tenths, model.slope_tenths)):
            assert (figure if isinstance(figure, int) else figure.columns(columns)[0]) == expected
