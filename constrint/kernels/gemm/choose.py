"""The model's first choice for one product, in less than a millisecond: the GEMM's space boiled down to a table.

For each GPU, dtype and width of loads a table is made once: every valid configuration is priced for a grid of shapes,
and those that are among the best for any of them stay. A new shape then prices a few hundred rows; a repeated one is
looked up. No torch, no triton.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.errors import InfeasibleError
from constrint.hwmodels import GpuModel, load_gpu, occupancy
from constrint.kernels.gemm.cost import gemm_cost
from constrint.kernels.gemm.cost_descriptor import Packing, descriptor_cost, row_major_steps
from constrint.kernels.gemm.descriptor import needs_k_major
from constrint.kernels.gemm.grid_rules import COLUMNS, grid_rules
from constrint.kernels.gemm.producer import can_store
from constrint.kernels.gemm.spec import SPEC
from constrint.kernels.gemm.units import (
    ELEMENT_BYTES,
    LINE_BYTES,
    OUTPUT_BYTES,
    WIDEST_BYTES,
    Aligned,
    Operands,
    row_major,
    width_bytes,
)
from constrint.select.spec import Config, Workload
from constrint.solve import enumerate_space

#: Shapes for which the best configurations are kept, first the better part of the space for a few, then the best of
#: those for many. Between them the best one changes little by little.
COARSE_SHAPES = (
    *product((16, 144, 1024, 8192), (16, 256, 2048, 16384), (512, 4096)),
    *((16, 16, 32), (256, 256, 64), (16, 4096, 64), (2048, 16, 64), (4096, 4096, 64), (16, 16, 8192)),
    *((2048, 48, 16384), (2048, 16, 16384), (64, 4096, 16), (2048, 1024, 16)),
    *((1408, 32, 16384), (800, 16, 8192), (5600, 16, 96), (5600, 32, 1024), (16, 16, 640), (16, 16, 16)),
)
FINE_SHAPES = (
    *product(
        (16, 48, 64, 128, 144, 272, 512, 1024, 2048, 4096, 16384),
        (16, 256, 1024, 3072, 4096, 12288),
        (256, 768, 2048, 8192),
    ),
    *COARSE_SHAPES,
)
COARSE_KEPT = 150
FINE_KEPT = 5
#: Relative difference of predicted times below which the preferred configuration wins.
TIE = 2e-3
#: Shared memory that an added bias takes beside a tile: one row in 32 bits, aligned.
BIAS_ALIGNMENT_BYTES = 1024


@dataclass(frozen=True)
class Request:
    """One product to choose for.

    Args:
        batch: Products in one launch.
        m, n, k: Their sizes.
        dtype: Operand type, as in `GemmSpec.dtypes`.
        width_a, width_b: Bytes of the widest accesses that rows in memory allow, up to 16.
        step_a, step_b: Bytes, up to a line of 128, that the starts of rows are multiples of.
        packed_bytes: Bytes of the operands that have to be copied before descriptors can load them.
        has_descriptors: Whether descriptors can load the operands at all, copied or not.
        is_a_k_major, is_b_k_major: Whether A, whether B is contiguous along K.
        is_a_copied, is_b_copied: Whether descriptors load a copy.
        is_a_turned, is_b_turned: Whether that copy runs along K, whatever the operand does.
        output_bytes: Bytes of one element of the result.
        has_bias, has_source: Whether the epilogue reads a row, a matrix.
        is_three_pass: Whether fp32 operands are multiplied in three tf32 passes.
        allows_producer: Whether the compiler is one that the kernel with a producer warp is checked with.
    """

    batch: int
    m: int
    n: int
    k: int
    dtype: str
    width_a: int
    width_b: int
    packed_bytes: int
    step_a: int = LINE_BYTES
    step_b: int = LINE_BYTES
    has_descriptors: bool = True
    is_a_k_major: bool = True
    is_b_k_major: bool = False
    is_a_copied: bool = False
    is_b_copied: bool = False
    is_a_turned: bool = False
    is_b_turned: bool = False
    output_bytes: int = 2
    has_bias: bool = False
    has_source: bool = False
    is_three_pass: bool = False
    allows_producer: bool = True

    @staticmethod
    def of(workload: Workload) -> Request:
        """Row-major, contiguous operands and no epilogue, as `GemmSpec` and the command line mean it."""
        m, n, k = (workload.sizes[s] for s in ("m", "n", "k"))
        operands, loaded = row_major(workload), row_major_steps(workload)
        return Request(
            batch=1,
            m=m,
            n=n,
            k=k,
            dtype=workload.dtype,
            width_a=operands.widths.a,
            width_b=operands.widths.b,
            packed_bytes=Packing.of(workload).num_bytes,
            step_a=operands.steps[0],
            step_b=operands.steps[1],
            is_a_copied=loaded[0] != operands.steps[0],
            is_b_copied=loaded[1] != operands.steps[1],
            output_bytes=OUTPUT_BYTES[workload.dtype],
        )


@lru_cache(maxsize=65536)
def choose(gpu_name: str, request: Request) -> Config:
    """The configuration with the least predicted time.

    Args:
        gpu_name: A GPU that `load_gpu` knows.
        request: The product.

    Raises:
        UnsupportedError: When the GPU has no unit for the dtype.
        InfeasibleError: When no configuration of the table is valid.
    """
    gpu = load_gpu(gpu_name)
    table = _table(gpu.name, request.dtype, request.width_a, request.width_b)
    rows, seconds = _price(gpu, table, request)
    if not len(rows):
        raise InfeasibleError(f"no config of 'gemm' on {gpu.name} is valid for {request}.")
    near = rows[seconds <= (1 + TIE) * seconds.min()]
    config = {name: int(column[near.min()]) for name, column in table.columns.items()}
    return _ordered(gpu, request, config, int(table.blocks_per_sm[near.min()]))


def best(gpu_name: str, request: Request, top: int) -> list[Config]:
    """The `top` configurations of the table by predicted time, first choice first."""
    gpu = load_gpu(gpu_name)
    table = _table(gpu.name, request.dtype, request.width_a, request.width_b)
    rows, seconds = _price(gpu, table, request)
    chosen = [choose(gpu_name, request)]
    for row in rows[np.argsort(seconds, kind="stable")[: top + 1]]:
        config = {name: int(column[row]) for name, column in table.columns.items()}
        ordered = _ordered(gpu, request, config, int(table.blocks_per_sm[row]))
        if ordered not in chosen:
            chosen.append(ordered)
    return chosen[:top]


@dataclass(frozen=True)
class Table:
    """Configurations in order of preference, as columns, with what their blocks take."""

    columns: Mapping[str, NDArray[np.int64]]
    blocks_per_sm: NDArray[np.int64]
    smem_bytes: NDArray[np.int64]

    def take(self, rows: NDArray[Any]) -> Table:
        """These rows alone."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        return Table(columns, self.blocks_per_sm[rows], self.smem_bytes[rows])


@lru_cache(maxsize=256)
def _table(gpu_name: str, dtype: str, width_a: int, width_b: int) -> Table:
    gpu = load_gpu(gpu_name)
    table = _whole_space(gpu, dtype, width_a, width_b)
    for shapes, kept in ((COARSE_SHAPES, COARSE_KEPT), (FINE_SHAPES, FINE_KEPT)):
        workloads = [_workload(dtype, m, n, k, width_a, width_b) for m, n, k in shapes]
        table = _among_best(gpu, table, workloads, kept)
    return table


def _among_best(gpu: GpuModel, table: Table, workloads: list[Workload], kept: int) -> Table:
    """The rows that are among the `kept` best of their kernel for any of the workloads."""
    found: set[int] = set()
    none = np.zeros_like(table.smem_bytes)
    kernels = table.columns.get("descriptor", none) + table.columns.get("producer", none)
    for kernel in np.unique(kernels):
        rows_of = np.flatnonzero(kernels == kernel)
        part = table.take(rows_of)
        for workload in workloads:
            rows, seconds = _price(gpu, part, Request.of(workload))
            first = np.argsort(seconds, kind="stable")[:kept]
            found.update(rows_of[rows[first]].tolist())
    return table.take(np.array(sorted(found), dtype=np.int64))


def _workload(dtype: str, m: int, n: int, k: int, width_a: int, width_b: int) -> Workload:
    """A product of nearly these sizes, whose row-major operands have rows of these widths."""
    element = ELEMENT_BYTES[dtype]
    # A little less, not more: the shapes stand for what is valid up to them.
    less = {width: width // element if width < WIDEST_BYTES else 0 for width in (width_a, width_b)}
    return Workload(SPEC.name, {"m": m, "n": n - less[width_b], "k": k - less[width_a]}, dtype)


def _whole_space(gpu: GpuModel, dtype: str, width_a: int, width_b: int) -> Table:
    """Every configuration that is valid for large sizes; the order of tiles and the compiler's knobs stay open."""
    large = 1 << 16
    workload = _workload(dtype, large, large, large, width_a, width_b)
    problem = SPEC.problem(gpu, workload)
    late = {*SPEC.order_params, *SPEC.free_params}
    params = [p for p in SPEC.params(gpu, workload) if p.name not in late]
    # Of what takes as long, K in one piece first: it needs no memory for partial sums.
    params.sort(key=lambda p: p.name != "split_k")
    columns, _ = enumerate_space(problem).project([p.name for p in params])
    order = np.lexsort([_places(p.values, columns[p.name]) for p in reversed(params)])
    columns = {name: column[order] for name, column in columns.items()}
    use = SPEC.use(gpu, workload, problem)
    smem = use.smem_bytes.columns(columns)
    fits = occupancy(
        gpu,
        threads_per_block=use.warps.columns(columns) * gpu.sm.warp_size,
        registers_per_thread=use.registers_per_thread.columns(columns),
        smem_bytes_per_block=smem,
    )
    return Table(columns, np.asarray(fits.blocks_per_sm), smem)


def _places(values: tuple[int, ...], column: NDArray[Any]) -> NDArray[Any]:
    """Place of every entry in the order of preference."""
    by_value = np.argsort(values)
    return by_value[np.searchsorted(np.asarray(values)[by_value], column)]


def _price(gpu: GpuModel, table: Table, request: Request) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Valid rows of a table and their predicted seconds."""
    sizes = {"m": request.m, "n": request.n, "k": request.k}
    columns = table.columns
    valid = np.ones(len(table.smem_bytes), dtype=bool)
    for rule in grid_rules(gpu, sizes, columns, COLUMNS):
        valid &= rule.condition
    valid &= _fits_epilogue(gpu, table, request)
    is_tma = columns["descriptor"] > 0 if "descriptor" in columns else np.zeros_like(valid)
    if not request.has_descriptors:
        valid &= ~is_tma
    if "producer" in columns and not _has_producer(request):
        valid &= columns["producer"] == 0
    found = np.flatnonzero(valid)
    rows = np.concatenate([found[is_tma[found]], found[~is_tma[found]]])
    seconds = []
    workload = Workload(SPEC.name, sizes, request.dtype)
    for of_tma in (True, False):
        here = rows[is_tma[rows] == of_tma]
        if not len(here):
            continue
        part = {name: column[here] for name, column in columns.items()}
        if of_tma:
            packing = Packing(request.packed_bytes)
            priced = descriptor_cost(
                gpu,
                workload,
                part,
                table.blocks_per_sm[here],
                batch=request.batch,
                packing=packing,
                is_a_k_major=request.is_a_k_major or request.is_a_turned,
                is_b_k_major=request.is_b_k_major or request.is_b_turned,
                steps=(
                    LINE_BYTES if request.is_a_copied else request.step_a,
                    LINE_BYTES if request.is_b_copied else request.step_b,
                ),
            )
        else:
            stacked = _stacked(workload, request.batch)
            priced = gemm_cost(gpu, stacked, part, table.blocks_per_sm[here], _operands(request))
        seconds.append(priced.seconds)
    return rows, np.concatenate(seconds) if seconds else np.empty(0)


def _has_producer(request: Request) -> bool:
    """Whether the kernel with a producer warp computes this product."""
    is_plain = request.batch == 1 and not request.has_source and not request.is_three_pass
    return is_plain and request.allows_producer and can_store(request.n, request.output_bytes, request.dtype)


def _operands(request: Request) -> Operands:
    widths = Aligned(request.width_a, request.width_b, width_bytes(request.n, request.output_bytes))
    steps = request.step_a, request.step_b
    return Operands(widths, request.is_a_k_major, request.is_b_k_major, steps)


def _stacked(workload: Workload, batch: int) -> Workload:
    """A batch as one product with as many rows: what it costs but for tiles that would straddle two products."""
    return Workload(workload.kernel, {**workload.sizes, "m": workload.sizes["m"] * batch}, workload.dtype)


def _fits_epilogue(gpu: GpuModel, table: Table, request: Request) -> Any:
    """Whether shared memory is left for what the epilogue adds; the table knows the plain product only."""
    c, limit = table.columns, gpu.sm.max_smem_bytes_per_block
    area = c["tile_m"] * c["tile_n"]
    extra = np.zeros_like(table.smem_bytes)
    if request.output_bytes > OUTPUT_BYTES[request.dtype]:
        extra = extra + area * request.output_bytes
    if request.has_bias:
        extra = extra + 4 * c["tile_n"] + BIAS_ALIGNMENT_BYTES
    if request.is_b_k_major and needs_k_major(request.dtype):
        # Row-major B passes through one buffer on its way to wgmma, K-major B needs one per stage; descriptors' does.
        by_pointers = c.get("descriptor", np.zeros_like(extra)) == 0
        slices = c["tile_n"] * c["tile_k"] * ELEMENT_BYTES[request.dtype] * (c["num_stages"] - 1)
        extra = extra + np.where(by_pointers, slices, 0)
    if request.is_three_pass:
        # Both parts of B's slice lie beside it.
        extra = extra + 2 * c["tile_n"] * c["tile_k"] * ELEMENT_BYTES[request.dtype]
    if gpu.arch.target == "gfx950" and (not request.is_a_k_major or request.is_b_k_major):
        # Padded otherwise than row-major operands, by a sixteenth at most.
        extra = extra + table.smem_bytes // 16
    fits = table.smem_bytes + extra <= limit
    if request.has_source:
        # The matrix is read in the accumulator's place, through as much shared memory again.
        fits = fits & (4 * area + extra <= limit) & (c["persistent"] == 0)
    if request.has_source or request.is_three_pass:
        # As many registers again as the accumulator's, or parts of the operands in them.
        fits = fits & (area <= 64 * gpu.sm.warp_size * c["num_warps"])
    return fits


def _ordered(gpu: GpuModel, request: Request, config: dict[str, int], blocks_per_sm: int) -> Config:
    """Add the order of tiles with the least predicted time, and the preferred values of the compiler's knobs."""
    workload = Workload(SPEC.name, {"m": request.m, "n": request.n, "k": request.k}, request.dtype)
    late = {p.name: p.values for p in _params(gpu.name, request.dtype) if p.name not in config}
    names = [name for name in SPEC.order_params if name in late]
    values = np.array(list(product(*(late[name] for name in names))), dtype=np.int64).T
    columns = {name: np.full(values.shape[1], value) for name, value in config.items()}
    columns |= dict(zip(names, values, strict=True))
    valid = np.ones(values.shape[1], dtype=bool)
    for rule in grid_rules(gpu, workload.sizes, columns, COLUMNS):
        valid &= rule.condition
    columns = {name: column[valid] for name, column in columns.items()}
    # Where nothing else tells: the largest group of up to eight rows.
    row = int(np.argmax(np.where(columns["group_m"] <= 8, columns["group_m"], 0)))
    if not config.get("descriptor"):
        blocks = np.full(int(valid.sum()), blocks_per_sm)
        seconds = gemm_cost(gpu, workload, columns, blocks, _operands(request)).seconds
        row = int(np.flatnonzero(seconds <= (1 + TIE) * seconds.min())[0])
    free = {name: choices[0] for name, choices in late.items() if name not in names}
    return {name: int(column[row]) for name, column in columns.items()} | free


@lru_cache(maxsize=256)
def _params(gpu_name: str, dtype: str) -> Any:
    gpu = load_gpu(gpu_name)
    return SPEC.params(gpu, Workload(SPEC.name, {"m": 4096, "n": 4096, "k": 4096}, dtype))
