"""A cost model for kernels whose blocks walk tiles through shared memory.

Every resource gets the time it would need if nothing else mattered; the largest one binds. On an SM these are the
matrix units, shared memory, the L2 port, and the latency that too shallow a pipeline exposes; on the device the L2,
the last-level cache and DRAM. Whole waves of blocks quantise the SM side. The figures are modelled, never measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel

Column = NDArray[np.float64]

# Vendors publish none of the constants below. Those called fitted come from `python -m benchmarks.fit gemm.pointer`
# over configurations measured on one H200 (`benchmarks/results/h200/gemm_space_bf16.csv`).

#: Seconds to start a kernel, fill its first pipeline and drain it. Fitted.
LAUNCH_S = 5.4e-6
#: Clocks of a main-loop iteration that a block spends on barriers and branches; another block on the SM would use them
#: for its own work. Fitted.
ITERATION_CLK = 2.0
#: Seconds to put a new block in the place of a finished one. Fitted.
BLOCK_START_S = 0.38e-6
#: Clocks of an SM that one lane's load takes from everything else: address, predicate, issue slots. Fitted.
CLK_PER_LOAD = 0.278
#: Bytes per clock between the L2 and one SM or CU. Fitted; the port itself is 64 bytes wide on both vendors' parts.
L2_PORT_BYTES_PER_CLK = 38.7
#: The exponent p of the norm in `overlap` is 2**3 = 8. An infinite one means perfect overlap, 1 none at all. It was
#: chosen: large exponents fit the measurements best, and a finite one also orders configurations that share their
#: bottleneck.
OVERLAP_LOG2 = 3

#: Bytes of the widest load of one thread, on both vendors' parts.
WIDEST_LOAD_BYTES = 16

#: What stands in where a model's clock or shared-memory banks are unconfirmed; `cost_assumptions` says so.
ASSUMED_CLOCK_HZ = 1.0e9
ASSUMED_BANKS = 32
ASSUMED_BANK_WIDTH_BYTES = 4

PARTS = (
    "matrix units",
    "shared memory",
    "L2 port",
    "load issue",
    "latency",
    "wave quantisation",
    "L2",
    "last-level cache",
    "DRAM",
)


@dataclass(frozen=True)
class TileWork:
    """What a grid of blocks does; every field is a scalar or a column over configurations.

    Args:
        num_blocks: Blocks in the grid.
        blocks_per_sm: Blocks that reside on one SM at once (at least 1).
        warps_per_block: Warps (waves) of one block.
        iterations: Main-loop iterations of one block.
        flop: Floating or integer operations of one block in one iteration.
        matrix_efficiency: Share of the matrix units' peak that the chosen instruction can reach.
        smem_bytes: Bytes that one block moves through shared memory in one iteration, both ways.
        load_bytes: Bytes that one block loads from the L2 in one iteration.
        load_instructions: Loads per lane, summed over the lanes of one block, in one iteration.
        store_bytes: Bytes that one block stores at its end.
        is_async: 1 where matrix instructions read shared memory themselves (wgmma, tcgen05).
        stages_in_flight: Iterations ahead of their use that loads are issued; 0 where nothing is prefetched.
        l2_bytes, last_level_bytes, dram_bytes: Traffic of the whole grid at each level.
        is_persistent: 1 where blocks walk many tiles, so that only the first wave has to be started.
        extra_s: Seconds of further kernels (a split-K reduction).
        load_latency_s: Mean seconds from a load's issue to its data, where cache hits are known; else the vendor's.
        l2_bytes_per_s: What all caches deliver together, where no vendor states the L2's bandwidth.
    """

    num_blocks: Any
    blocks_per_sm: Any
    warps_per_block: Any
    iterations: Any
    flop: Any
    matrix_efficiency: Any
    smem_bytes: Any
    load_bytes: Any
    load_instructions: Any
    store_bytes: Any
    is_async: Any
    stages_in_flight: Any
    l2_bytes: Any
    last_level_bytes: Any
    dram_bytes: Any
    is_persistent: Any = 0.0
    extra_s: Any = 0.0
    load_latency_s: Any = None
    l2_bytes_per_s: Any = None


@dataclass(frozen=True)
class CostColumns:
    """Modelled seconds per row, and the parts of PARTS in seconds (scalars or columns)."""

    seconds: Column
    parts_s: Mapping[str, Any] = field(default_factory=dict)

    def parts_of(self, row: int) -> dict[str, float]:
        """What each resource would need for this row if nothing else mattered."""
        return {name: float(part[row] if np.ndim(part) else part) for name, part in self.parts_s.items()}

    def take(self, rows: NDArray[np.int64]) -> CostColumns:
        """These rows alone."""
        parts = {name: np.broadcast_to(part, self.seconds.shape)[rows] for name, part in self.parts_s.items()}
        return CostColumns(self.seconds[rows], parts)

    def bound_by(self, row: int) -> str:
        """Name of the resource that binds this row: the largest part, of equal ones the first."""
        parts_s = self.parts_of(row)
        return max(parts_s, key=lambda name: parts_s[name])


def cost_assumptions(gpu: GpuModel) -> list[str]:
    """What the model assumes about this GPU for want of a source, a sentence each."""
    lines = [f"{gpu.figure('dram_latency_s') * 1e6:.2f} us load latency, {LAUNCH_S * 1e6:.1f} us launch"]
    if gpu.device.boost_clock_hz is None:
        lines.append(f"clock unconfirmed: {ASSUMED_CLOCK_HZ / 1e9:.1f} GHz assumed")
    if gpu.sm.smem_banks is None or gpu.sm.smem_bank_width_bytes is None:
        lines.append(f"LDS banks unconfirmed: {ASSUMED_BANKS} of {ASSUMED_BANK_WIDTH_BYTES} bytes assumed")
    if gpu.memory.l2.bandwidth_bytes_per_s is None:
        lines.append("L2 bandwidth unconfirmed: only the SMs' ports to it are modelled")
    if gpu.compute.sustained_matrix_fraction is None:
        lines.append("sustained share of the peak unknown: the datasheet peak is used")
    return lines


def estimate(gpu: GpuModel, peak_flop_per_s: float, work: TileWork) -> CostColumns:
    """Predict the time of every row of `work`.

    Args:
        gpu: The hardware model.
        peak_flop_per_s: Dense peak of the unit that does the arithmetic, for the whole device.
        work: The grid, per configuration.
    """
    clock = gpu.device.boost_clock_hz or ASSUMED_CLOCK_HZ
    num_sms = gpu.device.sm_count
    # The share of the peak that the device sustains under load, where a source states it.
    flop_per_s = peak_flop_per_s * (gpu.compute.sustained_matrix_fraction or 1.0)
    parts, wave_of = _sm_parts(gpu, work, flop_per_s / num_sms, clock)
    slots = num_sms * np.asarray(work.blocks_per_sm, dtype=np.float64)
    num_blocks = np.asarray(work.num_blocks, dtype=np.float64)
    full = np.floor(num_blocks / slots)
    tail_blocks = np.ceil((num_blocks - full * slots) / num_sms)
    wave_s = wave_of(np.asarray(work.blocks_per_sm, dtype=np.float64))
    sm_s = full * wave_s + np.where(tail_blocks > 0, wave_of(tail_blocks), 0.0)
    num_waves = num_blocks / slots
    named = {name: part * num_waves for name, part in parts.items()}
    named["wave quantisation"] = np.maximum(sm_s - num_waves * wave_s, 0.0)
    named |= _device_parts(gpu, work)
    seconds = LAUNCH_S + overlap(sm_s, *(named[name] for name in PARTS[6:])) + work.extra_s
    return CostColumns(seconds, named)


def overlap(*times_s: Any) -> Column:
    """Time of resources that work at once: their largest, and more the closer the others come to it (a p-norm)."""
    total: Any = 0.0
    for time_s in times_s:
        power = np.square(np.asarray(time_s, dtype=np.float64))
        for _ in range(OVERLAP_LOG2 - 1):
            power = np.square(power)
        total = total + power
    for _ in range(OVERLAP_LOG2):
        total = np.sqrt(total)
    return np.asarray(total, dtype=np.float64)


def _sm_parts(
    gpu: GpuModel, work: TileWork, sm_flop_per_s: float, clock: float
) -> tuple[dict[str, Any], Callable[[Any], Column]]:
    """Seconds of one full wave on one SM per resource, and of a whole wave as a function of the resident blocks."""
    resident = np.asarray(work.blocks_per_sm, dtype=np.float64)
    partitions = gpu.sm.num_partitions
    banks, width = gpu.sm.smem_banks or ASSUMED_BANKS, gpu.sm.smem_bank_width_bytes or ASSUMED_BANK_WIDTH_BYTES
    smem_rate = banks * width * clock
    smem_s = work.smem_bytes / smem_rate
    port_s = work.load_bytes / (L2_PORT_BYTES_PER_CLK * clock)
    issue_s = work.load_instructions * CLK_PER_LOAD / clock
    # More than a warp per partition takes longer to meet at a barrier.
    overhead_s = ITERATION_CLK * np.maximum(1.0, np.asarray(work.warps_per_block) / partitions) / clock
    latency_s = gpu.figure("dram_latency_s") if work.load_latency_s is None else work.load_latency_s
    depth = np.asarray(work.stages_in_flight, dtype=np.float64)
    start_s = BLOCK_START_S * (1.0 - np.asarray(work.is_persistent, dtype=np.float64))
    edge_s = start_s + latency_s + work.store_bytes / (L2_PORT_BYTES_PER_CLK * clock)

    def matrix_of(blocks: Any) -> Column:
        busy = np.minimum(1.0, blocks * work.warps_per_block / partitions)
        rate = sm_flop_per_s * work.matrix_efficiency * np.maximum(busy, 1e-9)
        return np.asarray(blocks * work.flop / rate, dtype=np.float64)

    # One warp on its own loads fragments and then multiplies; other warps of its partition fill the gaps, and
    # matrix instructions that read shared memory themselves leave none.
    depth_of_warps = np.maximum(1.0, work.warps_per_block / partitions)
    serial_s = matrix_of(1.0) / depth_of_warps + np.where(work.is_async, 0.0, smem_s + issue_s)
    # Without a prefetch, a block waits for its own loads and then computes, in every iteration.
    alone_s = overlap(matrix_of(1.0), smem_s, port_s, issue_s, serial_s)
    waits_s = np.where(depth > 0, latency_s / np.maximum(depth, 1.0), latency_s + alone_s)

    def wave_of(blocks: Any) -> Column:
        busy_s = (matrix_of(blocks), blocks * smem_s, blocks * port_s, blocks * issue_s)
        step_s = overlap(*busy_s, serial_s, waits_s)
        step_s = step_s + overhead_s / np.maximum(blocks, 1.0)
        return np.asarray(work.iterations * step_s + edge_s / np.maximum(blocks, 1.0), dtype=np.float64)

    parts = {
        "matrix units": work.iterations * matrix_of(resident),
        "shared memory": work.iterations * resident * smem_s,
        "L2 port": work.iterations * resident * port_s,
        "load issue": work.iterations * resident * issue_s,
        "latency": work.iterations * np.maximum(waits_s, np.where(work.is_async, 0.0, serial_s)),
    }
    return parts, wave_of


def _device_parts(gpu: GpuModel, work: TileWork) -> dict[str, Column]:
    """Seconds that each device-wide memory level needs for the grid's traffic."""
    memory = gpu.memory
    l2_rate = memory.l2.bandwidth_bytes_per_s
    if l2_rate is None and work.l2_bytes_per_s is not None:
        l2_rate = work.l2_bytes_per_s
    last_level_rate = memory.last_level.bandwidth_bytes_per_s if memory.last_level else None
    return {
        # A cache of unknown bandwidth cannot bind: the SMs' ports stand for the L2, DRAM for the last level.
        "L2": np.asarray(work.l2_bytes, dtype=np.float64) / (np.inf if l2_rate is None else l2_rate),
        "last-level cache": np.asarray(work.last_level_bytes, dtype=np.float64) / (last_level_rate or np.inf),
        "DRAM": np.asarray(work.dram_bytes, dtype=np.float64) / memory.dram.bandwidth_bytes_per_s,
    }


def streaming_cost(gpu: GpuModel, moved_bytes: float, threads_per_sm: Any) -> CostColumns:
    """Predict the time of kernels that do little but stream bytes through DRAM.

    By Little's law the bandwidth is reached when the bytes in flight are at least latency x bandwidth. Every resident
    thread is assumed to have one load of 16 bytes in flight.

    Args:
        gpu: The hardware model.
        moved_bytes: Bytes to and from DRAM.
        threads_per_sm: Threads that reside on one SM, per configuration.
    """
    bandwidth = gpu.memory.dram.bandwidth_bytes_per_s
    in_flight = gpu.device.sm_count * np.asarray(threads_per_sm, dtype=np.float64) * WIDEST_LOAD_BYTES
    latency_s = gpu.figure("dram_latency_s")
    share = np.minimum(1.0, np.maximum(in_flight, 1.0) / (bandwidth * latency_s))
    dram_s = np.full_like(share, moved_bytes / bandwidth)
    parts: dict[str, Any] = dict.fromkeys(PARTS, 0.0) | {"DRAM": dram_s, "latency": dram_s / share - dram_s}
    return CostColumns(LAUNCH_S + dram_s / share, parts)
