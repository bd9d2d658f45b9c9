"""The GEMM's space against the compiler: what is called valid must run without spilling, what is pruned must not.

A recorded table for breadth (`benchmarks/registers.py sample`), and a fresh sample compiled on the spot, another
one whenever the kernels or their rules change.
"""

from __future__ import annotations

import csv
import hashlib
import importlib.util
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from constrint.hwmodels import GpuModel, load_gpu, occupancy
from constrint.kernels.gemm.registers import REGISTER_MODELS
from constrint.kernels.gemm.sample import LIMITS, SAMPLE, TARGETS
from constrint.kernels.gemm.spec import SPEC
from constrint.kernels.gemm.units import OUTPUT_BYTES
from constrint.kernels.resources.sample import compile_row, draw
from constrint.model import Problem
from constrint.select import BlockUse, Workload, rank

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "tests" / "data" / "triton_gemm_space.csv"
OLDER_TABLE = TABLE.with_name("triton_gemm_space_3_6.csv")


#: A spill of so few bytes a thread, with registers to spare, is the compiler's choice (for occupancy).
VOLUNTARY_BYTES = 64


@cache
def space_of(target: str, dtype: str, sizes: tuple[int, int, int]) -> tuple[GpuModel, Workload, Problem, BlockUse]:
    gpu, workload = load_gpu(TARGETS[target]), Workload("gemm", dict(zip("mnk", sizes, strict=True)), dtype)
    problem = SPEC.problem(gpu, workload)
    return gpu, workload, problem, SPEC.use(gpu, workload, problem)


def register_limit(gpu: GpuModel, config: Mapping[str, int]) -> int:
    """Registers that the warps of a block leave to a thread."""
    warps = config["num_warps"]
    if gpu.vendor == "nvidia":
        return min(255, 65536 // (32 * warps))
    return 512 // -(-warps // 4) // 8 * 8


def verdict(gpu: GpuModel, config: Mapping[str, int], compiled: Mapping[str, Any]) -> str:
    """What is wrong with a compiled kernel; empty if it runs from registers on this GPU."""
    if compiled["error"]:
        return f"refused: {compiled['error']}"
    smem, registers, spilled = (int(compiled[name]) for name in ("smem_bytes", "registers", "spill_bytes"))
    if smem > gpu.sm.max_smem_bytes_per_block:
        return f"{smem} bytes of shared memory"
    threads = config["num_warps"] * gpu.sm.warp_size
    fits = occupancy(gpu, threads_per_block=threads, registers_per_thread=registers, smem_bytes_per_block=smem)
    if int(fits.blocks_per_sm) == 0:
        return f"does not launch: {registers} registers, {threads} threads"
    # With waves promised the compiler stretches registers to that budget: their count says nothing then.
    is_short = registers >= register_limit(gpu, config) - 3 and config.get("waves_per_eu", 0) <= 1
    if spilled > VOLUNTARY_BYTES or (spilled > 0 and is_short):
        return f"spills {spilled} bytes at {registers} registers"
    return "" if compiled["instruction"] else "no matrix instruction"


def stated_smem(use: BlockUse, config: Mapping[str, int]) -> int:
    return (use.smem_bytes if use.smem_bytes_exact is None else use.smem_bytes_exact).value(config)


def broken(problem: Problem, config: Mapping[str, int]) -> set[str]:
    return {str(c.name) for c in problem.constraints if not c.holds(config)}


def recorded(
    target: str, table: Path = TABLE, version: str = "3.9.0"
) -> Iterator[tuple[set[str], GpuModel, BlockUse, dict[str, int], dict[str, str]]]:
    """Rows of the table under today's rules: what they break, and what was compiled."""
    with table.open() as file:
        assert file.readline().startswith(f"# compiled, not measured: triton {version}")
        for row in csv.DictReader(file):
            if row["target"] != target:
                continue
            gpu, _, problem, use = space_of(target, row["dtype"], (int(row["m"]), int(row["n"]), int(row["k"])))
            config = {name: int(row.get(name) or 0) for name in problem.variables}
            rules = broken(problem, config)
            if all(config[name] in domain for name, domain in problem.variables.items()):
                yield rules, gpu, use, config, row


#: Share of the space whose shared memory is stated to the byte; the rest is stated too high.
EXACT = {"sm_80": 0.98, "sm_90": 0.97, "sm_100": 0.96, "gfx90a": 0.89, "gfx942": 0.9, "gfx950": 0.9}
#: Of what the bound on registers excludes, so much really spills.
SPILLING_SHARE = {"sm_80": 0.5, "sm_90": 0.35, "sm_100": 0.35, "gfx90a": 0.25, "gfx942": 0.3, "gfx950": 0.3}


def shares_since_39(row: Mapping[str, Any], config: Mapping[str, int]) -> bool:
    """Whether Triton 3.9 lets the output share the pipeline's memory, 3.6 does not, and the rule is 3.6's."""
    return bool(config.get("descriptor")) and OUTPUT_BYTES[row["dtype"]] == 4 and not config["persistent"]


@pytest.mark.parametrize("target", TARGETS)
def test_recorded_configs_called_valid_run_and_take_the_memory_that_is_stated(target: str) -> None:
    wrong, exact, total = [], 0, 0
    for rules, gpu, use, config, row in recorded(target):
        if rules:
            continue
        total += 1
        problem = verdict(gpu, config, row)
        if problem:
            wrong.append((problem, row))
        smem = stated_smem(use, config)
        assert smem >= int(row["smem_bytes"]), (smem, row)
        exact += smem == int(row["smem_bytes"]) or shares_since_39(row, config)
    assert not wrong, wrong[:3]
    assert total >= 120
    assert exact >= EXACT[target] * total


@pytest.mark.parametrize("target", TARGETS)
def test_recorded_configs_that_only_a_limit_excludes_do_exceed_it(target: str) -> None:
    """Shared memory: every one. Registers: the bound keeps nothing that spills; some of what it excludes would not."""
    by_memory, by_registers = [], []
    for rules, gpu, _, config, row in recorded(target):
        if rules == {"smem"} and not shares_since_39(row, config):
            by_memory.append(verdict(gpu, config, row))
        elif rules and rules <= {*LIMITS} - {"smem"} and config.get("waves_per_eu", 0) <= 1:
            by_registers.append(verdict(gpu, config, row))
    assert len(by_memory) >= 3
    assert all(by_memory), by_memory
    assert len(by_registers) >= 25
    assert sum(map(bool, by_registers)) >= SPILLING_SHARE[target] * len(by_registers)


@pytest.mark.parametrize("target", TARGETS)
def test_rules_hold_for_the_older_version_that_is_called_verified(target: str) -> None:
    """Triton 3.6: the memory that is stated, everywhere; on Hopper, where it was run, nothing that spills either."""
    total, exact, wrong = 0, 0, []
    for rules, gpu, use, config, row in recorded(target, OLDER_TABLE, "3.6.0"):
        if rules or row["error"]:
            continue
        total += 1
        smem = stated_smem(use, config)
        assert int(row["smem_bytes"]) <= smem <= gpu.sm.max_smem_bytes_per_block, (smem, row)
        exact += smem == int(row["smem_bytes"])
        wrong += [(found, row)] if (found := verdict(gpu, config, row)) else []
    assert total >= 25
    # 3.6 pads LDS on CDNA4 for fewer tiles.
    assert exact >= (0.2 if target == "gfx950" else 0.85) * total
    assert len(wrong) <= (0 if target == "sm_90" else 1), wrong


#: The kernels, and the rules on their resources.
RESOURCE_FILES = (
    *("kernel_triton", "kernel_descriptor", "kernel_epilogue", "build"),
    *("shared_memory", "descriptor", "registers"),
)


def seed() -> int:
    """Changes with the kernels and with the rules on what they take."""
    text = hashlib.sha256()
    for name in RESOURCE_FILES:
        text.update((ROOT / "constrint" / "kernels" / "gemm" / f"{name}.py").read_bytes())
    text.update(str(REGISTER_MODELS).encode())
    return int.from_bytes(text.digest()[:4])


@pytest.fixture(scope="module", autouse=True)
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        yield


def needs_triton() -> None:
    if importlib.util.find_spec("triton") is None:
        pytest.skip("needs the extra [torch]: triton is not installed")


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_fresh_configs_called_valid_run_and_those_beyond_a_limit_do_not(target: str) -> None:
    needs_triton()
    gpu = load_gpu(TARGETS[target])
    wrong, kept, checked = [], [], Counter[str]()
    for row in draw(SAMPLE, target, {"valid": 40, "smem": 4}, seed()):
        compiled, (_, _, workload, config) = compile_row(SAMPLE, row), SAMPLE.request(row)
        found = verdict(gpu, config, compiled)
        checked["valid" if row["kind"] == "valid" else "beyond"] += 1
        if row["kind"] == "valid":
            use = space_of(target, workload.dtype, (row["m"], row["n"], row["k"]))[3]
            assert stated_smem(use, config) >= compiled["smem_bytes"], row
            if found:
                wrong.append(f"{found}: {workload} {config}")
        elif not found and not shares_since_39(row, config):
            kept.append((str(workload), config, compiled))
    assert not wrong, "\n".join(wrong)
    assert not kept, kept
    assert checked == {"valid": 40, "beyond": 4}


def assembly_of(monkeypatch: pytest.MonkeyPatch, gpu_name: str, dtype: str) -> str:
    """AMDGCN of the first choice for 4096 x 4096 x 4096."""
    import triton
    from constrint.kernels.gemm.build import compile_config

    kept: list[Any] = []
    compile_ = triton.compile
    monkeypatch.setattr(triton, "compile", lambda *args, **options: kept.append(compile_(*args, **options)) or kept[-1])
    gpu, workload = load_gpu(gpu_name), Workload("gemm", {"m": 4096, "n": 4096, "k": 4096}, dtype)
    compile_config(gpu, workload, rank(SPEC, gpu, workload, top=1).candidates[0].config)
    return str(kept[-1].asm["amdgcn"])


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


@pytest.mark.slow
@pytest.mark.parametrize("gpu_name", ["mi300x", "mi355x"])
@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
def test_cdna_main_loop_multiplies_with_mfma_and_loads_16_bytes_at_a_time(
    gpu_name: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_triton()
    body = "\n".join(main_loop(assembly_of(monkeypatch, gpu_name, dtype)))
    assert len(re.findall(r"\bv_mfma_f32_\w+", body)) >= 8
    loads = re.findall(r"\b(?:buffer|global)_load_\w+", body)
    assert loads
    assert all(load.endswith("dwordx4") for load in loads), Counter(loads)
    if gpu_name == "mi355x":
        # CDNA4 copies straight to LDS.
        assert len(re.findall(r"\bbuffer_load_dwordx4 .*\blds\b", body)) == len(loads)
