"""The GEMM in CUDA C++ without clusters, built by g++ and run on the CPU by threads: `gemm_on_cpu/`, `grid_on_cpu/`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from constrint.kernels.gemm.cuda.source import FOLDER
from constrint.kernels.launch.cuda import CudaLaunch, TensorMap
from constrint.kernels.launch.cuda.tensor_map import ELEMENTS
from tests.support.activations_on_cpu import ACTIVATING
from tests.support.grid import HEADERS, built_on_grid, replaced

SUPPORT = Path(__file__).parent
#: What replaces the declarations of shared memory in the kernel.
ON_CPU = {
    "extern __shared__ __align__(1024) unsigned char memory[];": "unsigned char* const memory = shared_memory;",
    "__shared__ __align__(8) unsigned long long barriers[2 * kStages];": (
        "auto* const barriers = reinterpret_cast<unsigned long long*>(shared_memory + fibers::kSharedBytes - 512);"
    ),
}
#: What replaces instructions of the epilogue.
ENDS = ACTIVATING | {
    'asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));': "packed = packed_on_cpu(low, high);",
    'asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));': "packed = packed_on_cpu(low, high);",
}
#: What has no effect on results.
PREFETCHES = (
    'asm volatile("prefetch.global.L2 [%0];" ::"l"(line));',
    'asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(unused) : "l"(line));',
)
#: Switches between threads after which a run counts as a deadlock; no correct run here takes as many.
MOST_TURNS = 8_000_000


def built(launch: CudaLaunch, folder: Path, changes: Sequence[tuple[str, str, str]] = ()) -> ctypes.CDLL:
    """The kernel of a launch as a library; each change is a file, a text in it, and the text in its place."""
    assert launch.smem_bytes <= launch.gpu.sm.max_smem_bytes_per_block
    assert launch.cluster == 1, "the CPU has no clusters"
    kernel = (FOLDER / "kernel.cu").read_text(encoding="utf-8")
    files = {"kernel_on_cpu.cu": _with_epilogue(kernel, launch)}
    shared = [FOLDER / name for name in ("epilogue.cuh", "groups.cuh", "parts.cuh", "store.cuh")]
    for path in (*shared, *sorted((SUPPORT / "gemm_on_cpu").iterdir()), HEADERS / "arguments.h"):
        files[path.name] = path.read_text(encoding="utf-8")
    on_cpu = [("kernel_on_cpu.cu", *texts) for texts in ON_CPU.items()]
    on_cpu += [("epilogue.cuh", *texts) for texts in ENDS.items()]
    on_cpu += [("store.cuh", text, "") for text in PREFETCHES]
    return built_on_grid(replaced(files, (*on_cpu, *changes)), launch.source.macros, folder)


def _with_epilogue(kernel: str, launch: CudaLaunch) -> str:
    """The kernel between what its launch puts ahead of it and behind it for a user's epilogue, if it has one."""
    ahead, behind = launch.source.text.split(kernel)
    ahead = ahead[: ahead.index('#include "instructions.cuh"')]
    numbers = range(ahead.count("const void* const&"))
    taken = " ".join(
        f"const auto from{i} = taken<const void*>(); const auto by{i} = taken<long long>();" for i in numbers
    )
    passed = "".join(f", from{i}, by{i}" for i in numbers)
    return f"{ahead}#define TAKEN_FOR_EPILOGUE {taken}\n#define OF_EPILOGUE {passed}\n{kernel}{behind}"


def run(library: ctypes.CDLL, launch: CudaLaunch, blocks: int, seed: int, mistake: int = 0) -> int:
    """Run the kernel; the seed decides in which order threads take turns. 0 for success, 1 for a deadlock.

    A mistake is made by its number, where changes of the source ask for it; 0: none.
    """
    kept: list[Any] = []
    numbers = np.array([_number(value, kept) for value in launch.arguments], dtype=np.int64)
    pointer = ctypes.c_void_p(numbers.ctypes.data)
    return int(library.run(mistake, blocks, seed, ctypes.c_longlong(MOST_TURNS), pointer))


def _number(value: Any, kept: list[Any]) -> int:
    """An argument as 64 bits. A tensor map becomes the address of a `TensorMap` of `gemm_on_cpu/instructions.cuh`."""
    if value is None:
        return 0
    if isinstance(value, TensorMap):
        element = ELEMENTS[value.element][1]
        matrices, step = value.batch or (1, 0)
        facts = (value.data_ptr(), *value.shape, value.stride * element, *value.box, value.swizzle)
        facts_of_batch = matrices, step * element
        kept.append(np.array((*facts, *facts_of_batch), dtype=np.int64))
        return int(kept[-1].ctypes.data)
    if hasattr(value, "data_ptr"):
        return int(value.data_ptr())
    return int.from_bytes(value.tobytes().ljust(8, b"\0"), "little", signed=True)
