"""The parameter space of the forward kernel for many sequences, in CUDA C++ for Hopper.

A reviewer can check the rules against `source/layout.cuh`, which asserts the same when it is compiled.
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
from constrint.kernels.rnn.forward_spec import ForwardSpec
from constrint.kernels.rnn.spec import with_sizes
from constrint.kernels.rnn.wgmma.cost import wgmma_assumptions, wgmma_cost
from constrint.kernels.rnn.wgmma.resources import block_use
from constrint.kernels.rnn.wgmma.rules import rules_of
from constrint.kernels.rnn.wgmma.shape import EIGHT, MOST_COLUMNS, Shape, padded_head_dim
from constrint.kernels.rnn.wgmma.sources import CELLS_FILES, CELLS_SOURCE, SOURCE
from constrint.select.candidate import Config
from constrint.select.cost import CostColumns
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, Launch, Param, Rule, Vars
from constrint.select.workload import Workload

if TYPE_CHECKING:
    import torch

    from constrint.kernels.rnn.interface import RnnBackend

#: The kind of matrix instruction that the source is written with.
INSTRUCTION = "wgmma"
#: Sequences of a block.
TILES = (64, 128, 32, 16, 48, 96, 192, 256)
#: Vectors that a thread asks the exchange for at once, and those of them between two waits.
WINDOWS, CHUNKS = (24, 16, 12, 8, 32, 4), (8, 4, 2, 1, 3, 6, 12, 16, 24)
#: The largest head: more of its weights than this fit the shared memory of no GPU.
MAX_HEAD_DIM = 4096
#: Steps that a configuration is chosen for, and steps that a candidate is checked over.
PLANNED_TIME, CHECKED_TIME = 1024, 32
#: Loops that spill so much took as long as was predicted of such that spill nothing: 8 of them on an H200, within 2 %
#: in the median; with more, up to three times as long (`python -m benchmarks.rnn.wgmma.fit` shows both).
HARMLESS_SPILL_BYTES = 64
#: Sequences, and units of a head, of the layers that are tuned where nobody names any.
USUAL_BATCH, USUAL_DIMS = 256, (512, 768, 1024)
#: Batch sizes that a configuration is chosen for.
PLANNED_BATCHES = (16, 32, 64, 128, 256, 512, 1024)


class WgmmaSpec(ForwardSpec):
    """The forward pass of a layer: every block multiplies up to 64 sequences by each instruction."""

    name = "wgmma"
    how = "weights stay in shared memory, many sequences at once by wgmma"
    dtypes = ("bf16", "fp16")
    backward_by = "cuda"
    may_recompute = True
    harmless_spill_bytes = HARMLESS_SPILL_BYTES
    resident_params = ("units", "tile_batch")

    @cached_property
    def device_files(self) -> tuple[Path, ...]:
        """The sources, and the headers with the cells."""
        own = sorted(path for path in SOURCE.iterdir() if path.suffix in (".cu", ".cuh"))
        return (Path(__file__).with_name("instruction.py"), *own, *(CELLS_SOURCE / name for name in CELLS_FILES))

    @property
    def compilers(self) -> Mapping[str, str]:
        """NVRTC."""
        from constrint.kernels.launch.cuda.nvrtc import nvrtc_here

        return nvrtc_here()

    def shape(self, workload: Workload, v: Vars) -> Shape:
        """What the parameters mean for a workload."""
        return Shape.of(self.cell, workload, v)

    def check_dtype(self, gpu: GpuModel, workload: Workload) -> None:
        """Refuse GPUs without the matrix instruction that the source is written with."""
        unit = gpu.dot_unit(workload.dtype)
        if unit is None or unit.kind != INSTRUCTION:
            raise UnsupportedError(
                f"{gpu.name} ({gpu.arch.target}) has no {INSTRUCTION} for {workload.dtype}, which the kernel for many "
                "sequences is written with. Use the back-end 'cuda' or 'triton'."
            )

    def check_workload(self, gpu: GpuModel, workload: Workload) -> None:
        """Refuse sizes and dtypes that there are not, heads the kernel cannot take, and what memory cannot hold."""
        super().check_workload(gpu, workload)
        dim, padded = workload.sizes["head_dim"], padded_head_dim(workload.sizes["head_dim"])
        if dim != padded or dim > MAX_HEAD_DIM:
            raise UsageError(
                f"head_dim must be a multiple of {padded_head_dim(1)} up to {MAX_HEAD_DIM}, got {dim}. "
                f"{f'Pad each head to {padded}' if padded <= MAX_HEAD_DIM else 'Split it into several heads'}, or use "
                "the back-end 'alternating', which takes any size."
            )

    def params(self, gpu: GpuModel, workload: Workload) -> tuple[Param, ...]:
        """How many units and sequences a block has, and how a step is dealt to warpgroups."""
        dim, most = workload.sizes["head_dim"], MOST_COLUMNS // self.cell.num_gates
        units = tuple(unit for unit in range(EIGHT, min(dim, most) + 1, EIGHT) if dim % unit == 0)
        rows, asked = "a warp has 16 sequences, a warpgroup 64", "a vector of 16 bytes for each instruction"
        again = "1: gates are not stored, the backward pass computes them again"
        return (
            Param("units", units, "units of a head in a block", "divisors of head_dim, eight columns each"),
            Param("tile_batch", TILES, "sequences of a block", rows),
            Param("depth_groups", (2, 1), "warpgroups that share the depth", "each keeps one of a thread's rows", "dg"),
            Param("window", WINDOWS, "vectors of the exchange in flight", asked, "w"),
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
        """How a head is dealt to blocks, and a step to warpgroups."""
        yield from rules_of(gpu, self.shape(workload, v), workload)

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse:
        """Warps, registers and shared memory of one block."""
        return block_use(self.shape(workload, v))

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """Predicted time per row: steps one after the other, each the latency of its parts."""
        return wgmma_cost(gpu, self.cell, workload, columns)

    def assumptions(self, gpu: GpuModel, workload: Workload) -> tuple[str, ...]:
        """What no source states for this GPU and had to be assumed."""
        return wgmma_assumptions(gpu)

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
        """With padded heads."""
        return with_sizes(workload, head_dim=padded_head_dim(workload.sizes["head_dim"]))

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
        """Layers of many sequences."""
        usual = self.default_workload(gpu)
        for dim in USUAL_DIMS:
            yield self.bucket(with_sizes(usual, batch=USUAL_BATCH, heads=1, head_dim=dim))

    def compiled_as(self, workload: Workload) -> Workload:
        """Steps, sequences and heads are values of the run."""
        return with_sizes(workload, batch=1, time=1, heads=1)

    def note(self, workload: Workload, directions: Collection[str]) -> str:
        """Whether heads are padded, and what runs backward."""
        dim, padded = workload.sizes["head_dim"], padded_head_dim(workload.sizes["head_dim"])
        notes = [] if dim == padded else [f"heads are padded from {dim} to {padded} units"]
        notes += [f"the backward pass is that of {self.backward_by}"] if "backward" in directions else []
        return "; ".join(notes)

    def backend(self) -> RnnBackend:
        """Pads, launches and crops."""
        from constrint.kernels.rnn.wgmma.backend import WgmmaBackend

        return WgmmaBackend()

    def inputs(self, gpu: GpuModel, workload: Workload, *, device: Any = "meta", seed: int = 0) -> dict[str, Any]:
        """Those of a layer with bias."""
        from constrint.kernels.rnn.tensors import make_inputs

        return make_inputs(self.cell, self.direction, workload, device=device, seed=seed)

    def outputs(self, gpu: GpuModel, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """States and pre-activations."""
        from constrint.kernels.rnn.tensors import make_outputs

        return make_outputs(self.cell, self.direction, inputs["wx"])

    def launches(
        self, gpu: GpuModel, workload: Workload, config: Config, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> Sequence[Launch]:
        """A fill of the memory that states are exchanged through, and the time loop."""
        from constrint.kernels.rnn.wgmma.launch import launches_of

        return launches_of(workload, config, {**inputs, **outputs}, gpu)

    def reference(self, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """States in fp64."""
        from constrint.kernels.rnn.tensors import exact_outputs

        return exact_outputs(self.cell, self.direction, inputs)


def planned_batch(batch: int) -> int:
    """The batch size that stands for `batch`."""
    return next((size for size in PLANNED_BATCHES if batch <= size), PLANNED_BATCHES[-1])


SPECS = tuple(WgmmaSpec(cell, "forward") for cell in CELLS.values())
