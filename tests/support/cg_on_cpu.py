"""The CUDA kernel of conjugate gradients on the CPU: built by g++ with the grid of `grid_on_cpu/`."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from constrint.kernels.cg.launch import SOURCE, SolveMemory, Span
from constrint.kernels.cg.shape import macros_of, rows_per_block
from constrint.kernels.cg.star import StarMatrix
from tests.support.grid import HEADERS, built_on_grid

OWN = Path(__file__).with_name("cg_on_cpu")


@dataclass
class CpuGrid:
    """A configuration, built for a system, on a number of blocks."""

    memory: SolveMemory
    config: Mapping[str, int]
    blocks: int
    folder: Path

    def __post_init__(self) -> None:
        macros: dict[str, Any] = macros_of(self.memory.system, self.config, self.blocks)
        star = self.memory.system.star
        if star is not None:
            names = ", ".join(f"coefficients[{i}]" for i in range(len(star.coefficients)))
            macros |= {"COEFFICIENT_VALUES": names}
        files = {path.name: path.read_text() for path in SOURCE.iterdir()}
        files |= {path.name: path.read_text() for path in OWN.iterdir()}
        files["arguments.h"] = (HEADERS / "arguments.h").read_text()
        quoted = {name: f"{value}" for name, value in macros.items()}
        self._library = built_on_grid(files, quoted, self.folder)

    def run(self, span: Span, seed: int = 1) -> None:
        """Run one launch."""
        memory, system = self.memory, self.memory.system
        memory.slots.zero_()
        numbers: list[int] = []
        if isinstance(memory.matrix, StarMatrix):
            numbers += [_bits(value, system.dtype) for value in memory.matrix.coefficients]
            numbers.append(_bits(span.scale, "fp64"))
        else:
            numbers += [_address(t) for t in (*memory.matrix, memory.inverse)]
        numbers += [_address(t) for t in (memory.b, memory.x, memory.r, memory.p, memory.q, memory.slots)]
        numbers += [_address(t) for t in (memory.state, memory.history)]
        numbers += [_bits(span.rtol, "fp64"), _bits(span.atol, "fp64")]
        numbers += [system.rows, rows_per_block(system.rows, self.blocks), span.has_guess, span.is_resumed]
        numbers += [span.first, span.last, span.most, memory.history.numel()]
        given = np.array([int(n) for n in numbers], dtype=np.int64)
        waited = self._library.run(
            self.blocks, seed, ctypes.c_longlong(200_000_000), given.ctypes.data_as(ctypes.c_void_p)
        )
        assert waited == 0, "blocks waited for each other in vain"


def _address(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _bits(value: float, dtype: str) -> int:
    return int(struct.unpack("<q", struct.pack("<d", value) if dtype == "fp64" else struct.pack("<fI", value, 0))[0])
