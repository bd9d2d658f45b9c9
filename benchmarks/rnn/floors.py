"""The least time of a layer on the CUDA kernels, by what takes it: no code in the same placement could be faster.

`floor_clk` of an implementation counts the clocks of a step. In `cuda` these are matrix instructions issued without a
gap, weights read from shared memory and partial sums at its full rate, those that the chip does not hold from the L2,
special functions, and the shortest exchange there is. Weights are read while others are multiplied, and a tile's
exchange passes while other tiles of its block are worked on. In `wgmma` they are what a block reads of the step before
at the most that an SM was seen to get, matrix instructions at their peak, special functions, and the exchange, which
passes while nothing else can. Nothing is faster than its bytes through device memory. Both directions also need the
product that gives the weights' gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel, roofline
from constrint.kernels.rnn.candidates import RECOMPUTED, STORED, choose_for, implementations_of
from constrint.kernels.rnn.cuda.cost import floor_clk, loop_bytes, rounds_and_sharing
from constrint.kernels.rnn.cuda.shape import BLOCK
from constrint.kernels.rnn.spec import SUFFIX, RnnSpec, workload_of
from constrint.kernels.rnn.wgmma import cost as wgmma
from constrint.select import Workload
from constrint.select.cost import ASSUMED_CLOCK_HZ

#: The implementation whose floors are meant where none is named.
NAME = "cuda"


class Floor(NamedTuple):
    """Of one direction of a layer.

    Args:
        seconds: The least time of the loop.
        step_ns: What takes a step's, in nanoseconds.
    """

    seconds: float
    step_ns: Mapping[str, float]

    def __str__(self) -> str:
        """Render the parts that are there: `mma 129, exchange 200`."""
        return ", ".join(f"{name} {ns:.0f}" for name, ns in self.step_ns.items() if ns)


def cuda_floor(gpu: GpuModel, spec: RnnSpec, workload: Workload, config: Mapping[str, int]) -> Floor:
    """The floor of one direction of `cuda` in one configuration."""
    clock = gpu.device.max_clock_hz or gpu.device.boost_clock_hz or ASSUMED_CLOCK_HZ
    parts = {n: clk / clock for n, clk in floor_clk(gpu, spec.cell, spec.direction, workload, config).items()}
    columns = {name: np.array([value]) for name, value in config.items()}
    rounds, _ = rounds_and_sharing(gpu, spec.cell, spec.direction, workload, columns, np.ones(1))
    turns = float(rounds[0])
    work = max(parts["mma"], parts["weights"], parts["streamed"]) + parts["summed"] + parts["special"]
    step = max(work, work / config["num_tiles"] + parts["exchange"])
    # Blocks that share no head share an SM, and hide each other's waiting.
    steps = max(step, turns * work) if config["placement"] == BLOCK else turns * step
    moved = float(loop_bytes(spec.cell, spec.direction, workload, columns)[0])
    seconds = max(workload.sizes["time"] * steps, moved / gpu.memory.dram.bandwidth_bytes_per_s)
    return Floor(seconds, {name: 1e9 * part for name, part in parts.items()})


def wgmma_floor(gpu: GpuModel, spec: RnnSpec, workload: Workload, config: Mapping[str, int]) -> Floor:
    """The floor of `wgmma` in one configuration."""
    clock = wgmma.clock_hz(gpu)
    parts = {n: clk / clock for n, clk in wgmma.floor_clk(gpu, spec.cell, workload, config).items()}
    columns = {name: np.array([value]) for name, value in config.items()}
    step = parts["exchange"] + max(seconds for name, seconds in parts.items() if name != "exchange")
    loop_s = workload.sizes["time"] * step * float(wgmma.rounds_of(gpu, spec.cell, workload, columns)[0])
    moved_s = float(wgmma.moved_s(gpu, spec.cell, workload, columns)[0])
    return Floor(max(loop_s, moved_s), {name: 1e9 * part for name, part in parts.items()})


#: The implementations that state floors.
LOOP_FLOORS: Mapping[str, Callable[[GpuModel, RnnSpec, Workload, Mapping[str, int]], Floor]] = {
    NAME: cuda_floor,
    "wgmma": wgmma_floor,
}


def floors_of(
    gpu: GpuModel, cell: str, sizes: tuple[int, int, int, int], dtype: str, name: str = NAME
) -> dict[str, Any]:
    """The columns of a table for a layer: forward as inference runs it, both directions as training does.

    Args:
        gpu: The hardware model.
        cell: A key of `CELLS`.
        sizes: Batch, time, heads, head dimension.
        dtype: Of the operands.
        name: The implementation, one of `LOOP_FLOORS`; its backward pass may be another one's.

    Returns:
        Nothing where the implementation cannot run the layer.
    """
    found = {}
    specs = implementations_of(cell)[name]
    try:
        for direction, way in (("inference", RECOMPUTED), *((direction, STORED) for direction in SUFFIX)):
            spec = specs["forward" if direction == "inference" else direction]
            asked = workload_of(cell, sizes, dtype, spec.direction)
            config = choose_for(spec, gpu, asked, way).config
            found[direction] = LOOP_FLOORS[spec.name](gpu, spec, spec.run_as(asked), config)
        peak = roofline(gpu, dtype).peak_flop_per_s
    except ConstrintError:
        return {}
    both_s = found["forward"].seconds + found["backward"].seconds
    both_s += specs["forward"].num_operations(workload_of(cell, sizes, dtype)) / peak
    return {
        "floor_forward_ms": 1e3 * found["inference"].seconds,
        "floor_both_ms": 1e3 * both_s,
        "floor_forward_step_ns": str(found["inference"]),
        "floor_backward_step_ns": str(found["backward"]),
    }
