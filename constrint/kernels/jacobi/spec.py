"""The parameter space of sweeps in CUDA C++: several steps in a launch; tiles, halos, rings of rows in shared memory.

A tile of `lanes` x `vector` elements and `groups` x `rows` rows walks along the slowest axis. After `steps_per_launch`
steps the elements of its halo are wrong, which is as wide as these steps reach: the tile minus twice the halo is
useful. No torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.kernels.jacobi.base import SweepBase
from constrint.kernels.jacobi.cost import sweep_cost
from constrint.kernels.jacobi.pointer.spec import SweepPointerSpec
from constrint.kernels.jacobi.shape import ELEMENT_BYTES, MOST_VALUES, PIECE_BYTES, SUM_BYTES, SweepTile
from constrint.kernels.jacobi.sizes import Grid
from constrint.kernels.launch.cuda.nvrtc import nvrtc_here
from constrint.model import ceildiv
from constrint.model.constraint import CERTAIN, REDUNDANT
from constrint.select.candidate import Config
from constrint.select.cost import CostColumns, cost_assumptions
from constrint.select.limits import BlockUse, Spilling
from constrint.select.spec import Columns, Param, Rule, Vars
from constrint.select.workload import Workload

if TYPE_CHECKING:
    from constrint.kernels.launch.cuda.source_spec import CudaLaunch

#: Bytes of the smallest asynchronous copy, and the GPUs that have such copies, by compute capability.
COPY_BYTES, COPYING = 4, 80
#: Registers of a thread: some, on grids of two axes and of three; for each row and sum that waits, in percent; for each
#: value. A least-squares fit of 34 compiled kernels that do not spill (NVRTC 13.5, sm_90): one in two is off by more
#: than 8 %, one in ten by more than 20 %. Of 12 others, whose estimate is 0.75 to 1.7 of the most, 9 spill.
OTHER_REGISTERS, PER_STATE_PERCENT, PER_VALUE = (48, 42), 137, 3
SPILLING = Spilling.of(105, 100, 20)
STEPS_2D, STEPS_3D = (4, 8, 6, 5, 3, 2, 1, 10, 12, 16), (4, 3, 2, 1, 5, 6)
CHUNKS = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 96, 128, 256)
CHUNKS_3D = (1, 2, 3, 4, 5, 6, 8, 12, 16, 32)
GROUPS_3D = (8, 16, 32, 4, 6, 10, 11, 12, 13, 14, 18, 20, 22, 24, 26, 28)


class SweepSpec(SweepBase):
    """Several steps in a launch; tiles stream along the slowest axis."""

    operation = "jacobi"
    name = "cuda"
    summary = "u after `steps` sweeps of a star, several of them in one launch, CUDA C++"
    harmless_spill_bytes = 64  # the assembler spills some to have more blocks on an SM
    actions: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "tile": ("vector", "rows", "lanes", "groups"),
        "fuse": ("steps_per_launch",),
        "pipeline": ("depth",),
        "split": ("chunks",),
    }

    @property
    def device_files(self) -> tuple[Path, ...]:
        """The sources."""
        folder = Path(__file__).with_name("source")
        return folder / "kernel.cu", folder / "instructions.cuh"

    @property
    def compilers(self) -> Mapping[str, str]:
        """NVRTC."""
        return nvrtc_here()

    def check_dtype(self, gpu: GpuModel, workload: Workload) -> None:
        """Raise UnsupportedError for GPUs that take no CUDA, or have no asynchronous copies to shared memory."""
        target = gpu.arch.target
        number = "".join(c for c in target.removeprefix("sm_") if c.isdigit())
        if not target.startswith("sm_") or int(number or 0) < COPYING:
            raise UnsupportedError(
                f"{self.full_name}: it copies asynchronously to shared memory, as GPUs of NVIDIA do from sm_80 on; "
                f"{gpu.name} is {target}."
            )

    def params(self, gpu: GpuModel, workload: Workload) -> Iterable[Param]:
        """Steps of a launch, the tile, the rows that are copied ahead, and the pieces of the slowest axis."""
        grid = Grid.of(workload)
        steps = tuple(s for s in (STEPS_3D if grid.is_3d else STEPS_2D) if s <= grid.steps) or (1,)
        why = "more steps move fewer bytes from DRAM and compute more of the halo anew"
        yield Param("steps_per_launch", steps, "steps of one launch", why, "steps")
        element = ELEMENT_BYTES[grid.dtype]
        able = [v for v in (4, 8, 2) if v * element >= COPY_BYTES and v >= grid.radius]
        # Two pieces of a thread leave gaps between those that a warp loads at once: 1.6 times the time on an H200.
        vectors = tuple(v for v in able if v * element <= PIECE_BYTES) or (min(able),)
        why = "a piece of at most 16 bytes, or as many as the star reaches"
        yield Param("vector", vectors, "elements of a thread along x", why, "vec")
        rows = (4, 2, 8, 1) if grid.is_3d else (1,)
        yield Param("rows", rows, "elements of a thread along y", "rows of one thread need no shared memory")
        lanes = (32, 16, 8) if grid.is_3d else (32,)
        yield Param("lanes", lanes, "threads of a tile along x", "neighbours along x are lanes of one warp")
        groups = GROUPS_3D if grid.is_3d else (4, 8, 2, 1)
        what = "threads of a tile along y" if grid.is_3d else "tiles of a block, side by side"
        yield Param("groups", groups, what, "rows of other threads come through shared memory")
        depth = (2, 3, 4) if grid.is_3d else (4, 6, 3, 2)
        yield Param("depth", depth, "rows (or planes) that are copied ahead", "copies take a latency")
        why = "the grid is divided so that all SMs have work; each part computes rows of its ends anew"
        yield Param(
            "chunks",
            CHUNKS_3D if grid.is_3d else CHUNKS,
            "parts of the slowest axis, each walked by tiles of its own",
            why,
        )

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        """The halo leaves a useful part, offsets reach neighbouring threads only, launches are alike."""
        grid = Grid.of(workload)
        tile = self._tile(grid, v)
        yield Rule(tile.used_x >= tile.per_piece, "useful_x", "the tile minus both halos along x is useful", CERTAIN)
        if grid.is_3d:
            yield Rule(tile.used_y >= 1, "useful_y", "the tile minus both halos along y is useful", CERTAIN)
            yield Rule(v["rows"] >= grid.radius, "reach_y", "offsets reach the next threads along y alone", CERTAIN)
        yield Rule(v["vector"] >= grid.radius, "reach_x", "offsets reach the next lane alone", CERTAIN)
        yield Rule(tile.threads % gpu.sm.warp_size == 0, "warps", "threads of a block are whole warps", CERTAIN)
        yield Rule(tile.values <= MOST_VALUES, "values", "one word marks a thread's values in the border", CERTAIN)
        steps = v["steps_per_launch"]
        same = ceildiv(grid.steps, ceildiv(grid.steps, steps)) == steps
        yield Rule(same, "steps", "fewer steps a launch take as many launches", REDUNDANT)
        chunk = ceildiv(grid.slow, v["chunks"])
        yield Rule(ceildiv(grid.slow, chunk) == v["chunks"], "chunks", "every part has rows", CERTAIN)
        longest = "a part is at least as long as the rows that it computes anew, or there is one"
        yield Rule((v["chunks"] == 1) | (chunk >= tile.lead), "chunk_length", longest, REDUNDANT)

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse:
        """Warps, registers (estimated) and shared memory."""
        grid = Grid.of(workload)
        tile = self._tile(grid, v)
        state, values = tile.state_registers, tile.values * (SUM_BYTES[workload.dtype] // 4)
        warps = ceildiv(tile.threads, gpu.sm.warp_size)
        estimated = OTHER_REGISTERS[grid.is_3d] + PER_STATE_PERCENT * state // 100 + PER_VALUE * values
        return BlockUse(
            warps=warps,
            registers_per_thread=estimated,
            smem_bytes=tile.smem_bytes,
            least_registers=state + values,
            spilling=SPILLING,
        )

    def _tile(self, grid: Grid, v: Mapping[str, Any]) -> SweepTile:
        return SweepTile.of(v, grid.dtype, grid.widths, is_3d=grid.is_3d, aligned=grid.is_aligned)

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """See `cost.py`."""
        return sweep_cost(gpu, Grid.of(workload), columns, blocks_per_sm)

    def figures(self, gpu: GpuModel, workload: Workload, config: Config) -> Mapping[str, float]:
        """Launches, the useful share of what is computed, and bytes of shared memory for rows."""
        grid = Grid.of(workload)
        tile = self._tile(grid, config)
        launches = -(-grid.steps // tile.steps)
        over_x, over_y = tile.tiles(grid.nx, tile.used_x, tile.halo_x), 1
        if grid.is_3d:
            over_y = tile.tiles(grid.ny, tile.used_y, tile.halo_y)
        chunk = -(-grid.slow // config["chunks"])
        computed = over_x * over_y * tile.width * tile.height * config["chunks"] * (chunk + tile.lead)
        return {
            "launches": float(launches),
            "halo along x, elements": float(tile.halo_x),
            "halo along y, rows": float(tile.halo_y),
            "useful share of sums": float(grid.slow * grid.ny * grid.nx / computed),
            "DRAM bytes a launch": float(grid.bytes * (2 * (1 + 2 * tile.steps * grid.radius / chunk) + 1)),
        }

    def assumptions(self, gpu: GpuModel, workload: Workload) -> tuple[str, ...]:
        """Assumptions of the cost model."""
        return (
            *cost_assumptions(gpu, workload.dtype, has_matrix_units=False),
            "halos across the slowest axis are found in the L2, halos along it are read from DRAM again",
            "the star has all offsets of its radius along each axis, and there is a right side",
        )

    # Launch and check. Needs torch.

    def launches(
        self, gpu: GpuModel, workload: Workload, config: Config, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> Sequence[CudaLaunch]:
        """The launches of all steps."""
        from constrint.kernels.jacobi.launch import SweepCall, sweep_launches

        grid = Grid.of(workload)
        call = SweepCall(inputs["u"], inputs["f"], outputs["out"], self.star(grid), grid.steps)
        return sweep_launches(gpu, call, config)

    def compiled_as(self, workload: Workload) -> Workload:
        """Sizes are arguments of the kernel; that rows are whole pieces is compiled in."""
        return replace(workload, sizes={**workload.sizes, "nx": 8192 + workload.sizes["nx"] % 16})


SPECS = (SweepSpec(), SweepPointerSpec())
