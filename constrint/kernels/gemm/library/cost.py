"""Predicted time of torch's own product: measured times, interpolated; where nothing was measured, no prediction.

The efficiency is interpolated: a smooth floor (a launch, and the arithmetic and the memory traffic, which
overlap) over the measured time. Among the nearest measured products of the same kind the logarithm of the efficiency is
modelled as linear in the logarithms of the sizes, and no efficiency beyond theirs is predicted. There is no prediction
for sizes beyond those that were measured with the same order of axes, far from each of them, or nearer to a product
that the library did not take.
"""

from __future__ import annotations

from math import exp, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.library.points import MARGIN, WIDE, Kind, Place, Points, has_table, measured, place_of
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.units import ELEMENT_BYTES, OUTPUT_BYTES
from constrint.select.cost import LAUNCH_S

#: Measured products that a prediction uses, and their least number.
NEIGHBOURS, FEWEST = 10, 8
#: Largest distance of the nearest product with the same order of axes, where a factor of two in a size is 1: on an
#: H200 the error on products left out is the same up to here.
REACH = 4.0
#: Square that is added to every squared distance: two measurements of one product differ, too.
SOFTNESS = 0.05
#: Weight of the term that holds slopes near 0, so that few neighbours do not make a steep plane.
STIFFNESS = 0.1
#: Exponent by which arithmetic and traffic overlap: the larger it is, the more the slower one alone binds.
OVERLAP = 3
#: Predictions in memory, at most.
CAPACITY = 1024
#: Products whose prediction by the others states the error of a kind.
JUDGED = 64


def library_s(gpu: GpuModel, product: Product) -> float | None:
    """Predicted seconds of a product by torch's own operator; None where nothing near it was measured."""
    place = place_of(product)
    points = points_of(gpu, place.kind)
    if points is None:
        return None
    # A choice looks a prediction up twice: for its existence, and for its value.
    if place not in points.predicted:
        if len(points.predicted) >= CAPACITY:
            points.predicted.clear()
        points.predicted[place] = predicted_s(gpu, points, place)
    return points.predicted[place]


def points_of(gpu: GpuModel, kind: Kind) -> Points | None:
    """The measured products of a kind; None where there are none."""
    return measured(gpu.name, kind.dtype, kind.end).get(kind) if has_table(gpu) else None


def predicted_s(gpu: GpuModel, points: Points, place: Place, left_out: int | None = None) -> float | None:
    """Predicted seconds of the product at a place.

    Args:
        gpu: The hardware model.
        points: The measured products of the kind.
        place: Where the product lies.
        left_out: A measured product that is left out, with all others of its sizes.
    """
    of_layout = points.by_layout.get(place.layout)
    if of_layout is None or len(points) < FEWEST:
        return None
    at = np.array(place.coordinates)
    low, high = points.bounds[place.layout]
    if left_out is None and ((at < low).any() or (at > high).any()):
        return None
    squares = points.squares_from(at)
    if left_out is not None:
        is_out = (points.coordinates[:, :4] == points.coordinates[left_out, :4]).all(axis=1)
        of_layout = of_layout[~is_out[of_layout]]
        if len(points) - is_out.sum() < FEWEST or not len(of_layout):
            return None
        same = points.coordinates[of_layout]
        if (at < same.min(axis=0) - MARGIN).any() or (at > same.max(axis=0) + MARGIN).any():
            return None
        squares[is_out] = np.inf
    nearest = of_layout[np.argmin(squares[of_layout])]
    least = float(squares[nearest])
    if least > REACH**2:
        return None
    if len(points.refused) and ((points.refused - at) ** 2).sum(axis=1).min() < least:
        return None  # a product that the library did not take is nearer
    if least == 0.0:
        return float(points.seconds[nearest])
    near = np.argpartition(squares, NEIGHBOURS)[:NEIGHBOURS] if len(points) > NEIGHBOURS else np.arange(len(points))
    near = near[np.isfinite(squares[near])]
    efficiency = np.log([floor_s(gpu, points.places[i]) / points.seconds[i] for i in near])
    predicted = _plane_at(points.coordinates[near] - at, efficiency, 1.0 / (squares[near] + SOFTNESS))
    most, fewest = float(efficiency.max()), float(efficiency.min())
    return floor_s(gpu, place) / exp(min(max(predicted, fewest), most))


def _plane_at(offsets: NDArray[np.float64], values: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """The value at no offset of the plane over the sizes that fits weighted values best."""
    weights = weights / weights.sum()
    rows = np.concatenate([np.ones((len(values), 1)), offsets[:, :4]], axis=1)
    penalty = np.diag([0.0, *[STIFFNESS] * 4])
    coefficients = np.linalg.solve(rows.T @ (rows * weights[:, None]) + penalty, rows.T @ (weights * values))
    return float(coefficients[0])


def floor_s(gpu: GpuModel, place: Place) -> float:
    """A launch, and the arithmetic at the peak rate and the compulsory traffic, which overlap."""
    (m, n, k, batch), dtype = place.shape, place.kind.dtype
    peak = gpu.peak_flop_per_s(dtype) or gpu.peak_flop_per_s("fp16") or 1e15
    of_output = 4 if place.kind.end == WIDE else OUTPUT_BYTES[dtype]
    moved = (m * k + k * n) * ELEMENT_BYTES[dtype] + m * n * of_output
    compute_s, memory_s = 2 * batch * m * n * k / peak, batch * moved / gpu.memory.dram.bandwidth_bytes_per_s
    return float(LAUNCH_S + (compute_s**OVERLAP + memory_s**OVERLAP) ** (1 / OVERLAP))


class Error(NamedTuple):
    """Error of predictions of products that were left out, as shares.

    Args:
        median: Half of the predictions are off by less.
        nine_in_ten: Nine in ten are off by less.
        num_judged: The number of products that were predicted.
        num_silent: The number of products without a prediction.
    """

    median: float
    nine_in_ten: float
    num_judged: int
    num_silent: int


def left_out_error(gpu: GpuModel, kind: Kind, most: int = JUDGED) -> Error | None:
    """The error of a kind on products that were left out, `most` of them evenly picked; None where nothing tells."""
    points = points_of(gpu, kind)
    if points is None:
        return None
    ratios = [ratio for _, ratio in left_out_ratios(gpu, points, most)]
    errors = [abs(log(ratio)) for ratio in ratios if ratio is not None]
    if not errors:
        return None
    median, ninth = (float(np.expm1(np.quantile(errors, share))) for share in (0.5, 0.9))
    return Error(median, ninth, len(errors), len(ratios) - len(errors))


def left_out_ratios(gpu: GpuModel, points: Points, most: int) -> list[tuple[Place, float | None]]:
    """Predicted over measured times of products that were left out; None where nothing was predicted."""
    step = max(1, -(-len(points) // most))
    ratios: list[tuple[Place, float | None]] = []
    for i in range(0, len(points), step):
        seconds = predicted_s(gpu, points, points.places[i], left_out=i)
        ratios.append((points.places[i], None if seconds is None else seconds / float(points.seconds[i])))
    return ratios
