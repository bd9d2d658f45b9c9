"""Predicted time of the recurrent kernels: the latency of one step, times the steps, times the rounds of programs.

A step is a chain: wait for the loads, multiply, compute special functions, pass the new state on through shared memory
(or, for a split head, through the L2 and a barrier), store. The parts add up, because the next step needs this one's
state. Weights of the parts are fitted to one H200 (`python -m benchmarks.rnn.fit`, over
`benchmarks/results/h200/rnn_space.csv`) and used for other GPUs as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel, assumed
from constrint.hwmodels.checks import target_note
from constrint.kernels.rnn.triton.layer import MIN_DEPTH, USUAL_SLICES, TritonLayer, is_dealt_to_rows
from constrint.select.cost import LAUNCH_S, PARTS, CostColumns
from constrint.select.spec import Columns
from constrint.select.workload import Workload

Column = NDArray[np.float64]

#: Dependent-issue latency, in clocks: the least time between two matrix instructions when the second needs the first
#: one's result.
MMA_LATENCY_CLK = 33.0
#: Issue interval, in clocks: the least time between two matrix instructions that do not depend on each other.
MMA_ISSUE_CLK = 8.0
#: Where a head is split, a warp that is alone on its sub-partition takes as long as this many warps: no other warp
#: fills the gaps while it waits.
LONE_WARP = 1.5
#: Bytes per clock of shared memory.
SMEM_BYTES_PER_CLK = 128.0

#: A thread that holds more registers of weights and of gathered states than this share of its registers loads them in
#: turns.
UNCROWDED = 0.25
#: Exponent of the p-norm of a chain and of its remaining loads: neither hides the other as long as both are as long.
WAITING_EXPONENT = 6.0

#: Parts of a step, and the fitted weight of each part's clocks by (direction, whether a head is split).
FEATURES = (
    *("fixed", "chain", "issue", "special", "store", "gathered"),
    *("reduced", "serial", "converted", "warps", "crowded"),
)
WEIGHTS: Mapping[tuple[str, bool], tuple[float, ...]] = {
    ("forward", False): (303, 0, 0.964, 0.797, 3.18, 0, 0, 6.55, 23.8, 17.6, 0),
    ("forward", True): (1.6e03, 0.158, 0.373, 0, 7.14, 0.863, 41.9, 68.1, 0, 0, 0.325),
    ("backward", False): (278, 0, 1.27, 3.48, 1.02, 0, 0, 8.79, 94.4, 19.2, 0),
    ("backward", True): (2.15e03, 0.22, 0.477, 0, 3.9, 0.316, 60.2, 77.6, 0, 0, 5.95),
}
#: Parts that programs of one SM do one after the other.
BUSY = ("issue", "special", "store")


def step_features(gpu: GpuModel, layer: TritonLayer, columns: Columns) -> dict[str, Column]:
    """Clocks of every part of a step before weighting, per row."""
    c = {name: np.asarray(column, dtype=np.float64) for name, column in columns.items()}
    rows, out, warps = np.maximum(c["tile_batch"], 8.0), c["tile_out"], c["num_warps"]
    split, sliced = c["row_split"] > 1, c["split_depth"] > 0
    forward = layer.direction == "forward"
    element, slots, dots = float(layer.element_bytes), float(layer.cell.num_slots), float(layer.cell.num_gates)
    depth = float(sum(layer.exchanged_depth(USUAL_SLICES)))
    passes = np.ceil(rows / 16.0) * layer.num_products * element / 2.0
    slices = np.where(sliced, warps, 1.0)
    width = np.where(split, layer.exchanged_slots * out, dots * out)
    dealt, again = warps, np.ones_like(warps)
    if is_dealt_to_rows(gpu, layer):
        dealt = np.where(split, warps, np.minimum(warps, np.maximum(1.0, rows // MIN_DEPTH)))
        # Work that several warps repeat takes time on the sub-partition of each.
        again = np.where(split, 1.0, np.ceil(warps / gpu.sm.num_partitions) * gpu.sm.num_partitions / dealt)
    instructions = np.where(split, depth, float(layer.padded_dim)) / 16.0 * np.ceil(width / 8.0) * passes / dealt
    across = np.maximum(1.0, np.ceil(width / 8.0) / np.where(sliced, 1.0, dealt))
    chained = np.where(across < 4.0, depth / slices / 16.0 * passes / across, 0.0)
    at_once = np.maximum(np.ceil(warps / gpu.sm.num_partitions), np.where(split, LONE_WARP, 1.0))
    tile = rows * out
    specials = layer.cell.forward_specials if forward else layer.cell.backward_specials
    rate = assumed.specials_per_clk(gpu).value
    exchanged = rows * depth * element
    stores = layer.cell.num_states + np.where(c["recompute"] > 0, 0.0, dots) if forward else slots + 0.0 * rows
    threads, lanes = warps * gpu.sm.warp_size, float(gpu.sm.warp_size)
    # Registers of a thread that hold its share of the weights, and of the gathered states of the others.
    weights = depth * layer.exchanged_slots * out * element / 4.0 / threads
    gathered = rows * depth * element / 4.0 / np.where(sliced, threads, lanes)
    crowded = weights + gathered - UNCROWDED * gpu.sm.max_registers_per_thread
    return {
        "fixed": np.ones_like(rows),
        # A whole head has one product per gate, and each has sums of its own: they wait for nothing.
        "chain": np.where(split, chained * MMA_LATENCY_CLK, 0.0),
        "issue": instructions * at_once * MMA_ISSUE_CLK,
        "special": tile * again * specials / rate,
        "store": stores * tile * element * 2.0 / SMEM_BYTES_PER_CLK,
        "gathered": np.where(split, exchanged * (1.0 + np.where(sliced, 1.0, warps)) / SMEM_BYTES_PER_CLK, 0.0),
        "reduced": np.where(split & sliced, warps * tile * layer.exchanged_slots * 4.0 / SMEM_BYTES_PER_CLK, 0.0),
        # Work of one thread in sequence, and the warps that meet.
        "serial": tile * np.where(split, slots, specials) / threads,
        "converted": np.where(split | (layer.element_bytes <= 2), 0.0, tile * slots / threads),
        "warps": np.where(split, 0.0, warps),
        "crowded": np.where(split, np.maximum(0.0, crowded), 0.0),
    }


def waits_s(gpu: GpuModel, layer: TritonLayer, columns: Columns) -> tuple[Column, Column]:
    """Seconds per step: of the barrier and the exchange through the L2, and from the loads' issue to their data.

    Pipelined loads are issued together. Without a pipeline each load is waited for before the next is issued.
    """
    split = np.asarray(columns["row_split"], dtype=np.float64)
    rows = np.maximum(np.asarray(columns["tile_batch"], dtype=np.float64), 8.0)
    moved = split * rows * float(sum(layer.exchanged_depth(USUAL_SLICES))) * layer.element_bytes
    barrier = gpu.figure("barrier_s") + gpu.figure("barrier_per_block_s") * split
    barrier = barrier + moved / gpu.figure("exchange_bytes_per_s")
    in_turn = layer.num_loads * gpu.figure("dram_latency_s")
    loads = np.where(np.asarray(columns["num_stages"]) > 1, gpu.figure("step_load_latency_s"), in_turn)
    return np.where(split > 1, barrier, 0.0), np.where(split > 1, 0.0, loads)


def waiting_step_s(chain_s: Column, loads_s: Column, num_stages: Column) -> Column:
    """Seconds of a step that is hardly shorter than its loads allow.

    With one or two stages a step waits for loads that it issued itself. Each further stage issues them a step earlier,
    so that with `s` stages s - 1 steps have the time of a chain and of the loads. Loads take a while longer now and
    then, so that the step is longer than the longer of both where they are about as long.
    """
    ahead = np.maximum(num_stages - 1.0, 1.0)
    least = (chain_s + loads_s) / ahead
    hidden = (chain_s**WAITING_EXPONENT + least**WAITING_EXPONENT) ** (1.0 / WAITING_EXPONENT)
    return np.where(loads_s == 0.0, chain_s, np.where(ahead > 1.0, hidden, least))


def rnn_cost(
    gpu: GpuModel, layer: TritonLayer, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]
) -> CostColumns:
    """Predicted time of every configuration."""
    split = np.asarray(columns["row_split"], dtype=np.float64)
    clock = assumed.most_clock_hz(gpu).value
    alone, together = WEIGHTS[layer.direction, False], WEIGHTS[layer.direction, True]
    clks = weighted(step_features(gpu, layer, columns), split > 1, alone, together)
    time = float(workload.sizes["time"])
    rounds, sharing = rounds_and_sharing(gpu, workload, columns, blocks_per_sm)
    chain_s, own_s, barrier_s = step_s(gpu, layer, columns, clks, sharing, clock)
    loop_s = rounds * time * (own_s + barrier_s)
    dram_s = _bytes(layer, workload, columns) / gpu.memory.dram.bandwidth_bytes_per_s
    later_s = after_s(gpu, layer, workload, columns)
    scale = rounds * time / clock
    parts: dict[str, Any] = dict.fromkeys(PARTS, 0.0) | {
        "matrix units": scale * (clks["chain"] + clks["issue"]),
        "shared memory": scale * sum(clks[n] for n in ("store", "gathered", "reduced", "crowded")),
        "latency": scale * sum(clks[n] for n in ("fixed", "serial", "converted", "warps"))
        + rounds * time * (own_s - chain_s),
        "special functions": scale * clks["special"],
        "barrier": rounds * time * barrier_s,
        "DRAM": dram_s + later_s,
    }
    return CostColumns(LAUNCH_S + np.maximum(loop_s, dram_s) + later_s, parts)


def weighted(
    features: Mapping[str, Column], is_split: NDArray[np.bool_], alone: Sequence[float], together: Sequence[float]
) -> dict[str, Column]:
    """Clocks of every part of a step, by the weights of whole heads and of split ones."""
    return {n: np.where(is_split, together[i], alone[i]) * features[n] for i, n in enumerate(FEATURES)}


def rounds_and_sharing(
    gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]
) -> tuple[Column, Column]:
    """Number of times that all SMs are filled, and of programs that share one."""
    split = np.asarray(columns["row_split"], dtype=np.float64)
    rows = np.asarray(columns["tile_batch"], dtype=np.float64)
    groups = float(workload.sizes["heads"]) * np.ceil(float(workload.sizes["batch"]) / rows)
    # Programs that wait for each other take one SM each. Others share an SM, and its throughput.
    resident = np.where(split > 1, 1.0, np.maximum(1.0, np.asarray(blocks_per_sm, dtype=np.float64)))
    at_once = np.maximum(1.0, np.floor(gpu.device.sm_count * resident / split))
    return np.ceil(groups / at_once), np.clip(np.ceil(groups * split / gpu.device.sm_count), 1.0, resident)


def step_s(
    gpu: GpuModel, layer: TritonLayer, columns: Columns, clks: Mapping[str, Column], sharing: Column, clock: float
) -> tuple[Column, Column, Column]:
    """Seconds of a step's chain, of the step with its waits for loads, and of its barrier."""
    barrier_s, loads_s = waits_s(gpu, layer, columns)
    busy_s = sum(clks[name] for name in BUSY) / clock
    chain_s = sum(clks.values()) / clock + (sharing - 1.0) * busy_s
    return chain_s, waiting_step_s(chain_s, loads_s, np.asarray(columns["num_stages"], dtype=np.float64)), barrier_s


def _bytes(layer: TritonLayer, workload: Workload, columns: Columns) -> Column:
    """Bytes that the loop moves through device memory."""
    batch, time, heads, dim = (float(workload.sizes[name]) for name in ("batch", "time", "heads", "head_dim"))
    rows = batch * time * heads * dim * layer.element_bytes
    stored = np.where(np.asarray(columns["recompute"]) > 0, 0.0, float(layer.cell.num_gates))
    if layer.direction == "forward":
        return np.asarray(rows * (layer.num_loads + layer.cell.num_states + stored), dtype=np.float64)
    return np.asarray(rows * (layer.num_loads + layer.cell.num_slots) + 0.0 * stored, dtype=np.float64)


def after_s(gpu: GpuModel, layer: TritonLayer, workload: Workload, columns: Columns) -> Column:
    """Seconds before and after the backward loop: gates that are computed again, sums, gradients of the weights."""
    recompute = np.asarray(columns["recompute"], dtype=np.float64)
    if layer.direction == "forward":
        return 0.0 * recompute
    batch, time, heads, dim = (float(workload.sizes[name]) for name in ("batch", "time", "heads", "head_dim"))
    rows = batch * time * heads * dim * layer.element_bytes
    moved = rows * (2.0 * layer.cell.num_slots + 4.0) + recompute * rows * 5.0 * layer.cell.num_gates
    return moved / (0.5 * gpu.memory.dram.bandwidth_bytes_per_s) + 10.0 * LAUNCH_S


def rnn_assumptions(gpu: GpuModel) -> tuple[str, ...]:
    """Assumptions of the model about this GPU that no source and no measurement supports."""
    lines = [f"{gpu.figure('step_load_latency_s') * 1e6:.2f} us load latency, {LAUNCH_S * 1e6:.1f} us launch"]
    lines += filter(None, [target_note(gpu)])
    lines.append(f"a barrier between programs takes {gpu.figure('barrier_s') * 1e6:.2f} us and more")
    if gpu.arch.target != "sm_90a":
        lines.append("weights of a step's parts as fitted on an H200")
    lines += assumed.lines_of(gpu, assumed.most_clock_hz, assumed.specials_per_clk)
    return tuple(lines)
