"""The GEMM that gathers operands, built by g++ and run on the CPU thread by thread: `gemm_on_cpu/`, `grid_on_cpu/`."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from constrint.kernels.gemm.cuda.source import FOLDER
from constrint.kernels.gemm.cuda.unaligned.source import KERNEL, OWN
from constrint.kernels.launch.cuda import CudaLaunch, TensorMap
from constrint.kernels.launch.cuda.tensor_map import ELEMENTS

SUPPORT = Path(__file__).parent
#: What stands in the place of shared memory as the kernel declares it.
ON_CPU = {
    "extern __shared__ __align__(1024) unsigned char memory[];": "unsigned char* const memory = shared_memory;",
    "__shared__ __align__(8) unsigned long long barriers[2 * kStages];": (
        "auto* const barriers = reinterpret_cast<unsigned long long*>(shared_memory + fibers::kSharedBytes - 512);"
    ),
}
#: What stands in the place of instructions of the end.
ENDS = {
    'asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));': "packed = packed_on_cpu(low, high);",
    'asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));': "packed = packed_on_cpu(low, high);",
}
#: Threads take so many turns, in any run here, before they are taken to wait for each other in vain.
MOST_TURNS = 8_000_000


def built(launch: CudaLaunch, folder: Path, changed: Mapping[str, tuple[str, str]] | None = None) -> ctypes.CDLL:
    """The kernel of a launch as a library; `changed` says by file which text stands in the place of which."""
    assert launch.smem_bytes <= launch.gpu.sm.max_smem_bytes_per_block
    folder.mkdir(parents=True, exist_ok=True)
    text = (FOLDER / "kernel.cu").read_text(encoding="utf-8").partition(KERNEL)[0]
    files = {"kernel_on_cpu.cu": text + (OWN / "kernel.cu").read_text(encoding="utf-8")}
    shared = [FOLDER / name for name in ("epilogue.cuh", "parts.cuh")]
    stands_in = sorted((SUPPORT / "gemm_on_cpu").iterdir())
    for path in (*shared, OWN / "lines.cuh", OWN / "store.cuh", *stands_in, SUPPORT / "grid_on_cpu" / "grid.h"):
        files[path.name] = path.read_text(encoding="utf-8")
    files["store_of_others.cuh"] = (FOLDER / "store.cuh").read_text(encoding="utf-8")
    replaced = [("kernel_on_cpu.cu", texts) for texts in ON_CPU.items()]
    replaced += [("epilogue.cuh", texts) for texts in ENDS.items()]
    replaced += [("store.cuh", ("../../source/store.cuh", "store_of_others.cuh")), *(changed or {}).items()]
    for name, (before, after) in replaced:
        assert files[name].count(before) == 1, before
        files[name] = files[name].replace(before, after)
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    macros = [f"-D{name}={value}" for name, value in launch.source.macros.items()]
    options = ["-O1", "-w", "-std=c++17", "-fno-gnu-unique", "-shared", "-fPIC"]
    subprocess.run(["g++", *options, *macros, "main.cc", "-o", "kernel.so"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "kernel.so"))


def run(library: ctypes.CDLL, launch: CudaLaunch, blocks: int, seed: int) -> int:
    """Run it, in an order of threads that the seed decides: 0, 1 where threads waited in vain, 2 for stray reads."""
    kept: list[Any] = []
    numbers = np.array([_number(value, kept) for value in launch.arguments], dtype=np.int64)
    pointer = ctypes.c_void_p(numbers.ctypes.data)
    return int(library.run(blocks, seed, ctypes.c_longlong(MOST_TURNS), pointer))


def _number(value: Any, kept: list[Any]) -> int:
    """An argument in 64 bits; maps are what `gemm_on_cpu/instructions.cuh` takes for one, kept while they are used."""
    if value is None:
        return 0
    if isinstance(value, TensorMap):
        element = ELEMENTS[value.element][1]
        facts = (value.data_ptr(), *value.shape, value.stride * element, *value.box)
        kept.append(np.array(facts, dtype=np.int64))
        return int(kept[-1].ctypes.data)
    if hasattr(value, "data_ptr"):
        return int(value.data_ptr())
    return int.from_bytes(value.tobytes().ljust(8, b"\0"), "little", signed=True)
