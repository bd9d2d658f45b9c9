"""Launches of the kernels for many sequences: the source of a configuration, and its arguments.

The figures are those of `shape.py` and `source/layout.cuh`; the device code is in `source/`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from constrint.choose import Decision
from constrint.hwmodels import GpuModel
from constrint.kernels.launch.cuda.nvrtc import CudaSource
from constrint.kernels.launch.cuda.source_spec import CudaLaunch
from constrint.kernels.launch.fill import FillLaunch
from constrint.kernels.launch.plan.scratch import TORCH_SCRATCH, Scratch
from constrint.kernels.rnn.cells import CELLS, RecurrentCell
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
from constrint.kernels.rnn.wgmma.instruction import wgmma
from constrint.kernels.rnn.wgmma.shape import (
    CELLS_SOURCE,
    DTYPE_NUMBERS,
    FENCE,
    RING,
    SOURCE,
    padded_head_dim,
    shape_of,
)
from constrint.select.candidate import Config
from constrint.select.spec import Launch
from constrint.select.workload import Workload

#: Tensors of each kernel in the order of its arguments.
TENSORS = {
    "forward": ("wx", "r", "bias", "initial", "states", "saved", "rows", "lengths", "reset", "exchange"),
    "backward": (
        *("grad0", "grad1", "grad2", "grad3", "grad_last", "wx", "r", "initial", "states", "saved"),
        *("grad_slots", "grad_initial", "rows", "lengths", "reset", "exchange"),
    ),
}
THREADS_PER_WARP = 32
#: The macro of each parameter that the device code knows.
MACROS = {
    "units": "LAYER_UNITS",
    "tile_batch": "LAYER_ROWS",
    "depth_groups": "LAYER_DEPTHS",
    "window": "LAYER_WINDOW",
    "chunk": "LAYER_CHUNK",
    "probe": "LAYER_PROBE",
}


class WgmmaBuild(NamedTuple):
    """A configuration's source and resources: threads, shared memory, and memory for the exchange of a group."""

    source: CudaSource
    threads: int
    smem_bytes: int
    ring_bytes: int


@lru_cache(maxsize=1024)
def source_of(
    cell: RecurrentCell,
    head_dim: int,
    dtype: str,
    config: tuple[tuple[str, int], ...],
    direction: str = "forward",
) -> WgmmaBuild:
    """The source as it is compiled for a configuration; the compiler asserts the shared memory predicted here."""
    values = dict(config)
    shape = shape_of(cell, head_dim, values, direction)
    warps, columns, smem_bytes, ring_bytes = (
        size.value({}) for size in (shape.warps, shape.columns, shape.smem_bytes, shape.ring_bytes)
    )
    macros = {macro: values[name] for name, macro in MACROS.items()} | {
        "DTYPE": DTYPE_NUMBERS[dtype],
        "LAYER_DIM": head_dim,
        "RING": RING,
        "FENCE": FENCE,
        "LAYER_SHARED_BYTES": smem_bytes,
        **cuda_macros(cell.step),
    }
    if direction == "backward":
        macros["LAYER_BACKWARD"] = 1
    step = cuda_text(cell.step, direction)
    path = SOURCE / f"{direction}.cu"
    text = '#include "layout.cuh"\n' + step + wgmma(columns, dtype) + path.read_text(encoding="utf-8")
    options, folders = ("-std=c++17", "-default-device"), (SOURCE, CELLS_SOURCE)
    source = CudaSource(text, f"recurrent_{direction}", macros, options, folders, path.name, is_settled=True)
    return WgmmaBuild(source, THREADS_PER_WARP * warps, smem_bytes, ring_bytes)


def launches_of(
    workload: Workload,
    config: Config,
    tensors: Tensors,
    gpu: GpuModel,
    *,
    direction: str = "forward",
    clip: float = 0.0,
    only_h: bool | None = None,
    scratch: Scratch = TORCH_SCRATCH,
    build: Callable[..., WgmmaBuild] = source_of,
) -> list[Launch]:
    """The launches of one direction; several where blocks that wait for each other would not all be resident.

    Args:
        workload: The workload that was chosen for: its cell, head dimension and dtype count.
        config: A point of the space.
        tensors: The kernel's tensors by the names of its arguments. On `meta` the launches can only be compiled.
        gpu: The hardware model.
        direction: "forward" or "backward".
        clip: Limit of the gradient that reaches h through r; 0 for none.
        only_h: Backward: whether h alone has gradients; by default whether `grad1` is missing.
        scratch: Gives the memory that blocks exchange states through.
        build: Gives the source of a configuration, with the arguments of `source_of`.
    """
    wx = required(tensors, "wx")
    batch, time, _, heads, dim = wx.shape
    cell = CELLS[workload.operation.removesuffix(SUFFIX[direction])]
    built = build(cell, dim, workload.dtype, tuple(sorted(config.items())), direction)
    blocks, groups = dim // config["units"], heads * -(-batch // config["tile_batch"])
    at_once = max(1, num_sms(wx.device, gpu.device.sm_count) // blocks)
    exchange = scratch.empty((groups * built.ring_bytes // 4,), torch.int32, wx.device)
    every = {**tensors, "exchange": exchange}
    if direction == "forward" and config["recompute"]:
        every["saved"] = None
    before: list[Any] = [every.get(name) for name in TENSORS[direction]]
    before += [every.get("unit_params")] if cell.num_params else []
    if direction == "backward":
        before += [np.float32(clip), np.int32(tensors.get("grad1") is None if only_h is None else only_h)]
    before += [np.int32(batch), np.int32(time), np.int32(heads)]
    after = [np.int64(wx.stride(0)), np.int64(wx.stride(1))]
    launches: list[Launch] = [FillLaunch(exchange, UNWRITTEN)]
    for first in range(0, groups, at_once):
        launches.append(
            CudaLaunch(
                gpu=gpu,
                source=built.source,
                grid=(min(at_once, groups - first) * blocks,),
                block=(built.threads,),
                arguments=(*before, np.int32(first), *after),
                smem_bytes=built.smem_bytes,
                is_cooperative=True,
            )
        )
    return launches


class WgmmaBackend(FusedBackend):
    """Runs the kernels for many sequences, which round the initial h themselves."""

    def padded(self, head_dim: int, dtype: torch.dtype) -> int:
        """The next multiple of a slice of weights."""
        return padded_head_dim(head_dim)

    def loop(
        self, direction: str, choice: Decision, config: Config, tensors: Tensors, scratch: Scratch, **options: Any
    ) -> Sequence[Launch]:
        """See `FusedBackend.loop`."""
        workload, gpu = workload_of_choice(choice), gpu_of_choice(choice)
        return launches_of(workload, config, tensors, gpu, direction=direction, scratch=scratch, **options)
