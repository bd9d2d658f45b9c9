"""A configuration of the recurrent CUDA kernels as integer expressions: the figures of `source/shape.cuh`.

The names are those of the device code in words. That both say the same of shared memory the compiler asserts: a kernel
is compiled with the number that is predicted here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from constrint.hwmodels import GpuModel, assumed
from constrint.kernels.rnn.cells import RecurrentCell
from constrint.model import Constraint, Expr, all_of, ceildiv, const, maximum
from constrint.select.workload import ELEMENT_BYTES, Workload

#: Values of `placement`: one block has the whole head, or a cluster shares it, or blocks anywhere on the grid do.
BLOCK, CLUSTER, GRID = 0, 1, 2
#: Number of a dtype in the device code.
DTYPE_NUMBERS = {"fp16": 0, "bf16": 1, "tf32": 2, "fp32": 3}
#: Tensors are read by vectors of this many bytes; a pair of matrix instructions takes four of a row.
VECTOR_BYTES, VECTORS_OF_PAIR = 16, 4
#: Columns of a matrix instruction.
MMA_COLUMNS = 8
#: Vectors of 16 bytes that a thread requests from the grid at once; fewer where it also waits for weights.
WINDOW, STREAMING_WINDOW = 16, 8
#: Tiles of weights in global memory that a warp has requested while it works on others.
MOST_STREAMING = 3
#: Steps that exchanged states stand in a ring of global memory, and steps between two fences (`source/exchange.cuh`).
RING, FENCE = 32, 14
#: Bytes of the weights of eight rows for one pair.
EIGHT_BYTES = 512


@dataclass(frozen=True)
class CudaLoop:
    """One direction of one layer in terms of the parameters `v`.

    Args:
        cell: The cell.
        direction: "forward" or "backward".
        head_dim: D.
        dtype: Name of the operands' dtype.
        v: The parameters.
    """

    cell: RecurrentCell
    direction: str
    head_dim: int
    dtype: str
    v: Mapping[str, Expr]

    @classmethod
    def of(cls, cell: RecurrentCell, direction: str, workload: Workload, v: Mapping[str, Expr]) -> CudaLoop:
        """The loop of a workload."""
        return cls(cell, direction, workload.sizes["head_dim"], workload.dtype, v)

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of inputs and states."""
        return ELEMENT_BYTES[self.dtype]

    @property
    def vector(self) -> int:
        """Elements of a vector."""
        return VECTOR_BYTES // self.element_bytes

    @property
    def num_products(self) -> int:
        """Products per pair of matrix instructions: one in fp32 is the sum of three in tf32."""
        return 3 if self.dtype == "fp32" else 1

    @property
    def is_forward(self) -> bool:
        """Whether it is the forward pass."""
        return self.direction == "forward"

    @property
    def is_paired(self) -> bool:
        """Whether a tile of 16 rows has two gates of 8 units each, so that one thread has all gates of a unit."""
        return self.is_forward and self.cell.num_gates == 4

    @property
    def depth(self) -> int:
        """Depth of the product: units of the head, backward those of all gates."""
        return self.head_dim if self.is_forward else self.cell.num_gates * self.head_dim

    @property
    def num_pairs(self) -> int:
        """Pairs of matrix instructions along the depth."""
        return self.depth // (VECTORS_OF_PAIR * self.vector)

    @property
    def parts(self) -> int:
        """Values of a unit that pass through the exchange."""
        return 1 if self.is_forward else self.cell.num_gates

    @property
    def num_inputs(self) -> int:
        """Tensors that a step reads beside the exchange."""
        if self.is_forward:
            return self.cell.num_gates
        return self.cell.num_loads(self.direction) + self.cell.num_states - 1

    def is_in(self, placement: int) -> Constraint:
        """The condition that heads have a placement."""
        return self.v["placement"] == placement

    def where(self, condition: Constraint, value: Expr | int) -> Expr:
        """A number where a condition holds, else 0."""
        return condition * value

    @cached_property
    def blocks(self) -> Expr:
        """Blocks that share a head."""
        return const(self.head_dim) // self.v["units"]

    @cached_property
    def is_doubled(self) -> Constraint:
        """The condition that four sequences take the eight columns of an instruction twice: a thread has one each."""
        return self.v["tile_batch"] == 4

    @cached_property
    def column_tiles(self) -> Expr:
        """Matrix instructions side by side that a tile of sequences takes."""
        return ceildiv(self.v["tile_batch"], MMA_COLUMNS)

    @cached_property
    def warps(self) -> Expr:
        """Warps of a block."""
        return self.v["warps_rows"] * self.v["warps_depth"]

    @cached_property
    def rows(self) -> Expr:
        """Rows of a block's part of the product."""
        return self.v["units"] * (self.cell.num_gates if self.is_forward else 1)

    @cached_property
    def eights(self) -> Expr:
        """Groups of eight rows per warp."""
        return self.rows // (8 * self.v["warps_rows"])

    @cached_property
    def row_tiles(self) -> Expr:
        """Tiles of 16 rows per warp; the last one may be half a tile."""
        return ceildiv(self.eights, 2)

    @cached_property
    def pair_bytes(self) -> Expr:
        """Bytes of a block's weights for one pair of each warp."""
        return self.warps * self.eights * EIGHT_BYTES

    @cached_property
    def pairs(self) -> Expr:
        """Pairs of the depth per warp."""
        return ceildiv(self.num_pairs, self.v["warps_depth"])

    @cached_property
    def shared_pairs(self) -> Expr:
        """Pairs whose weights lie in shared memory."""
        return maximum(0, self.pairs - self.v["register_pairs"] - self.v["streamed_pairs"])

    @cached_property
    def streamed_tiles(self) -> Expr:
        """Tiles of a warp's weights in global memory; a tile is 16 rows of a pair."""
        return self.v["streamed_pairs"] * self.row_tiles

    @cached_property
    def streamed_bytes(self) -> Expr:
        """Bytes of a block's weights that lie in global memory and are read in every step."""
        return self.pair_bytes * self.v["streamed_pairs"]

    @cached_property
    def window(self) -> Expr:
        """Most vectors that a thread requests from the grid at once."""
        return WINDOW - self.where(self.v["streamed_pairs"] > 0, WINDOW - STREAMING_WINDOW)

    @cached_property
    def has_sums(self) -> Constraint:
        """The condition that warps share the depth, so that partial sums meet in shared memory."""
        return self.v["warps_depth"] > 1

    @cached_property
    def chains(self) -> Expr:
        """Independent chains of sums per warp, where few instructions are independent."""
        return 1 + self.where(self.row_tiles * self.column_tiles <= 2, 1)

    @cached_property
    def items(self) -> Expr:
        """Units of a sequence per thread in the pointwise part."""
        units, tiles = self.v["units"], self.column_tiles
        columns = 2 - self.where(self.is_doubled, 1)
        chunks = units * columns // 8 * tiles
        alone = units // (8 * self.v["warps_rows"]) * tiles * columns
        summed = self.where(self.has_sums, ceildiv(chunks, self.warps))
        return summed + self.where(self.v["warps_depth"] == 1, alone)

    @cached_property
    def copies(self) -> Expr:
        """Vectors of 16 bytes that a thread copies ahead in every step."""
        return ceildiv(self.num_inputs * self.v["tile_batch"] * (self.v["units"] // self.vector), 32 * self.warps)

    @cached_property
    def polled(self) -> Expr:
        """Vectors of 16 bytes that a thread requests from the grid in a step; 0 in other placements."""
        return self.where(self.is_in(GRID), self.pairs * self.column_tiles)

    # Shared memory.

    @cached_property
    def weight_bytes(self) -> Expr:
        """Bytes of weights in shared memory."""
        return self.pair_bytes * self.shared_pairs

    @cached_property
    def operand_bytes(self) -> Expr:
        """Bytes of the product's operand from the last step: two copies, or one where warps wait for sums anyway."""
        pair = VECTORS_OF_PAIR * self.vector
        stride = self.depth + (pair if self.depth % (2 * pair) == 0 else 0)
        alone = self.where(self.is_in(BLOCK), 1 + self.where(self.v["warps_depth"] == 1, 1))
        copies = self.where(self.is_in(CLUSTER), 2) + alone
        return self.v["num_tiles"] * copies * self.v["tile_batch"] * stride * self.element_bytes

    @cached_property
    def sum_bytes(self) -> Expr:
        """Partial sums in fp32: four of a unit and sequence where it has several gates, else one.

        One for each row, four rows of more than eight columns are in different banks.
        """
        rows, depth = self.v["tile_batch"], self.v["warps_depth"]
        if self.is_forward and self.cell.num_gates > 1:
            return self.where(self.has_sums, depth * self.v["units"] * rows * 4 * 4)
        stride = rows + self.where(rows > 8, 8)
        return self.where(self.has_sums, depth * self.rows * stride * 4)

    @cached_property
    def step_bytes(self) -> Expr:
        """Bytes of the ring of prefetched inputs and of a step's results: two copies where one barrier ends a step."""
        row = self.v["tile_batch"] * (self.v["units"] + self.vector) * self.element_bytes
        cell = self.cell
        written = cell.num_states + cell.num_gates if self.is_forward else cell.num_slots
        copies = 1 + self.where(all_of(self.v["warps_depth"] == 1, self.v["placement"] != GRID), 1)
        return row * ((self.v["prefetch"] + 1) * self.num_inputs + copies * written)

    @cached_property
    def ring_bytes(self) -> Expr:
        """Bytes of global memory in which the blocks of a head exchange states; 0 in other placements."""
        rows = self.v["num_tiles"] * self.v["tile_batch"]
        return self.where(self.is_in(GRID), RING * rows * self.depth * self.element_bytes)

    @cached_property
    def smem_bytes(self) -> Expr:
        """Bytes of shared memory of a block; exact."""
        tiles = self.v["num_tiles"]
        carried = tiles * self.cell.num_states * self.items * 32 * self.warps * 4
        table = tiles * self.v["tile_batch"] * 8
        parts = self.weight_bytes + self.operand_bytes + self.sum_bytes + self.step_bytes + table
        return parts + self.where(self.is_in(CLUSTER), 16 * tiles) + self.where(tiles > 1, carried)


def shape_of(cell: RecurrentCell, direction: str, head_dim: int, dtype: str, config: Mapping[str, int]) -> CudaLoop:
    """The loop of one configuration: every expression has a value."""
    return CudaLoop(cell, direction, head_dim, dtype, {name: const(value) for name, value in config.items()})


def padded_head_dim(head_dim: int, element_bytes: int) -> int:
    """The head dimension that the kernels run: a multiple of the depth of a pair of matrix instructions."""
    deep = VECTORS_OF_PAIR * VECTOR_BYTES // element_bytes
    return -(-head_dim // deep) * deep


def groups_at_once(gpu: GpuModel, shape: CudaLoop) -> Expr:
    """Groups of blocks that share a head which run at the same time, where one block fits an SM.

    Blocks of the grid may be anywhere; those of a cluster are on one GPC, and one GPC is taken to have fewer SMs than
    the others (seen on an H200: 7 clusters of 16 blocks, 15 of 8).
    """
    sms, gpcs = gpu.device.sm_count, int(assumed.gpcs(gpu).value)
    in_grid, in_clusters = sms // shape.blocks, gpcs * (sms // gpcs // shape.blocks) - 1
    shared = shape.where(shape.is_in(GRID), in_grid) + shape.where(shape.is_in(CLUSTER), in_clusters)
    return maximum(1, shared + shape.where(shape.is_in(BLOCK), sms))
