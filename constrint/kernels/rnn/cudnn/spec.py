"""The `cudnn` implementation: a whole layer by cuDNN, through the operator that `torch.nn` calls.

It has no parameters. Its time is predicted on GPU models with measured layers; elsewhere it is no candidate: an
unchecked estimate must not win.

`measured/<gpu>.csv` holds one row for each measured layer: its cell, dtype, batch, units (also its inputs), steps, and
the milliseconds of a forward pass, of a forward and a backward pass, and of the input's projection in both. The
projection's are taken off. Lines that begin with # say where the rows come from; `benchmarks/rnn/cudnn_table.py`
writes the file. Between measured sizes times are interpolated along the logarithms of units and batch, and of steps,
among layers that the same algorithm runs. Nothing is said beyond them, except that more steps take longer in
proportion.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.measured import Points, add_point, along, between, rows_of
from constrint.kernels.rnn.spec import SUFFIX, RnnSpec
from constrint.select.cost import PARTS, CostColumns
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, Param, Rule, Vars
from constrint.select.workload import Workload

if TYPE_CHECKING:
    import torch

    from constrint.kernels.rnn.interface import RnnBackend

MEASURED = Path(__file__).parent / "measured"
DIRECTIONS = ("forward", "backward")
#: The least share of a measured time that the recurrence is taken for, however long the projection takes by itself.
LEAST_SHARE = 0.2
#: Widest layer that is kept on chip by the algorithm for small layers, by direction: with one state, and with gates.
SMALL_ELMAN = {"forward": 384, "backward": 256}
SMALL_GATED = {"forward": 192, "backward": 128}
#: The persistent algorithm takes multiples of this many units and inputs, up to this many units, and multiples of 8
#: sequences up to 128.
UNITS, MAX_UNITS = 128, 1024
SEQUENCES, MAX_SEQUENCES = 8, 128
#: From here on both torch leaves an Elman layer to the standard algorithm.
SLOW_ELMAN = (96, 896)


class CudnnKind(NamedTuple):
    """Layers between which times are interpolated."""

    cell: str
    dtype: str
    direction: str
    algorithm: CudnnAlgorithm


class CudnnTimes(dict[CudnnKind, Points]):
    """The measured times of a GPU."""

    @cached_property
    def errors(self) -> tuple[float, ...]:
        """Relative errors of the times of 1,024 steps that their neighbours along units predict."""
        return tuple(
            abs(guess / seconds - 1)
            for points in self.values()
            for by_dim in points.get(1024, {}).values()
            for dim, seconds in by_dim.items()
            for guess in [along({other: s for other, s in by_dim.items() if other != dim}, dim)]
            if guess is not None
        )


@lru_cache(maxsize=16)
def measured(gpu: str) -> CudnnTimes:
    """The measured times of a GPU's model, by its name; nothing where there are none."""
    times = CudnnTimes()
    for row in rows_of(MEASURED / f"{gpu.lower()}.csv"):
        _add(times, row)
    return times


def _add(by_kind: dict[CudnnKind, Points], row: Mapping[str, str]) -> None:
    batch, dim, time = (int(row[name]) for name in ("batch", "dim", "time"))
    shape = CudnnLayer(row["cell"], row["dtype"], batch, dim, dim)
    forward, both = (float(row[f"{name}_ms"]) for name in ("forward", "both"))
    before, projections = (float(row[f"projection_{name}_ms"] or 0) for name in ("forward", "both"))
    # Two noisy medians may lie too close to each other.
    whole = {"forward": forward, "backward": max(both - forward, LEAST_SHARE * both)}
    projected = {"forward": before, "backward": projections - before}
    for direction in DIRECTIONS:
        seconds = 1e-3 * max(whole[direction] - projected[direction], LEAST_SHARE * whole[direction])
        points = by_kind.setdefault(CudnnKind(*shape[:2], direction, algorithm_of(shape, direction)), {})
        add_point(points, time, batch, dim, seconds)


def layer_s(gpu: str, shape: CudnnLayer, time: int, direction: str) -> float | None:
    """Seconds of one direction of a layer without its projection; None where nothing near it was measured.

    A layer that also runs backwards in time takes the time of two.
    """
    algorithm = algorithm_of(shape, direction)
    points = measured(gpu).get(CudnnKind(shape.cell, shape.dtype, direction, algorithm), {})
    point = between(points, time, shape.batch, shape.dim)
    return None if point is None else point.seconds * time / point.steps * shape.directions


def left_out_error(gpu: str) -> float:
    """The largest relative error of a measured time of 1,024 steps that its neighbours along units predict."""
    return max(measured(gpu).errors, default=0.0)


def left_out_errors(gpu: str) -> tuple[float, float]:
    """The median of these errors, and the error that nine in ten are below."""
    errors = sorted(measured(gpu).errors) or [0.0]
    return errors[len(errors) // 2], errors[len(errors) * 9 // 10]


class CudnnLayer(NamedTuple):
    """Traits of a layer that decide about cuDNN's algorithm.

    Args:
        cell: A key of `CELLS`.
        dtype: The spec's name of the operands' type.
        batch: Sequences.
        dim: Units.
        input_size: Features of the input.
        directions: 2 if the layer also runs backwards in time.
    """

    cell: str
    dtype: str
    batch: int
    dim: int
    input_size: int
    directions: int = 1


class CudnnAlgorithm(NamedTuple):
    """Algorithms of cuDNN that torch may request.

    Args:
        is_small: Whether the layer is narrow enough for the algorithm for small layers; older torch knows none.
        is_persistent: Whether the persistent algorithm takes it.
    """

    is_small: bool
    is_persistent: bool


def algorithm_of(shape: CudnnLayer, direction: str) -> CudnnAlgorithm:
    """The algorithm of one layer that is called by itself, "forward" or "backward"."""
    small = SMALL_ELMAN if shape.cell.startswith("elman") else SMALL_GATED
    return CudnnAlgorithm(shape.dim <= small[direction], is_persistent(shape))


def is_persistent(shape: CudnnLayer) -> bool:
    """Whether the persistent algorithm takes a layer; it takes one layer at a time, in one direction, in fp16."""
    slow_batch, slow_dim = SLOW_ELMAN
    is_slow = shape.cell.startswith("elman") and shape.batch >= slow_batch and shape.dim >= slow_dim
    return (
        shape.dtype == "fp16"
        and shape.cell != "gru"
        and shape.directions == 1
        and shape.dim <= MAX_UNITS
        and shape.dim % UNITS == 0
        and shape.input_size % UNITS == 0
        and shape.batch % SEQUENCES == 0
        and shape.batch <= MAX_SEQUENCES
        and not is_slow
    )


#: The implementation's name, as a module names it.
CUDNN = "cudnn"
#: Cells that cuDNN has.
CUDNN_CELLS = ("lstm", "gru", "elman", "elman_relu")


class CudnnSpec(RnnSpec):
    """One direction of a layer with one head."""

    name = CUDNN
    projects = True
    how = "cuDNN, which projects the inputs itself"
    dtypes = ("bf16", "fp16", "fp32", "tf32")

    def params(self, gpu: GpuModel, workload: Workload) -> tuple[Param, ...]:
        """None: the library chooses."""
        return ()

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        """None: `check_workload` refuses layers that cuDNN does not take."""
        return iter(())

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse | None:
        """None: its launches are the library's."""
        return None

    def check_workload(self, gpu: GpuModel, workload: Workload) -> None:
        """Refuse several heads, and layers that no measured ones surround."""
        super().check_workload(gpu, workload)
        if workload.sizes["heads"] != 1:
            raise UnsupportedError(
                f"cuDNN's layers have one head, the workload has {workload.sizes['heads']}: use another back-end."
            )
        if not measured(gpu.name):
            raise UnsupportedError(
                f"cuDNN's layers were not measured on {gpu.name}: nothing is predicted, so nothing is offered."
            )
        if self._seconds(gpu, workload) is None:
            raise UnsupportedError(f"no cuDNN layer near {workload} was measured on {gpu.name}: nothing is offered.")

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """The measured time, interpolated."""
        seconds = self._seconds(gpu, workload) or float("inf")
        return CostColumns(np.array([seconds]), dict.fromkeys(PARTS, 0.0) | {"latency": seconds})

    def note(self, workload: Workload, directions: Collection[str]) -> str:
        """The basis of its prediction."""
        return "times measured with as many inputs as units, interpolated between sizes; the projection is left out"

    def assumptions(self, gpu: GpuModel, workload: Workload) -> tuple[str, ...]:
        """The error of the interpolation."""
        error = left_out_error(gpu.name)
        return (f"times of cuDNN are interpolated: off by up to {error:.0%} at sizes left out",)

    def refusal_on(self, device: torch.device, gpu: GpuModel | None) -> str:
        """Why it cannot run: the GPU's model needs measurements; empty if it can."""
        if device.type != "cuda":
            return f"cuDNN's layers need a GPU, the device is {device}"
        return "" if gpu is not None else "cuDNN's layers were not measured on this GPU"

    def backend(self) -> RnnBackend:
        """There is none for projected inputs.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(self.modules_alone)

    def _seconds(self, gpu: GpuModel, workload: Workload) -> float | None:
        batch, time, dim = (workload.sizes[name] for name in ("batch", "time", "head_dim"))
        shape = CudnnLayer(self.cell.name, workload.dtype, batch, dim, dim)
        return layer_s(gpu.name, shape, time, self.direction)


SPECS = tuple(CudnnSpec(CELLS[cell], direction) for cell in CUDNN_CELLS for direction in SUFFIX)
