"""Fit what each kernel's model is off by, to times of products that were drawn at random; say how good choices become.

    python -m benchmarks.gemm.correct gemm_candidates.csv.gz --gpu h200             # how far left-out products are off
    python -m benchmarks.gemm.correct gemm_candidates.csv.gz --gpu h200 --write     # writes the corrections, too
    python -m benchmarks.gemm.correct ... --write --out corrections.json            # elsewhere than into the package

The tables are those of `benchmarks.gemm.candidates`, of one group of types (`GROUPS`). All errors are of products that
are left out of the fit, a tenth at a time. A kernel whose left-out products are off no less with a correction than
without one, or that has too few times, gets none. Choices are among what was measured of a product: of each kernel what
its model ranks first, and torch's own product by its predicted time. A feature equal in all rows is left out.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.gemm.candidates import PRODUCT, config_of, workload_of
from benchmarks.harness.table import REMOVED, read_rows
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.correction import (
    COMMON,
    GROUPS,
    PREDICTED,
    Correction,
    CorrectionsFile,
    Corrector,
    feature_names,
    features,
    path_of,
)
from constrint.kernels.gemm.cuda.spec import CudaSpec
from constrint.kernels.gemm.library.candidates import OUR_HOST_S, least_share, library_host_s
from constrint.kernels.gemm.library.cost import library_s, place_of
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.spec import gemm_spec
from constrint.kernels.gemm.tables import closed_params

#: How strongly coefficients are held near 0, in rows; of 10 to 200 this left the least error on 430 products.
STIFFNESS = 200.0
#: From which error on, as a logarithm, a row counts less than its square, and how often weights are found anew.
OUTLIER, PASSES = 0.15, 4
FOLDS = 10
#: Corrections are held within those of products that take about as long, without this share on either side; the least
#: number of these products.
BEYOND, FEWEST = 0.05, 30
#: Times of a kernel below which nothing is fitted.
LEAST_ROWS = 40
#: What a feature has to vary by.
SAME = 1e-9


class Rows(NamedTuple):
    """Measured times of one kernel, and the features of each.

    Args:
        names: Features.
        found: Their values, a row for each time.
        off: By what the model was off, as a logarithm.
        place: Which product each row is of.
    """

    names: tuple[str, ...]
    found: NDArray[np.float64]
    off: NDArray[np.float64]
    place: NDArray[np.int64]


class Measured(NamedTuple):
    """Every time that was measured, in the tables' order.

    Args:
        kernel: The kernel's name.
        product: The product's number.
        predicted: Seconds, by the kernel's model.
        seconds: Measured.
        library: Measured seconds of torch's own product.
        limit: The longest time that a kernel may be expected to take; above it the library is chosen.
    """

    kernel: NDArray[Any]
    product: NDArray[np.int64]
    predicted: NDArray[np.float64]
    seconds: NDArray[np.float64]
    library: NDArray[np.float64]
    limit: NDArray[np.float64]


def read(gpu: GpuModel, files: Sequence[Path]) -> tuple[Measured, dict[str, Rows]]:
    """All times, and what a fit of each kernel needs."""
    rows = [row for file in files for row in read_rows(file) if row["us"] and row["kernel"] not in REMOVED]
    keys = [tuple(row[name] for name in PRODUCT) for row in rows]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    products = {key: Product.of(workload_of(dict(zip(PRODUCT, key, strict=True)))) for key in numbers}
    limits = {key: _limit(gpu, product) for key, product in products.items()}
    column = {name: np.array([float(row[name]) for row in rows]) * 1e-6 for name in ("us", "cublas_us", "predicted_us")}
    for places, predicted in _anew(gpu, rows, [products[key] for key in keys]):
        column["predicted_us"][places] = predicted
    measured = Measured(
        np.array([row["kernel"] for row in rows]), np.array([numbers[key] for key in keys]), column["predicted_us"],
        column["us"], column["cublas_us"], np.array([limits[key] for key in keys]),
    )  # fmt: skip
    by_kernel: dict[str, Rows] = {}
    for kernel in dict.fromkeys(row["kernel"] for row in rows):
        spec, at = gemm_spec(kernel), np.flatnonzero(measured.kernel == kernel)
        first = products[keys[at[0]]]
        names = feature_names([param.name for param in closed_params(spec, spec.params(gpu, first.workload))])
        found = []
        for place in at:
            config = {name: [value] for name, value in config_of(rows[place]).items()}
            found.append(features(gpu, products[keys[place]], config, measured.predicted[place], names)[0])
        varying = np.ptp(np.array(found), axis=0) > SAME
        varying[: len(COMMON)] = True
        kept = tuple(name for name, varies in zip(names, varying, strict=True) if varies)
        off = np.log(measured.seconds[at] / measured.predicted[at])
        by_kernel[kernel] = Rows(kept, np.array(found)[:, varying], off, measured.product[at])
    return measured, by_kernel


def _anew(
    gpu: GpuModel, rows: Sequence[dict[str, str]], products: Sequence[Product]
) -> Iterator[tuple[list[int], NDArray[np.float64]]]:
    """Places of rows, and what the models say of them today, in seconds; of kernels whose constants are fitted again.

    A table has what a model said when it was written.
    """
    groups: dict[tuple[str, Product], list[int]] = defaultdict(list)
    for at, (row, product) in enumerate(zip(rows, products, strict=True)):
        if isinstance(gemm_spec(row["kernel"]), CudaSpec):
            groups[row["kernel"], product].append(at)
    for (kernel, product), places in groups.items():
        configs = [config_of(rows[at]) for at in places]
        columns = {name: np.array([config[name] for config in configs]) for name in configs[0]}
        yield places, np.asarray(gemm_spec(kernel).price(gpu, product, columns, np.ones(len(places))).seconds)


def _limit(gpu: GpuModel, product: Product) -> float:
    """Return the expected time above which the library is chosen instead of our kernels."""
    seconds = library_s(gpu, product)
    if seconds is None:
        return math.inf
    return (1 - least_share(gpu.name, place_of(product).kind)) * max(seconds, library_host_s(product))


def fitted(rows: Rows, errors: tuple[float, float] = (0.0, 0.0)) -> Correction:
    """The quadratic function that is nearest to what a model was off by."""
    mean, scale = rows.found.mean(axis=0), np.maximum(rows.found.std(axis=0), SAME)
    terms = _terms((rows.found - mean) / scale)
    held = STIFFNESS * np.eye(terms.shape[1])
    held[0, 0] = 0.0
    weights = np.ones(len(rows.off))
    for _ in range(PASSES):
        weighted = terms * weights[:, None]
        found = np.linalg.solve(weighted.T @ terms + held, weighted.T @ rows.off)
        weights = 1.0 / np.maximum(1.0, np.abs(rows.off - terms @ found) / OUTLIER)
    size = len(rows.names)
    quadratic, at = [], 1 + size
    for place in range(size):
        quadratic.append(_rounded(found[at : at + size - place]))
        at += size - place
    ranges = (_rounded(rows.found.min(axis=0)), _rounded(rows.found.max(axis=0)), _rounded(mean), _rounded(scale))
    constant, linear = float(f"{found[0]:.5g}"), _rounded(found[1 : 1 + size])
    held_within = _within(rows)
    return Correction(rows.names, *ranges, constant, linear, tuple(quadratic), *held_within, len(rows.off), *errors)


def _within(rows: Rows) -> tuple[int, tuple[float, ...], tuple[float, ...]]:
    """The shortest prediction, and from there on what lies around what the model was off by, for powers of two."""
    powers = np.floor(rows.found[:, PREDICTED]).astype(np.int64)
    low: list[float] = []
    high: list[float] = []
    for power in range(powers.min(), powers.max() + 1):
        distance = np.abs(powers - power)
        near = next(far for far in itertools.count() if (distance <= far).sum() >= min(FEWEST, len(powers)))
        found = np.quantile(rows.off[distance <= near], (BEYOND, 1 - BEYOND))
        low.append(float(found[0]))
        high.append(float(found[1]))
    return int(powers.min()), _rounded(np.array(low)), _rounded(np.array(high))


def _terms(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """1, every feature, and every product of two."""
    products = [z[:, place, None] * z[:, place:] for place in range(z.shape[1])]
    return np.concatenate([np.ones((len(z), 1)), z, *products], axis=1)


def _rounded(values: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(float(f"{value:.5g}") for value in values)


def left_out(rows: Rows) -> NDArray[np.float64]:
    """Return the correction of each row, as a logarithm, by a fit without its product."""
    found = np.zeros(len(rows.off))
    for fold in range(FOLDS):
        is_out = _fold_of(rows.place) == fold
        if is_out.any() and not is_out.all():
            seen = Rows(rows.names, rows.found[~is_out], rows.off[~is_out], rows.place[~is_out])
            found[is_out] = Corrector(fitted(seen)).logarithms(rows.found[is_out])
    return found


def _fold_of(place: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.asarray(place * 7919 % 104729 % FOLDS)


def judge(measured: Measured, expected: NDArray[np.float64], title: str, say: Callable[[str], None] = print) -> None:
    """Print the speed of choices by expected times beside the library."""
    alone, among_all, of_best = [], [], []
    for number in range(int(measured.product.max()) + 1):
        at = np.flatnonzero(measured.product == number)
        first = at[np.argmin(expected[at])]
        ratio = measured.library[first] / measured.seconds[first]
        alone.append(ratio)
        among_all.append(1.0 if max(expected[first], OUR_HOST_S) > measured.limit[first] else ratio)
        of_best.append(measured.seconds[at].min() / measured.seconds[first])
    say(f"{title}, {len(alone)} products:")
    for name, found in (("our kernels", alone), ("with the library", among_all)):
        ratios = np.sort(found)
        say(
            f"  cuBLAS / first choice, {name}: geometric mean {np.exp(np.log(ratios).mean()):.3f}, "
            f"5th percentile {ratios[int(0.05 * len(ratios))]:.3f}, worst {ratios[0]:.3f}, "
            f"{(ratios < 0.95).sum()} under 0.95, {(ratios < 0.9).sum()} under 0.90"
        )
    say(f"  best of those measured / first choice: geometric mean {np.exp(np.log(of_best).mean()):.3f}")


def main() -> None:
    """Fit and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path, nargs="+")
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--write", action="store_true", help="write the corrections in use")
    parser.add_argument("--out", type=Path, help="with --write: another file than the one in use")
    args = parser.parse_args()
    gpu = load_gpu(args.gpu)
    groups = {GROUPS.get(row["dtype"], row["dtype"]) for table in args.tables for row in read_rows(table)}
    if len(groups) > 1:
        parser.error(f"the tables are of several groups of types: {', '.join(sorted(groups))}; give those of one")
    (group,) = groups
    measured, by_kernel = read(gpu, args.tables)
    optimism = {kernel: gemm_spec(kernel).optimism for kernel in by_kernel}
    judge(
        measured, measured.predicted * np.array([optimism[kernel] for kernel in measured.kernel]), "by one factor each"
    )
    expected = measured.predicted.copy()
    corrections = {}
    for kernel, rows in by_kernel.items():
        found = left_out(rows)
        before, after = (np.quantile(np.abs(e), (0.5, 0.9)) for e in (rows.off, rows.off - found))
        if len(rows.off) < LEAST_ROWS or after[0] >= before[0]:
            print(f"{kernel}, {len(rows.off)} times: off by {before[0]:.1%} in the middle; no correction helps")
            continue
        expected[measured.kernel == kernel] *= np.exp(found)
        print(
            f"{kernel}, {len(rows.off)} times: off by {before[0]:.1%} in the middle, {before[1]:.1%} of nine in ten; "
            f"corrected {after[0]:.1%}, {after[1]:.1%}"
        )
        corrections[kernel] = fitted(rows, (float(f"{after[0]:.3g}"), float(f"{after[1]:.3g}")))
    judge(measured, expected, "corrected by fits that have not seen the product")
    if args.write:
        names = ", ".join(table.name for table in args.tables)
        whole, path = CorrectionsFile(gpu.name, group, names, corrections), args.out or path_of(gpu.name, group)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.encode(whole) + b"\n")


if __name__ == "__main__":
    main()
