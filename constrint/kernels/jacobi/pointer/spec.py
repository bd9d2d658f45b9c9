"""The parameter space of sweeps in Triton: one step in a launch, tiles of one plane. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.kernels.jacobi.base import SweepBase
from constrint.kernels.jacobi.cost import pointer_cost
from constrint.kernels.jacobi.shape import SUM_BYTES
from constrint.kernels.jacobi.sizes import Grid
from constrint.model import ceildiv, const
from constrint.model.constraint import CERTAIN, REDUNDANT
from constrint.select.candidate import Config
from constrint.select.cost import CostColumns
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, Launch, Param, Rule, Vars
from constrint.select.workload import Workload

#: Elements of a thread, at most.
MOST_ELEMENTS = 32
#: Registers of a thread: addresses and masks, and for each element and neighbour. Of compiled kernels, for sm_90.
OTHER_REGISTERS, PER_ELEMENT = 24, 3


class SweepPointerSpec(SweepBase):
    """One step in a launch; every neighbour is loaded through a pointer."""

    name = "pointer"
    summary = "u after `steps` sweeps of a star, a launch for each of them, Triton"

    @property
    def device_files(self) -> tuple[Path, ...]:
        """The kernel."""
        return (Path(__file__).with_name("kernel.py"),)

    def params(self, gpu: GpuModel, workload: Workload) -> Iterable[Param]:
        """The tile of a program."""
        yield Param("block_x", (128, 256, 512, 64, 1024), "elements of a tile along x", "whole lines of the caches")
        yield Param(
            "block_y", (4, 8, 2, 16, 1, 32), "rows of a tile", "a tile's rows are read once for their neighbours"
        )
        yield Param("num_warps", (4, 8, 2, 1), "warps of a block", "each thread has some elements")

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        """Threads divide the tile; a thread has few enough elements."""
        grid = Grid.of(workload)
        elements, threads = v["block_x"] * v["block_y"], v["num_warps"] * gpu.sm.warp_size
        yield Rule(elements % threads == 0, "threads_in_tile", "threads divide the tile", REDUNDANT)
        few = f"a thread has at most {MOST_ELEMENTS} elements"
        yield Rule(elements <= MOST_ELEMENTS * threads, "elements", few, REDUNDANT)
        height = grid.ny if grid.is_3d else grid.slow
        yield Rule((v["block_y"] == 1) | (v["block_y"] < 2 * height), "rows_in_grid", "tiles have rows", REDUNDANT)
        planes = grid.batch * (grid.slow if grid.is_3d else 1)
        tiles = ceildiv(grid.nx, v["block_x"]) * ceildiv(height, v["block_y"]) * planes
        yield Rule(tiles < 2**31, "tiles", "tiles are numbered in 32 bits", CERTAIN)

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse:
        """Warps and registers (estimated); no shared memory."""
        elements = ceildiv(v["block_x"] * v["block_y"], v["num_warps"] * gpu.sm.warp_size)
        words = SUM_BYTES[workload.dtype] // 4
        return BlockUse(
            warps=v["num_warps"],
            registers_per_thread=OTHER_REGISTERS + PER_ELEMENT * words * elements,
            smem_bytes=const(0),
        )

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """See `cost.py`."""
        return pointer_cost(gpu, Grid.of(workload), columns, blocks_per_sm)

    def launches(
        self, gpu: GpuModel, workload: Workload, config: Config, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> Sequence[Launch]:
        """A launch for each step."""
        from constrint.kernels.jacobi.launch import SweepCall
        from constrint.kernels.jacobi.pointer.launch import sweep_launches

        grid = Grid.of(workload)
        call = SweepCall(inputs["u"], inputs["f"], outputs["out"], self.star(grid), grid.steps)
        return sweep_launches(call, config)
