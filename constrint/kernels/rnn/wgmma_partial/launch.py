"""Launches of the kernel that exchanges partial sums: `wgmma`'s backward kernel with another header for its meeting."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from constrint.choose import Decision
from constrint.kernels.launch.cuda.nvrtc import CudaSource
from constrint.kernels.launch.plan.scratch import Scratch
from constrint.kernels.rnn.cells import RecurrentCell
from constrint.kernels.rnn.fused import Tensors, gpu_of_choice, workload_of_choice
from constrint.kernels.rnn.generated.cuda import cuda_macros, cuda_text
from constrint.kernels.rnn.wgmma.instruction import wgmma
from constrint.kernels.rnn.wgmma.launch import THREADS_PER_WARP, WgmmaBackend, WgmmaBuild, launches_of
from constrint.kernels.rnn.wgmma.shape import CELLS_SOURCE, DTYPE_NUMBERS, FENCE
from constrint.kernels.rnn.wgmma.shape import RING as RING_OF_WGMMA
from constrint.kernels.rnn.wgmma.shape import SOURCE as SOURCE_OF_WGMMA
from constrint.kernels.rnn.wgmma_partial.shape import SOURCE, shape_of
from constrint.select.candidate import Config
from constrint.select.spec import Launch

#: The macro of each parameter that the device code knows, and those of `layout.cuh` that do not count here.
MACROS = {
    "units": "LAYER_UNITS",
    "tile_batch": "LAYER_ROWS",
    "depth_groups": "LAYER_DEPTHS",
    "targets": "LAYER_TARGETS",
    "sources": "LAYER_SOURCES",
    "first": "LAYER_FIRST",
}
UNUSED = {"LAYER_WINDOW": 2, "LAYER_CHUNK": 1, "LAYER_PROBE": 0, "RING": RING_OF_WGMMA, "FENCE": FENCE}


@lru_cache(maxsize=1024)
def source_of(
    cell: RecurrentCell,
    head_dim: int,
    dtype: str,
    config: tuple[tuple[str, int], ...],
    direction: str = "backward",
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
        "LAYER_BACKWARD": 1,
        "PARTIAL_BYTES": smem_bytes,
        **UNUSED,
        **cuda_macros(cell.step),
    }
    step = cuda_text(cell.step, direction)
    path = SOURCE_OF_WGMMA / "backward.cu"
    before = '#include "layout.cuh"\n' + step + wgmma(columns, dtype) + '#include "partial.cuh"\n'
    text = before + path.read_text(encoding="utf-8")
    options, folders = ("-std=c++17", "-default-device"), (SOURCE, SOURCE_OF_WGMMA, CELLS_SOURCE)
    source = CudaSource(text, "recurrent_backward", macros, options, folders, path.name, is_settled=True)
    return WgmmaBuild(source, THREADS_PER_WARP * warps, smem_bytes, ring_bytes)


class PartialBackend(WgmmaBackend):
    """Runs the kernel that exchanges partial sums."""

    def loop(
        self, direction: str, choice: Decision, config: Config, tensors: Tensors, scratch: Scratch, **options: Any
    ) -> Sequence[Launch]:
        """See `FusedBackend.loop`."""
        workload, gpu = workload_of_choice(choice), gpu_of_choice(choice)
        options |= {"direction": direction, "scratch": scratch, "build": source_of}
        return launches_of(workload, config, tensors, gpu, **options)
