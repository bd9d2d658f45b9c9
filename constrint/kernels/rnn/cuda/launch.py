"""Launches of the recurrent CUDA kernels: `launches_of` states their arguments, for a device or for a compiler alone.

The meaning of a configuration is in `shape.py` and `source/shape.cuh`, the device code in `source/`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from constrint.choose import Decision
from constrint.hwmodels import GpuModel
from constrint.kernels.launch.cuda.nvrtc import CudaSource
from constrint.kernels.launch.cuda.source_spec import CudaLaunch
from constrint.kernels.launch.fill import FillLaunch
from constrint.kernels.launch.plan.scratch import TORCH_SCRATCH, Scratch
from constrint.kernels.rnn.cells import CELLS, RecurrentCell
from constrint.kernels.rnn.cuda.shape import (
    CLUSTER,
    DTYPE_NUMBERS,
    FENCE,
    GRID,
    RING,
    padded_head_dim,
    shape_of,
)
from constrint.kernels.rnn.fused import (
    UNWRITTEN,
    FusedBackend,
    Tensors,
    gpu_of_choice,
    num_sms,
    required,
    workload_of_choice,
)
from constrint.kernels.rnn.generated.cuda import cuda_macros, cuda_text
from constrint.kernels.rnn.spec import SUFFIX
from constrint.select.candidate import Config
from constrint.select.spec import Launch
from constrint.select.workload import Workload

#: Tensors of each kernel in the order of its arguments.
TENSORS = {
    "forward": (
        *("wx", "r", "bias", "initial", "states", "saved", "rows", "lengths", "reset"),
        *("exchange", "streamed"),
    ),
    "backward": (
        *("grad0", "grad1", "grad2", "grad3", "grad_last", "wx", "r", "initial", "states", "saved"),
        *("grad_slots", "grad_initial", "rows", "lengths", "reset", "exchange", "streamed"),
    ),
}
#: Tensors that follow where a cell has elementwise parameters.
PARAMETERS = {"forward": ("unit_params",), "backward": ("unit_params", "grad_params")}
THREADS_PER_WARP = 32
SOURCE = Path(__file__).with_name("source")
#: The macro of each parameter that the device code knows.
MACROS = {
    "units": "UNITS",
    "tile_batch": "TILE_BATCH",
    "num_tiles": "TILES",
    "placement": "PLACEMENT",
    "warps_rows": "WARPS_ROWS",
    "warps_depth": "WARPS_DEPTH",
    "register_pairs": "REGISTER_PAIRS",
    "streamed_pairs": "STREAMED_PAIRS",
    "prefetch": "PREFETCH",
}


def launches_of(
    direction: str,
    workload: Workload,
    config: Config,
    tensors: Tensors,
    gpu: GpuModel,
    *,
    clip: float = 0.0,
    only_h: bool | None = None,
    scratch: Scratch = TORCH_SCRATCH,
) -> list[Launch]:
    """The launches of one direction; several where blocks that wait for each other would not all be resident.

    Args:
        direction: "forward" or "backward".
        workload: The workload that was chosen for: its cell, head dimension and dtype count.
        config: A point of the direction's space.
        tensors: The kernel's tensors by the names of its arguments. On `meta` the launches can only be compiled.
        gpu: The hardware model.
        clip: Limit of the gradient that reaches h through r; 0 for none.
        only_h: Backward: whether h alone has gradients; by default whether `grad1` is missing.
        scratch: Gives the memory that blocks exchange states through, and that of weights which do not fit the chip.
    """
    wx = required(tensors, "wx")
    cell = CELLS[workload.operation.removesuffix(SUFFIX[direction])]
    built = source_of(cell, direction, wx.shape[4], workload.dtype, tuple(sorted(config.items())))
    blocks, groups = wx.shape[4] // config["units"], _num_groups(wx, config)
    in_grid = config["placement"] == GRID
    at_once = max(1, num_sms(wx.device, gpu.device.sm_count) // blocks) if in_grid else groups
    taken = _memory(built, groups, min(at_once, groups) * blocks, scratch, wx.device)
    before = _arguments(cell, direction, config, {**tensors, **taken})
    if direction == "backward":
        only_h = tensors.get("grad1") is None if only_h is None else only_h
        before += [np.float32(clip), np.int32(only_h and wx.element_size() == 2)]
    batch, time, _, heads, _ = wx.shape
    before += [np.int32(batch), np.int32(time), np.int32(heads)]
    after = [np.int64(wx.stride(0)), np.int64(wx.stride(1))]
    launches: list[Launch] = []
    if in_grid:
        launches.append(FillLaunch(taken["exchange"], UNWRITTEN))
    for first in range(0, groups, at_once):
        launches.append(
            CudaLaunch(
                gpu=gpu,
                source=built.source,
                grid=(min(at_once, groups - first) * blocks,),
                block=(THREADS_PER_WARP * config["warps_rows"] * config["warps_depth"],),
                arguments=(*before, np.int32(first), *after),
                smem_bytes=built.smem_bytes,
                cluster=blocks if config["placement"] == CLUSTER else 1,
                is_cooperative=in_grid,
            )
        )
    return launches


def _memory(built: CudaBuild, groups: int, blocks: int, scratch: Scratch, device: torch.device) -> dict[str, Tensor]:
    """Memory that the launches need besides their tensors, in words of four bytes, by the names of the arguments.

    Launches that follow each other use the weights' memory again: `blocks` is the number of the largest one.
    """
    sizes = {"exchange": groups * built.ring_bytes, "streamed": blocks * built.streamed_bytes}
    return {name: scratch.empty((size // 4,), torch.int32, device) for name, size in sizes.items() if size}


def _num_groups(wx: Tensor, config: Config) -> int:
    """Groups of blocks that do not see each other: heads times groups of sequences."""
    return int(wx.shape[3]) * -(-int(wx.shape[0]) // (config["tile_batch"] * config["num_tiles"]))


def _arguments(cell: RecurrentCell, direction: str, config: Config, tensors: Tensors) -> list[Any]:
    every = {name: tensors.get(name) for name in TENSORS[direction]}
    if direction == "forward" and config["recompute"]:
        every["saved"] = None
    names = PARAMETERS[direction] if cell.num_params else ()
    return [*every.values(), *(tensors.get(name) for name in names)]


class CudaBuild(NamedTuple):
    """A configuration's source, and the memory that it takes.

    Args:
        source: Sources, macros and compiler options.
        smem_bytes: Shared memory of a block.
        ring_bytes: Global memory in which a group of blocks exchanges states.
        streamed_bytes: Global memory with weights of a block.
    """

    source: CudaSource
    smem_bytes: int
    ring_bytes: int
    streamed_bytes: int


@lru_cache(maxsize=1024)
def source_of(
    cell: RecurrentCell, direction: str, head_dim: int, dtype: str, config: tuple[tuple[str, int], ...]
) -> CudaBuild:
    """The source as it is compiled for a configuration, and the memory that it takes.

    The compiler asserts that the source takes as much shared memory as is predicted here.
    """
    values = dict(config)
    shape = shape_of(cell, direction, head_dim, dtype, values)
    sizes = [size.value({}) for size in (shape.smem_bytes, shape.ring_bytes, shape.streamed_bytes)]
    macros = {macro: values[name] for name, macro in MACROS.items()} | {
        "IS_BACKWARD": int(direction == "backward"),
        "DTYPE": DTYPE_NUMBERS[dtype],
        "HEAD_DIM": head_dim,
        "WINDOW": shape.window.value({}),
        "RING": RING,
        "FENCE": FENCE,
        "EXPECTED_SHARED_BYTES": sizes[0],
        **cuda_macros(cell.step),
    }
    path = SOURCE / f"{direction}.cu"
    options = ("-std=c++17", "-default-device")
    text = '#include "cells.cuh"\n' + cuda_text(cell.step, direction) + path.read_text(encoding="utf-8")
    source = CudaSource(text, f"recurrent_{direction}", macros, options, (SOURCE,), path.name, is_settled=True)
    return CudaBuild(source, *sizes)


class CudaBackend(FusedBackend):
    """Runs the CUDA kernels; heads are padded to multiples of 32, or of 16 in fp32. The kernels round the initial h."""

    def padded(self, head_dim: int, dtype: torch.dtype) -> int:
        """The next multiple of a pair of matrix instructions."""
        return padded_head_dim(head_dim, dtype.itemsize)

    def loop(
        self, direction: str, choice: Decision, config: Config, tensors: Tensors, scratch: Scratch, **options: Any
    ) -> Sequence[Launch]:
        """See `FusedBackend.loop`."""
        workload, gpu = workload_of_choice(choice), gpu_of_choice(choice)
        return launches_of(direction, workload, config, tensors, gpu, scratch=scratch, **options)
