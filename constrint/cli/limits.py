"""`constrint limits`: the resources of a GPU that limit kernels, on one page."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from constrint import cache
from constrint.answers.table import EXTRA, Cell, Column, Page, Table
from constrint.cli.options import Gpu
from constrint.cli.output import Output, printing
from constrint.cli.shipped import Heads, digest, shipped
from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.hwmodels.load import content_of

if TYPE_CHECKING:
    from constrint.select import Workload
    from constrint.select.spec import KernelSpec

SCHEMA = "constrint.limits/2"
#: Head dimensions to try, the largest first, with larger steps among the largest.
HEAD_DIMS: tuple[int, ...] = (*range(8192, 4096, -256), *range(4096, 64, -64), 96, 64, 48, 32, 16)
#: The kind of the cache's entries: the largest heads of a GPU's model.
HEADS = "heads"
#: Units in tables: a larger unit, and its size in the value's unit.
SHOWN = {"hertz": ("MHz", 1e6), "bytes/s": ("GB/s", 1e9), "flop/s": ("TFLOP/s", 1e12), "op/s": ("TOP/s", 1e12)}
GIGABYTE = 1e9
#: A limit: key, unit, value, meaning.
Row = tuple[str, str, Any, str]
COLUMNS = (
    Column("section", is_text=True),
    Column("key", is_text=True, importance=EXTRA),
    Column("meaning", "resource", is_text=True, wraps=True, importance=90),
    Column("value", "limit", importance=100),
    Column("unit", is_text=True, importance=80),
)


@printing
def limits(gpu: Gpu, *, output: Output) -> None:
    """Print what one block, one SM (CU) and the device have to give."""
    model = load_gpu(gpu)
    sections = {
        "block": (f"one {model.terms.block}", _block_rows(model)),
        "sm": (f"one {model.terms.sm}", _sm_rows(model)),
        "device": ("the device", _device_rows(model)),
        "heads": ("largest LSTM head in the fused kernels ('alternating' takes any)", _head_rows(model)),
        "rates": ("peak rates, dense, 32-bit accumulation", _rate_rows(model)),
    }
    items = [(section, row) for section, (_, rows) in sections.items() for row in rows]
    rows = [
        [Cell(section, sections[section][0]), key, meaning, *_shown(value, unit)]
        for section, (key, unit, value, meaning) in items
    ]

    def document(shown: Sequence[tuple[str, Row]]) -> dict[str, Any]:
        of_section: dict[str, list[dict[str, Any]]] = {section: [] for section in sections}
        for section, (key, unit, value, meaning) in shown:
            of_section[section].append({"key": key, "value": value, "unit": unit, "meaning": meaning})
        return {"schema": SCHEMA, "gpu": model.name, "target": model.arch.target, "limits": of_section}

    page = Page(
        Table(COLUMNS, rows, items, group="section"),
        document,
        above=[f"{model.name} ({model.arch.family}, {model.arch.target})"],
        below=[f"unconfirmed: {', '.join(model.unconfirmed)}"] if model.unconfirmed else [],
        hints=[("sources:", ("constrint", "gpu", gpu))],
    )
    output.show(page)


def _shown(value: Any, unit: str) -> tuple[Cell | None, Cell]:
    """A value and its unit, shown in a larger unit if that is shorter."""
    short, scale = SHOWN.get(unit, (unit, 1))
    if unit == "bytes" and value is not None and value >= GIGABYTE:
        short, scale = "GB", GIGABYTE
    if value is None:
        return None, Cell(unit, short)
    return Cell(value, f"{value:,}" if scale == 1 else f"{value / scale:,.1f}"), Cell(unit, short)


def _row(gpu: GpuModel, path: str, unit: str, meaning: str) -> Row:
    """The row of a field of the model: `memory.l2.size_bytes` has the key `l2_size_bytes`."""
    return path.partition(".")[2].replace(".", "_"), unit, attrgetter(path)(gpu), meaning


def _block_rows(gpu: GpuModel) -> list[Row]:
    rows = [
        _row(gpu, "sm.max_threads_per_block", "threads", "threads"),
        _row(gpu, "sm.max_registers_per_thread", "32-bit", "registers per thread, without spilling"),
        _row(gpu, "sm.max_smem_bytes_per_block", "bytes", "shared memory (LDS)"),
        _row(gpu, "sm.smem_reserved_bytes_per_block", "bytes", "of it reserved by the system"),
        _row(gpu, "sm.smem_alloc_granularity_bytes", "bytes", "allocated in steps of"),
    ]
    if gpu.device.max_cluster_blocks_portable is not None:
        rows.append(_row(gpu, "device.max_cluster_blocks_portable", "blocks", "cluster, portable"))
        rows.append(_row(gpu, "device.max_cluster_blocks_nonportable", "blocks", "cluster, at most"))
    return rows


def _sm_rows(gpu: GpuModel) -> list[Row]:
    return [
        _row(gpu, "sm.num_partitions", "", "sub-partitions (SIMDs)"),
        _row(gpu, "sm.max_warps_per_sm", "warps", f"resident warps (waves) of {gpu.sm.warp_size}"),
        _row(gpu, "sm.max_threads_per_sm", "threads", "resident threads"),
        _row(gpu, "sm.max_blocks_per_sm", "blocks", "resident blocks"),
        _row(gpu, "sm.smem_bytes_per_sm", "bytes", "shared memory (LDS)"),
        *gpu.maker.limit_rows(gpu),
        _row(gpu, "sm.special_functions_per_clk", "per clock", "special functions"),
    ]


def _device_rows(gpu: GpuModel) -> list[Row]:
    rows = [
        _row(gpu, "device.sm_count", "", gpu.terms.sms),
        _row(gpu, "device.num_xcds", "", "XCDs, each with an L2 of its own"),
        _row(gpu, "device.boost_clock_hz", "hertz", "boost clock"),
        _row(gpu, "memory.l2.size_bytes", "bytes", "L2, all of it"),
        _row(gpu, "memory.l2.bandwidth_bytes_per_s", "bytes/s", "L2 bandwidth"),
    ]
    if gpu.memory.last_level is not None:
        rows.append(_row(gpu, "memory.last_level.size_bytes", "bytes", "last-level cache"))
        rows.append(_row(gpu, "memory.last_level.bandwidth_bytes_per_s", "bytes/s", "last-level cache bandwidth"))
    kind = gpu.memory.dram.kind
    return [
        *rows,
        _row(gpu, "memory.dram.size_bytes", "bytes", f"{kind} memory"),
        _row(gpu, "memory.dram.bandwidth_bytes_per_s", "bytes/s", f"{kind} bandwidth"),
    ]


def _head_rows(gpu: GpuModel) -> list[Row]:
    """The largest heads by dtype and direction: as they ship, or searched once for a model and kept in the cache."""
    largest = shipped().heads.get(digest(gpu)) or _cached_heads(gpu)
    return [(key, "", largest[key], f"head_dim, {dtype}, {way}") for key, (dtype, way, _) in _HEAD_KEYS.items()]


def _cached_heads(gpu: GpuModel) -> Heads:
    key = content_of(gpu)
    known = cache.load(HEADS, key)
    if known is not None:
        return msgspec.json.decode(known, type=Heads)
    largest = largest_heads(gpu)
    cache.store(HEADS, key, msgspec.json.encode(largest))
    return largest


#: The rows of heads by their keys: operand type, direction, operation.
_HEAD_KEYS = {
    f"max_lstm_head_dim_{dtype}_{way}": (dtype, way, operation)
    for dtype in ("bf16", "fp16", "fp32")
    for way, operation in (("forward", "lstm"), ("backward", "lstm-backward"))
}


def largest_heads(gpu: GpuModel) -> Heads:
    """The largest LSTM heads of a GPU by the keys of `constrint limits`; takes seconds."""
    return {key: _largest_head_dim(gpu, operation, dtype) for key, (dtype, _, operation) in _HEAD_KEYS.items()}


def _largest_head_dim(gpu: GpuModel, operation: str, dtype: str) -> int | None:
    """The largest head dimension of an LSTM with a configuration that satisfies all rules, estimated ones included."""
    from constrint.kernels.registry import load_kernel
    from constrint.select import Workload

    for dim in HEAD_DIMS:
        workload = Workload(operation, {"batch": 16, "time": 1024, "heads": 1, "head_dim": dim}, dtype)
        if any(_takes(spec, gpu, workload) for spec in load_kernel(operation).implementations):
            return dim
    return None


def _takes(spec: KernelSpec, gpu: GpuModel, workload: Workload) -> bool:
    """Whether a single-kernel implementation has a configuration that satisfies all rules, estimated ones included."""
    from constrint.solve import enumerate_space

    try:
        spec.check_workload(gpu, workload)
        problem = spec.problem(gpu, workload)
    except ConstrintError:
        return False
    return bool(problem.variables) and bool(enumerate_space(problem.strict()).size)


def _rate_rows(gpu: GpuModel) -> list[Row]:
    rows: list[Row] = []
    for dtype in ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8"):
        rate = gpu.peak_flop_per_s(dtype)
        if rate is not None:
            key, unit = ("int8_op_per_s", "op/s") if dtype == "int8" else (f"{dtype}_flop_per_s", "flop/s")
            rows.append((key, unit, rate, dtype))
    for dtype, rate in (gpu.compute.packed_vector_flop_per_s or {}).items():
        rows.append((f"packed_vector_{dtype}_flop_per_s", "flop/s", rate, f"{dtype}, packed vector units"))
    for dtype, rate in (gpu.compute.matrix_fp16_accumulate_flop_per_s or {}).items():
        key = f"matrix_{dtype}_fp16_accumulate_flop_per_s"
        rows.append((key, "flop/s", rate, f"{dtype}, 16-bit accumulation"))
    return rows
