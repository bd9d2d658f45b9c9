"""Predicted time of the recurrent CUDA kernels: the latency of one step, times the steps, times the rounds of blocks.

A step is a chain: the exchange, the product, partial sums, the pointwise part, the writes for the next step. Its
parts are counted from the source (clocks that an ideal unit needs); how many times that each of them takes was fitted
to one H200 (`step.json`, by `python -m benchmarks.rnn.fit_cuda`) and is used for other GPUs as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel, assumed
from constrint.hwmodels.checks import target_note
from constrint.kernels.rnn.cells import RecurrentCell
from constrint.kernels.rnn.cuda.resources import block_use
from constrint.kernels.rnn.cuda.shape import BLOCK, CLUSTER, GRID, RING, VECTOR_BYTES, CudaLoop, groups_at_once
from constrint.kernels.rnn.spec import after_s, row_bytes
from constrint.model import Expr, Var, ceildiv, const, maximum, minimum
from constrint.select.cost import LAUNCH_S, PARTS, CostColumns
from constrint.select.spec import Columns
from constrint.select.workload import Workload

Column = NDArray[np.float64]

#: Issue interval and dependent-issue latency of m16n8k16, in clocks: the least time between two that do not depend on
#: each other on one sub-partition, and between two of which the second needs the first one's sum.
MMA_ISSUE_CLK, MMA_LATENCY_CLK = 8, 33
#: Bytes per clock of shared memory, and the most that one SM was seen to get from the L2 while all others read the same
#: (`benchmarks/rnn/exchange.py` of commit befc2ab, on an H200).
SMEM_BYTES_PER_CLK, L2_BYTES_PER_CLK = 128, 78
#: Bytes that a warp reads of the operand for one pair and eight sequences.
OPERAND_BYTES = 512
#: Seconds of the shortest exchange by placement, measured on an H200: two barriers of a block (30 ns), a barrier of a
#: cluster (0.2 us), and a word's way through the L2 to a block that polls for it (0.6 us).
EXCHANGE_S = {BLOCK: 3e-8, CLUSTER: 2e-7, GRID: 6e-7}
#: Parts that are waited for rather than worked on: other tiles of the block are worked on meanwhile.
WAITED = ("cluster", "cluster_blocks", "grid", "grid_blocks")
#: Parts that blocks of one SM do one after the other.
BUSY = ("mma", "rounded", "weights", "operand", "polled", "streamed", "summed", "special", "written")
#: Exponent of the p-norm of a step's work and of its remaining loads: neither hides the other where both are as long.
WAITING_EXPONENT = 6.0
#: Times that a thread may have more registers than estimated, and the step in which they are allocated. Of 593 loops
#: compiled for clusters the estimate alone says two blocks an SM for one in two cases, and one for two in two; with 5 %
#: more it is one and seven, with 10 % none and 14.
REGISTER_CAUTION, REGISTER_STEP = 1.05, 8
#: Every part, and the loads' latency in clocks.
LOADS = "loads"
FIGURES = (
    *("fixed", "cluster", "cluster_blocks", "grid", "grid_blocks", "mma", "rounded", "weights", "operand", "polled"),
    *("poll_chain", "streamed", "sent", "summed", "sum_chain"),
    *("special", "serial", "written", "read", "warps", LOADS),
)
_FILE = Path(__file__).with_name("step.json")


class FittedCuda(msgspec.Struct, frozen=True):
    """The fitted figures.

    Args:
        source: The command that fitted them, to what, and where it was measured.
        figures: By direction and part: how many times the counted clocks the part takes.
    """

    source: str
    figures: dict[str, dict[str, float]]


@cache
def fitted() -> FittedCuda:
    """The contents of `step.json`."""
    return msgspec.json.decode(_FILE.read_bytes(), type=FittedCuda)


def write_fitted(figures: FittedCuda) -> None:
    """Write `step.json`, one figure a line."""
    _FILE.write_bytes(msgspec.json.format(msgspec.json.encode(figures), indent=1) + b"\n")
    fitted.cache_clear()


def step_parts(gpu: GpuModel, shape: CudaLoop, batch: int) -> dict[str, Expr]:
    """Clocks of every part of a step of one tile, on units that are never late, as expressions."""
    v, cell = shape.v, shape.cell
    grid, cluster = shape.is_in(GRID), shape.is_in(CLUSTER)
    units, rows, threads = v["units"], v["tile_batch"], 32 * shape.warps
    across = shape.row_tiles * shape.column_tiles
    waves = ceildiv(shape.warps, gpu.sm.num_partitions)
    issue = across * MMA_ISSUE_CLK * waves
    # Nothing is exchanged for sequences past the batch.
    there = minimum(rows, batch)
    read = shape.warps * shape.pairs * there * (OPERAND_BYTES // 8)
    specials = cell.forward_specials if shape.is_forward else cell.backward_specials
    through = cell.num_gates if shape.is_forward else 1
    saved = (1 - v["recompute"]) * cell.num_gates
    written = cell.num_states + saved if shape.is_forward else const(cell.num_slots)
    vectors = there * (units // shape.vector)
    # fp32 is rounded to tf32 on its way to an instruction, weights only where what is left of them counts, too. (Since
    # then tf32 is rounded before, but for a cluster; the loops that the figures are fitted to were timed before that.)
    operands, weights = int(shape.element_bytes > 2), int(shape.num_products > 1)
    rounded = 4 * operands * shape.column_tiles + 8 * weights * shape.row_tiles
    return {
        "fixed": const(1),
        "cluster": shape.where(cluster, 1),
        "cluster_blocks": shape.where(cluster, maximum(0, shape.blocks - 8)),
        "grid": shape.where(grid, 1),
        "grid_blocks": shape.where(grid, shape.blocks),
        "mma": 2 * shape.num_products * shape.pairs * maximum(issue, MMA_LATENCY_CLK // shape.chains),
        "rounded": waves * shape.pairs * rounded,
        "weights": shape.weight_bytes // SMEM_BYTES_PER_CLK,
        "operand": shape.where(v["placement"] != GRID, read // SMEM_BYTES_PER_CLK),
        "polled": shape.where(grid, read // L2_BYTES_PER_CLK),
        "poll_chain": shape.polled,
        "streamed": shape.streamed_bytes // L2_BYTES_PER_CLK,
        "sent": shape.where(cluster, ceildiv(shape.parts * vectors * shape.blocks, threads)),
        "summed": shape.where(shape.has_sums, v["warps_depth"] * shape.rows * rows * 8 // SMEM_BYTES_PER_CLK),
        "sum_chain": shape.where(shape.has_sums, shape.items * through * v["warps_depth"]),
        "special": units * rows * specials // int(assumed.specials_per_clk(gpu).value),
        "serial": shape.items,
        "written": written * vectors * VECTOR_BYTES // SMEM_BYTES_PER_CLK,
        "read": shape.copies,
        "warps": shape.warps,
    }


def part_columns(
    gpu: GpuModel, cell: RecurrentCell, direction: str, workload: Workload, columns: Columns
) -> dict[str, Column]:
    """The parts of every row."""
    shape = CudaLoop.of(cell, direction, workload, {name: Var(name) for name in columns})
    size = len(next(iter(columns.values())))
    return {
        name: np.broadcast_to(np.asarray(part.columns(columns), dtype=np.float64), (size,))
        for name, part in step_parts(gpu, shape, workload.sizes["batch"]).items()
    }


def step_clk(
    parts: Mapping[str, Column], figures: Mapping[str, float], columns: Columns, sharing: Column
) -> dict[str, Column]:
    """Clocks of a step of all tiles of a block: its parts, and as `step` their combined time.

    Several tiles are worked on in turn, so that one's exchange is hidden behind the others' work. Inputs are requested
    `prefetch` tiles ahead, so that no tile is computed faster than their latency over the tiles between.
    """
    tiles = np.asarray(columns["num_tiles"], dtype=np.float64)
    ahead = np.asarray(columns["prefetch"], dtype=np.float64) - 1.0
    clks = {name: figures[name] * part for name, part in parts.items()}
    waited = sum(clks[name] for name in WAITED)
    worked = sum(part for name, part in clks.items() if name not in WAITED)
    worked = worked + (sharing - 1.0) * sum(clks[name] for name in BUSY)
    chain = np.maximum(tiles * worked, worked + waited)
    loads = tiles * figures[LOADS] / ahead
    step = (chain**WAITING_EXPONENT + loads**WAITING_EXPONENT) ** (1.0 / WAITING_EXPONENT)
    return clks | {"step": step, LOADS: step - chain}


def floor_clk(
    gpu: GpuModel, cell: RecurrentCell, direction: str, workload: Workload, config: Mapping[str, int]
) -> dict[str, float]:
    """Clocks of a step that no code could do without, in a configuration's placement, by part.

    The matrix units work at their peak, weights and partial sums move at the full rate of shared memory, streamed
    weights at that of the L2, special functions take theirs, and the exchange is the shortest there is (`EXCHANGE_S`).
    Parts that overlap take less than their sum, parts that wait take more.
    """
    shape = CudaLoop.of(cell, direction, workload, {name: Var(name) for name in config})
    parts = step_parts(gpu, shape, workload.sizes["batch"])
    clock = assumed.most_clock_hz(gpu).value
    tiles = config["num_tiles"]
    named = {name: float(tiles * parts[name].value(config)) for name in ("weights", "summed", "special", "streamed")}
    # The parts count instructions at the rate that was seen on Ampere; here the peak of the GPU counts.
    operations = 2 * shape.num_products * shape.depth * shape.rows.value(config) * config["tile_batch"]
    peak = gpu.peak_flop_per_s("tf32" if workload.dtype == "fp32" else workload.dtype)
    mma = tiles * operations / (peak / gpu.device.sm_count / clock) if peak else 0.0
    return {"mma": mma, **named, "exchange": clock * EXCHANGE_S[config["placement"]]}


def rounds_and_sharing(
    gpu: GpuModel,
    cell: RecurrentCell,
    direction: str,
    workload: Workload,
    columns: Columns,
    blocks_per_sm: NDArray[Any],
) -> tuple[Column, Column]:
    """Number of times that the GPU is filled, and of blocks that share an SM."""
    c = {name: np.asarray(column, dtype=np.float64) for name, column in columns.items()}
    shape = CudaLoop.of(cell, direction, workload, {name: Var(name) for name in columns})
    at_once = np.asarray(groups_at_once(gpu, shape).columns(columns), dtype=np.float64)
    blocks = workload.sizes["head_dim"] / c["units"]
    groups = workload.sizes["heads"] * np.ceil(workload.sizes["batch"] / (c["tile_batch"] * c["num_tiles"]))
    resident = np.maximum(1.0, np.minimum(np.asarray(blocks_per_sm, dtype=np.float64), _cautious(gpu, shape, columns)))
    # Blocks that wait for others of the grid take an SM each.
    resident = np.where(c["placement"] == GRID, 1.0, resident)
    at_once = at_once * resident
    sharing = np.clip(np.ceil(np.minimum(groups, at_once) * blocks / gpu.device.sm_count), 1.0, resident)
    return np.ceil(groups / at_once), sharing


def _cautious(gpu: GpuModel, shape: CudaLoop, columns: Columns) -> Column:
    """Blocks whose registers an SM holds where each thread has somewhat more than estimated.

    Where one more block an SM decides about another round, a layer takes half or twice the time: sLSTM of 4 heads x 192
    on an H200 took 2.3 ms backward with a block an SM (136 registers a thread), for which 128 had promised two.
    """
    threads = 32.0 * np.asarray(shape.warps.columns(columns), dtype=np.float64)
    estimate = np.asarray(block_use(gpu, shape).registers_per_thread.columns(columns), dtype=np.float64)
    per_thread = REGISTER_STEP * np.ceil(REGISTER_CAUTION * estimate / REGISTER_STEP)
    taken = threads * np.minimum(per_thread, gpu.sm.max_registers_per_thread)
    return np.asarray(np.floor(gpu.register_file.capacity * gpu.sm.num_partitions / taken), dtype=np.float64)


def cuda_cost(
    gpu: GpuModel,
    cell: RecurrentCell,
    direction: str,
    workload: Workload,
    columns: Columns,
    blocks_per_sm: NDArray[Any],
) -> CostColumns:
    """Predicted time of every configuration."""
    clock = assumed.most_clock_hz(gpu).value
    parts = part_columns(gpu, cell, direction, workload, columns)
    rounds, sharing = rounds_and_sharing(gpu, cell, direction, workload, columns, blocks_per_sm)
    clks = step_clk(parts, fitted().figures[direction], columns, sharing)
    scale = rounds * workload.sizes["time"] / clock
    dram_s = loop_bytes(cell, direction, workload, columns) / gpu.memory.dram.bandwidth_bytes_per_s
    more_s = filled_bytes(cell, direction, workload, columns) / gpu.memory.dram.bandwidth_bytes_per_s
    if direction == "backward":
        more_s = more_s + after_s(gpu, cell, workload, columns)
    tiles = np.asarray(columns["num_tiles"], dtype=np.float64)
    shown = {
        "matrix units": ("mma", "rounded"),
        "shared memory": ("weights", "operand", "summed", "sent", "written"),
        "special functions": ("special",),
        "latency": ("fixed", "serial", "poll_chain", "sum_chain", "read", "warps"),
        "barrier": WAITED,
        "L2": ("polled", "streamed"),
    }
    figures: dict[str, Any] = dict.fromkeys(PARTS, 0.0)
    for name, names in shown.items():
        figures[name] = scale * (1.0 if names is WAITED else tiles) * sum(clks[part] for part in names)
    figures["latency"] = figures["latency"] + scale * np.maximum(0.0, clks[LOADS])
    figures["DRAM"] = dram_s + more_s
    return CostColumns(LAUNCH_S + np.maximum(scale * clks["step"], dram_s) + more_s, figures)


def loop_bytes(cell: RecurrentCell, direction: str, workload: Workload, columns: Columns) -> Column:
    """Bytes that the loop moves through device memory."""
    stored = np.where(np.asarray(columns["recompute"]) > 0, 0.0, float(cell.num_gates))
    written = cell.num_states + stored if direction == "forward" else cell.num_slots + 0.0 * stored
    return np.asarray(row_bytes(workload) * (cell.num_loads(direction) + written), dtype=np.float64)


def filled_bytes(cell: RecurrentCell, direction: str, workload: Workload, columns: Columns) -> Column:
    """Bytes that are filled before blocks exchange states through memory: RING steps of them."""
    exchanged = (1 if direction == "forward" else cell.num_gates) * RING / workload.sizes["time"]
    return np.where(np.asarray(columns["placement"]) == GRID, exchanged * row_bytes(workload), 0.0)


def cuda_assumptions(gpu: GpuModel) -> tuple[str, ...]:
    """Assumptions of the model about this GPU that no source and no measurement supports."""
    lines = [f"{LAUNCH_S * 1e6:.1f} us launch", *filter(None, [target_note(gpu)])]
    if gpu.arch.target != "sm_90a":
        lines.append("parts of a step as fitted on an H200; nothing was run on this GPU")
    lines += assumed.lines_of(gpu, assumed.most_clock_hz, assumed.specials_per_clk, assumed.gpcs)
    return tuple(lines)
