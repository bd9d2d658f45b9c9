"""The fp32 GEMM in CUDA C++, built by g++ and run on the CPU by threads: `fp32_on_cpu/`, `gemm_on_cpu/`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

from constrint.kernels.gemm.fp32.source import FOLDERS
from constrint.kernels.launch.cuda import CudaLaunch
from tests.support.cuda_gemm_on_cpu import ENDS
from tests.support.grid import HEADERS, built_on_grid, replaced

SUPPORT = Path(__file__).parent
#: What replaces declarations of shared memory and instructions in the kernel.
ON_CPU = {
    "extern __shared__ unsigned char memory[];": "unsigned char* const memory = shared_memory;",
    "__shared__ unsigned long long barriers[2 * kStages];": (
        "auto* const barriers = reinterpret_cast<unsigned long long*>(shared_memory + fibers::kSharedBytes - 512);"
    ),
    "__shared__ unsigned is_last[kConsumers];": (
        "auto* const is_last = reinterpret_cast<unsigned*>(shared_memory + fibers::kSharedBytes - 64);"
    ),
    'asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : '
    '"=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w) : "r"(from));': "std::memcpy(&x, shared_memory + from, 16);",
    'asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(from));': (
        "std::memcpy(&x, shared_memory + from, 8);"
    ),
    'asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));': (
        "both = rounded_on_cpu(first) | rounded_on_cpu(second) << 16;"
    ),
    "constexpr int kConsumers =": """inline unsigned rounded_on_cpu(float x) {
  const unsigned word = __float_as_uint(x);
  return x != x ? 0x7FFF : (word + 0x7FFF + (word >> 16 & 1)) >> 16;
}

constexpr int kConsumers =""",
}
#: The same in the walk over tiles.
COUNTED = (
    'asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");',
    "before = (*counter)++;",
)


def built(launch: CudaLaunch, folder: Path, changes: Sequence[tuple[str, str]] = ()) -> ctypes.CDLL:
    """The kernel of a launch as a library; each change is a text of the kernel, and the text in its place."""
    assert launch.smem_bytes <= launch.gpu.sm.max_smem_bytes_per_block
    files = {"kernel_on_cpu.cu": (FOLDERS[0] / "kernel.cu").read_text(encoding="utf-8")}
    files["epilogue.cuh"] = (FOLDERS[1] / "epilogue.cuh").read_text(encoding="utf-8")
    files["base.cuh"] = (SUPPORT / "gemm_on_cpu" / "instructions.cuh").read_text(encoding="utf-8")
    files["tiles.cuh"] = (FOLDERS[0] / "tiles.cuh").read_text(encoding="utf-8")
    for path in (*sorted((SUPPORT / "fp32_on_cpu").iterdir()), HEADERS / "arguments.h"):
        files[path.name] = path.read_text(encoding="utf-8")
    on_cpu = [("kernel_on_cpu.cu", *texts) for texts in (*changes, *ON_CPU.items())]
    on_cpu += [("tiles.cuh", *COUNTED)]
    on_cpu += [("epilogue.cuh", *texts) for texts in ENDS.items()]
    return built_on_grid(replaced(files, on_cpu), launch.source.macros, folder)
