"""The kernels of `spmv` in CUDA C++, built by g++ and run on the CPU thread by thread; see `spmv_on_cpu/`."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np

from constrint.kernels.launch.cuda import CudaLaunch
from tests.support.grid import HEADERS, built_on_grid, replaced

ON_CPU = Path(__file__).parent / "spmv_on_cpu"
#: What replaces the declarations of shared memory in the kernel.
REPLACED = [
    (
        "kernel_on_cpu.cu",
        "extern __shared__ uint4 memory[];",
        "#define memory (reinterpret_cast<uint4*>(shared_memory))",
    ),
    ("kernel_on_cpu.cu", "__shared__ Sum of_warp[4];", "Sum* of_warp = reinterpret_cast<Sum*>(shared_memory);"),
]
#: Switches between threads after which a run counts as a deadlock.
MOST_TURNS = 50_000_000


class SpmvOnCpu:
    """Libraries of kernels, each built once.

    Args:
        folder: Folder of the files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._built: dict[str, ctypes.CDLL] = {}

    def run(self, launch: CudaLaunch, *, blocks: int | None = None, seed: int = 1) -> None:
        """Run a launch; the seed decides in which order threads take turns.

        Args:
            launch: The launch, of tensors on the CPU.
            blocks: Blocks of the grid, where a kernel walks its work with any number; None: those of the launch.
            seed: A number.
        """
        assert launch.smem_bytes <= launch.gpu.sm.max_smem_bytes_per_block
        numbers = np.array([_number(value) for value in launch.arguments], dtype=np.int64)
        pointer = ctypes.c_void_p(numbers.ctypes.data)
        grid = launch.grid[0] if blocks is None else min(blocks, launch.grid[0])
        found = self._library(launch).run(grid, launch.block[0], seed, ctypes.c_longlong(MOST_TURNS), pointer)
        assert found != 1, "threads waited for each other"
        assert found == 0, "a vector of entries was loaded from beyond the end of its array"

    def _library(self, launch: CudaLaunch) -> ctypes.CDLL:
        macros = dict(launch.source.macros)
        key = repr(sorted(macros.items()))
        if key not in self._built:
            files = {"kernel_on_cpu.cu": launch.source.text}
            for path in (*sorted(ON_CPU.iterdir()), HEADERS / "arguments.h"):
                files[path.name] = path.read_text(encoding="utf-8")
            texts = [each for each in REPLACED if each[1] in files[each[0]]]
            kind = "double" if macros["VALUE"] == 0 else "float"
            folder = self._folder / str(len(self._built))
            self._built[key] = built_on_grid(replaced(files, texts), macros | {"TYPE": kind}, folder)
        return self._built[key]


def _number(value: Any) -> int:
    """An argument as 64 bits."""
    if value is None:
        return 0
    if hasattr(value, "data_ptr"):
        return int(value.data_ptr())
    if isinstance(value, np.floating):
        return int(value.view(np.int64 if value.itemsize == 8 else np.int32))
    return int(value)
