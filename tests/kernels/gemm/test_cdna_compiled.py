"""The CDNA GEMM as compiled: its resources, its inner loop instruction by instruction, and its results on the CPU.

No test here runs a device: the assembly runs in `tests/support/amdgcn_on_cpu.py`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from constrint.hwmodels import bank_conflicts, load_gpu
from constrint.kernels.registry import load_spec
from constrint.select import Workload

pytest.importorskip("triton", minversion="3.9", reason="Gluon's warp pipeline came with Triton 3.9")
torch = pytest.importorskip("torch", reason="the launch is stated over torch's tensors")

from constrint.tune.compile import BuiltKernel, build_triton  # noqa: E402
from tests.support.amdgcn_on_cpu import E4M3, E4M3_FNUZ, Block, to_bf16  # noqa: E402

SPEC = load_spec("gemm.cdna")
#: GPU, dtype, whether B's rows run along K, tile and waves.
BEST: list[Any] = [
    ("mi355x", "bf16", 1, (256, 256, 64), 8),
    pytest.param(("mi355x", "bf16", 1, (256, 256, 64), 4), marks=pytest.mark.slow),
    ("mi300x", "bf16", 1, (256, 256, 32), 8),
]
SMALL: list[Any] = [
    ("mi355x", "bf16", 1, (128, 128, 64), 8),
    ("mi300x", "bf16", 1, (128, 128, 32), 8),
    *(
        pytest.param(case, marks=pytest.mark.slow)
        for case in (
            ("mi355x", "bf16", 1, (128, 128, 64), 4),
            ("mi355x", "fp16", 0, (128, 128, 64), 8),
            ("mi355x", "fp8", 1, (128, 128, 128), 8),
            ("mi300x", "fp8", 1, (128, 128, 64), 8),
        )
    ),
]
Case = tuple[str, str, int, tuple[int, int, int], int]
TYPES = {"i32": np.int32, "i64": np.int64, "fp32": np.float32}


def _config(case: Case) -> dict[str, int]:
    (m, n, k), waves = case[3], case[4]
    order = {"num_stages": 2, "group_m": 5, "xcd_chunk": 25}
    return {"tile_m": m, "tile_n": n, "tile_k": k, "num_warps": waves, **order}


@lru_cache(maxsize=16)
def _built(case: Case, sizes: tuple[int, int, int]) -> tuple[BuiltKernel, Any]:
    gpu = load_gpu(case[0])
    workload = Workload("gemm", dict(zip("mnk", sizes, strict=True)), case[1], {"transpose_b": 1} if case[2] else {})
    inputs = SPEC.inputs(gpu, workload)
    launch = SPEC.launches(gpu, workload, _config(case), inputs, SPEC.outputs(gpu, workload, inputs))[0]
    return build_triton(gpu, launch.source()), launch


def _loop(assembly: str) -> list[str]:
    """Statements of the longest loop with matrix instructions."""
    lines = [line.split(";")[0].strip() for line in assembly.splitlines()]
    labels = {line[:-1]: i for i, line in enumerate(lines) if line.endswith(":")}
    loops = []
    for i, line in enumerate(lines):
        hit = re.match(r"s_c?branch\w* (\S+)", line)
        if hit and labels.get(hit[1], i) < i:
            body = [each for each in lines[labels[hit[1]] + 1 : i + 1] if each and not each.startswith(".")]
            if any("mfma" in each for each in body):
                loops.append(body)
    return max(loops, key=len)


@pytest.mark.parametrize("case", BEST, ids=lambda case: f"{case[0]}-{case[1]}-{case[4]}waves")
def test_inner_loop(case: Case) -> None:
    gpu, (m, n, k), waves = load_gpu(case[0]), case[3], case[4]
    built, _ = _built(case, (1024, 1024, 1024))
    assembly = built.asm["amdgcn"]
    assert built.taken.spill_bytes == 0
    assert "scratch_" not in assembly
    config = _config(case)
    workload = Workload("gemm", {"m": 1024, "n": 1024, "k": 1024}, case[1], {"transpose_b": 1})
    use = SPEC.use(gpu, workload, {})
    assert built.taken.smem_bytes == use.smem_bytes.value(config) == 4 * (m + n) * k
    assert built.taken.registers_per_thread == pytest.approx(use.registers_per_thread.value(config), rel=0.05)
    assert built.taken.registers_per_thread <= 512 // (waves // 4)
    body = [line.split()[0] for line in _loop(assembly)]
    reads = [name for name in body if name.startswith("ds_read")]
    loads = [name for name in body if name.startswith("buffer_load")]
    products = [name for name in body if name.startswith("v_mfma")]
    assert set(reads) == {"ds_read_b128"}
    assert set(loads) == {"buffer_load_dwordx4"}
    # Two steps: each wave multiplies its share of the tile.
    assert len(products) == 2 * m * n * k // (waves * 16 * 16 * (32 if case[0] == "mi355x" else 16))
    assert len(products) / len(body) > 0.4
    is_direct = all(" lds" in line for line in _loop(assembly) if line.startswith("buffer_load"))
    assert is_direct == (case[0] == "mi355x")
    # Between products stand no moves between registers of sums.
    assert not [name for name in body if name.startswith(("v_accvgpr", "v_mov"))]


@pytest.mark.parametrize("case", [BEST[0], BEST[2]], ids=lambda case: case[0])
def test_groups_take_turns(case: Case) -> None:
    lines = _loop(_built(case, (1024, 1024, 1024))[0].asm["amdgcn"])
    stages: list[set[str]] = [set()]
    for line in lines:
        name = line.split()[0]
        if name == "s_barrier":
            stages.append(set())
        kind = {"v": "multiply", "d": "memory", "b": "memory"}.get(name[0], "")
        if name.startswith(("v_mfma", "ds_", "buffer_")):
            stages[-1].add(kind)
    kinds = [stage for stage in stages if stage]
    # Eight stages a step, two steps: each either multiplies or moves data, in turns.
    assert all(len(stage) == 1 for stage in kinds)
    assert [stage.pop() for stage in kinds] == ["memory", "multiply"] * 8
    assert {"s_setprio 0", "s_setprio 1"} <= set(lines)


def _operands(case: Case, sizes: tuple[int, int, int]) -> tuple[Any, Any, Any, Any]:
    """Random operands as bytes in memory, and their values: A (M, K) and B (N, K)."""
    m, n, k = sizes
    rng = np.random.default_rng(7)
    if case[1] == "fp8":
        codes = [rng.integers(0, 0x60, shape) | rng.integers(0, 2, shape) << 7 for shape in ((m, k), (n, k))]
        table = E4M3 if case[0] == "mi355x" else E4M3_FNUZ
        raw = [each.astype(np.uint8) for each in codes]
        return *raw, *(table[each] for each in raw)
    values = [rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (n, k))]
    if case[1] == "fp16":
        halves = [each.astype(np.float16) for each in values]
        return *(each.view(np.uint16) for each in halves), *(each.astype(np.float64) for each in halves)
    words = [to_bf16(each) for each in values]
    exact = [(each << np.uint32(16)).view(np.float32).astype(np.float64) for each in words]
    return *(each.astype(np.uint16) for each in words), *exact


def _arguments(launch: Any, places: dict[str, int]) -> bytes:
    data = b""
    types = launch.source().types
    for name in launch.function.arg_names:
        if name not in types:
            continue
        value = places.get(name)
        kind = np.int64 if types[name].startswith("*") else TYPES[types[name]]
        number = np.array(launch.arguments[name] if value is None else value, dtype=kind)
        data += b"\0" * (-len(data) % number.itemsize) + number.tobytes()
    return data.ljust(512, b"\0")


def _run(case: Case, *, copies_early: bool, change: tuple[str, str] = ("", "")) -> tuple[Any, Any, list[Any]]:
    """Run every block of a ragged product with an odd number of steps.

    Returns:
        The errors of C relative to their bounds, C itself, and every access to LDS.
    """
    m, n, k = sizes = (200, 144, 5 * case[3][2])
    built, launch = _built(case, sizes)
    a, b, exact_a, exact_b = _operands(case, sizes)
    stored = b if case[2] else np.ascontiguousarray(b.T)
    base, offsets = 1 << 20, {"a_ptr": 0, "b_ptr": 1 << 20, "c_ptr": 2 << 20}
    memory = np.full(3 << 20, 0xFF, dtype=np.uint8)
    for name, data in (("a_ptr", a), ("b_ptr", stored)):
        flat = np.ascontiguousarray(data).view(np.uint8).ravel()
        memory[offsets[name] : offsets[name] + flat.size] = flat
    arguments = _arguments(launch, {name: base + offset for name, offset in offsets.items()})
    text = re.sub(*change, built.asm["amdgcn"]) if change[0] else built.asm["amdgcn"]
    accesses: list[Any] = []
    for index in range(launch.grid[0]):
        block = Block(
            text, memory, arguments, case[4], index, built.taken.smem_bytes, base=base, seed=index,
            copies_early=copies_early,
        )  # fmt: skip
        block.run()
        accesses += block.accesses
    assert np.all(memory[offsets["c_ptr"] + 2 * m * n :] == 0xFF), "a store beyond C"
    halves = memory[offsets["c_ptr"] :][: 2 * m * n].view(np.uint16)
    is_bf16 = str(launch.arguments["c_ptr"].dtype) == "torch.bfloat16"
    wide = (halves.astype(np.uint32) << np.uint32(16)).view(np.float32) if is_bf16 else halves.view(np.float16)
    found, expected = wide.astype(np.float64).reshape(m, n), exact_a @ exact_b.T
    # fp32 sums in any order, then one rounding of the result.
    bound = np.abs(exact_a) @ np.abs(exact_b).T * k * 2.0**-24 + np.abs(expected) * 2.0 ** (-8 if is_bf16 else -11)
    return np.abs(found - expected) / (bound + 1e-30), found, accesses


@pytest.mark.parametrize("copies_early", [False, True], ids=["late", "early"])
@pytest.mark.parametrize("case", SMALL, ids=lambda case: f"{case[0]}-{case[1]}-{case[4]}waves")
def test_assembly_computes_the_product(case: Case, copies_early: bool) -> None:
    """Ragged M and N, an odd number of steps; memory as late, and copies as early, as the waits allow."""
    errors, found, accesses = _run(case, copies_early=copies_early)
    assert not np.any(np.isnan(found))
    assert errors.max() <= 1
    assert _worst_conflict(case[0], accesses) == 1


@pytest.mark.parametrize(
    "change",
    [(r"vmcnt\(\d+\)", "vmcnt(63)"), (r"lgkmcnt\(\d+\)", "lgkmcnt(15)")],
    ids=["no wait for copies", "no wait for reads"],
)
def test_missing_waits_are_seen(change: tuple[str, str]) -> None:
    case = SMALL[0]
    assert re.search(change[0], _built(case, (200, 144, 320))[0].asm["amdgcn"])
    assert _is_wrong(case, change)


def _is_wrong(case: Case, change: tuple[str, str]) -> bool:
    """Whether a changed kernel touches data that has not arrived, or computes something else."""
    try:
        errors, _, _ = _run(case, copies_early=False, change=change)
    except AssertionError as error:
        return "not waited for" in str(error)
    return not errors.max() <= 1


def _worst_conflict(gpu_name: str, accesses: list[Any]) -> int:
    """The worst conflict of any access to LDS that the kernel made, over all lanes; copies write whole rows."""
    gpu, worst = load_gpu(gpu_name), 0
    kinds = {(access.kind, access.width_bits) for access in accesses}
    for kind, width in kinds:
        addresses = np.array([x.addresses for x in accesses if (x.kind, x.width_bits) == (kind, width)])
        distinct = np.unique(addresses, axis=0)
        worst = max(worst, int(bank_conflicts(gpu, distinct, width, kind).degree.max()))
    return worst
