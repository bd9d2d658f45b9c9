"""The launch of the kernel for operands whose rows start anywhere: as they lie in memory, or as a map. Needs torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from constrint.errors import UsageError
from constrint.kernels.gemm.cuda.launch import checked, frame_of, map_of
from constrint.kernels.gemm.cuda.shape import ring_bytes
from constrint.kernels.gemm.cuda.source import Operands
from constrint.kernels.gemm.cuda.unaligned.gathered import Gathered, block_counts, raw_bytes
from constrint.kernels.gemm.cuda.unaligned.source import source_of
from constrint.kernels.gemm.launch import Call
from constrint.kernels.gemm.tma.pack import copies_needed
from constrint.kernels.launch.cuda.source_spec import CudaLaunch


def unaligned_launches(call: Call, config: Mapping[str, int]) -> list[CudaLaunch]:
    """The launch of a call.

    Raises:
        UsageError: For what the CUDA GEMM does not compute either, and where the TMA unit loads both operands.
    """
    gpu, dtype = checked(call)
    if config["cluster_m"] * config["cluster_n"] > 1:
        raise UsageError("gemm.unaligned has no clusters: what threads copy reaches one block.")
    copied = copies_needed(call.a, call.b)
    gathered = Gathered("a" in copied, "b" in copied)
    if not gathered.any:
        raise UsageError("gemm.unaligned gathers an operand; here the TMA unit loads both: use gemm.cuda.")
    a, b = call.a[0], call.b[0].T
    majors = a.stride(1) == 1, b.stride(1) == 1
    sides = [
        _side(a, majors[0], gathered.a, config["tile_m"], dtype),
        _side(b, majors[1], gathered.b, config["tile_n"], dtype),
    ]
    operands = [argument for side in (reversed(sides) if config["turned"] else sides) for argument in side]
    ring = ring_bytes(config, dtype, a_is_k_major=majors[0], b_is_k_major=majors[1])
    raw = raw_bytes(config, block_counts(config, dtype, gathered, *majors))
    frame = frame_of(call, config, gpu, dtype, ring + raw)
    source = source_of(config, Operands(dtype, *majors), gathered, frame.ends, splits=frame.deal.parts > 1)
    return [frame.launch(gpu, config, source, operands)]


def _side(side: Tensor, is_k_major: bool, is_gathered: bool, width: int, dtype: str) -> list[Any]:
    """An operand, (size, K), as the kernel's arguments: a map, or its address, pitch, bytes and rows in memory."""
    if not is_gathered:
        return [map_of(side, is_k_major, width, 1, dtype)]
    lies = side if is_k_major else side.T
    rows, length = lies.shape
    pitch, element = lies.stride(0), lies.element_size()
    if pitch < 0 or (pitch < 1 and rows > 1):
        raise UsageError(f"gemm.unaligned reads rows that follow each other, got a stride of {pitch}. Copy the tensor.")
    whole = ((rows - 1) * pitch + length) * element
    return [side, np.int64(pitch * element), np.int64(whole), np.int32(rows)]
