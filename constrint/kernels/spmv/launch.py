"""Launches of `spmv`: every implementation for given operands and a configuration. Needs torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.kernels.launch.cuda.source_spec import CudaLaunch
from constrint.kernels.launch.plan.scratch import TORCH_SCRATCH, Scratch
from constrint.kernels.spmv.cost import gap_period, group_elements
from constrint.kernels.spmv.formats import LANES, VECTOR, Ell, Near, Panels, Patterns, Tiles
from constrint.kernels.spmv.source import patterns_source_of, runs_source_of, source_of
from constrint.select.candidate import CompiledKernel

DTYPE_NAMES = {torch.float64: "fp64", torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
SUM_DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.float32, "fp16": torch.float32}
DTYPES = {name: dtype for dtype, name in DTYPE_NAMES.items()}
#: Threads of a block of the kernel that adds partial sums of long rows.
LONG_THREADS = 128
#: Capacities of shared memory are multiples of this many elements, so that similar matrices share plans.
CAPACITY_STEP = 256
#: Entries of a row that a thread loads x for at once, at most.
MOST_BATCH = 8
#: Bytes of vectors of entries to which arrays are aligned.
ALIGNMENT = 16


@dataclass(frozen=True)
class SpmvCall:
    """One product: y = alpha * A @ x + beta * source.

    Args:
        crow: (rows + 1,) int32.
        columns: (entries,) int32.
        values: (entries,).
        x: (columns of A,), contiguous.
        y: (rows,), contiguous.
        source: (rows,), contiguous, or None.
        alpha, beta: Factors.
    """

    crow: Tensor
    columns: Tensor
    values: Tensor
    x: Tensor
    y: Tensor
    source: Tensor | None = None
    alpha: float = 1.0
    beta: float = 0.0


def capacity(number: int) -> int:
    """The number of elements of shared memory for `number` of them."""
    return -(-max(1, number) // CAPACITY_STEP) * CAPACITY_STEP


def staged_bytes(
    dtype: str, threads: int, tile: int, products: int, offsets: int, stages: int, value_bytes: int
) -> int:
    """Bytes of shared memory of a block that copies tiles ahead, as in the source."""
    element = SUM_DTYPES[dtype].itemsize
    lengthy = 2 * tile // 24 + 1
    fixed = -(-4 * (lengthy + 1) // element) * element + threads // 32 * element
    stage = products * (4 + value_bytes) + offsets * 4
    return -(-(stages * stage + fixed) // 16) * 16


def batch_of(mean: float, steps: int) -> int:
    """Entries of a row that a thread loads x for at once: those of most rows, if these are few."""
    whole = max(2, math.ceil(mean - 0.01))
    return whole if whole <= min(steps, MOST_BATCH) else min(steps, MOST_BATCH)


def _sum(dtype: str, value: float) -> Any:
    return np.float64(value) if dtype == "fp64" else np.float32(value)


def _aligned(*arrays: Tensor) -> int:
    """Entries of a vector that all arrays are aligned to."""
    return VECTOR if all(each.data_ptr() % min(32, VECTOR * each.element_size()) == 0 for each in arrays) else 1


def merge_launches(
    gpu: GpuModel,
    call: SpmvCall,
    tiles: Tiles,
    config: Mapping[str, int],
    scratch: Scratch = TORCH_SCRATCH,
    *,
    is_unit: bool = False,
) -> list[CudaLaunch]:
    """The launches of the kernel for CSR: one, and one more where tiles share rows.

    Args:
        gpu: The hardware model.
        call: The product; where `is_unit`, its x has the type of sums, and `values` are of y's type and not read.
        tiles: Its tiles.
        config: The configuration.
        scratch: Memory beside the operands.
        is_unit: Whether all values are 1.
    """
    dtype, device = DTYPE_NAMES[call.values.dtype], call.values.device
    threads, tile = config["num_warps"] * 32, config["num_warps"] * 32 * config["items"]
    is_long = tiles.num_long > 0
    products, offsets = capacity(tiles.most_entries + VECTOR), capacity(tiles.most_rows + 1)
    parts = scratch.empty((2 * tiles.number,), SUM_DTYPES[dtype], device) if is_long else None
    options: dict[str, Any] = {"is_long": is_long, "has_source": call.source is not None}
    options |= {"by_rows": bool(config["by_rows"]), "stages": config["num_stages"], "steps": config["steps"]}
    options |= {"batch": batch_of(call.columns.numel() / max(1, call.y.numel()), config["steps"])}
    options |= {
        "resident": config["resident"],
        "vector": _aligned(call.columns, call.columns if is_unit else call.values),
        "is_unit": is_unit,
    }
    factors = _sum(dtype, call.alpha), _sum(dtype, call.beta)
    numbers = [call.columns.numel(), tiles.number, products, offsets]
    values, value_bytes = (None, 0) if is_unit else (call.values, call.values.element_size())
    operands = [call.crow, call.columns, values, call.x, call.y, call.source]
    segments = tiles.segments if is_long else None
    main = CudaLaunch(
        gpu=gpu,
        source=source_of(dtype, threads, tile, **options),
        # With one stage each block has one tile, and the device deals them.
        grid=(
            tiles.number if config["num_stages"] == 1 else min(tiles.number, gpu.device.sm_count * config["resident"]),
        ),
        block=(threads,),
        arguments=(*operands, tiles.tiles, segments, parts, *factors, *map(np.int32, numbers)),
        smem_bytes=staged_bytes(dtype, threads, tile, products, offsets, config["num_stages"], value_bytes),
    )
    if not is_long:
        return [main]
    return [main, _long(gpu, dtype, tiles, parts, call)]


def _long(gpu: GpuModel, dtype: str, tiles: Tiles, parts: Any, call: SpmvCall) -> CudaLaunch:
    """The launch that adds the parts of rows that tiles share."""
    return CudaLaunch(
        gpu=gpu,
        source=source_of(dtype, 256, 2048, function="spmv_long", is_long=True, has_source=call.source is not None),
        grid=(tiles.num_long,),
        block=(LONG_THREADS,),
        arguments=(
            *(tiles.long_rows, parts, call.y, call.source),
            *(_sum(dtype, call.alpha), _sum(dtype, call.beta)),
        ),
    )


#: The configuration of the kernel that adds runs to rows.
OF_RUNS = {"num_warps": 8, "items": 8, "resident": 4, "num_stages": 1, "by_rows": 1, "steps": 8}


def panel_launches(
    gpu: GpuModel,
    call: SpmvCall,
    panels: Panels,
    tiles: Tiles,
    config: Mapping[str, int],
    scratch: Scratch = TORCH_SCRATCH,
) -> list[CudaLaunch]:
    """The launches of the kernel for panels of columns: sums of runs, then those of rows, by tiles of `panels.crow`."""
    dtype, warps = DTYPE_NAMES[call.values.dtype], config["num_warps"]
    sums = scratch.empty((panels.num_runs,), SUM_DTYPES[dtype], call.values.device)
    numbers = panels.num_tiles, panels.width, call.x.numel()
    runs = CudaLaunch(
        gpu=gpu,
        source=runs_source_of(dtype, warps, config["entries_per_lane"]),
        grid=(min(gpu.device.sm_count, panels.num_tiles),),
        block=(LANES * warps,),
        arguments=(
            *(panels.columns, panels.values, panels.flags, panels.places, panels.firsts, call.x, sums),
            *map(np.int32, numbers),
        ),
        smem_bytes=runs_bytes(dtype, panels.width, warps, config["entries_per_lane"]),
    )
    rows = SpmvCall(panels.crow, panels.runs, call.values, sums, call.y, call.source, call.alpha, call.beta)
    return [runs, *merge_launches(gpu, rows, tiles, OF_RUNS, scratch, is_unit=True)]


def runs_bytes(dtype: str, width: int, num_warps: int, entries_per_lane: int) -> int:
    """Bytes of shared memory of a block that adds runs: x of a panel, and the runs of each warp's tile."""
    panel = -(-width * DTYPES[dtype].itemsize // 16) * 16
    return panel + num_warps * LANES * entries_per_lane * SUM_DTYPES[dtype].itemsize


def patterns_launch(gpu: GpuModel, call: SpmvCall, patterns: Patterns, config: Mapping[str, int]) -> CudaLaunch:
    """The launch of the kernel for rows of few patterns, with the matrix's own values."""
    dtype, warps, stages = DTYPE_NAMES[call.values.dtype], config["num_warps"], config["num_stages"]
    length, element = patterns.main.shape[0], call.values.element_size()
    period = gap_period(patterns.longest)
    elements = group_elements(patterns.most_entries, period, element)
    groups = patterns.starts.shape[0] - 1
    numbers = call.y.numel(), call.values.numel(), groups, patterns.number, elements
    return CudaLaunch(
        gpu=gpu,
        source=patterns_source_of(
            dtype,
            warps,
            stages=stages,
            resident=config["resident"],
            length=length,
            batch=min(MOST_BATCH, 1 << (length - 1).bit_length()),
            vector=_aligned(call.values),
            period=period,
            has_source=call.source is not None,
        ),
        grid=(min(-(-groups // warps), gpu.device.sm_count * config["resident"]),),
        block=(LANES * warps,),
        arguments=(
            *(patterns.starts, patterns.of_row, patterns.lengths, patterns.distances, patterns.main, call.values),
            *(call.x, call.y, call.source, _sum(dtype, call.alpha), _sum(dtype, call.beta)),
            *map(np.int32, numbers),
        ),
        smem_bytes=warps * stages * elements * element,
    )


def vector_launch(call: SpmvCall, config: Mapping[str, int], near: Near | None = None) -> Any:
    """The launch of groups of threads in Triton; x and y may have a second axis where columns are those of CSR."""
    from constrint.kernels.launch.triton import TritonLaunch
    from constrint.kernels.spmv.kernel import SUMS, spmv_vector

    x, y, source = call.x, call.y, call.source
    width = x.shape[1] if x.dim() == 2 else 1
    columns = 1 << (width - 1).bit_length()
    second = [each.stride(1) if each is not None and each.dim() == 2 else 0 for each in (x, y, source)]
    column_of, firsts = (call.columns, None) if near is None else (near.columns, near.firsts)
    arguments: dict[str, Any] = {"crow": call.crow, "column_of": column_of, "values": call.values, "x": x, "y": y}
    arguments |= {"first_of": firsts, "is_near": near is not None}
    arguments |= {"source": source, "alpha": float(call.alpha), "beta": float(call.beta), "rows": y.shape[0]}
    arguments |= {"x_row": x.stride(0), "x_column": second[0], "y_row": y.stride(0), "y_column": second[1]}
    arguments |= {"source_row": 0 if source is None else source.stride(0), "source_column": second[2]}
    arguments |= {"rows_per_block": config["rows_per_block"], "threads_per_row": config["threads_per_row"]}
    arguments |= {"padded_width": columns, "width": width, "has_source": source is not None}
    arguments |= {"sum_type": SUMS[DTYPE_NAMES[call.values.dtype]]}
    grid = (-(-y.shape[0] // config["rows_per_block"]),)
    return TritonLaunch(spmv_vector, grid, arguments, {"num_warps": config["num_warps"]})


def ell_launch(call: SpmvCall, ell: Ell, config: Mapping[str, int]) -> Any:
    """The launch of sliced ELL in Triton."""
    from constrint.kernels.launch.triton import TritonLaunch
    from constrint.kernels.spmv.kernel import SUMS, spmv_ell

    is_sorted = ell.row_of.numel() > 0
    arguments: dict[str, Any] = {"slices": ell.slices, "column_of": ell.columns, "values": ell.values}
    arguments |= {"row_of": ell.row_of if is_sorted else None, "x": call.x, "y": call.y, "source": call.source}
    arguments |= {"alpha": float(call.alpha), "beta": float(call.beta), "rows": call.y.shape[0]}
    arguments |= {"slice_height": ell.height, "unroll": config["unroll"], "is_sorted": is_sorted}
    arguments |= {"has_source": call.source is not None, "sum_type": SUMS[DTYPE_NAMES[call.values.dtype]]}
    return TritonLaunch(spmv_ell, (ell.slices.shape[0] - 1,), arguments, {"num_warps": config["num_warps"]})


#: Programs that hash values, words of each at a time, and rows and lanes of those that compute all rows again.
HASH_PROGRAMS, HASH_BLOCK, HASH_WARPS = 1024, 2048, 8
AGAIN_ROWS, AGAIN_LANES = 16, 16


def hash_launch(values: Tensor, hashes: Tensor) -> Any:
    """The launch that hashes values into (HASH_PROGRAMS,) int64 shares."""
    from constrint.kernels.launch.triton import TritonLaunch
    from constrint.kernels.spmv.kernel import WORDS, spmv_hash

    words = values.view(torch.int32) if values.element_size() == 8 else values
    arguments: dict[str, Any] = {"values": words, "hashes": hashes, "num_values": words.numel()}
    arguments |= {"programs": HASH_PROGRAMS, "block": HASH_BLOCK, "word_type": WORDS[words.element_size()]}
    return TritonLaunch(spmv_hash, (HASH_PROGRAMS,), arguments, {"num_warps": HASH_WARPS})


def stale_launch(call: SpmvCall, hashes: Tensor, expected: Tensor, flag: Tensor) -> Any:
    """The launch that computes all rows from the matrix where its values are not those that were copied.

    Args:
        call: The product, with the matrix itself.
        hashes: Hash of the values as they are.
        expected: Hash of the values that were copied.
        flag: (1,) int32, which becomes 1 where they differ.
    """
    from constrint.kernels.launch.triton import TritonLaunch
    from constrint.kernels.spmv.kernel import SUMS, spmv_stale

    arguments: dict[str, Any] = {
        "hashes": hashes,
        "expected": expected,
        "flag": flag,
        "crow": call.crow,
        "column_of": call.columns,
    }
    arguments |= {"values": call.values, "x": call.x, "y": call.y, "source": call.source}
    arguments |= {"alpha": float(call.alpha), "beta": float(call.beta), "rows": call.y.shape[0]}
    arguments |= {"programs": HASH_PROGRAMS, "rows_per_block": AGAIN_ROWS, "threads_per_row": AGAIN_LANES}
    arguments |= {"has_source": call.source is not None, "sum_type": SUMS[DTYPE_NAMES[call.values.dtype]]}
    return TritonLaunch(spmv_stale, (HASH_PROGRAMS,), arguments, {"num_warps": 4})


@dataclass(frozen=True)
class SparseLibraryLaunch:
    """One call of torch's own operator."""

    call: SpmvCall

    def run(self) -> None:
        """Enqueue it on the current stream."""
        call = self.call
        shape = (call.y.shape[0], call.x.shape[0])
        matrix = torch.sparse_csr_tensor(call.crow, call.columns, call.values, shape, check_invariants=False)
        call.y.copy_(library_product(matrix, call.x, call.source, call.alpha, call.beta))

    def compile(self, gpu: GpuModel) -> CompiledKernel:
        """There is nothing to compile.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError("spmv.library: what it launches is the library's secret; there is nothing to compile.")


def library_launch(call: SpmvCall) -> SparseLibraryLaunch:
    """The launch of torch's own operator."""
    return SparseLibraryLaunch(call)


def library_product(matrix: Tensor, x: Tensor, source: Tensor | None, alpha: float, beta: float) -> Tensor:
    """alpha * matrix @ x + beta * source by torch's own operator."""
    if source is None or beta == 0:
        out = torch.mv(matrix, x) if x.dim() == 1 else matrix @ x
        return out if alpha == 1 else out * alpha
    if x.dim() == 1:
        return torch.addmv(source, matrix, x, beta=beta, alpha=alpha)
    return torch.addmm(source, matrix, x, beta=beta, alpha=alpha)
