"""A configuration of the kernel for many sequences as integer expressions: its figures, resources and rules.

The figures are those of `source/layout.cuh`. The compiler asserts that both agree on shared memory: a kernel is
compiled with the number predicted here. Sums and the window of requested vectors are arrays of the source whose
elements are all live when the last chunk of a step is waited for: that part of the registers is certain. The rest is
estimated from 36 forward and 40 backward kernels that NVRTC 13 compiled for sm_90a; `SPILLING` separates those that
spilled from the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from constrint.hwmodels import GpuModel
from constrint.kernels.rnn.cells import RecurrentCell
from constrint.kernels.rnn.spec import SUFFIX
from constrint.model import Expr, any_of, ceildiv, const, divides, minimum
from constrint.model.constraint import CERTAIN, REDUNDANT
from constrint.select.limits import BlockUse, Spilling
from constrint.select.spec import Rule
from constrint.select.workload import Workload

#: The kernel's own sources; those of the cells, which recurrent kernels in CUDA C++ share, and which of them it uses.
SOURCE = Path(__file__).with_name("source")
CELLS_SOURCE = Path(__file__).parents[1] / "cuda" / "source"
CELLS_FILES = ("cells.cuh", "ptx.cuh", "shape.cuh")

#: Number of a dtype in the device code.
DTYPE_NUMBERS = {"fp16": 0, "bf16": 1}
#: Sequences of a warpgroup and of a warp, and the depth and the most columns of a matrix instruction.
GROUP_ROWS, WARP_ROWS, STEP_DEPTH, MOST_COLUMNS = 64, 16, 16, 256
#: Units per group: the columns of a matrix instruction are a multiple of this.
EIGHT = 8
#: Instructions along the depth of a slice of weights, and bytes of a line of it.
SLICE_STEPS, LINE_BYTES = 4, 128
#: Bytes that a warp reads of the exchange for one instruction.
VECTORS_BYTES = 512
#: Steps that exchanged states stand in a ring of global memory, and steps between two fences (`source/exchange.cuh`).
RING, FENCE = 32, 14
#: Heads are padded to multiples of this: whole slices of weights.
HEAD_MULTIPLE = STEP_DEPTH * SLICE_STEPS
#: Barriers of a block.
BARRIERS = 16
#: Registers for addresses, the rows of a thread, and values in flight.
OTHER_REGISTERS = {"forward": 24, "backward": 50}
#: Chunks of a warpgroup's step: the source instantiates a template for each, up to 200 of which NVRTC nests.
MOST_CHUNKS = 160
#: Half of the kernels spill whose estimate equals the registers that a thread may have; below, hardly any one spills.
SPILLING = Spilling.of(at_percent=100, slope_tenths=200, error_percent=25)


@dataclass(frozen=True)
class WgmmaLoop:
    """One direction of a layer in terms of the parameters `v`.

    Args:
        cell: The cell.
        head_dim: D.
        v: The parameters.
        direction: "forward" or "backward".
    """

    cell: RecurrentCell
    head_dim: int
    v: Mapping[str, Expr]
    direction: str = "forward"

    @classmethod
    def of(cls, cell: RecurrentCell, workload: Workload, v: Mapping[str, Expr]) -> WgmmaLoop:
        """The loop of a workload, in the direction of its operation."""
        return cls(cell, workload.sizes["head_dim"], v, direction_of(workload))

    @property
    def is_forward(self) -> bool:
        """Whether it is the forward pass."""
        return self.direction == "forward"

    @property
    def num_steps(self) -> int:
        """Matrix instructions along the depth: units of the head, backward those of all gates."""
        return self.head_dim * (1 if self.is_forward else self.cell.num_gates) // STEP_DEPTH

    @cached_property
    def blocks(self) -> Expr:
        """Blocks that share a head."""
        return const(self.head_dim) // self.v["units"]

    @cached_property
    def columns(self) -> Expr:
        """Columns of a block's product: all gates of its units, backward its units."""
        return self.v["units"] * (self.cell.num_gates if self.is_forward else 1)

    @cached_property
    def eights(self) -> Expr:
        """Groups of eight units per block, which is the number of pairs of units per thread."""
        return self.v["units"] // EIGHT

    @cached_property
    def tiles(self) -> Expr:
        """Tiles of 16 sequences of a block, one for each warp."""
        return self.v["tile_batch"] // WARP_ROWS

    @cached_property
    def row_groups(self) -> Expr:
        """Warpgroups with sequences of their own."""
        return ceildiv(self.v["tile_batch"], GROUP_ROWS)

    @cached_property
    def warps(self) -> Expr:
        """Warps of a block."""
        return 4 * self.row_groups * self.v["depth_groups"]

    @cached_property
    def own_rows(self) -> Expr:
        """Sequences per thread: the two that it has sums of, or one where warpgroups share the depth."""
        return 2 // self.v["depth_groups"]

    @cached_property
    def own_steps(self) -> Expr:
        """Matrix instructions of a warpgroup in a step."""
        return self.num_steps // self.v["depth_groups"]

    @cached_property
    def window(self) -> Expr:
        """Vectors that a thread requests from the exchange at once."""
        return minimum(self.v["window"], self.own_steps)

    @cached_property
    def sums(self) -> Expr:
        """Registers of a thread that hold sums."""
        return self.columns // 2

    @cached_property
    def items(self) -> Expr:
        """Units of a sequence that a thread computes."""
        return 2 * self.own_rows * self.eights

    @cached_property
    def weight_bytes(self) -> Expr:
        """Weights in shared memory."""
        return ceildiv(self.num_steps, SLICE_STEPS) * LINE_BYTES * self.columns

    @cached_property
    def handed_bytes(self) -> Expr:
        """Bytes of sums that two warpgroups exchange: two copies of half of a block's sums."""
        return (self.v["depth_groups"] - 1) * 2 * 4 * (self.sums // 2) * 32 * self.warps

    @cached_property
    def smem_bytes(self) -> Expr:
        """Shared memory of a block; exact."""
        return self.weight_bytes + self.handed_bytes + (4 * self.columns if self.is_forward else 0)

    @cached_property
    def step_bytes(self) -> Expr:
        """Bytes that a block reads in a step of the states of its group."""
        return self.num_steps * self.tiles * VECTORS_BYTES

    @cached_property
    def ring_bytes(self) -> Expr:
        """Global memory in which a group of blocks exchanges states."""
        return RING * self.step_bytes


def direction_of(workload: Workload) -> str:
    """The direction of a workload's operation."""
    return "backward" if workload.operation.endswith(SUFFIX["backward"]) else "forward"


def shape_of(cell: RecurrentCell, head_dim: int, config: Mapping[str, int], direction: str = "forward") -> WgmmaLoop:
    """The loop of one configuration: every expression has a value."""
    return WgmmaLoop(cell, head_dim, {name: const(value) for name, value in config.items()}, direction)


def padded_head_dim(head_dim: int) -> int:
    """The head dimension that the kernel runs."""
    return -(-head_dim // HEAD_MULTIPLE) * HEAD_MULTIPLE


def block_use(shape: WgmmaLoop) -> BlockUse:
    """Warps, registers and shared memory of one block."""
    return BlockUse(
        warps=shape.warps,
        registers_per_thread=least_registers(shape) + carried_registers(shape) + OTHER_REGISTERS[shape.direction],
        smem_bytes=shape.smem_bytes,
        least_registers=least_registers(shape),
        spilling=SPILLING,
        together=shape.blocks,
    )


def least_registers(shape: WgmmaLoop) -> Expr:
    """Least registers of a thread: sums, and the window that rows are read into."""
    return shape.sums + 4 * shape.window + 1


def carried_registers(shape: WgmmaLoop) -> Expr:
    """Registers of a thread that hold states or their gradients, and the next step's inputs, two of them in a word."""
    cell = shape.cell
    outside = cell.num_gates if shape.is_forward else cell.num_loads("backward") - 1 + cell.num_states
    return shape.items * cell.num_states + shape.items * outside // 2


def rules_of(gpu: GpuModel, shape: WgmmaLoop, workload: Workload) -> Iterator[Rule]:
    """All rules but the limits of a block."""
    v, steps = shape.v, shape.num_steps
    most = f"wgmma has at most {MOST_COLUMNS} columns: all gates of a block's units"
    yield Rule(shape.columns <= MOST_COLUMNS, "columns", because=most, kind=CERTAIN)
    fit = f"blocks that wait for each other run at once: {gpu.device.sm_count} fit, one on each {gpu.terms.sm}"
    yield Rule(shape.blocks <= gpu.device.sm_count, "co_resident", because=fit, kind=CERTAIN)
    halves = any_of(v["depth_groups"] == 1, divides(2 * SLICE_STEPS, steps))
    because = "warpgroups that share the depth have whole slices of weights each"
    yield Rule(halves, "whole_slices", because=because, kind=CERTAIN)
    met = any_of(v["depth_groups"] == 1, 4 * shape.row_groups < BARRIERS)
    because = f"two warps of the same sequences meet at a barrier of their own, and all at one; a block has {BARRIERS}"
    yield Rule(met, "barriers", because=because, kind=CERTAIN)
    because = "the depth of a warpgroup is made of whole chunks"
    yield Rule(divides(v["chunk"] * v["depth_groups"], steps), "whole_chunks", because=because, kind=CERTAIN)
    because = f"a template is instantiated for each chunk, and NVRTC nests no more than {MOST_CHUNKS} surely"
    yield Rule(v["chunk"] * MOST_CHUNKS >= shape.own_steps, "chunks_nest", because=because, kind=CERTAIN)
    several = any_of(v["window"] >= 2 * v["chunk"], v["window"] >= shape.own_steps)
    because = "a chunk is asked for while another one is multiplied"
    yield Rule(several, "chunks_ahead", because=because, kind=CERTAIN)
    yield Rule(divides(v["chunk"], v["window"]), "whole_window", because="a window has whole chunks", kind=REDUNDANT)
    because = "a window larger than the depth holds nothing more"
    yield Rule(v["window"] < shape.own_steps + v["chunk"], "window_in_depth", because=because, kind=REDUNDANT)
    alone = any_of(v["probe"] == 0, v["chunk"] < shape.own_steps)
    yield Rule(alone, "others_to_ask_for", because="a chunk that is all there is waits alone anyway", kind=REDUNDANT)
    padding = "a larger tile would compute nothing but padding"
    rows = -(-workload.sizes["batch"] // WARP_ROWS) * WARP_ROWS
    if rows < 256:
        yield Rule(v["tile_batch"] <= max(rows, WARP_ROWS), "tile_in_batch", because=padding, kind=REDUNDANT)
