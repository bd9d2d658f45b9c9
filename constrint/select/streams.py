"""Predicted time of kernels that stream: every byte once, with little arithmetic, by blocks that wait for none.

A block requests some bytes before it waits for any of them; all resident blocks together keep DRAM busy if these
bytes cover its latency (Little's law). What a block does besides, its first request, its reduction and its store, is
hidden by the other blocks of its SM, if there are any.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from constrint.hwmodels import GpuModel
from constrint.hwmodels.assumed import LAUNCH, assumption
from constrint.select.cost import PARTS, CostColumns, dram_bytes_per_s, overlap, port_bytes_per_clk

#: Seconds to start a streaming kernel and to drain it, between two events.
START_S = 2.6e-6
#: Share of the DRAM's data sheet that streams reach where none is stated.
STREAM_SHARE = 0.9
#: Seconds from a cold load's issue to its data, relative to the vendor's `dram_latency_s`.
COLD_LATENCY = 1.6


#: Seconds from the start of a block to that of the next one on its SM, if there is room: measured on an H200, where
#: 16,384 to 262,144 blocks of 64 to 512 elements take 0.62 ns each on the whole
#: GPU (`python -m benchmarks.vectors --only axpy --each 140`).
DISPATCH_S = 0.082e-6
#: Share of the latency and the tail of blocks that follow each other which others do not hide.
EXPOSED = 0.5


@dataclass(frozen=True)
class Stream:
    """Traffic of the blocks of a streaming kernel; numbers or columns.

    Args:
        dram_bytes: Bytes from and to DRAM, whole sectors.
        l2_bytes: Further bytes that the L2 delivers: operands that many blocks read.
        num_blocks: Blocks of the grid.
        flight_bytes: Bytes that a block requests before it waits.
        tail_s: Seconds that a block needs after its last load: reductions, barriers, stores.
        serial_s: Seconds after all blocks: a reduction of what they found.
        compute_s: Seconds of the arithmetic units of the whole GPU.
        exposed: Share of a block's latency and tail that the block after it does not hide: what `flight_bytes` does not
            count.
    """

    dram_bytes: Any
    l2_bytes: Any
    num_blocks: Any
    flight_bytes: Any
    tail_s: Any = 0.0
    serial_s: Any = 0.0
    compute_s: Any = 0.0
    exposed: Any = EXPOSED


def dram_latency_s(gpu: GpuModel) -> float:
    """Seconds from a cold load's issue to its data."""
    return COLD_LATENCY * gpu.figure("dram_latency_s")


def stream_cost(gpu: GpuModel, stream: Stream, blocks_per_sm: Any) -> CostColumns:
    """Predict the time of a stream's kernel for every configuration.

    Args:
        gpu: The hardware model.
        stream: What its blocks move.
        blocks_per_sm: Blocks that reside on one SM at once, per configuration.
    """
    blocks = np.maximum(np.asarray(stream.num_blocks, dtype=np.float64), 1.0)
    per_sm = np.maximum(np.asarray(blocks_per_sm, dtype=np.float64), 1.0)
    sms = gpu.device.sm_count
    rate, latency_s = dram_bytes_per_s(gpu, STREAM_SHARE), dram_latency_s(gpu)
    resident = np.minimum(blocks, sms * per_sm)
    waves = blocks / (sms * per_sm)
    of_dram = np.asarray(stream.dram_bytes, dtype=np.float64) / rate
    # Few blocks: some SMs have one more than others.
    on_busiest = np.ceil(resident / sms) * sms / resident
    requested = np.maximum(resident * np.asarray(stream.flight_bytes, dtype=np.float64), 1.0)
    waiting_s = np.asarray(stream.dram_bytes, dtype=np.float64) * latency_s / requested * on_busiest
    clock = gpu.device.boost_clock_hz
    ports = port_bytes_per_clk(gpu) * (clock or 1.5e9) * np.minimum(resident, sms)
    # Blocks start one after another on every SM: short ones are bound by that.
    started_s = blocks * DISPATCH_S / sms
    port_s = (np.asarray(stream.dram_bytes, dtype=np.float64) + stream.l2_bytes) / ports * on_busiest
    moved_s = overlap(of_dram, waiting_s, port_s, stream.compute_s, started_s)
    # The last blocks run beside fewer and fewer others; blocks that follow each other expose a share of their latency.
    of_block = moved_s * resident / blocks
    drained_s = np.where(waves > 1, 0.5 * of_block, 0.0)
    exposed_s = stream.exposed * np.maximum(waves - 1, 0.0) * (latency_s + stream.tail_s) / per_sm
    last_s = latency_s + stream.tail_s + stream.serial_s
    assumed = assumption(gpu, LAUNCH)
    start_s = START_S if assumed is None else assumed.value
    total = start_s + moved_s + drained_s + exposed_s + last_s
    parts: dict[str, Any] = dict.fromkeys(PARTS, 0.0) | {
        "DRAM": of_dram,
        "latency": start_s + last_s + np.maximum(waiting_s - of_dram, 0.0),
        "L2 port": port_s,
        "wave quantisation": drained_s + exposed_s,
        "vector units": stream.compute_s,
    }
    return CostColumns(np.asarray(total, dtype=np.float64), parts)
