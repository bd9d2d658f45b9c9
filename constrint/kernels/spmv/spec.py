"""The parameter spaces of products with a sparse matrix: groups of threads, tiles, panels, sliced ELL. No torch.

A matrix is known by rows, columns and entries, and by options: the longest row, the spread of the lengths of rows, how
scattered columns are, and the columns of x.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.kernels.spmv.cost import (
    INDEX_BYTES,
    NEAR_BYTES,
    SparseShape,
    build_s,
    copied_bytes,
    ell_cost,
    gap_period,
    group_elements,
    library_s,
    merge_cost,
    most_of_tile,
    near_cost,
    panel_cost,
    pattern_bytes,
    patterns_cost,
    vector_cost,
)
from constrint.model import Problem, const, minimum
from constrint.model.constraint import CERTAIN, REDUNDANT
from constrint.select.candidate import CompiledKernel, Config
from constrint.select.cost import PARTS, CostColumns, cost_assumptions
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, KernelSpec, Launch, Param, Rule, Vars
from constrint.select.workload import ELEMENT_BYTES, Size, Workload

DTYPES = ("fp32", "fp64", "bf16", "fp16")
#: Columns of x, at most: each group of threads holds a sum of every column.
MOST_WIDTH = 16
SIZES = (
    Size("rows", 1 << 20, "rows of the matrix and of y"),
    Size("cols", 1 << 20, "columns of the matrix, rows of x"),
    Size("nnz", 5 << 20, "stored entries of the matrix"),
)
OPTIONS = (
    Size("longest", 0, "entries of the longest row; 0: the mean, rounded up", 0),
    Size("spread", 0, "standard deviation of the rows' lengths, in percent of their mean", 0, 1_000_000),
    Size("scattered", 100, "sectors of x that successive entries touch, in percent of these entries", 0, 100),
    Size("width", 1, "columns of x", 1, MOST_WIDTH),
    Size("span", 0, "columns from the first to the last one of a row, at most; 0: all", 0),
    Size("patterns", 0, "patterns of rows (distances of columns from the row); 0: many, or unknown", 0, 256),
)
#: Columns that 16 bits count.
MOST_LOCAL = 1 << 16
#: Bytes of shared memory of a block beside tiles, and the step of the numbers of entries and offsets that it holds.
FIXED_BYTES, CAPACITY_STEP = 2048, 256
#: Registers of a thread of the kernels in CUDA C++ below which they spill, by bytes of a value.
LEAST_REGISTERS = {8: 48, 4: 40, 2: 32}
#: (rows, columns, entries, longest, spread, scattered) of workloads that are tuned by default: the 5-point Laplacian
#: of 2048^2 points, uniform random rows of 32 entries, a graph whose degrees follow a power law.
USUAL = (
    (1 << 22, 1 << 22, 20_963_328, 5, 2, 8),
    (1_000_000, 1_000_000, 32_000_000, 32, 0, 100),
    (500_000, 500_000, 7_500_000, 100_000, 2000, 95),
)


class SpmvSpec(KernelSpec):
    """The base of all implementations: sizes, traffic, inputs and the reference."""

    operation = "spmv"
    sizes = SIZES
    options = OPTIONS
    dtypes = DTYPES
    #: Whether the kernel reads a copy of the matrix.
    copies: ClassVar[bool] = False

    def moved_bytes(self, workload: Workload) -> int:
        """Entries, offsets of rows, x and y, each once, with indices of 32 bits."""
        return SparseShape.of(workload).moved_bytes

    def num_operations(self, workload: Workload) -> int:
        """A multiply-add for each entry and column of x."""
        return 2 * workload.sizes["nnz"] * workload.options.get("width", 1)

    def num_terms(self, workload: Workload) -> int:
        """Entries of the longest row."""
        return max(1, SparseShape.of(workload).longest)

    def assumptions(self, gpu: GpuModel, workload: Workload) -> tuple[str, ...]:
        """Those of streams, and what is taken for granted about the matrix."""
        lines = cost_assumptions(gpu, workload.dtype, has_matrix_units=False)
        shape = SparseShape.of(workload)
        if self.copies:
            seconds, size = build_s(gpu, shape, self.name), copied_bytes(shape, self.name) / 1e6
            lines.append(
                f"{self.full_name} reads a copy of the matrix: {size:,.0f} MB, made once in about {seconds:.1g} s"
            )
        return (*lines, "indices of 32 bits: those of 64 bits are copied to 32 once")

    def usual_workloads(self, gpu: GpuModel) -> Iterable[Workload]:
        """A Laplacian, uniform random rows, and a power law."""
        dtype = self.default_workload(gpu).dtype
        for rows, columns, entries, longest, spread, scattered in USUAL:
            options = {"longest": longest, "spread": spread, "scattered": scattered}
            yield Workload("spmv", {"rows": rows, "cols": columns, "nnz": entries}, dtype, options)

    def check_dtype(self, gpu: GpuModel, workload: Workload) -> None:
        """Raise UnsupportedError for kernels that are not for the GPU, and for products that they do not compute."""
        reason = self.refusal(gpu, workload)
        if reason:
            raise UnsupportedError(f"{self.full_name}: {reason}.")

    def refusal(self, gpu: GpuModel, workload: Workload) -> str:
        """Why the kernel does not compute a product on a GPU; empty where it does."""
        return ""

    # Launch and check. Needs torch.

    def inputs(self, gpu: GpuModel, workload: Workload, *, device: Any = "meta", seed: int = 0) -> dict[str, Any]:
        """`crow` (rows + 1,), `columns` and `values` (entries,), `x` (columns,) or (columns, width)."""
        from constrint.kernels.spmv.operands import random_inputs

        return random_inputs(workload, device=device, seed=seed)

    def outputs(self, gpu: GpuModel, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """`y` (rows,) or (rows, width), empty."""
        x = inputs["x"]
        return {"y": x.new_empty((workload.sizes["rows"], *x.shape[1:]))}

    def launches(
        self, gpu: GpuModel, workload: Workload, config: Config, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> Sequence[Launch]:
        """The launches, behind what the kernel makes of the matrix, which is not part of their time."""
        from constrint.kernels.spmv.operands import launches_of

        return launches_of(gpu, self.name, workload, config, inputs, outputs)

    def reference(self, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """y in fp64."""
        from constrint.kernels.spmv.reference import spmv_reference

        return {"y": spmv_reference(inputs["crow"], inputs["columns"], inputs["values"], inputs["x"])}


class TritonSpmvSpec(SpmvSpec):
    """Kernels in Triton, for every GPU."""

    registers: ClassVar[int] = 40

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse:
        """Warps; registers and shared memory as compiled."""
        warps = v["num_warps"]
        element = max(4, ELEMENT_BYTES[workload.dtype])
        width = 1 << (workload.options.get("width", 1) - 1).bit_length()
        smem = element * width * v[self.of_block] * self.partial_sums(v)
        return BlockUse(warps, const(min(128, self.registers + 4 * width)), smem, spilling=None)

    #: Parameter that counts rows of a block.
    of_block: ClassVar[str] = "rows_per_block"

    def partial_sums(self, v: Vars) -> Any:
        """Sums of a row that threads exchange through shared memory, at most."""
        return const(2)


class VectorSpec(TritonSpmvSpec):
    """Each row by a group of threads of one width, from CSR as it is."""

    name = "vector"
    summary = "y = A @ x, each row of a CSR matrix by a group of threads, Triton"
    actions: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "tile": ("rows_per_block", "threads_per_row"),
        "vectorise": ("num_warps",),
    }

    def params(self, gpu: GpuModel, workload: Workload) -> Iterable[Param]:
        """The group of a row, and rows and warps of a block."""
        power = "Triton's tensors have powers of two"
        yield Param(
            "threads_per_row", (4, 8, 2, 16, 1, 32, 64, 128), "entries of a row that are loaded at a time", power, "tpr"
        )
        yield Param("rows_per_block", (64, 32, 128, 16, 256, 8, 4), "rows of a block", power, "rpb")
        yield Param("num_warps", (4, 8, 2, 1), "warps of a block", power, "w")

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        """No idle threads, few registers, no group that is wider than rows are long."""
        slots, threads = v["rows_per_block"] * v["threads_per_row"], v["num_warps"] * gpu.sm.warp_size
        yield Rule(slots >= threads, "all_threads", "a thread without an entry of its own repeats another's", REDUNDANT)
        yield Rule(slots <= 8 * threads, "few_sums", "more than eight rows' sums of a thread take registers", CERTAIN)
        width = 1 << (workload.options.get("width", 1) - 1).bit_length()
        if width > 1:
            most = f"sums of all columns of x of a thread are at most {MOST_SUMS}"
            yield Rule(slots * width <= MOST_SUMS * threads, "sums_of_columns", most, CERTAIN)
        longest = 1 << (max(1, SparseShape.of(workload).longest) - 1).bit_length()
        because = "threads beyond the longest row have no entry"
        yield Rule(v["threads_per_row"] <= longest, "group_in_row", because, REDUNDANT)

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """See `cost.py`."""
        return vector_cost(gpu, SparseShape.of(workload), columns, blocks_per_sm)


#: Sums of a thread with several columns of x.
MOST_SUMS = 32


class NearSpec(VectorSpec):
    """Rows by groups of threads with columns of 16 bits, which count from the first one of each row."""

    name = "near"
    summary = "y = A @ x, each row by a group of threads, columns in 16 bits from the row's first one, Triton"

    def refusal(self, gpu: GpuModel, workload: Workload) -> str:
        """One column of x, and rows that span no more than 16 bits count."""
        if workload.options.get("width", 1) > 1:
            return "it is for one column of x"
        span = SparseShape.of(workload).span
        if span > MOST_LOCAL:
            return f"columns of a row span {span:,}, and 16 bits count {MOST_LOCAL:,}"
        return ""

    def assumptions(self, gpu: GpuModel, workload: Workload) -> tuple[str, ...]:
        """Those of all kernels, and the memory that columns of 16 bits take."""
        shape = SparseShape.of(workload)
        size = (NEAR_BYTES * shape.entries + INDEX_BYTES * shape.rows) / 1e6
        made = f"{self.full_name} reads columns of 16 bits: {size:,.0f} MB, made once; values are the matrix's own"
        return (*super().assumptions(gpu, workload), made)

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """See `cost.py`."""
        return near_cost(gpu, SparseShape.of(workload), columns, blocks_per_sm)


class EllSpec(TritonSpmvSpec):
    """Slices of rows, each as wide as its longest row, built once."""

    name = "ell"
    summary = "y = A @ x from sliced ELL, built once from CSR, Triton"
    of_block = "slice_height"
    copies = True
    actions: ClassVar[Mapping[str, tuple[str, ...]]] = {"tile": ("slice_height", "window"), "pipeline": ("unroll",)}

    def refusal(self, gpu: GpuModel, workload: Workload) -> str:
        """One column of x, and no more padding than half of the entries."""
        if workload.options.get("width", 1) > 1:
            return "it is for one column of x"
        shape = SparseShape.of(workload)
        if shape.spread > MOST_SPREAD:
            return f"rows whose lengths are spread by more than {MOST_SPREAD:.0%} of the mean are padded too much"
        return ""

    def params(self, gpu: GpuModel, workload: Workload) -> Iterable[Param]:
        """Height of a slice, window within which rows are sorted, columns that are loaded at a time."""
        power = "Triton's tensors have powers of two"
        yield Param("slice_height", (128, 64, 256, 32, 512), "rows of a slice, which is a block's", power, "h")
        yield Param("window", (0, 4096, 32768), "rows that are sorted by length (sigma); 0: none", power, "sigma")
        yield Param("unroll", (1, 2, 4, 8), "entries of each row that are loaded at a time", power, "u")
        yield Param("num_warps", (4, 2, 8, 1), "warps of a block", power, "w")

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        """Threads with rows of their own, and no more of these than registers hold."""
        threads = v["num_warps"] * gpu.sm.warp_size
        because = "a thread without a row repeats another's"
        yield Rule(v["slice_height"] * v["unroll"] >= threads, "all_threads", because, REDUNDANT)
        most = "a thread loads at most 16 entries at a time"
        yield Rule(v["slice_height"] * v["unroll"] <= 16 * threads, "few_entries", most, CERTAIN)
        if SparseShape.of(workload).spread == 0:
            yield Rule(v["window"] == 0, "not_sorted", "rows of one length need no order", REDUNDANT)

    def partial_sums(self, v: Vars) -> Any:
        """As many as entries are loaded at a time."""
        return v["unroll"]

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """See `cost.py`."""
        return ell_cost(gpu, SparseShape.of(workload), columns, blocks_per_sm)


#: Standard deviation of lengths over their mean beyond which sliced ELL is padded too much.
MOST_SPREAD = 1.0


class CudaSpmvSpec(SpmvSpec):
    """Kernels in CUDA C++, for NVIDIA's GPUs from Ampere on."""

    @cached_property
    def device_files(self) -> tuple[Path, ...]:
        """The source."""
        from constrint.kernels.spmv.source import FOLDER

        return tuple(sorted(path for path in FOLDER.iterdir() if path.suffix in (".cu", ".cuh")))

    @property
    def compilers(self) -> Mapping[str, str]:
        """NVRTC."""
        from constrint.kernels.launch.cuda.nvrtc import nvrtc_here

        return nvrtc_here()

    def refusal(self, gpu: GpuModel, workload: Workload) -> str:
        """NVIDIA's GPUs with asynchronous copies; one column of x; 32-bit counts of entries and rows."""
        target = gpu.arch.target
        if not target.startswith("sm_") or int("".join(filter(str.isdigit, target))) < LEAST_SM:
            return f"it is written for NVIDIA's sm_{LEAST_SM} and later, not for {target}"
        if workload.options.get("width", 1) > 1:
            return "it is for one column of x"
        most = workload.sizes["nnz"] + workload.sizes["rows"]
        return "" if most < 1 << 31 else "it counts entries and rows in 32 bits"

    def compile(self, gpu: GpuModel, workload: Workload, config: Config) -> CompiledKernel:
        """Compile the first launch, whose resources are stated; others add partial sums."""
        inputs = self.inputs(gpu, workload)
        first, *_ = self.launches(gpu, workload, config, inputs, self.outputs(gpu, workload, inputs))
        return first.compile(gpu)


#: First compute capability with `cp.async`.
LEAST_SM = 80


def registers_of(gpu: GpuModel) -> int:
    """Registers of an SM."""
    return gpu.register_file.capacity * gpu.sm.num_partitions


class MergeSpec(CudaSpmvSpec):
    """Tiles of equal numbers of entries and rows, from CSR as it is; long rows are shared and added in order."""

    name = "merge"
    summary = "y = A @ x by tiles of equal work from CSR, copied to shared memory ahead, CUDA C++"
    actions: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "tile": ("items", "num_warps"),
        "pipeline": ("num_stages", "resident"),
        "reorder": ("by_rows", "steps"),
    }

    def params(self, gpu: GpuModel, workload: Workload) -> Iterable[Param]:
        """The tile, and the blocks that the compiler leaves registers for."""
        power = "a power of two of warps"
        items = "rows of a tile are to fill its threads, whatever their length"
        yield Param("num_warps", (8, 4, 16, 2), "warps that share a tile", power, "w")
        yield Param("items", (8, 6, 4, 12, 16, 5, 7, 10), "entries and rows of a thread's share of a tile", items, "i")
        yield Param("num_stages", (1, 2, 3), "tiles in shared memory", "one is at work, others are copied", "st")
        blocks = "what resides on an SM is told to the compiler, which leaves threads so many registers"
        yield Param("resident", (4, 5, 6, 3, 2, 8, 10, 12, 16), "blocks that an SM is to hold", blocks, "res")
        both = "rows take x as they need it, or products are made in the order of entries"
        yield Param("by_rows", (1, 0), "1: threads read x by rows", both, "rows")
        yield Param(
            "steps", (8, 4), "entries that a thread of a row adds, about", "more threads for longer rows", "steps"
        )

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        """Registers for what a thread loads at a time, and blocks that are worth their registers."""
        threads = v["num_warps"] * gpu.sm.warp_size
        least = LEAST_REGISTERS[ELEMENT_BYTES[workload.dtype]]
        spills = f"with fewer than {least} registers a thread spills what it loads at a time"
        yield Rule(v["resident"] * threads * least <= registers_of(gpu), "registers_of_loads", spills, CERTAIN)
        yield Rule(
            v["resident"] * threads <= gpu.sm.max_threads_per_sm, "threads_of_sm", "an SM holds no more", CERTAIN
        )
        few = "fewer threads than a quarter of an SM's leave memory idle"
        yield Rule(4 * v["resident"] * threads >= gpu.sm.max_threads_per_sm, "busy_sm", few, REDUNDANT)
        smem = gpu.sm.smem_bytes_per_sm - gpu.sm.max_smem_bytes_per_block // 8
        room = "the L1 that x is read through keeps an eighth of what shared memory may take"
        yield Rule(v["resident"] * self._smem(workload, v) <= smem, "l1_for_x", room, CERTAIN)

    def _smem(self, workload: Workload, v: Vars) -> Any:
        shape = SparseShape.of(workload)
        tile = v["num_warps"] * 32 * v["items"]
        # Entries of a tile are at most those of all its items and of its last row.
        entries, offsets = most_of_tile(tile, shape.mean, shape.spread)
        entries = entries + minimum(const(shape.longest), tile) + CAPACITY_STEP
        return v["num_stages"] * (entries * (4 + shape.element) + 4 * (offsets + CAPACITY_STEP)) + FIXED_BYTES

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse:
        """Registers by the blocks that are to reside, shared memory by the tile."""
        threads = v["num_warps"] * gpu.sm.warp_size
        registers = minimum(const(64), const(registers_of(gpu)) // (8 * v["resident"] * threads) * 8)
        return BlockUse(v["num_warps"], registers, self._smem(workload, v), spilling=None)

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """See `cost.py`."""
        return merge_cost(gpu, SparseShape.of(workload), columns, blocks_per_sm)


class PatternSpec(CudaSpmvSpec):
    """Rows of few patterns, by warps of 32 rows: values from CSR as it is, no columns and no offsets of rows."""

    name = "patterns"
    summary = "y = A @ x for rows of few patterns (stencils, bands, blocks) from values in CSR alone, CUDA C++"
    actions: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "tile": ("num_warps",),
        "pipeline": ("num_stages", "resident"),
    }

    def moved_bytes(self, workload: Workload) -> int:
        """Values, the patterns of rows, x and y, each once."""
        return pattern_bytes(SparseShape.of(workload))

    def refusal(self, gpu: GpuModel, workload: Workload) -> str:
        """Few patterns, whose number the workload states."""
        if not SparseShape.of(workload).patterns:
            return "it is for rows of up to 256 patterns, and the workload does not state that they are so few"
        return super().refusal(gpu, workload)

    def assumptions(self, gpu: GpuModel, workload: Workload) -> tuple[str, ...]:
        """Those of all kernels, and the memory that the numbers of patterns take."""
        size = SparseShape.of(workload).rows / 1e6
        made = f"{self.full_name} reads the number of each row's pattern: {size:,.0f} MB, made once; "
        return (*super().assumptions(gpu, workload), made + "values are the matrix's own")

    def params(self, gpu: GpuModel, workload: Workload) -> Iterable[Param]:
        """Warps of a block, groups that a warp copies ahead, blocks of an SM."""
        yield Param("num_warps", (8, 4, 16, 2), "warps of a block", "each has rows and shared memory of its own", "w")
        yield Param(
            "num_stages", (2, 3, 1, 4), "groups of 32 rows in shared memory", "one is added, others copied", "st"
        )
        blocks = "what resides on an SM is told to the compiler, which leaves threads so many registers"
        yield Param("resident", (6, 4, 8, 3, 2, 1, 12, 16), "blocks that an SM is to hold", blocks, "res")

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        """Threads, registers and shared memory of an SM."""
        threads = v["resident"] * v["num_warps"] * gpu.sm.warp_size
        least = LEAST_REGISTERS[ELEMENT_BYTES[workload.dtype]]
        spills = f"with fewer than {least} registers a thread spills what it loads at a time"
        yield Rule(threads * least <= registers_of(gpu), "registers_of_loads", spills, CERTAIN)
        yield Rule(threads <= gpu.sm.max_threads_per_sm, "threads_of_sm", "an SM holds no more", CERTAIN)
        smem = gpu.sm.smem_bytes_per_sm - gpu.sm.max_smem_bytes_per_block // 8
        room = "the L1 that x is read through keeps an eighth of what shared memory may take"
        yield Rule(v["resident"] * self._smem(gpu, workload, v) <= smem, "l1_for_x", room, CERTAIN)

    def _smem(self, gpu: GpuModel, workload: Workload, v: Vars) -> Any:
        shape = SparseShape.of(workload)
        elements = group_elements(gpu.sm.warp_size * shape.longest, gap_period(shape.longest), shape.element)
        return v["num_warps"] * v["num_stages"] * (elements * shape.element)

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse:
        """Registers by the blocks that are to reside, shared memory by the groups that warps hold."""
        threads = v["num_warps"] * gpu.sm.warp_size
        registers = minimum(const(64), const(registers_of(gpu)) // (8 * v["resident"] * threads) * 8)
        return BlockUse(v["num_warps"], registers, self._smem(gpu, workload, v), spilling=None)

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """See `cost.py`."""
        return patterns_cost(gpu, SparseShape.of(workload), columns, blocks_per_sm)


class PanelSpec(CudaSpmvSpec):
    """Entries sorted by panels of columns, whose x lies in shared memory; sums of runs are added in order."""

    name = "panels"
    summary = "y = A @ x by panels of columns with x in shared memory, sorted once from CSR, CUDA C++"
    copies = True
    actions: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "tile": ("panel_kib", "entries_per_lane"),
        "vectorise": ("num_warps",),
    }

    def params(self, gpu: GpuModel, workload: Workload) -> Iterable[Param]:
        """The panel, and the tile of each warp."""
        room = "an SM's shared memory holds one panel beside the sums of its warps' tiles"
        yield Param("panel_kib", (160, 192, 176, 144, 128, 96, 64), "KiB of x in shared memory", room, "KiB")
        loads = "16 bytes of columns are 8 entries"
        yield Param("entries_per_lane", (16, 8), "successive entries that a lane adds", loads, "epl")
        yield Param("num_warps", (32, 16), "warps of the block of an SM", "one block fills an SM", "w")

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        """Columns of 16 bits, registers, and counts of 32 bits."""
        shape = SparseShape.of(workload)
        local = f"columns of a panel are counted in 16 bits, up to {MOST_LOCAL}"
        yield Rule(v["panel_kib"] * 1024 <= MOST_LOCAL * shape.element, "local_columns", local, CERTAIN)
        spills = "16 entries of fp64 of each lane of 32 warps are spilled"
        if shape.element == 8:
            yield Rule(v["entries_per_lane"] * v["num_warps"] < 16 * 32, "registers_of_entries", spills, CERTAIN)
        counted = "runs and entries are counted in 32 bits"
        yield Rule(const(2 * shape.entries) < 1 << 31, "counts", counted, CERTAIN)

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse:
        """One block; a panel beside the sums of its warps' tiles."""
        element = max(4, ELEMENT_BYTES[workload.dtype])
        smem = v["panel_kib"] * 1024 + v["num_warps"] * 32 * v["entries_per_lane"] * element
        return BlockUse(v["num_warps"], const(64), smem, spilling=None)

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """See `cost.py`."""
        return panel_cost(gpu, SparseShape.of(workload), columns, blocks_per_sm)


class SparseLibrarySpec(SpmvSpec):
    """The product by the operator of torch, which is cuSPARSE's on NVIDIA's GPUs."""

    name = "library"
    summary = "y = A @ x by torch's own operator (cuSPARSE)"

    def refusal(self, gpu: GpuModel, workload: Workload) -> str:
        """Its times are known on Hopper alone; `constrint.spmv` tries it on every GPU."""
        if gpu.arch.target.startswith(MEASURED):
            return ""
        return f"torch's own product was not measured on {gpu.name}: nothing is predicted, so nothing is offered"

    def params(self, gpu: GpuModel, workload: Workload) -> Iterable[Param]:
        """None: the library chooses."""
        return ()

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        """None."""
        return iter(())

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse | None:
        """None: the library does not say which kernels it launches."""
        return None

    def problem(self, gpu: GpuModel, workload: Workload) -> Problem:
        """One point."""
        return Problem(self.full_name)

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """A fit of its measured times; the library does not say what binds it."""
        seconds = library_s(gpu, SparseShape.of(workload))
        return CostColumns(np.array([seconds]), dict.fromkeys(PARTS, 0.0) | {"latency": seconds})

    def assumptions(self, gpu: GpuModel, workload: Workload) -> tuple[str, ...]:
        """That its share of the memory's rate follows from the mean length of rows."""
        return ("the library takes the share of the memory's rate, and the time to launch, that it took on one H200",)


#: Targets of GPUs on which the library was measured.
MEASURED = "sm_90"

SPECS = (MergeSpec(), PatternSpec(), PanelSpec(), EllSpec(), VectorSpec(), NearSpec(), SparseLibrarySpec())
