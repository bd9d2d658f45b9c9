"""Where the device code of the kernel for many sequences is. No torch."""

from __future__ import annotations

from pathlib import Path

#: The kernel's own sources.
SOURCE = Path(__file__).with_name("source")
#: Those of the cells, which recurrent kernels in CUDA C++ share, and which of them are used.
CELLS_SOURCE = Path(__file__).parents[1] / "cuda" / "source"
CELLS_FILES = ("cells.cuh", "ptx.cuh", "shape.cuh")
