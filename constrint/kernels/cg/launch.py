"""Launches of the CUDA kernel: a solve is one of them, or several of many iterations each. Needs torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from constrint.hwmodels import GpuModel
from constrint.kernels.cg.shape import (
    BLOCK_WORDS,
    INDEX_BYTES,
    LONG_INDEX_BYTES,
    SLOT_SETS,
    STATE_SIZE,
    System,
    blocks_of,
    elements_at_once,
    macros_of,
    meeting_bytes,
    most_blocks,
    staged_bytes,
)
from constrint.kernels.cg.sizes import iterations_of, star_of
from constrint.kernels.cg.star import StarMatrix
from constrint.kernels.launch.cuda.nvrtc import CudaSource
from constrint.kernels.launch.cuda.source_spec import CudaLaunch
from constrint.kernels.launch.fill import FillLaunch
from constrint.select.workload import Workload

SOURCE = Path(__file__).with_name("source")
DTYPE_NAMES = {torch.float64: "fp64", torch.float32: "fp32"}


@dataclass(frozen=True)
class SolveMemory:
    """Tensors of a solve.

    Args:
        b: (n,), contiguous.
        x: (n,): the guess, then the solution.
        r, q: (n,); q only for a matrix in CSR.
        p: (2, n).
        slots: SolveMemory of the barrier, int64; zeroed before every launch.
        state: (8,), fp64; see `StateField` of `source/cg.cu`.
        history: fp64: r . r after each iteration.
        matrix: A star, or row starts, columns and values of a matrix in CSR.
        inverse: (n,): the inverse diagonal of a matrix in CSR, or None.
    """

    b: Tensor
    x: Tensor
    r: Tensor
    q: Tensor | None
    p: Tensor
    slots: Tensor
    state: Tensor
    history: Tensor
    matrix: StarMatrix | tuple[Tensor, Tensor, Tensor]
    inverse: Tensor | None = None

    @property
    def system(self) -> System:
        """The system that the kernel is compiled for."""
        rows, dtype = self.b.numel(), DTYPE_NAMES[self.b.dtype]
        if isinstance(self.matrix, StarMatrix):
            return System(rows, dtype, self.matrix)
        starts, columns, values = self.matrix
        sizes = (LONG_INDEX_BYTES if t.dtype == torch.int64 else INDEX_BYTES for t in (starts, columns))
        return System(rows, dtype, None, values.numel(), self.inverse is not None, *sizes)


@dataclass(frozen=True)
class Span:
    """The iterations of one launch.

    Args:
        rtol, atol: Tolerance: max(rtol * ||b||, atol).
        first: Iterations before this launch.
        last: The launch ends after this iteration.
        most: The solve ends after this iteration.
        has_guess: Whether x is read; else it is 0.
        is_resumed: Whether an earlier launch ended within the solve, so that its vectors and state are read.
        scale: Inverse diagonal of a star that is preconditioned; else 1.
    """

    rtol: float
    atol: float
    first: int
    last: int
    most: int
    has_guess: bool
    is_resumed: bool = False
    scale: float = 1.0


def memory_of(
    b: Tensor,
    x: Tensor,
    matrix: StarMatrix | tuple[Tensor, Tensor, Tensor],
    num_history: int,
    most_blocks: int,
    inverse: Tensor | None = None,
) -> SolveMemory:
    """Allocate the tensors of a solve."""
    n, device = b.numel(), b.device
    doubles = torch.empty((STATE_SIZE + num_history,), dtype=torch.float64, device=device)
    slots = torch.empty((SLOT_SETS * BLOCK_WORDS * most_blocks,), dtype=torch.int64, device=device)
    is_star = isinstance(matrix, StarMatrix)
    vectors = torch.empty((3 if is_star else 4, n), dtype=b.dtype, device=device)
    q = None if is_star else vectors[3]
    state, history = doubles[:STATE_SIZE], doubles[STATE_SIZE:]
    return SolveMemory(b, x, vectors[2], q, vectors[:2], slots, state, history, matrix, inverse)


def cg_launch(gpu: GpuModel, memory: SolveMemory, config: Mapping[str, int], span: Span) -> CudaLaunch:
    """State one launch; its slots have to be zero when it runs."""
    system = memory.system
    threads = config["threads"]
    blocks, per_block = blocks_of(system, gpu.device.sm_count, config)
    most = most_blocks(system.rows, gpu.device.sm_count, config)
    kept = {name: min(config[name], per_block) for name in ("kept_rows", "kept_x")}
    real = np.float64 if system.dtype == "fp64" else np.float32
    if system.star is not None:
        coefficients = system.star.coefficients
        operator: tuple[Any, ...] = (*map(real, coefficients), np.float64(span.scale))
    else:
        assert not isinstance(memory.matrix, StarMatrix)
        operator = (*memory.matrix, memory.inverse)
    # A block that is smaller than its share of the chip keeps no more than its rows.
    used = {**config, **kept}
    return CudaLaunch(
        gpu=gpu,
        source=_source(
            replace(system, rows=1, nnz=elements_at_once(system)), tuple(sorted(used.items())), blocks, most
        ),
        grid=(blocks,),
        block=(threads,),
        arguments=(
            *operator,
            *(memory.b, memory.x, memory.r, memory.p, memory.q, memory.slots, memory.state, memory.history),
            *(np.float64(span.rtol), np.float64(span.atol)),
            *(np.int32(number) for number in (system.rows, per_block, span.has_guess, span.is_resumed)),
            *(np.int32(number) for number in (span.first, span.last, span.most, memory.history.numel())),
        ),
        smem_bytes=meeting_bytes(blocks, threads) + staged_bytes(system, config) + sum(kept.values()) * system.element,
        is_cooperative=True,
    )


@lru_cache(maxsize=256)
def _source(system: System, config: tuple[tuple[str, int], ...], blocks: int, most: int) -> CudaSource:
    text = (SOURCE / "cg.cu").read_text(encoding="utf-8")
    macros = macros_of(system, dict(config), blocks, most)
    options = ("-std=c++17", "-default-device")
    return CudaSource(text, "conjugate_gradient", macros, options, (SOURCE,), "cg.cu", is_settled=True)


def solve_launches(
    gpu: GpuModel, workload: Workload, config: Mapping[str, int], inputs: Mapping[str, Tensor], x: Tensor
) -> list[Any]:
    """The launches of a workload's iterations from x = 0: a fill of the barrier's memory, and the solve."""
    star = star_of(workload)
    matrix = star if star is not None else (inputs["starts"], inputs["columns"], inputs["values"])
    number = iterations_of(workload)
    blocks = most_blocks(workload.sizes["rows"], gpu.device.sm_count, config)
    memory = memory_of(inputs["b"], x, matrix, number + 1, blocks, inputs.get("inverse"))
    scale = 1.0 / star.centre if star is not None and workload.options.get("jacobi") else 1.0
    span = Span(0.0, 0.0, 0, number, number, has_guess=False, scale=scale)
    return [FillLaunch(memory.slots, 0), cg_launch(gpu, memory, config, span)]
