"""Corrections of each kernel's cost model on one GPU, learned from measured times, so that kernels compare.

A cost model errs by the effects that it leaves out: little from one configuration to the next, more from one kernel to
another, and most on products that are odd in some way. The logarithm of its error is modelled as a quadratic function
of the product, of the configuration, and of the predicted time. `corrections/` holds the coefficients for each GPU,
group of types and kernel; `benchmarks/gemm/correct.py` fits them to products drawn at random, and states their error on
products that are left out. Nothing is extrapolated: features are clamped to their measured ranges, and corrections to
those of products that take about as long. Only the first configurations of a model were measured, so only these are
corrected.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.units import OUTPUT_BYTES, is_as_measured, width_bytes

FOLDER = Path(__file__).parent / "corrections"
#: Types that were measured, and the group that each is fitted with; one product at a time was.
GROUPS = {"bf16": "bf16-fp16", "fp16": "bf16-fp16", "fp8": "fp8"}
#: Configurations of a kernel that are looked at: those that its model ranks first.
FIRST = 5
#: Names of the features that every kernel has; then come its parameters.
COMMON = (
    *("m", "n", "k", "step_a", "step_b", "width_c", "a_along_k", "b_along_k", "predicted"),
    *("blocks", "waves", "steps", "rows_used", "columns_used"),
)
PREDICTED = COMMON.index("predicted")
#: The parameters that say how a product is dealt out; a kernel without the last one does not split K.
DEALT = ("tile_m", "tile_n", "tile_k", "split_k")


class Correction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A quadratic function of features that are centred and scaled.

    Args:
        names: The features.
        least, most: Their measured ranges.
        mean, scale: By which they are centred and scaled.
        constant, linear: Coefficients.
        quadratic: Coefficients of products: of each feature with itself and those that come after it.
        shortest: The logarithm to base 2 of the shortest predicted microseconds, rounded down.
        low, high: Bounds of nine in ten of the model's errors, as logarithms, for each power of two of
            the prediction from there on.
        num_rows: Measured times that it rests on.
        median_error, ninth_error: Errors that half, and nine in ten, of the left-out times stay within, as logarithms.
    """

    names: tuple[str, ...]
    least: tuple[float, ...]
    most: tuple[float, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    constant: float
    linear: tuple[float, ...]
    quadratic: tuple[tuple[float, ...], ...]
    shortest: int
    low: tuple[float, ...]
    high: tuple[float, ...]
    num_rows: int
    median_error: float
    ninth_error: float


class CorrectionsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file of a GPU and a group of types: by kernel."""

    device: str
    group: str
    measured: str
    kernels: dict[str, Correction]


class Corrector:
    """A correction with its coefficients as arrays.

    Args:
        correction: Its coefficients.
    """

    def __init__(self, correction: Correction) -> None:
        c, size = correction, len(correction.names)
        self.names = c.names
        #: Errors that half, and nine in ten, of the products left out of the fit stay within, as shares.
        self.errors = math.expm1(c.median_error), math.expm1(c.ninth_error)
        #: The parameters that it looks at, of which a kernel may lack some.
        self.parameters = tuple(dict.fromkeys((*c.names[len(COMMON) :], *DEALT)))
        self._least, self._most, self._mean, self._scale = (np.array(row) for row in (c.least, c.most, c.mean, c.scale))
        self._linear, self._constant = np.array(c.linear), c.constant
        self._shortest, self._low, self._high = c.shortest, np.array(c.low), np.array(c.high)
        self._quadratic = np.zeros((size, size))
        for place, row in enumerate(c.quadratic):
            self._quadratic[place, place:] = row

    def factors(self, gpu: GpuModel, product: Product, columns: Mapping[str, Any], seconds: Any) -> NDArray[np.float64]:
        """Expected times of configurations over those that their model predicts."""
        rows = features(gpu, product, columns, seconds, self.names)
        return np.asarray(np.exp(self.logarithms(rows)))

    def logarithms(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Logarithms of `factors`, for rows of features."""
        # `np.clip` takes several times as long as these.
        z = (np.minimum(np.maximum(rows, self._least), self._most) - self._mean) / self._scale
        logarithm = self._constant + ((z @ self._quadratic + self._linear) * z).sum(axis=1)
        # A quadratic function goes far where little was measured, so that large products of all kinds hold it.
        place = np.minimum(np.maximum(rows[:, PREDICTED].astype(np.int64) - self._shortest, 0), len(self._low) - 1)
        return np.asarray(np.minimum(np.maximum(logarithm, self._low[place]), self._high[place]))


def features(
    gpu: GpuModel, product: Product, columns: Mapping[str, Any], seconds: Any, names: Sequence[str]
) -> NDArray[np.float64]:
    """Features that a correction depends on: one row per configuration; logarithms to base 2, flags as 0 or 1.

    Args:
        gpu: The hardware model.
        product: The product.
        columns: Parameters, per configuration.
        seconds: The model's times.
        names: The features, as `feature_names` gives them.
    """
    tile_m, tile_n, tile_k, parts = (np.asarray(columns.get(name, 1)) for name in DEALT)
    m, n, k = float(product.m), float(product.n), float(product.k)
    rows, across = np.ceil(m / tile_m), np.ceil(n / tile_n)
    blocks = rows * across * parts
    result = width_bytes(product.n, OUTPUT_BYTES[product.dtype])
    widths = (product.a.step_bytes, product.b.step_bytes, result)
    common: tuple[Any, ...] = (
        *(m, n, k, *widths, 2.0**product.a.is_k_major, 2.0**product.b.is_k_major, np.asarray(seconds) * 1e6),
        *(blocks, np.minimum(blocks / gpu.device.sm_count, 8.0), np.ceil(k / (tile_k * parts))),
        *(m / (rows * tile_m), n / (across * tile_n)),
    )
    table = np.empty((len(names), len(tile_m)))
    for place, feature in enumerate(common):
        table[place] = feature
    for place, name in enumerate(names[len(COMMON) :], start=len(COMMON)):
        table[place] = columns[name]
    table[len(COMMON) :] += 1.0
    return np.asarray(np.log2(table, out=table).T)


def feature_names(parameters: Sequence[str]) -> tuple[str, ...]:
    """The features of a kernel with these parameters."""
    return (*COMMON, *parameters)


def corrector_of(gpu: GpuModel, kernel: str, product: Product) -> Corrector | None:
    """The correction of a kernel's model on a GPU for a product; None where nothing like the product was measured.

    Plain products were measured, one at a time; a row that the epilogue adds changes little.
    """
    is_other = product.has_source or product.output_bytes != OUTPUT_BYTES[product.dtype] or product.batch > 1
    if is_other or product.dtype not in GROUPS or not is_as_measured(gpu):
        return None
    return correctors(gpu.name, GROUPS[product.dtype]).get(kernel)


@lru_cache(maxsize=64)
def correctors(gpu: str, group: str) -> Mapping[str, Corrector]:
    """All corrections of a GPU and a group of types, by kernel; empty where nothing was measured."""
    path = path_of(gpu, group)
    if not path.is_file():
        return {}
    read = msgspec.json.decode(path.read_bytes(), type=CorrectionsFile)
    return {kernel: Corrector(correction) for kernel, correction in read.kernels.items()}


def path_for(gpu: GpuModel, product: Product) -> Path:
    """The file that corrects times of a product on a GPU."""
    return path_of(gpu.name, GROUPS[product.dtype])


def path_of(gpu: str, group: str) -> Path:
    """The file of a GPU, by its model's name, and a group of types."""
    return FOLDER / f"{gpu.lower()}-{group}.json"
