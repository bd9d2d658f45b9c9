"""The GEMM kernel for short sides, built by g++ and run on the CPU thread by thread; see `cuda_on_cpu/`."""

from __future__ import annotations

import ctypes
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.epilogue.added import ADDED, OUTPUTS
from constrint.kernels.gemm.epilogue.compiled import CompiledEpilogue
from constrint.kernels.gemm.launch import Epilogue
from constrint.kernels.gemm.skinny.launch import kernel_sizes, memory_of
from constrint.kernels.gemm.skinny.shape import SkinnyLayout
from constrint.kernels.gemm.skinny.source import FOLDERS, SHARED, shape_of, source_of
from tests.support.activations_on_cpu import ACTIVATING
from tests.support.shared import files_once
from tests.support.skinny_products import (
    PLAIN,
    Added,
    Case,
    Config,
    End,
    Expected,
    Made,
    added_of,
    chain_of,
    dealt_of,
    operands,
    sides_of,
)

H200 = load_gpu("h200")
HEADERS = Path(__file__).parent / "cuda_on_cpu"
#: A header that is precompiled is taken where it was compiled with the same options.
COMPILER = ("g++", "-O0", "-w", "-std=c++17", "-fPIC")
#: What the CPU's header has in its place.
SHARED_MEMORY = "extern __shared__ __align__(16) unsigned char memory[];"
#: Conversions of the shared end that are PTX, and the CPU's functions in their place.
CONVERSIONS = ACTIVATING | {
    'asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));': "packed = narrowed(low, high);",
    'asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));': "packed = narrowed(low, high);",
    'asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(__ldg(static_cast<const unsigned short*>(from) + at)));': (
        "value = widened(static_cast<const unsigned short*>(from)[at]);"
    ),
}


def ends_of(made: Made, end: End, added: Added) -> CompiledEpilogue:
    """What the kernel is compiled to do with sums."""
    bias, source = ("" if t is None else ADDED[t.dtype] for t in added)
    return CompiledEpilogue(OUTPUTS[made.out.dtype], bias, source, end.activation)


def _precompile(folder: Path) -> None:
    shutil.copy(HEADERS / "cuda.h", folder)
    subprocess.run([*COMPILER, "-x", "c++-header", "cuda.h", "-o", "cuda.h.gch"], cwd=folder, check=True)


def built(
    config: Config,
    dtype: str,
    layout: SkinnyLayout,
    ends: CompiledEpilogue,
    folder: Path,
    text: str = "",
    *,
    batched: bool = False,
) -> ctypes.CDLL:
    """The kernel as a library; `text` stands for another source."""
    source = source_of(config, dtype, layout, ends, batched=batched)
    assert SHARED_MEMORY in source.text
    folder.mkdir(exist_ok=True)
    (folder / "kernel.cc").write_text((text or source.text).replace(SHARED_MEMORY, ""), encoding="utf-8")
    for name in ("instructions.cuh", "main.cc"):
        shutil.copy(HEADERS / name, folder)
    shutil.copy(FOLDERS[0] / "types.cuh", folder)
    for name in SHARED:
        (folder / name).write_text(_for_cpu((FOLDERS[1] / name).read_text(encoding="utf-8")), encoding="utf-8")
    macros = [f"-D{name}={value}" for name, value in source.macros.items()]
    headers = f"-I{files_once('headers', _precompile)}", "-include", "cuda.h"
    subprocess.run([*COMPILER, *headers, "-shared", *macros, "main.cc", "-o", "kernel.so"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "kernel.so"))


def _for_cpu(text: str) -> str:
    """The shared end without PTX."""
    for ptx, plain in CONVERSIONS.items():
        assert text.count(ptx) == 1, ptx
        text = text.replace(ptx, plain)
    return text


def layout_of(case: Case) -> SkinnyLayout:
    """How the operands of a case lie."""
    a, b, made = operands(case, "cpu", is_filled=False)
    layout: SkinnyLayout = sides_of(case, a, b, made.out).layout
    return layout


def ends_of_case(case: Case, end: End) -> CompiledEpilogue:
    """What the kernel is compiled to do with the sums of a case."""
    _, _, made = operands(case, "cpu", is_filled=False)
    return ends_of(made, end, added_of(case, end, "cpu"))


def error_on_cpu(library: ctypes.CDLL, config: Config, case: Case, blocks: int, seed: int, end: End = PLAIN) -> float:
    """The error of a product as a share of what rounding allows, infinite where two launches differ or a load is stray.

    Blocks run in two random orders; the second launch finds counters as the first one left them.
    """
    import torch

    torch.manual_seed(seed)
    draw = random.Random(seed)
    a, b, made = operands(case, "cpu")
    added = added_of(case, end, "cpu")
    sides = sides_of(case, a, b, made.out)
    shape = shape_of(config, case.dtype, sides.layout)
    dealt = dealt_of(H200, config, shape, sides.shape, blocks)
    num_sums, num_counters = memory_of(shape, dealt)
    # Sums that nobody left are NaN, or a large number.
    workspace = np.full(num_sums + 4, 0x7FC00000, np.uint32)
    workspace = workspace[-workspace.ctypes.data // 4 % 4 :][: num_sums + 1]
    counters = np.zeros(num_counters + 1, np.uint32)
    source = None if added.source is None else added.source[None]
    sizes = kernel_sizes(sides, dealt, Epilogue(added.bias, source, end.alpha, end.beta, end.activation), source)
    read = (sides.large, sides.small, added.bias, added.source)
    spans = np.array([number for t in read for number in _span(t)], np.uint64)
    num_blocks, found = dealt.blocks * dealt.columns, []
    for _ in range(2):
        order = np.array(draw.sample(range(num_blocks), num_blocks), np.int32)
        tensors = [
            ctypes.c_void_p(None if t is None else t.data_ptr())
            for t in (sides.large, sides.small, sides.out, added.bias, added.source)
        ]
        arrays = [ctypes.c_void_p(x.ctypes.data) for x in (workspace, counters, sizes, spans)]
        strays = library.run(
            dealt.blocks, dealt.columns, ctypes.c_void_p(order.ctypes.data), *tensors, *arrays, 1, None
        )
        if strays:
            return float("inf")
        found.append(made.out.clone())
    if not torch.equal(*found) or counters.any():
        return float("inf")
    chain = chain_of(config, case.dtype, sides.layout, case.shape[2])
    return Expected.of(a, b, case.dtype, end, added).error_of(made, chain)


def _span(tensor: Any) -> tuple[int, int]:
    """The addresses of a tensor's first byte and of that after its last one."""
    if tensor is None:
        return 0, 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    start = tensor.data_ptr()
    return start, start + (last + 1) * tensor.element_size()
