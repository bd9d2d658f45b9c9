"""The sweeps in CUDA C++, built by g++ and run on the CPU thread by thread; see `grid_on_cpu/` and `jacobi_cpu/`."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from constrint.kernels.jacobi.source_text import FOLDER
from constrint.kernels.launch.cuda.source_spec import CudaLaunch
from tests.support.grid import built_on_grid

HEADERS = Path(__file__).parent / "jacobi_cpu"
#: What the CPU's header has in its place.
SHARED_MEMORY = "extern __shared__ __align__(16) unsigned char memory[];"


def built(macros: Mapping[str, object], folder: Path) -> ctypes.CDLL:
    """The kernel of some macros as a library."""
    text = (FOLDER / "kernel.cu").read_text(encoding="utf-8")
    assert text.count(SHARED_MEMORY) == 1
    files = {name: (HEADERS / name).read_text(encoding="utf-8") for name in ("instructions.cuh", "main.cc")}
    files["kernel.cu"] = text.replace(SHARED_MEMORY, "unsigned char* memory = shared_memory;")
    return built_on_grid(files, macros, folder)


def launched(library: ctypes.CDLL, launch: CudaLaunch, seed: int) -> None:
    """Run one launch on the CPU; blocks and threads take turns in an order that a seed decides."""
    u, f, out, *sizes, coefficients = launch.arguments
    numbers = np.array(sizes, np.int32)
    places = [ctypes.c_void_p(0 if t is None else t.data_ptr()) for t in (u, f, out)]
    waits = library.run(
        launch.grid[0], seed, *places, ctypes.c_void_p(numbers.ctypes.data), ctypes.c_char_p(coefficients.tobytes())
    )
    assert not waits, "threads wait for each other for ever"
