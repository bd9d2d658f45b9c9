"""Time of the library's product where nothing near it was measured: the roofline, slowed down as on a measured GPU.

The slowdown is the median of measured times over the roofline (`cost.floor_s`), by type, alignment, and the class of
size that the roofline's time falls in; of the GPU's own table where it has one, else of `REFERENCE`. No choice rests on
an estimate: the library is tried beside our kernels then (`../trial.py`).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from constrint.choose.decision import ErrorBand
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.library.cost import PLAIN, floor_s, measured, path_of, place_of
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.units import is_as_measured
from constrint.select.cost import LAUNCH_S

#: The GPU whose slowdowns stand for those of GPUs without a table of the project's own.
REFERENCE = "H200-SXM"
#: Limits of the classes of size: seconds of the roofline without the launch.
CLASSES_S = (2e-6, 10e-6, 50e-6)
#: Measured products that a class has at least; else all classes of the type count.
FEWEST = 8


def estimated_s(gpu: GpuModel, product: Product) -> float | None:
    """Estimated seconds of a product by torch's own operator; None where no product of its type was measured."""
    place, floor = place_of(product), roofline_s(gpu, product)
    slowdown = slowdown_of(_reference(gpu), place.kind.dtype, place.kind.is_aligned, _class_of(floor))
    return None if slowdown is None else floor * slowdown[0]


def band_of(gpu: GpuModel, product: Product) -> ErrorBand | None:
    """The spread of the slowdown's class on the GPU where it was measured; on another GPU the error is not known."""
    place, reference = place_of(product), _reference(gpu)
    found = slowdown_of(reference, place.kind.dtype, place.kind.is_aligned, _class_of(roofline_s(gpu, product)))
    if found is None:
        return None
    return ErrorBand(found[1], found[2], f"spread of products of its class on {reference}")


def roofline_s(gpu: GpuModel, product: Product) -> float:
    """A launch, and arithmetic and traffic; fp32 that keeps its precision is multiplied on the vector units."""
    place = place_of(product)
    seconds = floor_s(gpu, place)
    vector = gpu.vector_flop_per_s("fp32") if product.is_three_pass else None
    if vector is None:
        return seconds
    m, n, k, batch = place.shape
    return max(seconds, LAUNCH_S + 2 * batch * m * n * k / vector)


def _class_of(floor: float) -> int:
    return sum(floor - LAUNCH_S >= limit for limit in CLASSES_S)


def _reference(gpu: GpuModel) -> str:
    """The GPU whose table states slowdowns: the same one where it was measured."""
    return gpu.name if is_as_measured(gpu) and path_of(gpu.name).is_file() else REFERENCE


@lru_cache(maxsize=256)
def slowdown_of(reference: str, dtype: str, is_aligned: bool, size: int) -> tuple[float, float, float] | None:
    """Measured over roofline time of a class: the median, and the errors of half and of nine in ten; None for none."""
    by_class = ratios_of(reference, dtype)
    ratios = by_class.get((is_aligned, size), [])
    if len(ratios) < FEWEST:
        ratios = [ratio for each in by_class.values() for ratio in each]
    if not ratios:
        return None
    median = float(np.median(ratios))
    errors = np.abs(np.log(np.array(ratios) / median))
    half, ninth = (float(np.expm1(np.quantile(errors, share))) for share in (0.5, 0.9))
    return median, half, ninth


@lru_cache(maxsize=16)
def ratios_of(reference: str, dtype: str) -> dict[tuple[bool, int], list[float]]:
    """Measured over roofline times of all plain products of a type, by alignment and class of size."""
    gpu = load_gpu(reference)
    found: dict[tuple[bool, int], list[float]] = {}
    for kind, points in measured(reference, dtype, PLAIN).items():
        for place, seconds in zip(points.places, points.seconds, strict=True):
            floor = floor_s(gpu, place)
            found.setdefault((kind.is_aligned, _class_of(floor)), []).append(float(seconds) / floor)
    return found
