"""Predicted time of torch's own product: measured times, interpolated; where nothing was measured, no prediction.

The efficiency is interpolated: a smooth floor (a launch, and the arithmetic and the memory traffic, which
overlap) over the measured time. Among the nearest measured products of the same kind the logarithm of the efficiency is
modelled as linear in the logarithms of the sizes, and no efficiency beyond theirs is predicted. There is no prediction
for sizes beyond those that were measured with the same order of axes, far from each of them, or nearer to a product
that the library did not take.

`measured/` has the times that this project measured, `elsewhere/` those that others published, for GPUs that have no
table of the project's own. Published times are of 16-bit products alone, and hold for bf16 and fp16 and for every order
of axes: on an H200 and an H100 that costs no accuracy (`python -m benchmarks.elsewhere library`).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from math import exp, gcd, log, log2
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.measured import MEASURED as CONSTANTS
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.units import ELEMENT_BYTES, OUTPUT_BYTES, WIDEST_BYTES, is_as_measured, width_bytes
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
    points = None if product.is_three_pass else points_of(gpu, place.kind)  # fp32 was measured in tf32 alone
    if points is None:
        return None
    if is_published(gpu.name):
        place = place._replace(layout=PUBLISHED_LAYOUT)
    # A choice looks a prediction up twice: for its existence, and for its value.
    if place not in points.predicted:
        if len(points.predicted) >= CAPACITY:
            points.predicted.clear()
        points.predicted[place] = predicted_s(gpu, points, place)
    return points.predicted[place]


def ended_s(gpu: GpuModel, product: Product) -> float | None:
    """Time of the library's product with its epilogue.

    torch's operators were measured. Where they copy the matrix that is added first, and the library's own epilogue
    reads it, the time of the plain product and the matrix' bytes counts, if it is less.
    """
    seconds = library_s(gpu, product)
    if not (has_ends(gpu) and (product.has_source or product.has_bias)):
        return seconds
    plain = library_s(gpu, replace(product, has_bias=False, has_source=False))
    if plain is None:
        return seconds
    source_bytes = product.batch * product.m * product.n * OUTPUT_BYTES[product.dtype] * product.has_source
    fused = plain + source_bytes / copy_rate(gpu)
    return fused if seconds is None else min(seconds, fused)


def has_ends(gpu: GpuModel | None) -> bool:
    """Whether the library of a GPU applies whole epilogues: cuBLASLt does."""
    return gpu is None or gpu.traits.product_library == "cuBLAS"


def copy_rate(gpu: GpuModel) -> float:
    """Bytes per second of copies and pointwise kernels."""
    return float(gpu.memory.dram.bandwidth_bytes_per_s * CONSTANTS.pack_share)


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


MEASURED, ELSEWHERE = Path(__file__).parent / "measured", Path(__file__).parent / "elsewhere"
#: Columns of a published table, in place of those of a measured one; `us` is mostly of a warm L2.
PUBLISHED_COLUMNS = ("dtype", "m", "n", "k", "us")
#: Order of axes under which published times are stored, B by columns as in a linear layer, and their types.
PUBLISHED_LAYOUT, PUBLISHED_DTYPES = "rc", ("bf16", "fp16")
COLUMNS = ("dtype", "layout", "end", "batch", "m", "n", "k", "gap", "cold_us", "spread_us", "outcome")
#: Ends of a product: nothing, a row or a matrix is added, the result has 32 bits an element.
PLAIN, BIAS, SOURCE, WIDE = "plain", "bias", "source", "wide"
ENDS = (PLAIN, BIAS, SOURCE, WIDE)
#: Distances of two orders of axes, and of two widths of misaligned rows, where a factor of two in a size is 1. Matrix
#: units read operands of 32 and 8 bits along K alone, so their orders of axes differ more: of values from 0.4 to 20
#: these left the least error on products that were left out.
LAYOUT_STEP, WIDTH_STEP = 0.7, 0.5
LAYOUT_STEPS: Mapping[str, float] = {"tf32": 2.0, "int8": 5.0}
#: Tolerance of logarithms of equal sizes.
MARGIN = 1e-9


class Kind(NamedTuple):
    """Products between which times are interpolated.

    Args:
        dtype: Type of A and B.
        end: One of `ENDS`.
        is_aligned: Whether all rows allow accesses of 16 bytes; libraries run other kernels where they do not.
        is_batched: Whether there are several products.
        vector: "row" where C is a single row, "column" where it is a single column, else "".
    """

    dtype: str
    end: str
    is_aligned: bool
    is_batched: bool
    vector: str


class Place(NamedTuple):
    """Where a product lies among those of its kind.

    Args:
        kind: Its kind.
        layout: Order of axes of A and B: r by rows, c by columns.
        shape: (m, n, k, batch).
        width: Bytes of the widest access that all rows allow.
    """

    kind: Kind
    layout: str
    shape: tuple[int, int, int, int]
    width: int

    @property
    def coordinates(self) -> tuple[float, ...]:
        """Coordinates for distances: a factor of two in a size is a step of 1."""
        step = LAYOUT_STEPS.get(self.kind.dtype, LAYOUT_STEP)
        axes = (step * (letter == "c") for letter in self.layout)
        return *map(log2, self.shape), *axes, WIDTH_STEP * log2(self.width)


def place_of(p: Product) -> Place:
    """The place of a product; where it adds a row and a matrix, the matrix counts."""
    end = SOURCE if p.has_source else BIAS if p.has_bias else PLAIN
    if p.output_bytes > OUTPUT_BYTES[p.dtype]:
        end = WIDE
    layout = ("r" if p.a.is_k_major else "c") + ("c" if p.b.is_k_major else "r")
    return _place(p.dtype, layout, end, (p.m, p.n, p.k, p.batch), min(p.aligned))


def _place(dtype: str, layout: str, end: str, shape: tuple[int, int, int, int], width: int) -> Place:
    m, n, _, batch = shape
    vector = "row" if m == 1 else "column" if n == 1 else ""
    return Place(Kind(dtype, end, width == WIDEST_BYTES, batch > 1, vector), layout, shape, width)


def place_of_row(row: Mapping[str, str]) -> Place:
    """The place of a row of the table."""
    m, n, k, batch, gap = (int(row[name]) for name in ("m", "n", "k", "batch", "gap"))
    layout, dtype, end = row["layout"], row["dtype"], row["end"]
    element, of_output = ELEMENT_BYTES[dtype], 4 if end == WIDE else OUTPUT_BYTES[dtype]
    rows = (k if layout[0] == "r" else m), (n if layout[1] == "r" else k)
    widths = [width_bytes(gcd(length, length + gap), element) for length in rows]
    return _place(dtype, layout, end, (m, n, k, batch), min(*widths, width_bytes(n, of_output)))


class Points:
    """The measured products of one kind.

    Args:
        places: Where they lie.
        seconds: Their measured times.
        refused: Where products lie that the library did not take.
    """

    def __init__(self, places: list[Place], seconds: list[float], refused: list[Place]) -> None:
        self.places = places
        self.refused: NDArray[np.float64] = np.array([place.coordinates for place in refused])
        self.coordinates: NDArray[np.float64] = np.array([place.coordinates for place in places])
        self.seconds: NDArray[np.float64] = np.array(seconds)
        layouts = np.array([place.layout for place in places])
        self.by_layout = {name: np.flatnonzero(layouts == name) for name in dict.fromkeys(layouts.tolist())}
        #: The least and the largest coordinates of each order of axes.
        self.bounds = {
            name: (self.coordinates[rows].min(axis=0) - MARGIN, self.coordinates[rows].max(axis=0) + MARGIN)
            for name, rows in self.by_layout.items()
        }
        #: Recent predictions, by place.
        self.predicted: dict[Place, float | None] = {}
        self._by_axis = np.ascontiguousarray(self.coordinates.T)

    def squares_from(self, at: NDArray[np.float64]) -> NDArray[np.float64]:
        """Squares of the distances from a place."""
        offsets = self._by_axis - at[:, None]
        offsets *= offsets
        return np.asarray(offsets.sum(axis=0))

    def __len__(self) -> int:
        """The number of products."""
        return len(self.places)


def has_table(gpu: GpuModel) -> bool:
    """Whether anything was measured on such a GPU; a model of the same name with other figures is another GPU."""
    return is_as_measured(gpu) and answering(gpu.name) is not None


@lru_cache(maxsize=64)
def answering(gpu: str) -> Path | None:
    """The table that answers for a GPU: the project's own, else a published one; None where there is neither."""
    return next((path for path in (path_of(gpu), published_path(gpu)) if path.is_file()), None)


def is_published(gpu: str) -> bool:
    """Whether others measured the times that answer for a GPU."""
    return answering(gpu) == published_path(gpu)


#: Activations that the library applies to its sums, and the most bytes of a result for which it does so exactly, where
#: rows allow accesses of 16 bytes. Its relu makes 0 of NaN in batches of 32-bit results (seen on an H100), and of fp16
#: ones whose rows are not aligned (seen on an H200). Its gelu is the tanh approximation, which nobody has checked on
#: values that are not finite.
IN_PRODUCT = {"relu": 2}


def takes_activation(activation: str | None, output_bytes: int, *, has_aligned_rows: bool) -> bool:
    """Whether the library applies an activation to results of a size as torch does, to their accuracy.

    Args:
        activation: Its name, or none.
        output_bytes: Bytes of one element of the result.
        has_aligned_rows: Whether the rows of A, B and C allow accesses of 16 bytes.
    """
    return not activation or (has_aligned_rows and output_bytes <= IN_PRODUCT.get(activation, 0))


def path_of(gpu: str) -> Path:
    """The table of a GPU, by its model's name."""
    return MEASURED / f"{gpu.lower()}.csv"


def published_path(gpu: str) -> Path:
    """The table of published times of a GPU."""
    return ELSEWHERE / f"{gpu.lower()}.csv"


def table_name(gpu: str) -> str:
    """The table that answers for a GPU, as decisions and rankings name it; empty where there is none."""
    path = answering(gpu)
    return "" if path is None else f"gemm/library/{path.parent.name}/{path.name}"


def origin_of(gpu: str) -> str:
    """Who published the times that answer for a GPU, of which library; empty where the project measured them."""
    path = answering(gpu)
    if path is None or not is_published(gpu):
        return ""
    with path.open() as file:
        return file.readline().removeprefix("# ").strip()


@lru_cache(maxsize=64)
def measured(gpu: str, dtype: str, end: str) -> Mapping[Kind, Points]:
    """The products that were timed on a GPU for a dtype and an end, by kind; empty where there is no table."""
    if is_published(gpu):
        return _published(gpu, dtype) if end == PLAIN and dtype in PUBLISHED_DTYPES else {}
    times_by_kind: dict[Kind, dict[Place, list[float]]] = {}
    refused: dict[Kind, list[Place]] = {}
    for row in rows_of(path_of(gpu), dtype):
        if row["end"] != end:
            continue
        place = place_of_row(row)
        if row["outcome"] == "ok":
            times_by_kind.setdefault(place.kind, {}).setdefault(place, []).append(1e-6 * float(row["cold_us"]))
        else:
            refused.setdefault(place.kind, []).append(place)
    return {
        kind: Points(list(of_kind), [float(np.median(times)) for times in of_kind.values()], refused.get(kind, []))
        for kind, of_kind in times_by_kind.items()
    }


def _published(gpu: str, dtype: str) -> Mapping[Kind, Points]:
    """The products of a published table, by kind; read as columns, which takes a seventh of the time of rows."""
    lines = [line.split(",") for line in published_path(gpu).read_text().splitlines()[2:]]
    fields = np.array([line[1:] for line in lines if line[0] in PUBLISHED_DTYPES], dtype=np.float64)
    sizes, seconds = fields[:, :3].astype(np.int64), 1e-6 * fields[:, 3]
    rows = np.gcd(sizes[:, 1], sizes[:, 2])  # those of C have N elements, those of A and B have K
    widths = np.minimum(WIDEST_BYTES, ELEMENT_BYTES[dtype] * (rows & -rows))
    of_kind: dict[Kind, tuple[list[Place], list[float]]] = {}
    for (m, n, k), width, time in zip(sizes.tolist(), widths.tolist(), seconds.tolist(), strict=True):
        place = _place(dtype, PUBLISHED_LAYOUT, PLAIN, (m, n, k, 1), width)
        places, times = of_kind.setdefault(place.kind, ([], []))
        places.append(place)
        times.append(time)
    return {kind: Points(places, times, []) for kind, (places, times) in of_kind.items()}


def rows_of(path: Path, dtype: str) -> Iterator[dict[str, str]]:
    """The rows of a table for operands of a type; none where there is no table."""
    if not path.is_file():
        return
    # A table has thousands of rows, and a process needs few types: lines of the others are not parsed.
    with path.open(newline="") as file:
        yield from csv.DictReader(line for line in file if line.startswith(("dtype,", f"{dtype},")))
