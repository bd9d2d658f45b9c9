"""The parameter spaces of the recurrent CUDA kernels, forward and backward, for NVIDIA's GPUs from sm_80 on.

A reviewer can check the rules against `source/shape.cuh`, which asserts the same when it is compiled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from constrint.errors import UnsupportedError, UsageError
from constrint.hwmodels import GpuModel
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.cuda.cost import cuda_assumptions, cuda_cost
from constrint.kernels.rnn.cuda.measured import measured_layer
from constrint.kernels.rnn.cuda.resources import block_use
from constrint.kernels.rnn.cuda.rules import MOST_TILES, rules_of
from constrint.kernels.rnn.cuda.shape import BLOCK, CLUSTER, GRID, MMA_COLUMNS, Shape, padded_head_dim
from constrint.kernels.rnn.measured import Between
from constrint.kernels.rnn.spec import SUFFIX, RnnSpec, with_sizes
from constrint.select.candidate import Config
from constrint.select.cost import CostColumns
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, Launch, Param, Rule, Vars
from constrint.select.workload import ELEMENT_BYTES, Workload

if TYPE_CHECKING:
    import torch

    from constrint.kernels.rnn.interface import RnnBackend

#: The kind of matrix instruction that the source is written with; fp32 is put together from three products of tf32.
INSTRUCTION = "mma"
#: The largest head dimension: no GPU has registers, shared memory and L2 for a larger one.
MAX_HEAD_DIM = 8192
#: The most pairs of matrix instructions whose weights fit a thread's registers: 31 x 8.
MOST_REGISTER_PAIRS = 31
#: The most pairs of a warp's weights that are read again in every step.
MOST_STREAMED_PAIRS = 63
#: Warps of a block in one direction; a block has at most 32.
WARPS = (8, 4, 2, 16, 1, 3, 32)
#: Steps that a configuration is chosen for, and steps that a candidate is checked over.
PLANNED_TIME, CHECKED_TIME = 1024, 32
#: Heads and units of each that are tuned where nobody names any.
USUAL_HEADS = ((1, 256), (1, 512), (1, 1024), (12, 64))
#: Batch sizes that a configuration is chosen for.
PLANNED_BATCHES = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
#: Configurations that spill so much took as long as was predicted of such that spill nothing: 227 of them on an H200,
#: within 3 % in the median; with more, 10 to 20 % longer (`python -m benchmarks.rnn.fit_cuda` shows both).
HARMLESS_SPILL_BYTES = 128
#: The device code.
SOURCE = Path(__file__).with_name("source")


class CudaRnnSpec(RnnSpec):
    """One direction of a recurrent layer whose weights stay on the chip."""

    name = "cuda"
    how = "weights stay on the chip, CUDA C++"
    dtypes = ("bf16", "fp16", "fp32", "tf32")
    may_recompute = True
    harmless_spill_bytes = HARMLESS_SPILL_BYTES
    resident_params = ("placement", "units", "tile_batch", "num_tiles")

    @cached_property
    def device_files(self) -> tuple[Path, ...]:
        """The sources."""
        return tuple(sorted(path for path in SOURCE.iterdir() if path.suffix in (".cu", ".cuh")))

    @property
    def compilers(self) -> Mapping[str, str]:
        """NVRTC."""
        from constrint.kernels.launch.cuda.nvrtc import nvrtc_here

        return nvrtc_here()

    def shape(self, workload: Workload, v: Vars) -> Shape:
        """What the parameters mean for a workload."""
        return Shape.of(self.cell, self.direction, workload, v)

    def check_dtype(self, gpu: GpuModel, workload: Workload) -> None:
        """Refuse GPUs without the matrix instruction that the source is written with."""
        dtype = "tf32" if workload.dtype == "fp32" else workload.dtype
        unit = gpu.dot_unit(dtype)
        if unit is None or (unit.fallback or unit.kind) != INSTRUCTION:
            raise UnsupportedError(
                f"{gpu.name} ({gpu.arch.target}) has no {INSTRUCTION}.sync for {dtype}, which the CUDA kernels are "
                "written with. Use the back-end 'triton' or 'alternating'."
            )

    def check_workload(self, gpu: GpuModel, workload: Workload) -> None:
        """Refuse sizes and dtypes that there are not, heads the kernels cannot take, and what memory cannot hold."""
        super().check_workload(gpu, workload)
        dim = workload.sizes["head_dim"]
        padded = _padded(workload)
        if dim != padded or dim > MAX_HEAD_DIM:
            fit = f"Pad each head to {padded}" if padded <= MAX_HEAD_DIM else "Split it into several heads"
            raise UsageError(
                f"head_dim must be a multiple of {_padded(with_sizes(workload, head_dim=1))} for {workload.dtype}, "
                f"up to {MAX_HEAD_DIM}, got {dim}. {fit}, or use the back-end 'alternating', which takes any size."
            )

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
        """Whether a head's weights may be more than what shared memory holds of them."""
        weights = self.cell.num_gates * workload.sizes["head_dim"] ** 2 * ELEMENT_BYTES[workload.dtype]
        return weights > gpu.device.sm_count * gpu.sm.max_smem_bytes_per_block // 2

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        """How a head is dealt to blocks, a block's rows and depth to warps, and sequences to groups."""
        shape = self.shape(workload, v)
        yield from rules_of(gpu, shape, workload, block_use(gpu, shape))

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse:
        """Warps, registers and shared memory of one block."""
        return block_use(gpu, self.shape(workload, v))

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """Predicted time per row: steps one after the other, each the latency of its parts."""
        return cuda_cost(gpu, self.cell, self.direction, workload, columns, blocks_per_sm)

    def assumptions(self, gpu: GpuModel, workload: Workload) -> tuple[str, ...]:
        """What no source states for this GPU and had to be assumed."""
        return cuda_assumptions(gpu)

    def refusal_on(self, device: torch.device, gpu: GpuModel | None) -> str:
        """It needs a GPU with a model, NVRTC, and Triton for the copies at a sequence's edges."""
        if device.type != "cuda":
            return f"the CUDA kernels need a GPU, the device is {device.type}"
        if gpu is None:
            return "no configuration without a model of the GPU"
        if find_spec("triton") is None:
            return "triton is not installed (pip install constrint[torch])"
        from constrint.kernels.launch.cuda import obstacle

        return obstacle()

    def run_as(self, workload: Workload) -> Workload:
        """With heads of the next multiple of a pair of matrix instructions."""
        return with_sizes(workload, head_dim=_padded(workload))

    def planned(self, workload: Workload) -> Workload:
        """The batch rounded up to one of few sizes, and a time from which on the choice does not depend on it."""
        return with_sizes(self.run_as(workload), batch=planned_batch(workload.sizes["batch"]), time=PLANNED_TIME)

    def bucket(self, workload: Workload) -> Workload:
        """The same as `planned`: what is chosen once is tuned once."""
        return self.planned(workload)

    def ways(self, workload: Workload) -> tuple[dict[str, int], ...]:
        """With pre-activations stored, and with these computed again: both directions are launched alike."""
        return tuple({"recompute": value} for value in (0, 1))

    def checked_as(self, workload: Workload) -> Workload:
        """With fewer steps: rounding grows with them, and the code of a step is the same."""
        return with_sizes(workload, time=min(workload.sizes["time"], CHECKED_TIME))

    def usual_workloads(self, gpu: GpuModel) -> Iterable[Workload]:
        """Layers of a few widths, of one head and of several."""
        usual = self.default_workload(gpu)
        for heads, dim in USUAL_HEADS:
            yield self.bucket(with_sizes(usual, heads=heads, head_dim=dim))

    def compiled_as(self, workload: Workload) -> Workload:
        """Steps, sequences and heads are values of the run."""
        return with_sizes(workload, batch=1, time=1, heads=1)

    def note(self, workload: Workload, directions: Collection[str]) -> str:
        """Whether heads are padded."""
        dim = workload.sizes["head_dim"]
        padded = _padded(workload)
        return "" if dim == padded else f"heads are padded from {dim} to {padded} units"

    def measured(self, gpu: GpuModel, workload: Workload) -> Between | None:
        """Of a layer of one head among measured ones."""
        batch, time, heads, dim = (workload.sizes[name] for name in ("batch", "time", "heads", "head_dim"))
        layer = self.cell.name, workload.dtype, self.direction
        return measured_layer(gpu.name, layer, (batch, time, dim)) if heads == 1 else None

    def backend(self) -> RnnBackend:
        """Pads, launches and crops."""
        from constrint.kernels.rnn.cuda.backend import CudaBackend

        return CudaBackend()

    def inputs(self, gpu: GpuModel, workload: Workload, *, device: Any = "meta", seed: int = 0) -> dict[str, Any]:
        """Those of a layer with bias; backward also what the forward pass leaves, and the gradient of h."""
        from constrint.kernels.rnn.tensors import make_inputs

        return make_inputs(self.cell, self.direction, workload, device=device, seed=seed)

    def outputs(self, gpu: GpuModel, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """States and pre-activations; or gradients of the slots (those of wx among them) and of the initial states."""
        from constrint.kernels.rnn.tensors import make_outputs

        return make_outputs(self.cell, self.direction, inputs["wx"])

    def launches(
        self, gpu: GpuModel, workload: Workload, config: Config, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> Sequence[Launch]:
        """The time loop; before it a fill where blocks exchange states through memory."""
        from constrint.kernels.rnn.cuda.launch import launches_of

        return launches_of(self.direction, workload, config, {**inputs, **outputs}, gpu)

    def reference(self, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """States, or gradients of wx and of the initial states, in fp64."""
        from constrint.kernels.rnn.tensors import exact_outputs

        return exact_outputs(self.cell, self.direction, inputs)


def placements(gpu: GpuModel) -> tuple[int, ...]:
    """Where the blocks of a head may be; clusters exist from Hopper on."""
    return (BLOCK, CLUSTER, GRID) if gpu.device.max_cluster_blocks_portable else (BLOCK, GRID)


def planned_batch(batch: int) -> int:
    """The batch size that stands for `batch`."""
    return next((size for size in PLANNED_BATCHES if batch <= size), PLANNED_BATCHES[-1])


def _padded(workload: Workload) -> int:
    return padded_head_dim(workload.sizes["head_dim"], ELEMENT_BYTES[workload.dtype])


SPECS = tuple(CudaRnnSpec(cell, direction) for cell in CELLS.values() for direction in SUFFIX)
