"""The GEMM that gathers operands, run on the CPU thread by thread: its results, and that mistakes would be seen.

What the CPU cannot show is what memory and the matrix units of a GPU do beside the definition of their instructions.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton") or shutil.which("g++") is None:
    pytest.skip("needs torch, triton and g++", allow_module_level=True)

import torch
from torch import Tensor

from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.cuda.unaligned.launch import unaligned_launches
from constrint.kernels.gemm.launch import Call, Epilogue, Machine
from constrint.kernels.launch.cuda import CudaLaunch
from tests.support.unaligned_on_cpu import built, run

H200 = load_gpu("h200")
USUAL = {"tile_m": 64, "tile_n": 64, "tile_k": 64, "num_stages": 2, "raw_stages": 2, "consumers": 1, "by_columns": 1}
USUAL |= {"in_turns": 0, "cluster_m": 1, "cluster_n": 1, "turned": 0, "split_k": 1, "only_last": 0, "group_m": 2}


@dataclass(frozen=True)
class Case:
    """A product: M, N and K, how A and B lie, elements before them and between their rows, a configuration, blocks.

    Results are of 32 bits, unless it rounds them to 16, between what must not be written. One that spares is as it is
    compiled where registers are short.
    """

    shape: tuple[int, int, int]
    layout: str
    a: tuple[int, int] = (0, 0)
    b: tuple[int, int] = (0, 0)
    dtype: torch.dtype = torch.bfloat16
    rounds: bool = False
    blocks: int = 2
    spares: bool = False
    config: dict[str, int] = field(default_factory=dict)


#: Tiles with edges on all sides and several slices; every layout; operands of which one comes through the TMA unit.
CASES = {
    "by rows, both gathered": Case((130, 70, 331), "rr", (0, 1), config={"num_stages": 3, "raw_stages": 3}),
    "none along K": Case((130, 70, 131), "cr"),
    "columns, first elements anywhere": Case((130, 70, 131), "cc", (3, 1), (5, 2)),
    "both along K, columns of no whole blocks": Case((100, 150, 200), "rc", b=(1, 0), config={"tile_n": 152}),
    "A through the TMA unit, consumers beside each other": Case(
        (100, 128, 200), "rr", b=(0, 1), config={"tile_m": 128, "tile_n": 128, "consumers": 2, "by_columns": 2}
    ),
    "turned and in turns": Case(
        (150, 300, 200),
        "rr",
        blocks=3,
        config={"tile_m": 152, "tile_n": 128, "turned": 1, "in_turns": 1, "consumers": 2},
    ),
    "three consumers": Case((190, 128, 201), "rr", blocks=1, config={"tile_m": 192, "consumers": 3}),
    "K in parts": Case((64, 128, 901), "rr", blocks=8, config={"split_k": 4}),
    "K in two parts": Case((64, 100, 901), "rr", blocks=4, config={"split_k": 2}),
    "K in two parts, sparing": Case((64, 100, 901), "rr", blocks=4, config={"split_k": 2}, spares=True),
    "tf32": Case((100, 72, 77), "rc", dtype=torch.float32, config={"tile_k": 32, "tile_n": 72}),
    "int8, rows an odd number of bytes apart": Case(
        (100, 72, 301), "rc", (3, 0), dtype=torch.int8, config={"tile_k": 128}
    ),
    "fewer elements than a unit": Case((1, 1, 1), "rr", (1, 1), (1, 1), config={"tile_n": 8}),
    "results of 16 bits, rows of C start anywhere": Case((130, 150, 70), "rr", rounds=True, config={"tile_n": 152}),
    "results of 16 bits, turned": Case(
        (150, 300, 70), "rr", rounds=True, config={"tile_m": 152, "tile_n": 128, "turned": 1, "consumers": 2}
    ),
    "results of 16 bits, narrow": Case((70, 5, 70), "rc", rounds=True, config={"tile_n": 8}),
    "rows shorter than a line": Case((70, 20, 131), "cr"),
}


def operand(rows: int, columns: int, by_rows: bool, place: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """Small numbers, sums of which are exact, amid what must not be read."""
    if not by_rows:
        return operand(columns, rows, True, place, dtype).T
    start, gap = place
    pitch = columns + gap
    poison = 113.0 if dtype == torch.int8 else float("nan")
    memory = torch.full((start + rows * pitch + 8,), poison).to(dtype)
    inside = memory.as_strided((rows, columns), (pitch, 1), start)
    return inside.copy_(torch.randint(-9, 9, (rows, columns)).to(dtype))


def call_of(case: Case) -> Call:
    m, n, k = case.shape
    a = operand(m, k, case.layout[0] == "r", case.a, case.dtype)
    b = operand(k, n, case.layout[1] == "r", case.b, case.dtype)
    out = torch.full((1, m, n), -7, dtype=torch.int32) if case.dtype == torch.int8 else torch.full((1, m, n), torch.nan)
    if case.rounds:
        out = torch.full((1, m, n + 5), torch.nan).to(case.dtype)[:, :, 3 : 3 + n]
    return Call(a[None], b[None], out, Machine.of(H200), Epilogue(), "tf32")


def launched(
    case: Case, folder: Path, seed: int, changed: dict[str, tuple[str, str]] | None = None
) -> tuple[int, bool]:
    """How it ended (see `run`), and whether its results are exact."""
    torch.manual_seed(seed)
    call = call_of(case)
    (launch,) = unaligned_launches(call, USUAL | case.config)
    assert isinstance(launch, CudaLaunch)
    if case.spares:
        assert launch.source.sparing
        launch = replace(
            launch, source=replace(launch.source, macros={**launch.source.macros, **launch.source.sparing})
        )
    status = run(built(launch, folder, changed), launch, case.blocks, seed)
    exact = (call.a[0].double() @ call.b[0].double()).to(call.out.dtype)
    is_exact = torch.equal(call.out[0], exact)
    call.out.fill_(torch.nan if call.out.is_floating_point() else 0)
    whole = call.out if call.out._base is None else call.out._base
    return status, is_exact and (not case.rounds or bool(whole.isnan().all()))


@pytest.mark.parametrize("name", CASES)
def test_results_are_exact_and_nothing_else_is_read(name: str, tmp_path: Path) -> None:
    assert launched(CASES[name], tmp_path, 1) == (0, True)


#: A mistake by what it is: a file, a text of it, and what stands there instead.
MISTAKES: dict[str, tuple[str, str, str]] = {
    "copies are not waited for": ("kernel_on_cpu.cu", "wait_copied<kRawStages - 1>();", ""),
    "lanes do not wait for each other": ("kernel_on_cpu.cu", "__syncwarp();  // what other lanes", "//"),
    "a stage is written while it is read": (
        "kernel_on_cpu.cu",
        "wait(shared.empty + 8 * place.stage, place.parity ^ 1);\n    if (kLoads",
        "if (kLoads",
    ),
    "matrix instructions do not see what was stored": ("kernel_on_cpu.cu", "fence_for_boxes();  // wgmma sees", "//"),
    "copies go where others are": ("kernel_on_cpu.cu", "(full == 0 ? kRawStages : full) - 1;", "full;"),
    "rows follow after K": ("lines.cuh", "kIsKMajor ? (depth - k) * kElementBytes :", "kIsKMajor ? kLine :"),
    "starts are taken for multiples of 8 bytes": ("lines.cuh", "start & 4 ? b[i + 1] : b[i]", "b[i]"),
    "results go to aligned places": ("store.cuh", "moved(low, high, at % kVector * 2);", "low;"),
    "what follows the matrix is read": ("lines.cuh", "if (end <= m.first + m.bytes) {", "if (true) {"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_seen(mistake: str, tmp_path: Path) -> None:
    name, before, after = MISTAKES[mistake]
    case = CASES["results of 16 bits, turned" if name == "store.cuh" else "by rows, both gathered"]
    assert launched(case, tmp_path, 1, {name: (before, after)}) != (0, True)
