"""Predicted time of the kernel for many sequences: a step's latencies and work, times the steps and rounds of blocks.

Nothing of it was measured: instructions, bytes and special functions are counted, the exchange is taken from other
kernels' measurements (`benchmarks/rnn/exchange.py` on an H200), and what is between them is assumed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.kernels.rnn.cells import Cell
from constrint.kernels.rnn.wgmma.shape import GROUP_ROWS, Shape
from constrint.model import Expr, Var, ceildiv, maximum
from constrint.select.cost import ASSUMED_CLOCK_HZ, LAUNCH_S, PARTS, CostColumns
from constrint.select.spec import ELEMENT_BYTES, Columns, Workload

#: Seconds of a word's way through the L2 to a block that polls for it, and bytes per clock that an SM reads of what all
#: others read, too: measured on an H200 by other kernels (`cuda/cost.py`, `benchmarks/results/h200/rnn_exchange.csv`).
EXCHANGE_S, READ_BYTES_PER_CLK = 6e-7, 63
#: A matrix instruction of 64 rows, 16 deep, takes a clock for so many columns at the peak of the matrix units, and no
#: fewer clocks than `LEAST_CLK` (assumed).
COLUMNS_PER_CLK, LEAST_CLK = 2, 16
#: Bytes per clock of shared memory.
SMEM_BYTES_PER_CLK = 128
#: Assumed: clocks of a step for addresses, fences of the matrix unit and stores; of each unit of a thread; of handing
#: sums to another warpgroup beside the bytes; of each chunk; of asking for what did not fit the window; and of asking
#: for all others once the first chunk is there.
FIXED_CLK, ITEM_CLK, HANDED_CLK, CHUNK_CLK, WINDOW_CLK, PROBE_CLK = 300, 25, 100, 40, 300, 500
#: Exponent of the p-norm of reading and multiplying, which overlap where the first chunk is waited for alone (assumed:
#: where all are asked for at once the first one comes last).
OVERLAP_EXPONENT = 3.0


def step_parts(gpu: GpuModel, shape: Shape, batch: int) -> dict[str, Expr]:
    """Clocks of the parts of a step, as expressions."""
    v, cell = shape.v, shape.cell
    instruction = maximum(LEAST_CLK, shape.columns // COLUMNS_PER_CLK)
    rows = v["tile_batch"]
    return {
        "read": shape.step_bytes // READ_BYTES_PER_CLK,
        "mma": shape.row_groups * shape.num_steps * instruction,
        "handed": (v["depth_groups"] - 1)
        * (HANDED_CLK + 2 * 4 * shape.columns * GROUP_ROWS * shape.row_groups // SMEM_BYTES_PER_CLK),
        "special": v["units"] * rows * cell.forward_specials // int(gpu.sm.special_functions_per_clk or 16),
        "serial": ITEM_CLK * shape.items * ceildiv(shape.warps, gpu.sm.num_partitions),
        "last": v["chunk"] * instruction,
        "chunks": CHUNK_CLK * (shape.own_steps // v["chunk"]),
        "windows": WINDOW_CLK * (ceildiv(shape.own_steps, shape.window) - 1),
        "written": v["units"]
        * rows
        * 2
        * (cell.num_states + (1 - v["recompute"]) * cell.num_gates)
        // SMEM_BYTES_PER_CLK,
    }


def floor_clk(gpu: GpuModel, cell: Cell, workload: Workload, config: dict[str, int]) -> dict[str, float]:
    """Clocks of a step that no code could do without, in a configuration, by what takes them; some overlap."""
    shape = Shape.of(cell, workload, {name: Var(name) for name in config})
    parts = step_parts(gpu, shape, workload.sizes["batch"])
    named = {name: float(parts[name].value(config)) for name in ("read", "mma", "special")}
    return named | {"exchange": clock_hz(gpu) * EXCHANGE_S}


def clock_hz(gpu: GpuModel) -> float:
    """Clocks per second."""
    return gpu.device.max_clock_hz or gpu.device.boost_clock_hz or ASSUMED_CLOCK_HZ


def wgmma_cost(
    gpu: GpuModel, cell: Cell, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]
) -> CostColumns:
    """Predicted time of every configuration."""
    shape = Shape.of(cell, workload, {name: Var(name) for name in columns})
    size, sizes = len(next(iter(columns.values()))), workload.sizes

    def column(part: Expr) -> NDArray[np.float64]:
        return np.broadcast_to(np.asarray(part.columns(columns), dtype=np.float64), (size,))

    parts = {name: column(part) for name, part in step_parts(gpu, shape, sizes["batch"]).items()}
    exchange = clock_hz(gpu) * EXCHANGE_S
    p = OVERLAP_EXPONENT
    overlapped = (parts["read"] ** p + parts["mma"] ** p) ** (1.0 / p) + PROBE_CLK
    overlapped = np.where(np.asarray(columns["probe"]) > 0, overlapped, parts["read"] + parts["mma"])
    others = ("last", "handed", "special", "serial", "chunks", "windows", "written")
    step = FIXED_CLK + exchange + overlapped + sum(parts[name] for name in others)
    groups = sizes["heads"] * np.ceil(sizes["batch"] / np.asarray(columns["tile_batch"], dtype=np.float64))
    rounds = np.ceil(groups / np.maximum(1.0, gpu.device.sm_count // column(shape.blocks)))
    scale = rounds * sizes["time"] / clock_hz(gpu)
    stored = cell.num_gates * (1.0 - np.asarray(columns["recompute"], dtype=np.float64))
    moved = _row_bytes(workload) * (cell.num_loads("forward") + cell.num_states + stored)
    dram_s = moved / gpu.memory.dram.bandwidth_bytes_per_s
    filled_s = groups * column(shape.ring_bytes) / gpu.memory.dram.bandwidth_bytes_per_s
    figures: dict[str, Any] = dict.fromkeys(PARTS, 0.0)
    figures["matrix units"] = scale * parts["mma"]
    figures["L2"] = scale * parts["read"]
    figures["special functions"] = scale * parts["special"]
    figures["shared memory"] = scale * (parts["handed"] + parts["written"])
    waited = sum(parts[name] for name in ("last", "serial", "chunks", "windows"))
    figures["latency"] = scale * (FIXED_CLK + waited)
    figures["barrier"] = scale * exchange
    figures["DRAM"] = dram_s + filled_s
    return CostColumns(LAUNCH_S * rounds + np.maximum(scale * step, dram_s) + filled_s, figures)


def _row_bytes(workload: Workload) -> float:
    """Bytes of one tensor (B, T, N, D)."""
    return float(np.prod([float(size) for size in workload.sizes.values()])) * ELEMENT_BYTES[workload.dtype]
