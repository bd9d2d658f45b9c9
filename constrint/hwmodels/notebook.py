"""A GPU model as a table in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from constrint.frames import html_table

if TYPE_CHECKING:
    from constrint.hwmodels.schema import GpuModel


def gpu_html(gpu: GpuModel, caption: str) -> str:
    """The limits of a block and of an SM, and the peak rates; a dash where no source states a value."""
    sm, terms, dram = gpu.sm, gpu.terms, gpu.memory.dram
    rows: list[tuple[str, str, Any]] = [
        (f"threads per {terms.block}", "max_threads_per_block", sm.max_threads_per_block),
        (f"{terms.warp} size", "warp_size", sm.warp_size),
        (f"{terms.smem} per {terms.block}, bytes", "max_smem_bytes_per_block", sm.max_smem_bytes_per_block),
        ("registers per thread", "max_registers_per_thread", sm.max_registers_per_thread),
        (f"{terms.warps} per {terms.sm}", "max_warps_per_sm", sm.max_warps_per_sm),
        (f"{terms.blocks} per {terms.sm}", "max_blocks_per_sm", sm.max_blocks_per_sm),
        ("L2, bytes", "l2.size_bytes", gpu.memory.l2.size_bytes),
        ("DRAM, bytes/s", "dram.bandwidth_bytes_per_s", dram.bandwidth_bytes_per_s),
    ]
    peaks = gpu.compute.matrix_flop_per_s
    rows += [(f"matrix units, {dtype}, FLOP/s", "matrix_flop_per_s", rate) for dtype, rate in peaks.items()]
    cells = [(title, key, None if value is None else _written(value)) for title, key, value in rows]
    return html_table(caption, ["", "key", "value"], cells, left=1)


def _written(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
