"""The parameter space and the predicted time of the kernels for many sequences, in CUDA C++ for Hopper.

A reviewer can check the rules against `source/layout.cuh`, which asserts the same when it is compiled.

The time is the parts of a step, times the steps and rounds of blocks. Parts are counted from the source (clocks that
an ideal unit needs, or how often something is waited for); how many times that each of them takes was fitted to one
H200 (`step.json`, backward `step_backward.json`, by `python -m benchmarks.rnn.fit_wgmma`). Sums that warpgroups hand to
each other, and what a thread computes of its units one after the other, got no figure beside these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel, assumed
from constrint.hwmodels.checks import target_note
from constrint.kernels.rnn.cells import BUILT_IN, RecurrentCell
from constrint.kernels.rnn.spec import NvrtcSpec, after_s, row_bytes, with_sizes
from constrint.kernels.rnn.wgmma.shape import (
    CELLS_FILES,
    CELLS_SOURCE,
    EIGHT,
    MOST_COLUMNS,
    SOURCE,
    WgmmaLoop,
    block_use,
    direction_of,
    padded_head_dim,
    rules_of,
)
from constrint.model import Expr, Var, const
from constrint.select.candidate import Config
from constrint.select.cost import LAUNCH_S, PARTS, CostColumns
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, Launch, Param, Rule, Vars
from constrint.select.workload import Workload

if TYPE_CHECKING:
    from constrint.kernels.rnn.interface import RnnBackend


Column = NDArray[np.float64]

#: Seconds of a word's way through the L2 to a block that polls for it, and the most bytes per clock that one SM was
#: seen to get from the L2 while all others read the same (`benchmarks/rnn/exchange.py` of commit befc2ab, on an H200).
EXCHANGE_S, L2_BYTES_PER_CLK = 6e-7, 78
#: Columns of a matrix instruction of 64 rows, 16 deep, in a clock at the peak of the matrix units.
COLUMNS_PER_CLK = 2
#: Exponent of the p-norm of reading, multiplying, and asking for one chunk after the other: these overlap.
OVERLAP_EXPONENT = 2.5
#: Parts that overlap so, and those that do not.
OVERLAPPED = (("read", "crowd"), ("mma",), ("later_chunks",))
FIGURES = ("fixed", "read", "crowd", "mma", "chunks", "later_chunks", "refill", "last", "special", "together")
_FILES = {
    "forward": Path(__file__).with_name("step.json"),
    "backward": Path(__file__).with_name("step_backward.json"),
    "partial": Path(__file__).parents[1] / "wgmma_partial" / "step.json",
}


class OutsideFit(msgspec.Struct, frozen=True):
    """Errors of the times of layers that were left out of a fit, as shares of the measured times.

    Args:
        median: Half of the layers' loops are off by less in the median.
        nine_in_ten: Nine in ten loops are off by less.
    """

    median: float
    nine_in_ten: float


class FittedWgmma(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fitted figures of one direction.

    Args:
        source: The command that fitted them, to what, and where it was measured.
        figures: By part: how many times the counted clocks the part takes.
        left_out: Errors of the times of layers that were left out; None where nobody wrote them down.
    """

    source: str
    figures: dict[str, float]
    left_out: OutsideFit | None = None


@cache
def fitted(direction: str = "forward") -> FittedWgmma:
    """The contents of a direction's file; `partial` is the backward loop by partial sums."""
    return msgspec.json.decode(_FILES[direction].read_bytes(), type=FittedWgmma)


def write_fitted(figures: FittedWgmma, direction: str = "forward") -> None:
    """Write a direction's file, one figure a line."""
    _FILES[direction].write_bytes(msgspec.json.format(msgspec.json.encode(figures), indent=1) + b"\n")
    fitted.cache_clear()


def step_parts(gpu: GpuModel, shape: WgmmaLoop) -> dict[str, Expr]:
    """Parts of a step, in clocks of units that are never late, or in numbers of waits."""
    v, own = shape.v, shape.own_steps
    chunks = own // v["chunk"]
    # 1 where a window holds less than the depth, so that chunks are loaded after others have been multiplied.
    refills = 1 - shape.window // own
    specials = shape.cell.forward_specials if shape.is_forward else shape.cell.backward_specials
    return {
        "fixed": const(1),
        "read": shape.step_bytes // L2_BYTES_PER_CLK,
        "mma": shape.row_groups * shape.num_steps * shape.columns // COLUMNS_PER_CLK,
        "chunks": (1 - refills) * chunks,
        "later_chunks": refills * chunks,
        "refill": refills,
        # The last chunk that arrives is multiplied while nothing else is left to wait for.
        "last": v["chunk"] * shape.columns // COLUMNS_PER_CLK,
        "special": v["units"] * v["tile_batch"] * specials // specials_per_clk(gpu),
        "together": 1 - v["probe"],
    }


def part_columns(gpu: GpuModel, cell: RecurrentCell, workload: Workload, columns: Columns) -> dict[str, Column]:
    """The parts of every row; `crowd` is the part `read` times the share of the SMs that read at once."""
    shape = WgmmaLoop.of(cell, workload, {name: Var(name) for name in columns})
    parts = {name: column_of(part, columns) for name, part in step_parts(gpu, shape).items()}
    groups, at_once = groups_of(gpu, shape, workload, columns)
    busy = np.minimum(groups, at_once) * column_of(shape.blocks, columns) / gpu.device.sm_count
    return parts | {"crowd": busy * parts["read"]}


def step_clk(parts: Mapping[str, Column], figures: Mapping[str, float]) -> dict[str, Column]:
    """Clocks of a step: its parts, and as `step` their combined time."""
    clks = {name: figures[name] * part for name, part in parts.items()}
    alone = set(FIGURES).difference(*OVERLAPPED)
    p = OVERLAP_EXPONENT
    overlapped = sum((sum(clks[name] for name in names) ** p for names in OVERLAPPED), np.zeros(1)) ** (1.0 / p)
    return clks | {"step": overlapped + sum(clks[name] for name in sorted(alone))}


def rounds_of(gpu: GpuModel, cell: RecurrentCell, workload: Workload, columns: Columns) -> Column:
    """Number of times that the GPU is filled with groups of blocks."""
    shape = WgmmaLoop.of(cell, workload, {name: Var(name) for name in columns})
    groups, at_once = groups_of(gpu, shape, workload, columns)
    return np.asarray(np.ceil(groups / at_once), dtype=np.float64)


def filled_s(gpu: GpuModel, cell: RecurrentCell, workload: Workload, columns: Columns) -> Column:
    """Seconds of the fill before the loop."""
    shape = WgmmaLoop.of(cell, workload, {name: Var(name) for name in columns})
    groups, _ = groups_of(gpu, shape, workload, columns)
    return groups * column_of(shape.ring_bytes, columns) / gpu.memory.dram.bandwidth_bytes_per_s


def moved_s(gpu: GpuModel, cell: RecurrentCell, workload: Workload, columns: Columns) -> Column:
    """Seconds of the loop's traffic to and from device memory."""
    stored = cell.num_gates * (1.0 - np.asarray(columns["recompute"], dtype=np.float64))
    if direction_of(workload) == "forward":
        tensors = cell.num_loads("forward") + cell.num_states + stored
    else:
        tensors = cell.num_loads("backward") + cell.num_slots + 0.0 * stored
    moved = row_bytes(workload) * tensors
    return np.asarray(moved / gpu.memory.dram.bandwidth_bytes_per_s, dtype=np.float64)


def floor_clk(gpu: GpuModel, cell: RecurrentCell, workload: Workload, config: Mapping[str, int]) -> dict[str, float]:
    """Clocks of a step that no code could do without, in a configuration, by part; some overlap.

    Data arrive at the highest rate measured for one SM, the matrix units work at their peak, special
    functions take theirs, and the exchange is the shortest there is.
    """
    shape = WgmmaLoop.of(cell, workload, {name: Var(name) for name in config})
    parts = step_parts(gpu, shape)
    named = {name: float(parts[name].value(config)) for name in ("read", "mma", "special")}
    return named | {"exchange": clock_hz(gpu) * EXCHANGE_S}


def clock_hz(gpu: GpuModel) -> float:
    """Clocks per second."""
    return assumed.most_clock_hz(gpu).value


def wgmma_cost(gpu: GpuModel, cell: RecurrentCell, workload: Workload, columns: Columns) -> CostColumns:
    """Predicted time of every configuration."""
    direction = direction_of(workload)
    clks = step_clk(part_columns(gpu, cell, workload, columns), fitted(direction).figures)
    rounds = rounds_of(gpu, cell, workload, columns)
    scale = rounds * workload.sizes["time"] / clock_hz(gpu)
    beside, moved = filled_s(gpu, cell, workload, columns), moved_s(gpu, cell, workload, columns)
    if direction == "backward":
        beside = beside + after_s(gpu, cell, workload, columns)
    exchange = np.minimum(clock_hz(gpu) * EXCHANGE_S, clks["fixed"])
    waits = ("chunks", "later_chunks", "refill", "last", "together")
    waited = clks["fixed"] - exchange + sum(clks[name] for name in waits)
    figures: dict[str, Any] = dict.fromkeys(PARTS, 0.0)
    figures["matrix units"] = scale * clks["mma"]
    figures["L2"] = scale * (clks["read"] + clks["crowd"])
    figures["special functions"] = scale * clks["special"]
    figures["latency"] = scale * waited
    figures["barrier"] = scale * exchange
    figures["DRAM"] = moved + beside
    return CostColumns(LAUNCH_S * rounds + np.maximum(scale * clks["step"], moved) + beside, figures)


def wgmma_assumptions(gpu: GpuModel) -> tuple[str, ...]:
    """Assumptions of the model about this GPU that no source and no measurement supports."""
    lines = [f"{LAUNCH_S * 1e6:.1f} us launch", *filter(None, [target_note(gpu)])]
    lines.append("parts of a step as fitted to LSTM layers on an H200; other cells are counted")
    lines += assumed.lines_of(gpu, assumed.most_clock_hz, assumed.specials_per_clk)
    return tuple(lines)


def groups_of(gpu: GpuModel, shape: WgmmaLoop, workload: Workload, columns: Columns) -> tuple[Column, Column]:
    """Groups of blocks, and how many of them are resident at once, a block on each SM."""
    tiles = np.ceil(workload.sizes["batch"] / np.asarray(columns["tile_batch"], dtype=np.float64))
    at_once = np.maximum(1.0, gpu.device.sm_count // column_of(shape.blocks, columns))
    return np.asarray(workload.sizes["heads"] * tiles), np.asarray(at_once)


def column_of(part: Expr, columns: Columns) -> Column:
    """The values of an expression in every row."""
    size = len(next(iter(columns.values())))
    return np.broadcast_to(np.asarray(part.columns(columns), dtype=np.float64), (size,))


def specials_per_clk(gpu: GpuModel) -> int:
    """Special functions of an SM in a clock."""
    return int(assumed.specials_per_clk(gpu).value)


#: The kind of matrix instruction that the source is written with.
INSTRUCTION = "wgmma"
#: Sources that one direction alone is made of.
OF_DIRECTION = {"forward": ("forward.cu",), "backward": ("backward.cu", "meeting.cuh")}
#: Sequences of a block.
TILES = (64, 128, 32, 16, 48, 96, 192, 256)
#: Vectors that a thread asks the exchange for at once, and those of them between two waits.
WINDOWS, CHUNKS = (24, 16, 12, 8, 32, 4), (8, 4, 2, 1, 3, 6, 12, 16, 24)
#: Spilled bytes up to which loops took the time that is predicted without spills: 8 of them on an H200, within 2 %
#: in the median; with more, up to three times as long (`python -m benchmarks.rnn.fit_wgmma` shows both).
HARMLESS_SPILL_BYTES = 64
#: Sequences of the layers that are tuned by default.
USUAL_BATCH = 256


class ManySequencesSpec(NvrtcSpec):
    """One direction of a layer: every block multiplies up to 64 sequences by each instruction.

    The weights of a larger head than `max_head_dim` fit the shared memory of no GPU.
    """

    how = "weights stay in shared memory, many sequences at once by wgmma"
    dtypes = ("bf16", "fp16")
    max_head_dim = 4096
    planned_batches = (16, 32, 64, 128, 256, 512, 1024)
    usual_heads = ((1, 512), (1, 768), (1, 1024))
    harmless_spill_bytes = HARMLESS_SPILL_BYTES
    resident_params = ("units", "tile_batch")

    @cached_property
    def device_files(self) -> tuple[Path, ...]:
        """The sources of the direction, and the headers with the cells."""
        others = OF_DIRECTION["forward" if self.direction == "backward" else "backward"]
        own = sorted(path for path in SOURCE.iterdir() if path.suffix in (".cu", ".cuh") and path.name not in others)
        return (Path(__file__).with_name("instruction.py"), *own, *(CELLS_SOURCE / name for name in CELLS_FILES))

    def shape(self, workload: Workload, v: Vars) -> WgmmaLoop:
        """The time loop of a workload, with the parameters as variables."""
        return WgmmaLoop.of(self.cell, workload, v)

    def check_dtype(self, gpu: GpuModel, workload: Workload) -> None:
        """Refuse GPUs without the matrix instruction that the source is written with."""
        unit = gpu.dot_unit(workload.dtype)
        if unit is None or unit.kind != INSTRUCTION:
            raise UnsupportedError(
                f"{gpu.name} ({gpu.arch.target}) has no {INSTRUCTION} for {workload.dtype}, which the kernel for many "
                "sequences is written with. Use the back-end 'cuda' or 'triton'."
            )

    def padded_dim(self, head_dim: int, dtype: str) -> int:
        """The next multiple of a slice of weights."""
        return padded_head_dim(head_dim)

    def params(self, gpu: GpuModel, workload: Workload) -> tuple[Param, ...]:
        """Parameters: units and sequences of a block, and the dealing of a step to warpgroups."""
        gates = self.cell.num_gates if self.direction == "forward" else 1
        dim, most = workload.sizes["head_dim"], MOST_COLUMNS // gates
        units = tuple(unit for unit in range(EIGHT, min(dim, most) + 1, EIGHT) if dim % unit == 0)
        rows, in_flight = "a warp has 16 sequences, a warpgroup 64", "a vector of 16 bytes for each instruction"
        again = "1: gates are not stored, the backward pass computes them again"
        return (
            Param("units", units, "units of a head in a block", "divisors of head_dim, eight columns each"),
            Param("tile_batch", TILES, "sequences of a block", rows),
            Param("depth_groups", (2, 1), "warpgroups that share the depth", "each keeps one of a thread's rows", "dg"),
            Param("window", WINDOWS, "vectors of the exchange in flight", in_flight, "w"),
            Param("chunk", CHUNKS, "vectors between two waits", "what is there is multiplied meanwhile", "ch"),
            Param(
                "probe",
                (1, 0),
                "1: the first chunk is waited for alone",
                "others are asked for when they are there",
                "p",
            ),
            Param("recompute", (0, 1), again, "a switch"),
        )

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        """Rules on dealing a head to blocks, and a step to warpgroups."""
        yield from rules_of(gpu, self.shape(workload, v), workload)

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse:
        """Warps, registers and shared memory of one block."""
        return block_use(self.shape(workload, v))

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """Predicted time per row: steps one after the other, each the latency of its parts."""
        return wgmma_cost(gpu, self.cell, workload, columns)

    def assumptions(self, gpu: GpuModel, workload: Workload) -> tuple[str, ...]:
        """Figures of this GPU that no source states and the model assumes."""
        return wgmma_assumptions(gpu)

    def usual_workloads(self, gpu: GpuModel) -> Iterable[Workload]:
        """Layers of `usual_heads` with many sequences."""
        for workload in super().usual_workloads(gpu):
            yield with_sizes(workload, batch=USUAL_BATCH)

    def backend(self) -> RnnBackend:
        """Pads, launches and crops."""
        from constrint.kernels.rnn.wgmma.launch import WgmmaBackend

        return WgmmaBackend()

    def launches(
        self, gpu: GpuModel, workload: Workload, config: Config, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> Sequence[Launch]:
        """A fill of the memory that states are exchanged through, and the time loop."""
        from constrint.kernels.rnn.wgmma.launch import launches_of

        return launches_of(workload, config, {**inputs, **outputs}, gpu, direction=self.direction)


class WgmmaSpec(ManySequencesSpec):
    """The forward pass, which the backward pass of `cuda` follows."""

    name = "wgmma"
    backward_by = "cuda"


class WgmmaBothSpec(ManySequencesSpec):
    """The backward pass, which follows the forward pass of `wgmma`.

    The two have a name of their own as a pair: `wgmma` is the same forward pass with the backward pass of `cuda`.
    """

    name = "wgmma_both"
    forward_by = "wgmma"

    def uncalibrated(self) -> str:
        """Why `auto` does not take it: its figures are those of the forward loop until a fit has replaced them."""
        source = fitted(self.direction).source
        return "" if source.startswith("fitted") else f"its backward loop was not measured for the model: {source}"

    def left_out_errors(self) -> tuple[float, float] | None:
        """Errors of loops of layers outside its fit, for which few were measured."""
        errors = fitted(self.direction).left_out
        return None if errors is None else (errors.median, errors.nine_in_ten)


SPECS = (
    *(WgmmaSpec(cell, "forward") for cell in BUILT_IN.values()),
    *(WgmmaBothSpec(cell, "backward") for cell in BUILT_IN.values()),
)
