"""The GEMM in CUDA C++ without clusters, run on the CPU thread by thread: exact results, and mistakes that are seen.

The CPU cannot show what the memory and the matrix units of a GPU do beyond the definition of their instructions.
"""

from __future__ import annotations

import shutil
from ctypes import CDLL
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton") or shutil.which("g++") is None:
    pytest.skip("needs torch, triton and g++", allow_module_level=True)

import torch
from torch import Tensor

from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.cuda.launch import cuda_launches
from constrint.kernels.gemm.launch import Epilogue, GemmCall, Machine
from constrint.kernels.gemm.reference import ACTIVATIONS, gemm_reference
from constrint.kernels.launch.cuda import CudaLaunch
from tests.support.cuda_gemm_on_cpu import built, run
from tests.support.wgmma_on_cpu import Mistake

H200 = load_gpu("h200")
USUAL = {"tile_m": 64, "tile_n": 64, "tile_k": 64, "num_stages": 2, "consumers": 1, "by_columns": 1, "in_turns": 0}
USUAL |= {"cluster_m": 1, "cluster_n": 1, "turned": 0, "split_k": 1, "only_last": 0, "group_m": 2}


@dataclass(frozen=True)
class Case:
    """One product.

    Args:
        shape: M, N and K.
        layout: How A and B lie: "r" by rows, "c" by columns.
        gap: Units of 16 bytes between the rows of A and of B.
        dtype: Of A and B.
        rounds: Whether C has 16 bits an element and lies amid memory that must not be written.
        shift: Elements before the first of C, where it rounds; 8 let results leave through the TMA unit.
        blocks: Blocks of the grid.
        spares: Whether to run the variant that is compiled where registers are short.
        batch: Products.
        shared: Operands that all products share, "a" or "b".
        config: What differs from `USUAL`.
        end: What is added ("bias", "source"), and the activation's name; results in boxes alone.
    """

    shape: tuple[int, int, int]
    layout: str
    gap: tuple[int, int] = (0, 0)
    dtype: torch.dtype = torch.bfloat16
    rounds: bool = False
    shift: int = 3
    blocks: int = 2
    spares: bool = False
    batch: int = 1
    shared: str = ""
    config: dict[str, int] = field(default_factory=dict)
    end: tuple[str, ...] = ()


#: Tiles with edges on all sides and several slices, every layout, every way of sharing work.
CASES = {
    "by rows": Case((130, 70, 331), "rr", (0, 1), config={"num_stages": 3}),
    "none along K": Case((130, 70, 131), "cr"),
    "by columns, gaps between rows": Case((130, 70, 131), "cc", (3, 1)),
    "both along K, columns of no whole blocks": Case((100, 150, 200), "rc", (1, 0), config={"tile_n": 152}),
    "consumers beside each other": Case(
        (100, 128, 200), "rr", config={"tile_m": 128, "tile_n": 128, "consumers": 2, "by_columns": 2}
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
    "int8": Case((100, 72, 301), "rc", (3, 0), dtype=torch.int8, config={"tile_k": 128, "tile_n": 64}),
    "one element": Case((1, 1, 1), "rc", config={"tile_n": 8}),
    "results of 16 bits, rows of C start anywhere": Case((130, 150, 70), "rr", rounds=True, config={"tile_n": 152}),
    "results of 16 bits, turned": Case(
        (150, 300, 70), "rr", rounds=True, config={"tile_m": 152, "tile_n": 128, "turned": 1, "consumers": 2}
    ),
    "results of 16 bits, narrow": Case((70, 5, 70), "rc", rounds=True, config={"tile_n": 8}),
    "results in boxes": Case((130, 152, 70), "rr", rounds=True, shift=8, config={"tile_n": 152}),
    "results in boxes, turned": Case(
        (150, 304, 70), "rr", rounds=True, shift=8, config={"tile_m": 152, "tile_n": 128, "turned": 1, "consumers": 2}
    ),
    "a batch, results in boxes": Case((70, 72, 70), "rr", rounds=True, shift=8, batch=3, config={"tile_n": 72}),
    "a batch, turned, with B for all": Case(
        (20, 150, 70), "cr", batch=5, shared="b", config={"tile_m": 24, "turned": 1}
    ),
    "a batch, with A for all and a matrix to add": Case(
        (70, 5, 70), "rc", rounds=True, batch=3, shared="a", end=("source",)
    ),
    "a batch, K in parts": Case((64, 100, 901), "rr", blocks=8, batch=2, config={"split_k": 4}),
    "a batch, results of 16 bits in turns": Case(
        (70, 72, 130), "cc", rounds=True, batch=4, blocks=3, config={"consumers": 2, "in_turns": 1, "tile_n": 72}
    ),
    "boxes, bias and gelu": Case(
        (130, 152, 70), "rr", rounds=True, shift=8, config={"tile_n": 152}, end=("bias", "gelu")
    ),
    "boxes, bias and silu, turned": Case(
        (150, 304, 70),
        "rr",
        rounds=True,
        shift=8,
        config={"tile_m": 152, "tile_n": 128, "turned": 1, "consumers": 2},
        end=("bias", "silu"),
    ),
    "boxes, everything, in turns": Case(
        (130, 136, 70),
        "rr",
        rounds=True,
        shift=8,
        config={"tile_m": 64, "tile_n": 128, "in_turns": 1, "consumers": 2},
        end=("bias", "source", "quick_gelu"),
    ),
    "boxes, source, K in parts": Case(
        (64, 136, 901), "rr", rounds=True, shift=8, blocks=8, config={"split_k": 4, "tile_n": 72}, end=("source",)
    ),
}


def operand(rows: int, columns: int, by_rows: bool, gap: int, dtype: torch.dtype) -> Tensor:
    """Small numbers, sums of which are exact, amid what must not be read."""
    if not by_rows:
        return operand(columns, rows, True, gap, dtype).T
    unit = 16 // dtype.itemsize
    pitch = (-(-columns // unit) + gap) * unit
    poison = 113.0 if dtype == torch.int8 else float("nan")
    memory = torch.full((unit + rows * pitch + unit,), poison).to(dtype)
    inside = memory.as_strided((rows, columns), (pitch, 1), unit)
    return inside.copy_(torch.randint(-9, 9, (rows, columns)).to(dtype))


def call_of(case: Case) -> GemmCall:
    m, n, k = case.shape
    a = operands("a" not in case.shared, case, (m, k), case.layout[0] == "r", case.gap[0])
    b = operands("b" not in case.shared, case, (k, n), case.layout[1] == "r", case.gap[1])
    size = case.batch, m, n
    out = torch.full(size, -7, dtype=torch.int32) if case.dtype == torch.int8 else torch.full(size, torch.nan)
    if case.rounds:
        # Between two products there are rows that belong to neither.
        whole = torch.full((case.batch, m + 1, n + case.shift + 8 - case.shift % 8), torch.nan).to(case.dtype)
        out = whole[:, :m, case.shift : case.shift + n]
    end = Epilogue()
    if case.end:
        bias = torch.randint(-9, 9, (n,)).to(case.dtype) if "bias" in case.end else None
        source = None
        if "source" in case.end:
            source = torch.full((case.batch, m, n + 8), torch.nan).to(case.dtype)[:, :, 8:]
            source.copy_(torch.randint(-9, 9, size))
        activation = case.end[-1] if case.end[-1] in ACTIVATIONS else None
        # Sums of many small numbers, so that activations are not all flat.
        end = Epilogue(bias, source, 2.0**-5, 0.25, activation)
    return GemmCall(a, b, out, Machine.of(H200), end, "tf32")


def operands(is_own: bool, case: Case, shape: tuple[int, int], by_rows: bool, gap: int) -> Tensor:
    """An operand (batch, *shape) for each product, or one that is expanded; what lies between two must not be read."""
    if case.batch == 1 or not is_own:
        return operand(*shape, by_rows, gap, case.dtype).expand(case.batch, *shape)
    every = [operand(*shape, by_rows, gap, case.dtype) for _ in range(case.batch)]
    memory = torch.cat(
        [each.as_strided((each.untyped_storage().nbytes() // each.itemsize,), (1,), 0) for each in every]
    )
    strides = len(memory) // case.batch, *every[0].stride()
    return memory.as_strided((case.batch, *shape), strides, every[0].storage_offset())


def launch_of(case: Case, call: GemmCall) -> CudaLaunch:
    (launch,) = cuda_launches(call, USUAL | case.config)
    assert isinstance(launch, CudaLaunch)
    assert bool(launch.source.macros["STORES_BOXES"]) == (case.rounds and case.shift % 8 == 0)
    if case.spares:
        assert launch.source.sparing
        macros = {**launch.source.macros, **launch.source.sparing}
        launch = replace(launch, source=replace(launch.source, macros=macros))
    return launch


def outcome(library: CDLL, case: Case, mistake: int = 0, seed: int = 1) -> tuple[int, bool]:
    """How a run ended (see `run`), and whether all results are exact and nothing beside them was written."""
    torch.manual_seed(seed)
    call = call_of(case)
    status = run(library, launch_of(case, call), case.blocks, seed, mistake)
    end = call.epilogue
    exact = gemm_reference(call.a.double(), call.b.double(), end.bias, end.source, end.alpha, end.beta, end.activation)
    if end.activation is None:
        is_exact = torch.equal(call.out, exact.to(call.out.dtype))
    else:
        # Half a unit of bf16, and an eighth for the approximation: 2^-8 is a unit of the largest mantissa.
        bound = exact.abs() * (2.0**-8 + 2.0**-11) + 2.0**-30
        is_exact = bool(((call.out.double() - exact).abs() <= bound).all())
    call.out.fill_(torch.nan if call.out.is_floating_point() else 0)
    whole = call.out if call.out._base is None else call.out._base
    return status, is_exact and (not case.rounds or bool(whole.isnan().all()))


#: A mistake by what it is: a case, a file, a place in it with `@` for what stands there, this, and what is run instead.
MISTAKES: dict[str, tuple[str, str, str, str, str]] = {
    "a stage is loaded while it is read": (
        *("by rows", "kernel_on_cpu.cu", "@\n      const unsigned full"),
        *("wait(shared.empty + 8 * place.stage, place.parity ^ 1);", ""),
    ),
    "a slice is multiplied before it has arrived": (
        "by rows",
        "kernel_on_cpu.cu",
        "@\n    wgmma_fence();\n#pragma unroll\n"
        "    for (int atom = 0; atom < 4; ++atom) {\n      const auto columns =\n",
        *("wait(shared.full + 8 * place.stage, place.parity);", ""),
    ),
    "a stage is released while it is multiplied": ("by rows", "kernel_on_cpu.cu", "@", "wgmma_wait<1>();", ""),
    "the last slice is not waited for": (
        *("by rows", "kernel_on_cpu.cu", "@\n  fence_sums(sums);\n  if", "wgmma_wait<0>();", ""),
    ),
    "the TMA unit does not see what was stored": ("results in boxes", "store.cuh", "@", "fence_for_boxes();", ""),
    "boxes go where rows of wgmma are, though it is turned": (
        *("results in boxes, turned", "store.cuh", "const int x = @ ?", "TURNED", "!TURNED"),
    ),
    "the bias of other columns": (
        *("boxes, bias and gelu", "store.cuh", "const int at = @;", "column + 8 * j", "column + 8 * (j ^ 1)"),
    ),
    "the bias of the other row, where it is turned": (
        *("boxes, bias and silu, turned", "store.cuh", "const float bias = @ ?", "number % 2", "number % 2 == 0"),
    ),
    "the source of other rows": (
        *("boxes, everything, in turns", "store.cuh", "      const int row = lane / 8 + @;", "4 * i", "4 * (3 - i)"),
    ),
    "rows of C are taken for aligned": (
        *("results of 16 bits, narrow", "store.cuh", "if (@) {", "s.is_aligned", "true"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_results_are_exact_nothing_else_is_read_and_every_mistake_is_seen(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    own = {number: mistake for number, mistake in enumerate(MISTAKES.values(), 1) if mistake[0] == name}
    changes = [
        (file, place.replace("@", text), place.replace("@", Mistake(file, text, instead).switched(number, text)))
        for number, (_, file, place, text, instead) in own.items()
    ]
    library = built(launch_of(case, call_of(case)), tmp_path, changes)
    assert outcome(library, case) == (0, True)
    for number, told in enumerate(MISTAKES, 1):
        assert number not in own or outcome(library, case, number) != (0, True), told
