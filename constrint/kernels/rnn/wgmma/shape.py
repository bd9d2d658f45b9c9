"""What a configuration of the kernel for many sequences means, as integer expressions: the figures of `layout.cuh`.

That both say the same of shared memory the compiler asserts: a kernel is compiled with the number predicted here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from constrint.kernels.rnn.cells import CELLS, Cell
from constrint.model import Expr, ceildiv, const, minimum
from constrint.select.workload import Workload

#: The number by which the device code knows a cell, and a dtype.
CELL_NUMBERS = {name: number for number, name in enumerate(CELLS)}
DTYPE_NUMBERS = {"fp16": 0, "bf16": 1}
#: Sequences of a warpgroup and of a warp, and the depth and the most columns of a matrix instruction.
GROUP_ROWS, WARP_ROWS, STEP_DEPTH, MOST_COLUMNS = 64, 16, 16, 256
#: Units that come together: as many as a matrix instruction's columns are a multiple of.
EIGHT = 8
#: Instructions along the depth of a slice of weights, and bytes of a line of it.
SLICE_STEPS, LINE_BYTES = 4, 128
#: Bytes that a warp reads of the exchange for one instruction.
VECTORS_BYTES = 512
#: Steps that exchanged states stand in a ring of global memory, and steps between two fences (`source/exchange.cuh`).
RING, FENCE = 32, 14
#: Heads are padded to multiples of this: whole slices of weights.
HEAD_MULTIPLE = STEP_DEPTH * SLICE_STEPS


@dataclass(frozen=True)
class Shape:
    """The forward pass of a layer in terms of the parameters `v`.

    Args:
        cell: The cell.
        head_dim: D.
        v: The parameters.
    """

    cell: Cell
    head_dim: int
    v: Mapping[str, Expr]

    @classmethod
    def of(cls, cell: Cell, workload: Workload, v: Mapping[str, Expr]) -> Shape:
        """That of a workload."""
        return cls(cell, workload.sizes["head_dim"], v)

    @property
    def num_steps(self) -> int:
        """Matrix instructions along the depth."""
        return self.head_dim // STEP_DEPTH

    @cached_property
    def blocks(self) -> Expr:
        """Blocks that share a head."""
        return const(self.head_dim) // self.v["units"]

    @cached_property
    def columns(self) -> Expr:
        """Columns of a block's product: all gates of its units."""
        return self.cell.num_gates * self.v["units"]

    @cached_property
    def eights(self) -> Expr:
        """Groups of eight units of a block: as many pairs of units a thread has."""
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
        """Sequences that a thread computes: of the two that it has sums of, one where warpgroups share the depth."""
        return 2 // self.v["depth_groups"]

    @cached_property
    def own_steps(self) -> Expr:
        """Matrix instructions of a warpgroup in a step."""
        return self.num_steps // self.v["depth_groups"]

    @cached_property
    def window(self) -> Expr:
        """Vectors that a thread has asked the exchange for at once."""
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
        """Sums that two warpgroups of the depth hand to each other: two copies of half of a block's sums."""
        return (self.v["depth_groups"] - 1) * 2 * 4 * (self.sums // 2) * 32 * self.warps

    @cached_property
    def smem_bytes(self) -> Expr:
        """Shared memory of a block; exact."""
        return self.weight_bytes + self.handed_bytes + 4 * self.columns

    @cached_property
    def step_bytes(self) -> Expr:
        """What a block reads in a step of all that its group computed in the step before."""
        return self.num_steps * self.tiles * VECTORS_BYTES

    @cached_property
    def ring_bytes(self) -> Expr:
        """Global memory in which a group of blocks exchanges states."""
        return RING * self.step_bytes


def shape_of(cell: Cell, head_dim: int, config: Mapping[str, int]) -> Shape:
    """That of one configuration: every expression of it has a value."""
    return Shape(cell, head_dim, {name: const(value) for name, value in config.items()})


def padded_head_dim(head_dim: int) -> int:
    """The head dimension that the kernel runs."""
    return -(-head_dim // HEAD_MULTIPLE) * HEAD_MULTIPLE
