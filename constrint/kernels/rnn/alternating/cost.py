"""Predicted time of a recurrence that alternates products and pointwise steps: two kernels per step, in turn.

Each step reads the weights again, from the L2 if they fit there. The time of a step was fitted on one H200
(`benchmarks/results/h200/rnn.csv`: LSTM in bf16, B 16 to 256, 64 to 2048 units per head, within 30 %); on other GPUs
the time of a kernel is assumed to be the same.

Short sequences and few rows of fp32 cost more than their share. A graph is replayed as a whole, with steps beyond the
sequence. And a product of few rows fills neither its blocks nor the GPU: a library's block computes some rows
by some columns over the whole depth, however few the rows are, and where there are fewer blocks than SMs the others
wait. Matrix units are fast enough for that not to matter, vector units are not.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel, roofline
from constrint.kernels.rnn.cells import RecurrentCell
from constrint.select.cost import LAUNCH_S, PARTS, CostColumns
from constrint.select.workload import ELEMENT_BYTES, Workload

#: Seconds of one of the two kernels of a step.
NODE_S = {"forward": 2.15e-6, "backward": 3.8e-6}
#: Bytes of device memory moved per gate, unit and step, copies included; for elements of two bytes.
GATE_BYTES = {"forward": 45.0, "backward": 90.0}
#: Bandwidth that is assumed where no source states one.
ASSUMED_BYTES_PER_S = 1e12
#: Rows and columns of a product that a block of the library computes. Assumed: the narrowest of cuBLAS's usual kernels
#: in fp32 are of 32 rows and 128 columns. The product backwards has the same number of blocks: its rows of the weights
#: are its depth, which the library splits where columns are few.
BLOCK_ROWS, BLOCK_COLUMNS = 32, 128
#: Launches that a call waits for beside its graph: copies into and out of the graph's buffers. Those of further replays
#: are enqueued while the one before runs.
CALL_LAUNCHES = 11
#: Steps per graph at most: enough that copying a chunk costs little beside running it.
MAX_STEPS = 128
#: Bytes of a chunk's largest buffer at most, and steps that a chunk has even so.
MAX_BUFFER_BYTES, FEWEST_STEPS = 32 << 20, 8


def alternating_cost(gpu: GpuModel, cell: RecurrentCell, direction: str, workload: Workload) -> CostColumns:
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
    weights_s = weights / (bandwidths[level] or ASSUMED_BYTES_PER_S)
    flop_s = product_s(gpu, cell, workload, peaks.peak_flop_per_s)
    gates = batch * cell.num_gates * heads * dim
    moved_s = gates * (element / 2) * GATE_BYTES[direction] / (bandwidths["dram"] or ASSUMED_BYTES_PER_S)
    steps = steps_that_run(time, gates * element)
    seconds = CALL_LAUNCHES * LAUNCH_S + steps * (2 * NODE_S[direction] + max(weights_s, flop_s) + moved_s)
    # The weight gradient is one product over all steps.
    gradient_s = time * flop / peaks.peak_flop_per_s if direction == "backward" else 0.0
    parts: dict[str, Any] = dict.fromkeys(PARTS, 0.0) | {
        "latency": CALL_LAUNCHES * LAUNCH_S + steps * 2 * NODE_S[direction],
        f"{peaks.unit} units": steps * flop_s + gradient_s,
        "L2": steps * weights_s if level == "l2" else 0.0,
        "DRAM": steps * (moved_s + (weights_s if level == "dram" else 0.0)),
    }
    return CostColumns(np.array([seconds + gradient_s]), parts)


def product_s(gpu: GpuModel, cell: RecurrentCell, workload: Workload, peak_flop_per_s: float) -> float:
    """Seconds of the units' work for the product of one step: waves of whole blocks, a block to an SM."""
    batch, heads, dim = (workload.sizes[name] for name in ("batch", "heads", "head_dim"))
    flop = 2.0 * batch * heads * cell.num_gates * dim**2
    blocks = heads * math.ceil(batch / BLOCK_ROWS) * math.ceil(cell.num_gates * dim / BLOCK_COLUMNS)
    waves, sms = math.ceil(blocks / gpu.device.sm_count), gpu.device.sm_count
    of_block = 2.0 * BLOCK_ROWS * BLOCK_COLUMNS * dim
    return max(flop / peak_flop_per_s, waves * of_block * sms / peak_flop_per_s)


def steps_of_graph(time: int, step_bytes: int) -> int:
    """Steps of the graph that a sequence is copied through; a replay runs all of them.

    Sequences are cut into equal chunks. Their length is rounded up to a half or the whole of a power of two's octave
    (... 32, 48, 64, 96, 128), so that few graphs serve every length and few steps run for nothing.

    Args:
        time: Steps of the sequence, at least 1.
        step_bytes: Bytes of the projected inputs of one step.
    """
    most = min(MAX_STEPS, max(FEWEST_STEPS, MAX_BUFFER_BYTES // step_bytes))
    each = -(-time // -(-time // most))
    multiple = 1 << max(0, (each - 1).bit_length() - 2)
    return min(most, -(-each // multiple) * multiple)


def steps_that_run(time: int, step_bytes: int) -> int:
    """Steps of all replays for a sequence of `time` steps, the surplus of the last replay included."""
    steps = steps_of_graph(time, step_bytes)
    return -(-time // steps) * steps
