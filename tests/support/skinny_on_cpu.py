"""The GEMM kernel for short sides, built by g++ and run on the CPU thread by thread; see `cuda_on_cpu/`."""

from __future__ import annotations

import ctypes
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gemm.skinny.cases import Case, Expected, operands
from benchmarks.gemm.skinny.launch import memory_of, product, sizes_of
from benchmarks.gemm.skinny.variant import FOLDER, Layout, Variant, dealt

HEADERS = Path(__file__).parent / "cuda_on_cpu"
#: What the CPU's header has in its place.
SHARED_MEMORY = "extern __shared__ __align__(16) unsigned char memory[];"


def built(variant: Variant, dtype: str, layout: Layout, folder: Path, text: str = "") -> ctypes.CDLL:
    """The kernel as a library; `text` stands for another source."""
    source = variant.source(dtype, layout)
    assert SHARED_MEMORY in source.text
    folder.mkdir(exist_ok=True)
    (folder / "kernel.cc").write_text((text or source.text).replace(SHARED_MEMORY, ""), encoding="utf-8")
    for name in ("cuda.h", "instructions.cuh", "main.cc"):
        shutil.copy(HEADERS / name, folder)
    shutil.copy(FOLDER / "types.cuh", folder)
    macros = [f"-D{name}={value}" for name, value in source.macros.items()]
    command = ["g++", "-O1", "-w", "-std=c++17", "-shared", "-fPIC", *macros, "main.cc", "-o", "kernel.so"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "kernel.so"))


def layout_of(case: Case) -> Layout:
    """How the operands of a case lie."""
    a, b, made = operands(case, "cpu", is_filled=False)
    return product(a, b, made.out, case.dtype).layout


def error_on_cpu(library: ctypes.CDLL, variant: Variant, case: Case, blocks: int, alpha: float, seed: int) -> float:
    """The error of a product as a share of what rounding allows, infinite where two launches differ or a load is stray.

    Blocks run in two random orders; the second launch finds counters as the first one left them.
    """
    import torch

    torch.manual_seed(seed)
    draw = random.Random(seed)
    a, b, made = operands(case, "cpu")
    which = product(a, b, made.out, case.dtype, alpha)
    shares = dealt(variant, case.dtype, which.layout, which.shape)
    blocks = min(blocks, shares.units)
    num_sums, num_counters = memory_of(variant, case.dtype, which, blocks)
    # Sums that nobody left are NaN, or a large number.
    workspace = np.full(num_sums + 3, 0x7FC00000, np.uint32)
    workspace = workspace[-workspace.ctypes.data // 4 % 4 :][:num_sums]
    counters, sizes = np.zeros(num_counters, np.uint32), sizes_of(variant, case.dtype, which)
    spans = np.array([*_span(which.large), *_span(which.small)], np.uint64)
    found = []
    for _ in range(2):
        order = np.array(draw.sample(range(blocks * shares.columns), blocks * shares.columns), np.int32)
        tensors = [ctypes.c_void_p(t.data_ptr()) for t in (which.large, which.small, which.out)]
        arrays = [ctypes.c_void_p(x.ctypes.data) for x in (workspace, counters, sizes, spans)]
        strays = library.run(blocks, shares.columns, ctypes.c_void_p(order.ctypes.data), *tensors, *arrays)
        if strays:
            return float("inf")
        found.append(made.out.clone())
    if not torch.equal(*found) or counters.any():
        return float("inf")
    return Expected.of(a, b, case.dtype, alpha).error_of(made, variant.chain(case.dtype, case.shape[2]))


def _span(tensor: Any) -> tuple[int, int]:
    """The addresses of a tensor's first byte and of that after its last one."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    start = tensor.data_ptr()
    return start, start + (last + 1) * tensor.element_size()
