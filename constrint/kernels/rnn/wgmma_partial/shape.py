"""A configuration of the kernel that exchanges partial sums, as integer expressions: its figures, resources and rules.

The figures are those of `source/partial.cuh`, which asserts shared memory, and of `wgmma`'s `source/layout.cuh`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from constrint.hwmodels import GpuModel
from constrint.kernels.rnn.cells import RecurrentCell
from constrint.kernels.rnn.wgmma.shape import (
    BARRIERS,
    LINE_BYTES,
    MOST_COLUMNS,
    SLICE_STEPS,
    STEP_DEPTH,
    WARP_ROWS,
    WgmmaLoop,
    carried_registers,
)
from constrint.kernels.rnn.wgmma.shape import SPILLING as SPILLING_OF_WGMMA
from constrint.model import Expr, any_of, ceildiv, const, divides, maximum, minimum
from constrint.model.constraint import CERTAIN, REDUNDANT
from constrint.select.limits import BlockUse
from constrint.select.spec import Rule
from constrint.select.workload import Workload

SOURCE = Path(__file__).with_name("source")
#: Steps of the ring, and bytes of an element of a partial sum.
RING, PART_BYTES = 2, 2
#: Registers for addresses, the rows of a thread, and values in flight, as in the loop that exchanges gradients.
OTHER_REGISTERS = 50
#: Blocks whose parts are added, at most. Each part is rounded: beside fp64 the worst gradients of 48 and of 96 blocks
#: were 1.14 and 1.04 of the bound of `verify` on an H200, of up to 32 blocks .78 (`rnn_wgmma_partial.csv`).
MOST_PARTS = 32
#: Products of a warpgroup in a step: the source instantiates a template for each.
MOST_PRODUCTS = 64


@dataclass(frozen=True)
class PartialLoop(WgmmaLoop):
    """The backward loop by partial sums in terms of its parameters."""

    direction: str = "backward"

    @cached_property
    def block_steps(self) -> Expr:
        """Matrix instructions along the depth of a block's product: the gates of its units."""
        return self.v["units"] * self.cell.num_gates // STEP_DEPTH

    @cached_property
    def columns(self) -> Expr:
        """Columns of a matrix instruction: the units of some blocks."""
        return self.v["targets"] * self.v["units"]

    @cached_property
    def own_products(self) -> Expr:
        """Products of a warpgroup in a step."""
        return self.blocks // (self.v["targets"] * self.v["depth_groups"])

    @cached_property
    def words(self) -> Expr:
        """Words of two units that a thread gets of one block."""
        return self.own_rows * self.eights

    @cached_property
    def window_words(self) -> Expr:
        """Registers of a thread that partial sums are read into: all of a step, or two windows."""
        return minimum(self.blocks, 2 * self.v["sources"]) * self.words

    @cached_property
    def multiplied_registers(self) -> Expr:
        """Registers of a thread while it multiplies: the sums of two instructions, and the rows."""
        return minimum(self.own_products, 2) * (self.columns // 2) + 4 * self.block_steps

    @cached_property
    def smem_bytes(self) -> Expr:
        """Shared memory of a block; exact. Rows of gates are handed over twice."""
        weights = ceildiv(self.block_steps, SLICE_STEPS) * LINE_BYTES * self.head_dim
        handed = (self.v["depth_groups"] - 1) * 2 * 4 * 32 * self.warps * self.cell.num_gates * self.eights
        return weights + handed

    @cached_property
    def step_bytes(self) -> Expr:
        """Bytes that a block reads in a step, and as many that it writes: a part of every unit of its sequences."""
        return self.tiles * (WARP_ROWS * PART_BYTES * self.head_dim)

    @cached_property
    def ring_bytes(self) -> Expr:
        """Global memory through which a group of blocks exchanges parts."""
        return RING * self.blocks * self.step_bytes


def shape_of(cell: RecurrentCell, head_dim: int, config: Mapping[str, int], direction: str = "backward") -> PartialLoop:
    """The loop of one configuration: every expression has a value."""
    return PartialLoop(cell, head_dim, {name: const(value) for name, value in config.items()}, direction)


def block_use(shape: PartialLoop) -> BlockUse:
    """Warps, registers and shared memory of one block."""
    least = maximum(shape.multiplied_registers, shape.window_words) + 1
    return BlockUse(
        warps=shape.warps,
        registers_per_thread=least + carried_registers(shape) + OTHER_REGISTERS,
        smem_bytes=shape.smem_bytes,
        least_registers=least,
        spilling=SPILLING_OF_WGMMA,
        together=shape.blocks,
    )


def rules_of(gpu: GpuModel, shape: PartialLoop, workload: Workload) -> Iterator[Rule]:
    """All rules but the limits of a block."""
    v, groups = shape.v, shape.v["depth_groups"]
    most = f"wgmma has at most {MOST_COLUMNS} columns: the units of the blocks that one instruction computes for"
    yield Rule(shape.columns <= MOST_COLUMNS, "columns", because=most, kind=CERTAIN)
    fit = f"blocks that wait for each other run at once: {gpu.device.sm_count} fit, one on each {gpu.terms.sm}"
    yield Rule(shape.blocks <= gpu.device.sm_count, "co_resident", because=fit, kind=CERTAIN)
    rounded = f"each block's part of a sum is rounded to 16 bits: more than {MOST_PARTS} add up beyond what is allowed"
    yield Rule(shape.blocks <= MOST_PARTS, "roundings", because=rounded, kind=CERTAIN)
    whole = "the depth of a block's product, its units' gates, has whole matrix instructions"
    yield Rule(divides(STEP_DEPTH, v["units"] * shape.cell.num_gates), "whole_depth", because=whole, kind=CERTAIN)
    vectors = "a thread's part of a block's sums has whole vectors of two words"
    yield Rule(divides(2, shape.words), "whole_vectors", because=vectors, kind=CERTAIN)
    dealt = "the blocks are dealt to warpgroups and instructions evenly"
    yield Rule(divides(v["targets"] * groups, shape.blocks), "whole_products", because=dealt, kind=CERTAIN)
    because = f"a template is instantiated for each product, and NVRTC nests no more than {MOST_PRODUCTS} surely"
    yield Rule(shape.own_products <= MOST_PRODUCTS, "products_nest", because=because, kind=CERTAIN)
    because = "all turns of reading are alike"
    yield Rule(divides(v["sources"], shape.blocks), "whole_turns", because=because, kind=CERTAIN)
    halves = any_of(groups == 1, divides(2 * SLICE_STEPS, shape.num_steps))
    because = "the layout that the kernels for many sequences share has whole slices for each warpgroup"
    yield Rule(halves, "whole_slices", because=because, kind=CERTAIN)
    met = any_of(groups == 1, 4 * shape.row_groups < BARRIERS)
    because = f"two warps of the same sequences meet at a barrier of their own, and all at one; a block has {BARRIERS}"
    yield Rule(met, "barriers", because=because, kind=CERTAIN)
    padding = "a larger tile would compute nothing but padding"
    rows = -(-workload.sizes["batch"] // WARP_ROWS) * WARP_ROWS
    if rows < 256:
        yield Rule(v["tile_batch"] <= max(rows, WARP_ROWS), "tile_in_batch", because=padding, kind=REDUNDANT)
