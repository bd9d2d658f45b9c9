"""Predicted time of a recurrence that alternates products and pointwise steps: two kernels per step, in turn.

Each step reads the weights again, from the L2 if they fit there. What a step takes was fitted on one H200
(`benchmarks/results/h200/rnn.csv`: LSTM in bf16, B 16 to 256, 64 to 2048 units per head, within 30 %); on other GPUs
the time of a kernel is assumed to be the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel, roofline
from constrint.kernels.rnn.cells import Cell
from constrint.select.cost import PARTS, CostColumns
from constrint.select.spec import ELEMENT_BYTES, Workload

#: Seconds of one of the two kernels of a step.
NODE_S = {"forward": 2.15e-6, "backward": 3.8e-6}
#: Bytes of device memory moved per gate, unit and step, copies included; for elements of two bytes.
GATE_BYTES = {"forward": 45.0, "backward": 90.0}
#: Bandwidth that is assumed where no source states one.
ASSUMED_BYTES_PER_S = 1e12


def alternating_cost(gpu: GpuModel, cell: Cell, direction: str, workload: Workload) -> CostColumns:
    """Predicted time of one direction."""
    batch, time, heads, dim = (workload.sizes[name] for name in ("batch", "time", "heads", "head_dim"))
    element = ELEMENT_BYTES[workload.dtype]
    weights = cell.num_gates * heads * dim**2 * element
    try:
        peaks = roofline(gpu, workload.dtype)
    except ConstrintError:
        peaks = roofline(gpu, "fp32")
    bandwidths = peaks.bandwidth_bytes_per_s
    level = "l2" if bandwidths.get("l2") and weights <= (gpu.memory.l2.size_bytes or 0) else "dram"
    flop = 2.0 * batch * weights / element
    weights_s, flop_s = weights / (bandwidths[level] or ASSUMED_BYTES_PER_S), flop / peaks.peak_flop_per_s
    gates = batch * cell.num_gates * heads * dim
    moved_s = gates * (element / 2) * GATE_BYTES[direction] / (bandwidths["dram"] or ASSUMED_BYTES_PER_S)
    seconds = time * (2 * NODE_S[direction] + max(weights_s, flop_s) + moved_s)
    if direction == "backward":
        # The weight gradient is one product over all steps.
        seconds += time * flop / peaks.peak_flop_per_s
    products = 2 if direction == "backward" else 1
    parts: dict[str, Any] = dict.fromkeys(PARTS, 0.0) | {
        "latency": time * 2 * NODE_S[direction],
        f"{peaks.unit} units": time * products * flop_s,
        "L2": time * weights_s if level == "l2" else 0.0,
        "DRAM": time * (moved_s + (weights_s if level == "dram" else 0.0)),
    }
    return CostColumns(np.array([seconds]), parts)
