"""The GEMM's spaces against the compiler: what is called valid must run without spilling, what is pruned must not.

Recorded tables for breadth, and a fresh sample compiled on the spot, another one whenever the kernels or their rules
change.
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel, load_gpu, occupancy
from constrint.kernels.gemm.registers import REGISTER_MODELS
from constrint.kernels.gemm.sample import LIMITS, SAMPLE, TARGETS
from constrint.kernels.gemm.units import OUTPUT_BYTES
from constrint.kernels.registry import load_kernel
from constrint.kernels.resources.sample import Request, draw
from constrint.model import Problem
from constrint.select import BlockUse, KernelSpec, rank
from constrint.tune import CompiledKernel
from tests.support.compiled import Compiler
from tests.support.gemm import POINTER, broken_rules, gemm, smem_of, use_of
from tests.support.kept_assembly import compile_and_keep
from tests.support.needs import needs_triton

ROOT = Path(__file__).resolve().parents[3]
TABLE = ROOT / "tests" / "data" / "triton_gemm_space.csv"
OLDER_TABLE = TABLE.with_name("triton_gemm_space_3_6.csv")
#: A spill of so few bytes a thread, with registers to spare, is the compiler's choice (for occupancy).
VOLUNTARY_BYTES = 64


@cache
def space_of(spec: KernelSpec, gpu_name: str, dtype: str, sizes: tuple[int, int, int]) -> tuple[Problem, BlockUse]:
    gpu, workload = load_gpu(gpu_name), gemm(*sizes, dtype)
    problem = spec.problem(gpu, workload)
    return problem, use_of(spec, gpu, workload, problem)


def space_for(request: Request) -> tuple[Problem, BlockUse]:
    """The space of a request, and what a block takes."""
    m, n, k = (request.workload.sizes[name] for name in "mnk")
    return space_of(request.spec, request.gpu.name, request.workload.dtype, (m, n, k))


def register_limit(gpu: GpuModel, config: Mapping[str, int]) -> int:
    """Registers that the warps of a block leave to a thread."""
    warps = config["num_warps"]
    if gpu.vendor == "nvidia":
        return min(255, 65536 // (32 * warps))
    return 512 // -(-warps // 4) // 8 * 8


class Taken(NamedTuple):
    """What a kernel takes as compiled; with an error, what the compiler says instead."""

    smem_bytes: int
    registers: int
    spill_bytes: int
    instruction: str
    error: str = ""

    @staticmethod
    def of_row(row: Mapping[str, str]) -> Taken:
        smem_bytes, registers, spill_bytes = (int(row[n] or 0) for n in ("smem_bytes", "registers", "spill_bytes"))
        return Taken(smem_bytes, registers, spill_bytes, row["instruction"], row["error"])

    @staticmethod
    def of_kernel(compiled: CompiledKernel) -> Taken:
        c = compiled
        return Taken(c.smem_bytes, c.registers_per_thread, c.spill_bytes, c.instruction)


def verdict(gpu: GpuModel, warps: int, config: Mapping[str, int], taken: Taken) -> str:
    """What is wrong with a compiled kernel of so many warps; empty if it runs from registers on this GPU."""
    if taken.error:
        return f"refused: {taken.error}"
    if taken.smem_bytes > gpu.sm.max_smem_bytes_per_block:
        return f"{taken.smem_bytes} bytes of shared memory"
    threads = warps * gpu.sm.warp_size
    fits = occupancy(
        gpu,
        threads_per_block=threads,
        registers_per_thread=taken.registers,
        smem_bytes_per_block=taken.smem_bytes,
    )
    if int(fits.blocks_per_sm) == 0:
        return f"does not launch: {taken.registers} registers, {threads} threads"
    # With waves promised the compiler stretches registers to that budget: their count says nothing then.
    is_short = taken.registers >= register_limit(gpu, config) - 3 and config.get("waves_per_eu", 0) <= 1
    if taken.spill_bytes > VOLUNTARY_BYTES or (taken.spill_bytes > 0 and is_short):
        return f"spills {taken.spill_bytes} bytes at {taken.registers} registers"
    return "" if taken.instruction else "no matrix instruction"


class Recorded(NamedTuple):
    """A row of a table under today's rules."""

    request: Request
    broken: set[str]
    smem_bytes: int
    taken: Taken
    verdict: str


@cache
def recorded(target: str, table: Path = TABLE, version: str = "3.9.0") -> list[Recorded]:
    """The rows of a target that are points of today's spaces."""
    with table.open() as file:
        assert file.readline().startswith(f"# compiled, not measured: triton {version}")
        return [judged for row in csv.DictReader(file) if row["target"] == target for judged in judge(row)]


def judge(row: dict[str, str]) -> Iterator[Recorded]:
    request, taken = SAMPLE.request(row), Taken.of_row(row)
    problem, use = space_for(request)
    config = request.config
    assert config.keys() == problem.variables.keys()
    if all(config[name] in domain for name, domain in problem.variables.items()):
        found = verdict(request.gpu, use.warps.value(config), config, taken)
        yield Recorded(request, broken_rules(problem, config), smem_of(use, config), taken, found)


#: Share of the space whose shared memory is stated to the byte; the rest is stated too high.
EXACT = {"sm_80": 0.98, "sm_90": 0.97, "sm_100": 0.96, "gfx90a": 0.89, "gfx942": 0.9, "gfx950": 0.9}
#: Of what the bound on registers excludes, so much really spills.
SPILLING_SHARE = {"sm_80": 0.5, "sm_90": 0.35, "sm_100": 0.35, "gfx90a": 0.25, "gfx942": 0.3, "gfx950": 0.3}


def shares_since_39(request: Request) -> bool:
    """Whether Triton 3.9 lets the output share the pipeline's memory, 3.6 does not, and the rule is 3.6's."""
    is_wide = OUTPUT_BYTES[request.workload.dtype] == 4
    return request.spec.name == "descriptor" and is_wide and not request.config["persistent"]


@pytest.mark.parametrize("target", TARGETS)
def test_recorded_configs_called_valid_run_and_take_the_memory_that_is_stated(target: str) -> None:
    valid = [row for row in recorded(target) if not row.broken]
    assert [row for row in valid if row.verdict] == []
    assert [row for row in valid if row.smem_bytes < row.taken.smem_bytes] == []
    exact = sum(row.smem_bytes == row.taken.smem_bytes or shares_since_39(row.request) for row in valid)
    assert len(valid) >= 120
    assert exact >= EXACT[target] * len(valid)


@pytest.mark.parametrize("target", TARGETS)
def test_recorded_configs_that_only_a_limit_excludes_do_exceed_it(target: str) -> None:
    """Shared memory: every one. Registers: the bound keeps nothing that spills; some of what it excludes would not."""
    by_memory, by_registers = [], []
    for row in recorded(target):
        if row.broken == {"smem"} and not shares_since_39(row.request):
            by_memory.append(row.verdict)
        elif row.broken and row.broken <= {*LIMITS} - {"smem"} and row.request.config.get("waves_per_eu", 0) <= 1:
            by_registers.append(row.verdict)
    assert len(by_memory) >= 3
    assert all(by_memory), by_memory
    assert len(by_registers) >= 25
    assert sum(map(bool, by_registers)) >= SPILLING_SHARE[target] * len(by_registers)


@pytest.mark.parametrize("target", TARGETS)
def test_rules_hold_for_the_older_version_that_is_called_verified(target: str) -> None:
    """Triton 3.6: the memory that is stated, everywhere; on Hopper, where it was run, nothing that spills either."""
    valid = [row for row in recorded(target, OLDER_TABLE, "3.6.0") if not row.broken and not row.taken.error]
    most = load_gpu(TARGETS[target]).sm.max_smem_bytes_per_block
    assert [row for row in valid if not row.taken.smem_bytes <= row.smem_bytes <= most] == []
    assert len(valid) >= 25
    # 3.6 pads LDS on CDNA4 for fewer tiles.
    exact = sum(row.smem_bytes == row.taken.smem_bytes for row in valid)
    assert exact >= (0.2 if target == "gfx950" else 0.85) * len(valid)
    wrong = [row for row in valid if row.verdict]
    assert len(wrong) <= (0 if target == "sm_90" else 1), wrong


#: Tests that a target's fresh sample is spread over, so that processes share it out.
PARTS = 4
NUM_VALID, NUM_BEYOND = 40, 4
#: Configurations of one test, a quarter of a target's, that may spill.
MOST_SPILLING = 1


def seed() -> int:
    """Changes with the kernels and with the rules on what they take."""
    text = hashlib.sha256(str(REGISTER_MODELS).encode())
    for pattern in ("**/kernel.py", "**/launch.py", "**/shared_memory.py", "staging.py", "registers.py"):
        for file in sorted((ROOT / "constrint" / "kernels" / "gemm").glob(pattern)):
            text.update(file.read_bytes())
    return int.from_bytes(text.digest()[:4], "big")


def compiled(compiler: Compiler, request: Request) -> Taken:
    try:
        return Taken.of_kernel(compiler.compile(request.spec, request.gpu, request.workload, request.config))
    except UnsupportedError as error:
        return Taken(0, 0, 0, "", str(error)[-120:])


def fresh(target: str) -> tuple[list[Request], list[Request]]:
    """Configurations called valid, and ones that shared memory alone excludes."""
    rows = list(draw(SAMPLE, target, {"valid": NUM_VALID, "smem": NUM_BEYOND}, seed()))
    valid, beyond = ([SAMPLE.request(row) for row in rows if row["kind"] == kind] for kind in ("valid", "smem"))
    assert (len(valid), len(beyond)) == (NUM_VALID, NUM_BEYOND)
    return valid, beyond


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("target", TARGETS)
def test_fresh_configs_called_valid_run_and_take_no_more_memory_than_is_stated(
    compiler: Compiler, target: str, part: int
) -> None:
    """Memory is a bound; registers are an estimate, so a configuration in a hundred or so spills after all."""
    wrong: list[str] = []
    spilling: list[str] = []
    for request in fresh(target)[0][part::PARTS]:
        taken, (_, use) = compiled(compiler, request), space_for(request)
        what = f"{request.spec.full_name} {request.workload} {request.config}: {taken}"
        assert smem_of(use, request.config) >= taken.smem_bytes, what
        found = verdict(request.gpu, use.warps.value(request.config), request.config, taken)
        if found:
            (spilling if found.startswith("spills") else wrong).append(f"{found}: {what}")
    assert not wrong, "\n".join(wrong)
    assert len(spilling) <= MOST_SPILLING, "\n".join(spilling)


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_fresh_configs_that_shared_memory_alone_excludes_do_not_run(compiler: Compiler, target: str) -> None:
    kept = []
    for request in fresh(target)[1]:
        taken = compiled(compiler, request)
        found = verdict(request.gpu, request.config["num_warps"], request.config, taken)
        if not found and not shares_since_39(request):
            kept.append((request, taken))
    assert not kept, kept


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
