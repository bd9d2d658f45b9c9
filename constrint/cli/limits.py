"""`constrint limits`: the resources that kernels compete for on a GPU, as one page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from constrint.cli.request import Gpu, Json

if TYPE_CHECKING:
    from constrint.hwmodels import GpuModel

SCHEMA = "constrint.limits/1"
#: Head dimensions that are looked at, the largest first.
HEAD_DIMS = (4096, 3072, 2560, 2048, 1536, 1280, 1024, 768, 640, 512, 384, 256, 192, 128, 96, 64, 48, 32, 16)
Row = tuple[str, str, Any, str]


def limits(gpu: Gpu, json: Json = False) -> None:
    """Print what one block, one SM (CU) and the device have to give."""
    from constrint.cli.output import print_json, print_table, say, wrap
    from constrint.hwmodels import load_gpu

    model = load_gpu(gpu)
    sections = {
        "one block": _block_rows(model),
        f"one {model.terms.sm}": _sm_rows(model),
        "the device": _device_rows(model),
        "largest LSTM head in the fused kernels ('alternating' takes any)": _head_rows(model),
        "peak rates, dense, 32-bit accumulation": _rate_rows(model),
    }
    if json:
        documents = {
            title: [
                {"key": key, "value": value, "unit": unit, "meaning": meaning} for key, unit, value, meaning in rows
            ]
            for title, rows in sections.items()
        }
        print_json({"schema": SCHEMA, "gpu": model.name, "target": model.arch.target, "limits": documents})
        return
    say(f"{model.name} ({model.arch.family}, {model.arch.target})")
    for title, rows in sections.items():
        say()
        say(title)
        table = [[meaning, _number(value), unit] for _, unit, value, meaning in rows]
        print_table(["resource", "limit", "unit"], table, left=("resource", "unit"))
    if model.unconfirmed:
        say()
        say(wrap(f"unconfirmed: {', '.join(model.unconfirmed)}"))
    say()
    say(wrap(f"sources: constrint gpu {model.name.lower()}"))


def _number(value: Any) -> str | None:
    if value is None:
        return None
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def _block_rows(gpu: GpuModel) -> list[Row]:
    sm = gpu.sm
    rows: list[Row] = [
        ("max_threads_per_block", "threads", sm.max_threads_per_block, "threads"),
        ("max_registers_per_thread", "32-bit", sm.max_registers_per_thread, "registers per thread, without spilling"),
        ("max_smem_bytes_per_block", "bytes", sm.max_smem_bytes_per_block, "shared memory (LDS)"),
        ("smem_reserved_bytes_per_block", "bytes", sm.smem_reserved_bytes_per_block, "of it reserved by the system"),
        ("smem_alloc_granularity_bytes", "bytes", sm.smem_alloc_granularity_bytes, "allocated in steps of"),
    ]
    if gpu.device.max_cluster_blocks_portable is not None:
        rows += [
            ("max_cluster_blocks_portable", "blocks", gpu.device.max_cluster_blocks_portable, "cluster, portable"),
            ("max_cluster_blocks_nonportable", "blocks", gpu.device.max_cluster_blocks_nonportable, "cluster, at most"),
        ]
    return rows


def _sm_rows(gpu: GpuModel) -> list[Row]:
    sm = gpu.sm
    return [
        ("num_partitions", "", sm.num_partitions, "sub-partitions (SIMDs)"),
        ("max_warps_per_sm", "warps", sm.max_warps_per_sm, f"resident warps (waves) of {sm.warp_size}"),
        ("max_threads_per_sm", "threads", sm.max_threads_per_sm, "resident threads"),
        ("max_blocks_per_sm", "blocks", sm.max_blocks_per_sm, "resident blocks"),
        ("smem_bytes_per_sm", "bytes", sm.smem_bytes_per_sm, "shared memory (LDS)"),
        *gpu.maker.limit_rows(gpu),
        ("special_functions_per_clk", "per clock", sm.special_functions_per_clk, "special functions"),
    ]


def _device_rows(gpu: GpuModel) -> list[Row]:
    device, memory = gpu.device, gpu.memory
    rows: list[Row] = [
        ("sm_count", "", device.sm_count, gpu.terms.sms),
        ("num_xcds", "", device.num_xcds, "XCDs, each with an L2 of its own"),
        ("boost_clock_hz", "MHz", device.boost_clock_hz and device.boost_clock_hz / 1e6, "boost clock"),
        ("l2_size_bytes", "bytes", memory.l2.size_bytes, "L2, all of it"),
        ("l2_bandwidth_bytes_per_s", "GB/s", _giga(memory.l2.bandwidth_bytes_per_s), "L2 bandwidth"),
    ]
    if memory.last_level is not None:
        rows += [
            ("last_level_size_bytes", "bytes", memory.last_level.size_bytes, "last-level cache"),
            (
                "last_level_bandwidth_bytes_per_s",
                "GB/s",
                _giga(memory.last_level.bandwidth_bytes_per_s),
                "last-level cache bandwidth",
            ),
        ]
    return [
        *rows,
        ("dram_size_bytes", "GB", memory.dram.size_bytes / 1e9, f"{memory.dram.kind} memory"),
        (
            "dram_bandwidth_bytes_per_s",
            "GB/s",
            _giga(memory.dram.bandwidth_bytes_per_s),
            f"{memory.dram.kind} bandwidth",
        ),
    ]


def _giga(value: float | None) -> float | None:
    return None if value is None else value / 1e9


def _head_rows(gpu: GpuModel) -> list[Row]:
    rows: list[Row] = []
    for dtype in ("bf16", "fp16", "fp32"):
        for direction, operation in (("forward", "lstm"), ("backward", "lstm-backward")):
            key = f"max_lstm_head_dim_{dtype}_{direction}"
            rows.append((key, "", _largest_head_dim(gpu, operation, dtype), f"head_dim, {dtype}, {direction}"))
    return rows


def _largest_head_dim(gpu: GpuModel, operation: str, dtype: str) -> int | None:
    """The largest usual head dimension of an LSTM that some configuration of the fused kernel takes."""
    from constrint.errors import ConstrintError
    from constrint.kernels.registry import load_spec
    from constrint.select import Workload
    from constrint.solve import enumerate_space

    spec = load_spec(f"{operation}.triton")
    for dim in HEAD_DIMS:
        workload = Workload(operation, {"batch": 16, "time": 1024, "heads": 1, "head_dim": dim}, dtype)
        try:
            spec.check_workload(gpu, workload)
            problem = spec.problem(gpu, workload)
        except ConstrintError:
            continue
        if enumerate_space(problem).size:
            return dim
    return None


def _rate_rows(gpu: GpuModel) -> list[Row]:
    rows: list[Row] = []
    for dtype in ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8"):
        rate = gpu.peak_flop_per_s(dtype)
        if rate is not None:
            rows.append((f"{dtype}_flop_per_s", "TOP/s" if dtype == "int8" else "TFLOP/s", rate / 1e12, dtype))
    for dtype, rate in (gpu.compute.packed_vector_flop_per_s or {}).items():
        rows.append((f"packed_vector_{dtype}_flop_per_s", "TFLOP/s", rate / 1e12, f"{dtype}, packed vector units"))
    for dtype, rate in (gpu.compute.matrix_fp16_accumulate_flop_per_s or {}).items():
        key = f"matrix_{dtype}_fp16_accumulate_flop_per_s"
        rows.append((key, "TFLOP/s", rate / 1e12, f"{dtype}, 16-bit accumulation"))
    return rows
