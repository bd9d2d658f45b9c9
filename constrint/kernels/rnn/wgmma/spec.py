"""The parameter space of the forward kernel for many sequences, in CUDA C++ for Hopper.

A reviewer can check the rules against `source/layout.cuh`, which asserts the same when it is compiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.kernels.rnn.cells import BUILT_IN
from constrint.kernels.rnn.spec import NvrtcSpec, with_sizes
from constrint.kernels.rnn.wgmma.cost import wgmma_assumptions, wgmma_cost
from constrint.kernels.rnn.wgmma.shape import (
    CELLS_FILES,
    CELLS_SOURCE,
    EIGHT,
    MOST_COLUMNS,
    SOURCE,
    WgmmaLoop,
    block_use,
    padded_head_dim,
    rules_of,
)
from constrint.select.candidate import Config
from constrint.select.cost import CostColumns
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, Launch, Param, Rule, Vars
from constrint.select.workload import Workload

if TYPE_CHECKING:
    from constrint.kernels.rnn.interface import RnnBackend

#: The kind of matrix instruction that the source is written with.
INSTRUCTION = "wgmma"
#: Sequences of a block.
TILES = (64, 128, 32, 16, 48, 96, 192, 256)
#: Vectors that a thread asks the exchange for at once, and those of them between two waits.
WINDOWS, CHUNKS = (24, 16, 12, 8, 32, 4), (8, 4, 2, 1, 3, 6, 12, 16, 24)
#: Spilled bytes up to which loops took the time that is predicted without spills: 8 of them on an H200, within 2 %
#: in the median; with more, up to three times as long (`python -m benchmarks.rnn.fit_wgmma` shows both).
HARMLESS_SPILL_BYTES = 64
#: Sequences of the layers that are tuned by default.
USUAL_BATCH = 256


class WgmmaSpec(NvrtcSpec):
    """The forward pass of a layer: every block multiplies up to 64 sequences by each instruction.

    The weights of a larger head than `max_head_dim` fit the shared memory of no GPU.
    """

    name = "wgmma"
    how = "weights stay in shared memory, many sequences at once by wgmma"
    dtypes = ("bf16", "fp16")
    backward_by = "cuda"
    max_head_dim = 4096
    planned_batches = (16, 32, 64, 128, 256, 512, 1024)
    usual_heads = ((1, 512), (1, 768), (1, 1024))
    harmless_spill_bytes = HARMLESS_SPILL_BYTES
    resident_params = ("units", "tile_batch")

    @cached_property
    def device_files(self) -> tuple[Path, ...]:
        """The sources, and the headers with the cells."""
        own = sorted(path for path in SOURCE.iterdir() if path.suffix in (".cu", ".cuh"))
        return (Path(__file__).with_name("instruction.py"), *own, *(CELLS_SOURCE / name for name in CELLS_FILES))

    def shape(self, workload: Workload, v: Vars) -> WgmmaLoop:
        """The time loop of a workload, with the parameters as variables."""
        return WgmmaLoop.of(self.cell, workload, v)

    def check_dtype(self, gpu: GpuModel, workload: Workload) -> None:
        """Refuse GPUs without the matrix instruction that the source is written with."""
        unit = gpu.dot_unit(workload.dtype)
        if unit is None or unit.kind != INSTRUCTION:
            raise UnsupportedError(
                f"{gpu.name} ({gpu.arch.target}) has no {INSTRUCTION} for {workload.dtype}, which the kernel for many "
                "sequences is written with. Use the back-end 'cuda' or 'triton'."
            )

    def padded_dim(self, head_dim: int, dtype: str) -> int:
        """The next multiple of a slice of weights."""
        return padded_head_dim(head_dim)

    def params(self, gpu: GpuModel, workload: Workload) -> tuple[Param, ...]:
        """Parameters: units and sequences of a block, and the dealing of a step to warpgroups."""
        dim, most = workload.sizes["head_dim"], MOST_COLUMNS // self.cell.num_gates
        units = tuple(unit for unit in range(EIGHT, min(dim, most) + 1, EIGHT) if dim % unit == 0)
        rows, in_flight = "a warp has 16 sequences, a warpgroup 64", "a vector of 16 bytes for each instruction"
        again = "1: gates are not stored, the backward pass computes them again"
        return (
            Param("units", units, "units of a head in a block", "divisors of head_dim, eight columns each"),
            Param("tile_batch", TILES, "sequences of a block", rows),
            Param("depth_groups", (2, 1), "warpgroups that share the depth", "each keeps one of a thread's rows", "dg"),
            Param("window", WINDOWS, "vectors of the exchange in flight", in_flight, "w"),
            Param("chunk", CHUNKS, "vectors between two waits", "what is there is multiplied meanwhile", "ch"),
            Param(
                "probe",
                (1, 0),
                "1: the first chunk is waited for alone",
                "others are asked for when they are there",
                "p",
            ),
            Param("recompute", (0, 1), again, "a switch"),
        )

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        """Rules on dealing a head to blocks, and a step to warpgroups."""
        yield from rules_of(gpu, self.shape(workload, v), workload)

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse:
        """Warps, registers and shared memory of one block."""
        return block_use(self.shape(workload, v))

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """Predicted time per row: steps one after the other, each the latency of its parts."""
        return wgmma_cost(gpu, self.cell, workload, columns)

    def assumptions(self, gpu: GpuModel, workload: Workload) -> tuple[str, ...]:
        """Figures of this GPU that no source states and the model assumes."""
        return wgmma_assumptions(gpu)

    def usual_workloads(self, gpu: GpuModel) -> Iterable[Workload]:
        """Layers of `usual_heads` with many sequences."""
        for workload in super().usual_workloads(gpu):
            yield with_sizes(workload, batch=USUAL_BATCH)

    def backend(self) -> RnnBackend:
        """Pads, launches and crops."""
        from constrint.kernels.rnn.wgmma.launch import WgmmaBackend

        return WgmmaBackend()

    def launches(
        self, gpu: GpuModel, workload: Workload, config: Config, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> Sequence[Launch]:
        """A fill of the memory that states are exchanged through, and the time loop."""
        from constrint.kernels.rnn.wgmma.launch import launches_of

        return launches_of(workload, config, {**inputs, **outputs}, gpu)


SPECS = tuple(WgmmaSpec(cell, "forward") for cell in BUILT_IN.values())
