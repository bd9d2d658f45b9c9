"""The parameter space of sums of vectors in Triton, for any modelled GPU, and its cost. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.model import ceildiv, divides
from constrint.model.constraint import CERTAIN, REDUNDANT
from constrint.select.candidate import Config
from constrint.select.cost import CostColumns, cost_assumptions
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, KernelSpec, Launch, Param, Rule, Vars
from constrint.select.streams import Stream, stream_cost
from constrint.select.workload import ELEMENT_BYTES, Size, Workload

#: Bytes of the widest load, and of a sector of DRAM.
WIDEST, SECTOR = 16, 32
#: Most loads of either vector that a thread has in flight.
MOST_LOADS = 8
POWER = "powers of two, as Triton's block shapes must be"
#: Clocks of a scheduler for both loads, the multiply-add and the store of a warp, and for each element.
INSTRUCTION_CLK, ELEMENT_CLK = 8.0, 1.5


class AxpySpec(KernelSpec):
    """One block for every tile of a row; every thread loads what it adds, then adds, then stores."""

    operation = "axpy"
    summary = "out[N] = alpha * x[N] + y[N], one pass over memory, Triton"
    sizes = (Size("n", 1 << 24, "elements of a row"),)
    options = (
        Size("rows", 1, "rows, at any distance from each other", 1),
        Size("width", WIDEST, "bytes of which every row of x, y and out starts at a multiple", 1, WIDEST),
    )
    dtypes = ("fp32", "bf16", "fp16", "fp64")
    free_params = ("evict_first",)

    def check_dtype(self, gpu: GpuModel, workload: Workload) -> None:
        """Raise UnsupportedError for rows that start between elements."""
        width, element = workload.options.get("width", WIDEST), ELEMENT_BYTES[workload.dtype]
        if width & (width - 1) or width < element:
            raise UnsupportedError(
                f"axpy: width is a power of two from {element} (bytes of an element) to {WIDEST}, got {width}."
            )

    def params(self, gpu: GpuModel, workload: Workload) -> Iterable[Param]:
        """Tile, vector width and warps."""
        widest = max(1, workload.options.get("width", WIDEST) // ELEMENT_BYTES[workload.dtype])
        vectors = tuple(sorted({widest, max(1, widest // 2), 1}, reverse=True))
        tiles = tuple(1 << power for power in (11, 12, 10, 13, 9, 14, 8, 15, 7, 16, 6))
        yield Param("tile", tiles, "elements of a block", POWER)
        yield Param("vector", vectors, "elements of one load", f"up to {WIDEST} bytes, where rows allow", "v")
        yield Param("num_warps", (4, 8, 2, 16, 1, 32), "warps (waves) of a block", "Triton takes powers of two", "w")
        eviction = "1: all three vectors leave the L2 before anything else does"
        yield Param("evict_first", (0, 1), eviction, "the compiler knows both", "ef")

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        """Alignment of loads, work for every thread, loads of a thread."""
        n, width = workload.sizes["n"], workload.options.get("width", WIDEST)
        threads = v["num_warps"] * gpu.sm.warp_size
        because = f"rows start at multiples of {width} bytes, and a load may not cross its alignment"
        yield Rule(divides(v["vector"] * ELEMENT_BYTES[workload.dtype], width), "vector_aligned", because, CERTAIN)
        yield Rule(divides(v["vector"], n), "vector_in_row", "a mask must not cut a load apart", CERTAIN)
        yield Rule(v["tile"] >= v["vector"] * threads, "busy", "no thread is without a load", REDUNDANT)
        most = f"a thread holds up to {MOST_LOADS} loads of either vector"
        yield Rule(v["tile"] <= v["vector"] * threads * MOST_LOADS, "loads_in_registers", most, REDUNDANT)
        half = "half of a larger tile would be outside"
        yield Rule(v["tile"] < max(2 * n, 2 * gpu.sm.warp_size + 1), "tile_in_row", half, REDUNDANT)
        blocks = "blocks along a grid's first dimension"
        rows = workload.options.get("rows", 1)
        yield Rule(ceildiv(n, v["tile"]) * rows < 2**31, "grid", blocks, CERTAIN)

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse:
        """Registers of what is loaded and of the sums; no shared memory."""
        element = ELEMENT_BYTES[workload.dtype]
        threads = v["num_warps"] * gpu.sm.warp_size
        loaded = 2 * ceildiv(v["tile"] * element, 4 * threads)
        return BlockUse(v["num_warps"], 14 + loaded + loaded // 4, smem_bytes=v["tile"] * 0)

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """Both vectors and the result stream through DRAM once."""
        n, rows, element = workload.sizes["n"], workload.options.get("rows", 1), ELEMENT_BYTES[workload.dtype]
        tile, vector = (np.asarray(columns[name], dtype=np.float64) for name in ("tile", "vector"))
        blocks = np.ceil(n / tile) * rows
        padded = -(-n * element // SECTOR) * SECTOR / (n * element)
        instructions = 3.0 * n * rows / (vector * gpu.sm.warp_size)
        clocks = instructions * (INSTRUCTION_CLK / 3 + ELEMENT_CLK * vector / 3)
        clock = gpu.device.boost_clock_hz or 1.5e9
        stream = Stream(
            dram_bytes=self.moved_bytes(workload) * padded,
            l2_bytes=0.0,
            num_blocks=blocks,
            flight_bytes=2 * np.minimum(tile, n) * element,
            compute_s=clocks / (gpu.device.sm_count * gpu.sm.num_partitions * clock),
        )
        return stream_cost(gpu, stream, blocks_per_sm)

    def moved_bytes(self, workload: Workload) -> int:
        """Bytes of x, y and the result."""
        return 3 * workload.sizes["n"] * workload.options.get("rows", 1) * ELEMENT_BYTES[workload.dtype]

    def num_operations(self, workload: Workload) -> int:
        """2 for each element."""
        return 2 * workload.sizes["n"] * workload.options.get("rows", 1)

    def num_terms(self, workload: Workload) -> int:
        """2: an element is the sum of two."""
        return 2

    def assumptions(self, gpu: GpuModel, workload: Workload) -> tuple[str, ...]:
        """Effects that the model leaves out."""
        left_out = "no vector is in a cache before the call, and the result leaves it during the call"
        return (*cost_assumptions(gpu, workload.dtype, has_matrix_units=False), left_out)

    def usual_workloads(self, gpu: GpuModel) -> Iterable[Workload]:
        """A short, a medium and a long vector in two types."""
        for dtype in ("fp32", "bf16"):
            for n in (1 << 16, 1 << 22, 1 << 28):
                yield Workload(self.operation, {"n": n}, dtype)

    # Launch and check. Needs torch.

    def inputs(self, gpu: GpuModel, workload: Workload, *, device: Any = "meta", seed: int = 0) -> dict[str, Any]:
        """x and y (rows, N) of standard normal elements, in rows that start at multiples of `width` bytes."""
        from constrint.kernels.axpy.reference import random_inputs

        return random_inputs(workload, device=device, seed=seed)

    def outputs(self, gpu: GpuModel, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The result, laid out as x."""
        x = inputs["x"]
        pitch = x.stride(0)
        return {"out": x.new_empty((x.shape[0], pitch))[:, : x.shape[1]]}

    def launches(
        self, gpu: GpuModel, workload: Workload, config: Config, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> Sequence[Launch]:
        """The one launch."""
        from constrint.kernels.axpy.launch import AxpyCall, axpy_launch
        from constrint.kernels.axpy.reference import ALPHA

        return [axpy_launch(AxpyCall(inputs["x"], inputs["y"], outputs["out"], ALPHA), config)]

    def reference(self, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The sum in fp64."""
        from constrint.kernels.axpy.reference import ALPHA, axpy_reference

        return {"out": axpy_reference(ALPHA, inputs["x"].double(), inputs["y"].double())}


SPECS = (AxpySpec(),)
