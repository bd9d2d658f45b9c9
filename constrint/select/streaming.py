"""The predicted time of kernels that do little but stream bytes through DRAM."""

from __future__ import annotations

from typing import Any

import numpy as np

from constrint.hwmodels import GpuModel
from constrint.select.cost import LAUNCH_S, PARTS, CostColumns

#: Bytes of the widest load of one thread, on both vendors' parts.
WIDEST_LOAD_BYTES = 16


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
