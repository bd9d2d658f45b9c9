"""The GEMM's spaces against the compiler: certain rules are never wrong, and as many spill as are expected to.

Recorded tables for breadth, and a fresh sample compiled on the spot, another one whenever the kernels or their rules
change.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from benchmarks.resources.check import check_fresh, exceeded
from benchmarks.resources.gemm import SAMPLE, TARGETS
from benchmarks.resources.sample import SampleRequest
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.rules import REGISTER_MODELS
from constrint.kernels.gemm.units import OUTPUT_BYTES
from constrint.kernels.registry import load_kernel
from constrint.model import Problem
from constrint.model.constraint import CERTAIN, REDUNDANT
from constrint.select import BlockUse, KernelSpec, rank
from tests.support.compiled import Compiler
from tests.support.fresh import check_fair_rows, check_most_fit, compiled_rows, fresh_rows, seed_of
from tests.support.gemm import POINTER, gemm, use_of
from tests.support.kept_assembly import compile_and_keep
from tests.support.needs import needs_triton

ROOT = Path(__file__).resolve().parents[3]
TABLE = ROOT / "tests" / "data" / "triton_gemm_space.csv"
OLDER_TABLE = TABLE.with_name("triton_gemm_space_3_6.csv")
DESCRIPTOR_TABLES = {"3.9.0": "triton_gemm_descriptor.csv", "3.6.0": "triton36_gemm_descriptor.csv"}


@cache
def space_of(spec: KernelSpec, gpu_name: str, dtype: str, sizes: tuple[int, int, int]) -> tuple[Problem, BlockUse]:
    gpu, workload = load_gpu(gpu_name), gemm(*sizes, dtype)
    problem = spec.problem(gpu, workload)
    return problem, use_of(spec, gpu, workload, problem)


def space_for(request: SampleRequest) -> tuple[Problem, BlockUse]:
    """The space of a request, and what a block takes."""
    m, n, k = (request.workload.sizes[name] for name in "mnk")
    return space_of(request.spec, request.gpu.name, request.workload.dtype, (m, n, k))


class Recorded(NamedTuple):
    """A row of a table under today's rules.

    Args:
        request: What it stands for.
        excluded: The certain rules that it breaks.
        stated: Shared memory that is stated.
        needed: Shared memory that it is said to need at least.
        smem_bytes: Shared memory that it takes; None where it did not compile.
        spills: Whether any register goes to memory.
        exceeds: What of the GPU's it exceeds; empty if it can be launched.
        instruction: The matrix instruction.
        error: What the compiler says instead.
    """

    request: SampleRequest
    excluded: frozenset[str]
    stated: int
    needed: int
    smem_bytes: int | None
    spills: bool
    exceeds: str
    instruction: str
    error: str

    @property
    def runs_clean(self) -> bool:
        """Whether it compiled within the limits: it can be launched, and nothing spills."""
        return not self.error and not self.exceeds and not self.spills


@cache
def recorded(target: str, table: Path = TABLE, version: str = "3.9.0") -> list[Recorded]:
    """The rows of a target that are points of today's spaces."""
    with table.open() as file:
        assert file.readline().startswith(f"# compiled, not measured: triton {version}")
        return [judged for row in csv.DictReader(file) if row["target"] == target for judged in judge(row)]


def judge(row: dict[str, str]) -> Iterator[Recorded]:
    request = SAMPLE.request(row)
    # Tables without it were compiled in one order of tiles.
    config = {**request.config, "group_m": request.config["group_m"] or 1}
    problem, use = space_for(request)
    assert config.keys() == problem.variables.keys()
    if not all(config[name] in domain for name, domain in problem.variables.items()):
        return
    # Every rule says what it is worth.
    assert {rule.kind for rule in problem.constraints} <= {CERTAIN, REDUNDANT}
    excluded = frozenset(rule.name for rule in problem.constraints if rule.kind == CERTAIN and not rule.holds(config))
    has_compiled = not row["error"]
    yield Recorded(
        request=request._replace(config=config),
        excluded=excluded,
        stated=use.smem_stated.value(config),
        needed=use.smem_needed.value(config),
        smem_bytes=int(row["smem_bytes"]) if has_compiled else None,
        spills="ptxas" in row["error"] or int(row["spill_bytes"] or 0) > 0,
        exceeds=exceeded(request.gpu, use, config, row) if has_compiled else "",
        instruction=row["instruction"],
        error=row["error"],
    )


#: Share of the space whose shared memory is stated to the byte; the rest is stated too high.
EXACT = {"sm_80": 0.98, "sm_90": 0.97, "sm_100": 0.96, "gfx90a": 0.89, "gfx942": 0.9, "gfx950": 0.94}


def shares_since_39(request: SampleRequest) -> bool:
    """Whether Triton 3.9 lets the output share the pipeline's memory, 3.6 does not, and what is stated is 3.6's."""
    is_wide = OUTPUT_BYTES[request.workload.dtype] == 4
    return request.spec.name == "descriptor" and is_wide and not request.config["persistent"]


@pytest.mark.parametrize("target", TARGETS)
def test_no_recorded_config_that_a_certain_rule_excludes_runs_clean(target: str) -> None:
    excluded = [row for row in recorded(target) if row.excluded]
    # Without a matrix instruction nothing is computed: that is what Triton makes of sums beyond tensor memory.
    assert [row for row in excluded if row.runs_clean and row.instruction] == []
    # There are such of either kind: too much shared memory, and more sums than registers.
    for rules, least in (({"smem"}, 3), ({"registers", "register_file"}, 1)):
        assert sum(bool(rules & row.excluded) for row in excluded) >= least, rules


@pytest.mark.parametrize("target", TARGETS)
def test_recorded_configs_that_certain_rules_allow_can_be_launched(target: str) -> None:
    """Some of them spill: how many, `test_registers.py` compares to the chances that are stated."""
    allowed = [row for row in recorded(target) if not row.excluded]
    assert len(allowed) >= 500
    assert [row for row in allowed if row.error or row.exceeds] == []
    assert [row for row in allowed if not row.instruction] == []
    assert any(row.spills for row in allowed)


@pytest.mark.parametrize("target", TARGETS)
def test_recorded_configs_take_the_memory_that_is_stated(target: str) -> None:
    allowed = [row for row in recorded(target) if not row.excluded and row.smem_bytes is not None]
    assert [row for row in allowed if row.smem_bytes is not None and row.stated < row.smem_bytes] == []
    exact = sum(row.stated == row.smem_bytes or shares_since_39(row.request) for row in allowed)
    assert exact >= EXACT[target] * len(allowed)
    # What a wide output needs at least is stated as exactly.
    wide = [row for row in allowed if shares_since_39(row.request)]
    assert sum(row.needed == row.smem_bytes for row in wide) >= EXACT[target] * len(wide)
    assert bool(wide) is (target in ("sm_90", "sm_100"))


@pytest.mark.parametrize("target", TARGETS)
def test_certain_rules_hold_for_the_older_version_that_is_called_verified(target: str) -> None:
    """Triton 3.6: what is excluded does not run clean, what is allowed can be launched, no memory is understated."""
    rows = recorded(target, OLDER_TABLE, "3.6.0")
    most = load_gpu(TARGETS[target]).sm.max_smem_bytes_per_block
    assert [row for row in rows if row.excluded and row.runs_clean] == []
    allowed = [row for row in rows if not row.excluded]
    # On gfx942 a pass of 3.6 gives up at times; the launch then takes the next choice.
    failed = [row for row in allowed if row.error]
    assert all("PassManager::run failed" in row.error for row in failed)
    assert len(failed) <= (2 if target == "gfx942" else 0)
    taken = [(row, row.smem_bytes) for row in allowed if row.smem_bytes is not None]
    assert len(taken) >= 60
    assert [row for row, smem_bytes in taken if row.exceeds or not smem_bytes <= min(row.stated, most)] == []
    # 3.6 pads LDS on CDNA4 for fewer tiles.
    exact = sum(row.stated == smem_bytes for row, smem_bytes in taken)
    assert exact >= (0.2 if target == "gfx950" else 0.85) * len(taken)


@pytest.mark.parametrize("version", DESCRIPTOR_TABLES)
def test_certain_rules_hold_for_kernels_with_descriptors(version: str) -> None:
    table = TABLE.with_name(DESCRIPTOR_TABLES[version])
    rows = [row for target in ("sm_90", "sm_100", "sm_120") for row in recorded(target, table, version)]
    assert len(rows) >= {"3.9.0": 280, "3.6.0": 90}[version]
    assert [row for row in rows if row.excluded and row.runs_clean and row.instruction] == []
    assert [row for row in rows if not row.excluded and (row.error or row.exceeds)] == []


#: Tests that a target's fresh sample is spread over, so that processes share it out.
PARTS = 2
NUM_FAIR = 8
#: Of the part of a test, those that are compiled; `python -m benchmarks.attacks.lds` compiles hundreds.
FEW = 1
#: Files, below the package, that decide what is compiled and what is said of it.
SOURCES = ("kernels/gemm/**/*.py", "select/limits.py")


def fresh(target: str, number: int = NUM_FAIR) -> list[dict[str, object]]:
    """Configurations of the spaces without any limit, valid and excluded ones alike."""
    return [dict(row) for row in fresh_rows(SAMPLE, target, number, seed_of(SOURCES, REGISTER_MODELS))]


@pytest.mark.parametrize("target", TARGETS)
def test_most_fresh_configs_break_no_limit(target: str) -> None:
    check_most_fit(SAMPLE, fresh(target))


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("target", TARGETS)
def test_fresh_configs_are_excluded_if_they_cannot_run_and_spill_as_often_as_is_said(
    compiler: Compiler, target: str, part: int
) -> None:
    rows = list(compiled_rows(compiler, SAMPLE, fresh(target)[part::PARTS][:FEW]))
    assert len(rows) == FEW
    check_fair_rows(SAMPLE, rows)
    for row in rows:
        if not row["error"]:
            request = SAMPLE.request(row)
            assert space_for(request)[1].smem_stated.value(request.config) >= int(row["smem_bytes"]), row


def test_a_fair_sample_is_judged_by_what_the_compiler_says() -> None:
    """The checks of fresh samples fail when a certain rule is wrong, and when more or fewer spill than are expected."""
    rows = fresh("sm_90", 12 * NUM_FAIR)  # so many that some are excluded, whatever is drawn
    clean = [
        {**row, "error": "", "instruction": "wgmma", "agprs": 0, "spill_bytes": 0, "registers": 32} for row in rows
    ]
    allowed: list[dict[str, object]] = []
    excluded: list[dict[str, object]] = []
    for row in clean:
        problem, use = space_for(SAMPLE.request(row))
        config = SAMPLE.request(row).config
        row["smem_bytes"] = use.smem_needed.value(config)
        (allowed if all(rule.holds(config) for rule in problem.constraints) else excluded).append(row)
    assert allowed
    assert excluded
    (found,) = check_fresh(SAMPLE, allowed).values()
    assert (found.valid, found.valid_exceed, found.wrong) == (len(allowed), 0, [])
    large = {**allowed[0], "smem_bytes": 10**6}
    with pytest.raises(AssertionError, match="valid, but 1,000,000 bytes of shared memory"):
        check_fair_rows(SAMPLE, [large, *allowed[1:]])
    with pytest.raises(AssertionError, match="pruned by"):
        check_fair_rows(SAMPLE, [{**excluded[0], "smem_bytes": 1024}, *allowed])
    with pytest.raises(AssertionError, match="too many"):
        check_fair_rows(SAMPLE, [{**row, "spill_bytes": 4} for row in allowed])
    with pytest.raises(AssertionError, match="PassManager"):
        check_fair_rows(SAMPLE, [{**allowed[0], "error": "PassManager::run failed"}, *allowed[1:]])


def main_loop(assembly: str) -> list[str]:
    """Instructions of the shortest loop that loads from memory: from a label to a branch back to it."""
    lines = assembly.splitlines()
    labels = {found[1]: number for number, line in enumerate(lines) if (found := re.match(r"(\.LBB\w+):", line))}
    loops = []
    for number, line in enumerate(lines):
        branch = re.search(r"\bs_c?branch\w* (\.LBB\w+)", line)
        if branch and labels.get(branch[1], number) < number:
            loops.append(lines[labels[branch[1]] : number])
    return min((loop for loop in loops if re.search(r"\b(buffer|global)_load", "\n".join(loop))), key=len)


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("gpu_name", ["mi300x", "mi355x"])
@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
def test_cdna_main_loop_multiplies_with_mfma_and_loads_16_bytes_at_a_time(
    gpu_name: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, workload = load_gpu(gpu_name), gemm(4096, 4096, 4096, dtype)
    first = rank(load_kernel("gemm"), gpu, workload, top=1).candidates[0]
    assert first.kernel == "gemm.pointer"
    _, outputs = compile_and_keep(monkeypatch, POINTER, gpu, workload, first.config)
    body = "\n".join(main_loop(str(outputs["amdgcn"])))
    assert len(re.findall(r"\bv_mfma_f32_\w+", body)) >= 8
    loads = re.findall(r"\b(?:buffer|global)_load_\w+", body)
    assert loads
    assert all(load.endswith("dwordx4") for load in loads), Counter(loads)
    if gpu_name == "mi355x":
        # CDNA4 copies straight to LDS.
        assert len(re.findall(r"\bbuffer_load_dwordx4 .*\blds\b", body)) == len(loads)


@needs_triton
def test_on_gfx950_what_follows_a_padded_operand_starts_at_a_multiple_of_16(compiler: Compiler) -> None:
    """B of odd rows is not copied and not padded: A of as many bytes is the larger one, and comes first."""
    row: dict[str, Any] = {"kind": "fair", "target": "gfx950", "dtype": "fp8", "m": 2507, "n": 113, "k": 48}
    row |= {"tile_m": 64, "tile_n": 64, "tile_k": 32, "num_warps": 1, "num_stages": 2, "split_k": 1, "persistent": 0}
    row |= {"group_m": 1, "matrix_instr_nonkdim": 16, "waves_per_eu": 3, "kpack": 1, "xcd_chunk": 512, "descriptor": 0}
    (found,) = compiled_rows(compiler, SAMPLE, [row])
    request = SAMPLE.request(row)
    assert found["smem_bytes"] == space_for(request)[1].smem_stated.value(request.config) == 8224


#: Configurations for gfx942 that break one rule on the instruction, and whether Triton uses the instruction.
BROKEN = [
    ({"tile_n": 16, "matrix_instr_nonkdim": 32}, "instruction_n32", True),
    ({"tile_m": 16, "matrix_instr_nonkdim": 32}, "instruction_m32", True),
    ({"tile_k": 16, "kpack": 2}, "kpack16", True),
    ({"tile_k": 8}, "instruction_k16", False),
]


@needs_triton
@pytest.mark.parametrize(("values", "name", "computes"), BROKEN, ids=[name for _, name, _ in BROKEN])
def test_a_rule_on_the_instruction_is_certain_only_where_triton_does_without_it(
    compiler: Compiler, values: dict[str, int], name: str, computes: bool
) -> None:
    gpu, workload = load_gpu("mi300x"), gemm(4096, 4096, 4096)
    config = {"tile_m": 64, "tile_n": 64, "tile_k": 32, "num_warps": 1, "num_stages": 2, "split_k": 1, "persistent": 0}
    config |= {"group_m": 1, "matrix_instr_nonkdim": 16, "waves_per_eu": 0, "kpack": 1, "xcd_chunk": 0} | values
    (rule,) = (rule for rule in POINTER.problem(gpu, workload).constraints if rule.name == name)
    assert not rule.holds(config)
    assert rule.kind == (REDUNDANT if computes else CERTAIN)
    assert bool(compiler.compile(POINTER, gpu, workload, config).instruction) is computes
