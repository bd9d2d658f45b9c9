"""The parameter spaces of the recurrent CUDA kernels, forward and backward, for NVIDIA's GPUs from sm_80 on.

A reviewer can check the rules against `source/shape.cuh`, which asserts the same when it is compiled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.kernels.rnn.cells import BUILT_IN
from constrint.kernels.rnn.cuda.cost import cuda_assumptions, cuda_cost
from constrint.kernels.rnn.cuda.resources import MOST_TILES, block_use, rules_of
from constrint.kernels.rnn.cuda.shape import (
    BLOCK,
    CLUSTER,
    GRID,
    MMA_COLUMNS,
    CudaLoop,
    padded_head_dim,
)
from constrint.kernels.rnn.spec import SUFFIX, NvrtcSpec
from constrint.select.candidate import Config
from constrint.select.cost import CostColumns
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, Launch, Param, Rule, Vars
from constrint.select.workload import ELEMENT_BYTES, Workload

if TYPE_CHECKING:
    from constrint.kernels.rnn.interface import RnnBackend


#: The kind of matrix instruction that the source is written with; fp32 is put together from three products of tf32.
INSTRUCTION = "mma"
#: The most pairs of matrix instructions whose weights fit a thread's registers: 31 x 8.
MOST_REGISTER_PAIRS = 31
#: The most pairs of a warp's weights that are read again in every step.
MOST_STREAMED_PAIRS = 63
#: Warps of a block in one direction; a block has at most 32.
WARPS = (8, 4, 2, 16, 1, 3, 32)
#: Spilled bytes up to which configurations took the time that is predicted without spills: 227 of them on an H200,
#: within 3 % in the median; with more, 10 to 20 % longer (`python -m benchmarks.rnn.fit_cuda` shows both).
HARMLESS_SPILL_BYTES = 128
#: The device code.
SOURCE = Path(__file__).with_name("source")


class CudaRnnSpec(NvrtcSpec):
    """One direction of a recurrent layer whose weights stay on the chip.

    No GPU has registers, shared memory and L2 for a larger head than `max_head_dim`.
    """

    name = "cuda"
    how = "weights stay on the chip, CUDA C++"
    dtypes = ("bf16", "fp16", "fp32", "tf32")
    max_head_dim = 8192
    planned_batches = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
    harmless_spill_bytes = HARMLESS_SPILL_BYTES
    resident_params = ("placement", "units", "tile_batch", "num_tiles")

    @cached_property
    def device_files(self) -> tuple[Path, ...]:
        """The sources."""
        return tuple(sorted(path for path in SOURCE.iterdir() if path.suffix in (".cu", ".cuh")))

    def shape(self, workload: Workload, v: Vars) -> CudaLoop:
        """The time loop of a workload, with the parameters as variables."""
        return CudaLoop.of(self.cell, self.direction, workload, v)

    def check_dtype(self, gpu: GpuModel, workload: Workload) -> None:
        """Refuse GPUs without the matrix instruction that the source is written with."""
        dtype = "tf32" if workload.dtype == "fp32" else workload.dtype
        unit = gpu.dot_unit(dtype)
        if unit is None or (unit.fallback or unit.kind) != INSTRUCTION:
            raise UnsupportedError(
                f"{gpu.name} ({gpu.arch.target}) has no {INSTRUCTION}.sync for {dtype}, which the CUDA kernels are "
                "written with. Use the back-end 'triton' or 'alternating'."
            )

    def padded_dim(self, head_dim: int, dtype: str) -> int:
        """The next multiple of a pair of matrix instructions."""
        return padded_head_dim(head_dim, ELEMENT_BYTES[dtype])

    def _multiple(self, dtype: str) -> str:
        return f"{self.padded_dim(1, dtype)} for {dtype},"

    def params(self, gpu: GpuModel, workload: Workload) -> tuple[Param, ...]:
        """Where a head's blocks are, how much each has, how its warps share that, and where the weights lie."""
        dim = workload.sizes["head_dim"]
        units = tuple(unit for unit in range(dim, 0, -1) if dim % unit == 0 and unit % MMA_COLUMNS == 0)
        at_once = "a tile of 32 sequences fills a thread's registers with sums"
        again = "1: gates are not stored, the backward pass computes them again"
        if self.direction == "backward":
            again = "1: gates are computed again by one GEMM over all steps"
        pairs, tiles = tuple(range(MOST_REGISTER_PAIRS, -1, -1)), tuple(range(1, MOST_TILES + 1))
        streamed = tuple(range(MOST_STREAMED_PAIRS + 1)) if self._may_stream(gpu, workload) else (0,)
        deeper = "a step's inputs are there when the step before it has met; more than three copies gain nothing"
        return (
            Param(
                "placement",
                placements(gpu),
                "0: one block per head, 1: a cluster, 2: the grid",
                "blocks reach each other through a cluster or through the L2",
                "at",
            ),
            Param("units", units, "units of a head in a block", "divisors of head_dim, a matrix instruction wide each"),
            Param("tile_batch", (8, 4, 16, 32), "sequences of a tile", at_once),
            Param("num_tiles", tiles, "tiles that a block does in turn", "their states wait in shared memory", "tiles"),
            Param("warps_rows", WARPS, "warps that share the rows", "a block has at most 32 warps", "wr"),
            Param("warps_depth", WARPS, "warps that share the depth", "a block has at most 32 warps", "wd"),
            Param("register_pairs", pairs, "pairs of a warp's weights in registers", "31 x 8 registers at most", "rp"),
            Param("streamed_pairs", streamed, "pairs of a warp's weights in the L2", "what the chip cannot hold", "sp"),
            Param("prefetch", (3, 2), "steps whose inputs are in flight", deeper, "pf"),
            Param("recompute", (0, 1), again, "a switch"),
        )

    def _may_stream(self, gpu: GpuModel, workload: Workload) -> bool:
        """Whether a head's weights may exceed the part that shared memory holds."""
        weights = self.cell.num_gates * workload.sizes["head_dim"] ** 2 * ELEMENT_BYTES[workload.dtype]
        return weights > gpu.device.sm_count * gpu.sm.max_smem_bytes_per_block // 2

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        """Rules on dealing a head to blocks, a block's rows and depth to warps, and sequences to groups."""
        shape = self.shape(workload, v)
        yield from rules_of(gpu, shape, workload, block_use(gpu, shape))

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse:
        """Warps, registers and shared memory of one block."""
        return block_use(gpu, self.shape(workload, v))

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """Predicted time per row: steps one after the other, each the latency of its parts."""
        return cuda_cost(gpu, self.cell, self.direction, workload, columns, blocks_per_sm)

    def assumptions(self, gpu: GpuModel, workload: Workload) -> tuple[str, ...]:
        """Figures of this GPU that no source states and the model assumes."""
        return cuda_assumptions(gpu)

    def backend(self) -> RnnBackend:
        """Pads, launches and crops."""
        from constrint.kernels.rnn.cuda.launch import CudaBackend

        return CudaBackend()

    def launches(
        self, gpu: GpuModel, workload: Workload, config: Config, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> Sequence[Launch]:
        """The time loop; before it a fill where blocks exchange states through memory."""
        from constrint.kernels.rnn.cuda.launch import launches_of

        return launches_of(self.direction, workload, config, {**inputs, **outputs}, gpu)


def placements(gpu: GpuModel) -> tuple[int, ...]:
    """Where the blocks of a head may be; clusters exist from Hopper on."""
    return (BLOCK, CLUSTER, GRID) if gpu.device.max_cluster_blocks_portable else (BLOCK, GRID)


SPECS = tuple(CudaRnnSpec(cell, direction) for cell in BUILT_IN.values() for direction in SUFFIX)
