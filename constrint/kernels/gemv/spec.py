"""The parameter space of matrix-vector products in Triton, for any modelled GPU. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.kernels.gemv.cost import gemv_cost
from constrint.kernels.gemv.library import GemvLibrarySpec
from constrint.kernels.gemv.shape import WIDEST, MatrixShape
from constrint.kernels.gemv.workload import DTYPES, OPTIONS, SIZES, GemvBase
from constrint.model import any_of, ceildiv, divides, maximum
from constrint.model.constraint import CERTAIN, REDUNDANT
from constrint.select.candidate import Config
from constrint.select.cost import CostColumns, cost_assumptions
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, Launch, Param, Rule, Vars
from constrint.select.workload import Workload

EVICTION = "1: the matrix, which is read once, leaves the L2 before anything else does"
POWER = "powers of two, as Triton's block shapes must be"
#: Most loads of a thread before it uses the first one: more registers than that are spilled.
MOST_LOADS = 16
#: Bytes of shared memory of a thread, at most, where sums of a reduction change threads.
MEETING_BYTES = 32
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)


class GemvSpec(GemvBase):
    """Blocks sum parts of rows; where several share a row, the last one that arrives adds their sums in order."""

    name = "triton"
    free_params = ("evict_first",)
    summary = "y[M] = alpha * A[M,N] x[N] + beta * y[M], every element of A read once, Triton"

    def params(self, gpu: GpuModel, workload: Workload) -> Iterable[Param]:
        """Tile, splits, vector width, warps and stages."""
        shape = MatrixShape.of(workload)
        widest = shape.widest_vector
        rows: tuple[int, ...] = (4, 8, 2, 16, 1, 32, 64, 128, 256)
        columns: tuple[int, ...] = (1024, 512, 2048, 256, 4096, 128, 64, 32, 16, 8, 4, 2, 1)
        if shape.by_columns:
            rows, columns = (64, 128, 32, 256, 16, 512, 8, 4, 2, 1), (64, 128, 32, 256, 16, 8, 4, 512, 1024, 2, 1)
        vectors = tuple(sorted({widest, max(1, widest // 2), 1}, reverse=True))
        yield Param("tile_m", rows, "results of a block", POWER)
        yield Param("tile_n", columns, "columns that a block reads in one step", POWER)
        yield Param("splits", SPLITS, "blocks that share the terms of a result", "up to 512, about sqrt(2) apart", "sp")
        yield Param("vector", vectors, "elements of A in one load", f"up to {WIDEST} bytes, where rows allow", "v")
        yield Param("num_warps", (4, 8, 2, 16, 1), "warps (waves) of a block", "Triton takes powers of two", "w")
        # Without asynchronous copies, steps that are loaded ahead wait in registers, of which more loads take as many.
        stages = (1, 2, 3, 4) if gpu.traits.has_async_copies else (1,)
        yield Param("num_stages", stages, "steps that are loaded ahead", "1: loads wait in registers alone", "st")
        yield Param("evict_first", (1, 0), EVICTION, "the compiler knows both", "ef")

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        """Alignment of loads, work for every thread and every block, loads of a thread."""
        shape = MatrixShape.of(workload)
        threads = v["num_warps"] * gpu.sm.warp_size
        tile = v["tile_m"] * v["tile_n"]
        contiguous = v["tile_m"] if shape.by_columns else v["tile_n"]
        vector_bytes = v["vector"] * shape.element_bytes
        because = f"rows start at multiples of {shape.width} bytes, and a load may not cross its alignment"
        yield Rule(divides(vector_bytes, shape.width), "vector_aligned", because, CERTAIN)
        yield Rule(divides(v["vector"], contiguous), "vector_in_tile", "a load lies in one row of a tile", CERTAIN)
        busy = any_of(v["num_warps"] == 1, tile >= v["vector"] * threads)
        yield Rule(busy, "busy", "no thread of several warps is without a load", REDUNDANT)
        most = v["vector"] * threads * MOST_LOADS
        yield Rule(tile <= most, "loads_in_registers", f"a thread holds up to {MOST_LOADS} loads", REDUNDANT)
        if shape.by_columns:
            rest = "the block's threads cover its results, and further columns side by side"
            yield Rule(v["tile_m"] <= v["vector"] * threads, "lanes", rest, CERTAIN)
        for name, size in (("tile_m", shape.m), ("tile_n", shape.n)):
            yield Rule(
                any_of(v[name] < 2 * size, v[name] == v["vector"]), f"{name}_in_matrix",
                "half of a larger tile would be outside", REDUNDANT,
            )  # fmt: skip
        shares = "every block that shares a row has columns of its own"
        yield Rule((v["splits"] - 1) * v["tile_n"] < shape.n, "splits_have_work", shares, REDUNDANT)
        steps = ceildiv(ceildiv(shape.n, v["tile_n"]), v["splits"])
        ahead = "as many steps as are loaded ahead"
        yield Rule(any_of(v["num_stages"] == 1, steps >= v["num_stages"]), "stages_have_steps", ahead, REDUNDANT)
        segment = contiguous * shape.element_bytes
        wide = min(shape.length * shape.element_bytes, 32)
        sectors = "what a block reads of a row is at least one sector of 32 bytes"
        yield Rule(segment >= wide, "whole_sectors", sectors, REDUNDANT)
        blocks = ceildiv(shape.m, v["tile_m"]) * v["splits"] * shape.batch
        yield Rule(blocks < 2**31, "grid", "blocks along a grid's first dimension", CERTAIN)
        few = "splits are for matrices of too few rows"
        many = 64 * gpu.device.sm_count
        yield Rule(any_of(v["splits"] == 1, blocks <= many), "splits_are_few", few, REDUNDANT)

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse:
        """Registers of loads and sums, and shared memory of the pipeline and of the reduction."""
        shape = MatrixShape.of(workload)
        threads = v["num_warps"] * gpu.sm.warp_size
        tile = v["tile_m"] * v["tile_n"]
        loaded = ceildiv(tile * shape.element_bytes, 4 * threads)
        sums = shape.sum_bytes // 4
        held = v["vector"] * sums if shape.by_columns else ceildiv(tile * sums, v["vector"] * threads)
        x_bytes = v["tile_n"] * shape.vector_bytes
        # Triton's pipeline holds one step less than its depth.
        pipeline = (v["num_stages"] - 1) * (tile * shape.element_bytes + x_bytes)
        # Layouts of a reduction meet in shared memory: compiled for sm_90a and gfx942, up to 32 bytes of a thread.
        meeting = (v["tile_m"] * v["num_warps"] + (v["tile_n"] if shape.by_columns else 0)) * shape.sum_bytes
        registers = 30 + loaded + held + v["vector"] * sums
        return BlockUse(v["num_warps"], registers, smem_bytes=pipeline + maximum(meeting, MEETING_BYTES * threads))

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """See `cost.py`."""
        return gemv_cost(gpu, MatrixShape.of(workload), columns, blocks_per_sm)

    def assumptions(self, gpu: GpuModel, workload: Workload) -> tuple[str, ...]:
        """Effects that the model leaves out."""
        left_out = "the matrix is read once and comes from DRAM; x stays in the L2"
        return (*cost_assumptions(gpu, workload.dtype, has_matrix_units=False), left_out)

    # Launch and check. Needs torch.

    def launches(
        self, gpu: GpuModel, workload: Workload, config: Config, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> Sequence[Launch]:
        """The one launch."""
        from constrint.kernels.gemv.launch import call_of_inputs, gemv_launch

        return [gemv_launch(gpu, call_of_inputs(inputs, outputs), config)]


SPECS = (GemvSpec(), GemvLibrarySpec())
__all__ = ["DTYPES", "OPTIONS", "SIZES", "SPECS", "GemvSpec"]
