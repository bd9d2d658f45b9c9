"""The parameter space and the predicted time of the backward kernel that exchanges partial sums.

A reviewer can check the rules against `source/partial.cuh`, which asserts the same when it is compiled. The time is
the sum of a step's parts, times the steps and rounds of blocks; how many times the counted clocks each part takes was
fitted to loops on one H200 (`step.json`, by `python -m benchmarks.rnn.fit_partial`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.kernels.rnn.cells import BUILT_IN
from constrint.kernels.rnn.spec import after_s
from constrint.kernels.rnn.wgmma.shape import CELLS_FILES, CELLS_SOURCE, EIGHT, MOST_COLUMNS
from constrint.kernels.rnn.wgmma.shape import SOURCE as SOURCE_OF_WGMMA
from constrint.kernels.rnn.wgmma.spec import (
    COLUMNS_PER_CLK,
    EXCHANGE_S,
    L2_BYTES_PER_CLK,
    TILES,
    ManySequencesSpec,
    clock_hz,
    column_of,
    fitted,
    groups_of,
    moved_s,
    rounds_of,
    specials_per_clk,
)
from constrint.kernels.rnn.wgmma_partial.shape import SOURCE, PartialLoop, block_use, rules_of
from constrint.model import Var
from constrint.select.candidate import Config
from constrint.select.cost import LAUNCH_S, PARTS, CostColumns
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, Launch, Param, Rule, Vars
from constrint.select.workload import Workload

if TYPE_CHECKING:
    from constrint.kernels.rnn.interface import RnnBackend

Column = NDArray[np.float64]
#: Headers of `wgmma` that it has.
SHARED_FILES = ("backward.cu", "cell.cuh", "instructions.cuh", "layout.cuh", "outputs.cuh")
#: Blocks of an instruction, and those whose parts a thread asks for at once.
TARGETS, SOURCES = (4, 3, 2, 6, 8, 1, 12, 16, 24, 32), (24, 12, 16, 8, 32, 6, 4, 48, 3, 2, 1)
#: Fewest clocks of a matrix instruction of 64 rows whose rows lie in registers: half of the peak at 32 columns.
LEAST_MMA_CLK = 32


#: Parts of a step; the last ones are numbers of waits, of units that a thread computes, and of products.
FIGURES = ("fixed", "moved", "crowd", "mma", "special", "turns", "together", "serial", "products")


def part_columns(gpu: GpuModel, shape: PartialLoop, workload: Workload, columns: Columns) -> dict[str, Column]:
    """Parts of a step in every row, in clocks of units that are never late, or in numbers."""
    v = {name: np.asarray(column, dtype=np.float64) for name, column in columns.items()}
    groups, at_once = groups_of(gpu, shape, workload, columns)
    blocks, wide = column_of(shape.blocks, columns), column_of(shape.columns, columns)
    moved = column_of(shape.step_bytes, columns) / L2_BYTES_PER_CLK
    products = column_of(shape.row_groups * shape.block_steps, columns) * shape.head_dim / wide
    specials = shape.cell.backward_specials / specials_per_clk(gpu)
    return {
        "fixed": np.ones_like(wide),
        "moved": moved,
        "crowd": np.minimum(groups, at_once) * blocks / gpu.device.sm_count * moved,
        "mma": products * np.maximum(wide / COLUMNS_PER_CLK, LEAST_MMA_CLK),
        "special": v["units"] * v["tile_batch"] * specials,
        "turns": blocks / v["sources"] - 1,
        "together": 1 - v["first"],
        "serial": column_of(shape.items, columns),
        "products": column_of(shape.own_products, columns),
    }


def step_clk(parts: Mapping[str, Column], figures: Mapping[str, float]) -> dict[str, Column]:
    """Clocks of a step: its parts, and as `step` their sum."""
    clks = {name: figures[name] * part for name, part in parts.items()}
    return clks | {"step": sum(clks.values(), np.zeros(1))}


class PartialSpec(ManySequencesSpec):
    """The backward pass by partial sums, which follows the forward pass of `wgmma`."""

    name = "wgmma_partial"
    how = "weights stay in shared memory, many sequences at once by wgmma, blocks exchange partial sums"
    forward_by = "wgmma"
    actions: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "tile": ("units", "tile_batch", "targets"),
        "pipeline": ("sources", "first"),
    }

    @cached_property
    def device_files(self) -> tuple[Path, ...]:
        """The sources, and the headers that it shares."""
        own = sorted(path for path in SOURCE.iterdir() if path.suffix == ".cuh")
        instruction = SOURCE_OF_WGMMA.with_name("instruction.py")
        shared = (SOURCE_OF_WGMMA / name for name in SHARED_FILES)
        return (instruction, *own, *shared, *(CELLS_SOURCE / name for name in CELLS_FILES))

    def shape(self, workload: Workload, v: Vars) -> PartialLoop:
        """The time loop of a workload, with the parameters as variables."""
        return PartialLoop(self.cell, workload.sizes["head_dim"], v)

    def params(self, gpu: GpuModel, workload: Workload) -> tuple[Param, ...]:
        """Parameters: units and sequences of a block, and the dealing of a step to warpgroups and instructions."""
        dim = workload.sizes["head_dim"]
        units = tuple(unit for unit in range(EIGHT, min(dim, MOST_COLUMNS) + 1, EIGHT) if dim % unit == 0)
        blocks = {dim // unit for unit in units}
        targets = tuple(number for number in TARGETS if any(each % number == 0 for each in blocks))
        sources = tuple(number for number in SOURCES if any(each % number == 0 for each in blocks))
        return (
            Param("units", units, "units of a head in a block", "divisors of head_dim, eight columns each"),
            Param("tile_batch", TILES, "sequences of a block", "a warp has 16 sequences, a warpgroup 64"),
            Param("depth_groups", (2, 1), "warpgroups of the same sequences", "each computes one of two rows", "dg"),
            Param("targets", targets, "blocks whose units are the columns of an instruction", "divide the blocks", "t"),
            Param("sources", sources, "blocks whose parts are asked for at once", "divide the blocks", "s"),
            Param("first", (1, 0), "1: the part that comes last is waited for first", "others are there then", "f"),
            Param("recompute", (0, 1), "1: the backward pass computes pre-activations again", "a switch"),
        )

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        """Rules on dealing a head to blocks, and a step to warpgroups."""
        yield from rules_of(gpu, self.shape(workload, v), workload)

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse:
        """Warps, registers and shared memory of one block."""
        return block_use(self.shape(workload, v))

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """Predicted time per row: steps one after the other, each the latency of its parts."""
        shape = self.shape(workload, {name: Var(name) for name in columns})
        clks = step_clk(part_columns(gpu, shape, workload, columns), fitted("partial").figures)
        rounds = rounds_of(gpu, self.cell, workload, columns)
        scale = rounds * workload.sizes["time"] / clock_hz(gpu)
        groups, _ = groups_of(gpu, shape, workload, columns)
        filled = groups * column_of(shape.ring_bytes, columns) / gpu.memory.dram.bandwidth_bytes_per_s
        beside = filled + after_s(gpu, self.cell, workload, columns)
        moved = moved_s(gpu, self.cell, workload, columns)
        exchange = np.minimum(clock_hz(gpu) * EXCHANGE_S, clks["fixed"])
        figures: dict[str, Any] = dict.fromkeys(PARTS, 0.0)
        figures["matrix units"] = scale * clks["mma"]
        figures["L2"] = scale * (clks["moved"] + clks["crowd"])
        figures["special functions"] = scale * clks["special"]
        waited = sum(clks[name] for name in ("turns", "together", "serial", "products"))
        figures["latency"] = scale * (clks["fixed"] - exchange + waited)
        figures["barrier"] = scale * exchange
        figures["DRAM"] = moved + beside
        return CostColumns(LAUNCH_S * rounds + np.maximum(scale * clks["step"], moved) + beside, figures)

    def uncalibrated(self) -> str:
        """Why `auto` does not take it; empty once its figures were fitted."""
        source = fitted("partial").source
        return "" if source.startswith("fitted") else f"its loop was not measured for the model: {source}"

    def left_out_errors(self) -> tuple[float, float] | None:
        """Errors of loops of layers outside its fit, for which few were measured."""
        errors = fitted("partial").left_out
        return None if errors is None else (errors.median, errors.nine_in_ten)

    def backend(self) -> RnnBackend:
        """Pads, launches and crops."""
        from constrint.kernels.rnn.wgmma_partial.launch import PartialBackend

        return PartialBackend()

    def launches(
        self, gpu: GpuModel, workload: Workload, config: Config, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> Sequence[Launch]:
        """A fill of the memory that parts are exchanged through, and the time loop."""
        from constrint.kernels.rnn.wgmma.launch import launches_of
        from constrint.kernels.rnn.wgmma_partial.launch import source_of

        tensors = {**inputs, **outputs}
        return launches_of(workload, config, tensors, gpu, direction=self.direction, build=source_of)


SPECS = tuple(PartialSpec(cell, "backward") for cell in BUILT_IN.values())
