"""Fit the constants of the cost model for short sides to measured times, and judge them on products that no fit saw.

    python -m benchmarks.gemm.skinny.fit benchmarks/results/h200/gemm_skinny_bf16.csv --gpu h200
    python -m benchmarks.gemm.skinny.fit benchmarks/results/h200/gemm_skinny_bf16.csv --gpu h200 --write

Tables are what `python -m benchmarks.gemm.candidates time` wrote, or a program of commit befc2ab. Each product is
judged by a fit without all products of its N and K, in whatever layout and with however many rows. A first choice is
the measured time of the configuration that is predicted to be the fastest of those that were timed; its share is the
fastest time over that.
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.gemm.candidates import config_of as config_of_row
from benchmarks.gemm.constants_fit import fitted, print_constants, rows_by_product, write_constants
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.skinny.cost import ASSUMED, FILE, SkinnyConstants, SkinnyModel
from constrint.kernels.gemm.skinny.shape import SkinnyLayout, line, unit_rows
from constrint.select import Workload

NAMES = [field.name for field in fields(SkinnyConstants) if field.name != "measured"]
_NAMED = re.compile(r"(mma|fma)(\d+) t(\d+) u(\d+) w(\d+)x(\d+) r(\d+)(?: s(\d+))?(?: f(\d+))?")
#: What a change of a constant by a factor of e costs, in rows whose error is 10 %: what times say nothing of stays.
PRIOR = 0.5
KERNEL = "gemm.skinny"
#: A first choice below this share of the fastest is shown.
WORTH_SHOWING = 0.97
NOTE = (
    "What the cost model of gemm.skinny has beside the GPU's model. Values are fitted by benchmarks.gemm.skinny.fit to "
    "times of {number} products in the files that `measured` names. A value that these times do not determine stays "
    "near what was assumed, which stands beside it with its source."
)


@dataclass(frozen=True)
class Measured:
    """Timed configurations of one product.

    Args:
        product: The product.
        layout: How A and B lie, by rows or columns.
        columns: Parameters of the kernel, per configuration.
        blocks: Blocks that were launched; None: those that configurations ask for.
        seconds: Times of its kernel alone, with a cold L2.
        library_s: The time of torch's own product, where it was timed.
    """

    product: Product
    layout: str
    columns: Mapping[str, NDArray[np.int64]]
    blocks: NDArray[np.float64] | None
    seconds: NDArray[np.float64]
    library_s: float

    @property
    def name(self) -> str:
        """Sizes and layout."""
        return f"{self.product.m}x{self.product.n}x{self.product.k} {self.layout}"

    @property
    def family(self) -> tuple[int, int]:
        """The long side and K."""
        return max(self.product.m, self.product.n), self.product.k

    def predicted(self, gpu: GpuModel, constants: SkinnyConstants) -> NDArray[np.float64]:
        """Predicted seconds."""
        return SkinnyModel(gpu, self.product, self.columns, constants).cost(self.product, self.blocks).seconds


def read_measured(path: Path) -> list[Measured]:
    """Every product of a table, with its timed configurations."""
    return [_measured(rows) for rows in rows_by_product(path, KERNEL)]


def _measured(rows: Sequence[dict[str, str]]) -> Measured:
    first = rows[0]
    dtype, by_rows = first["dtype"], [letter == "r" for letter in first["layout"]]
    sizes = {name: int(first[name]) for name in ("m", "n", "k")}
    options = {"transpose_a": int(not by_rows[0]), "transpose_b": int(not by_rows[1])}
    product = Product.of(Workload("gemm", sizes, dtype, options))
    turned = product.n >= product.m
    # An operand of one column or row lies both ways: the kernel reads it along K.
    product = replace(
        product,
        a=replace(product.a, is_k_major=product.a.is_k_major or product.m == 1),
        b=replace(product.b, is_k_major=product.b.is_k_major or product.n == 1),
    )
    if "variant" in first:
        side = product.b if turned else product.a
        layout = SkinnyLayout(side.is_k_major, int(first["large"]), int(first["small"]))
        configs = [config_of(row["variant"], dtype, layout, turned=turned) for row in rows]
        blocks = np.array([float(row["blocks"]) for row in rows])
    else:
        configs, blocks = [config_of_row(row) for row in rows], None
    columns = {name: np.array([config[name] for config in configs]) for name in configs[0]}
    seconds = np.array([float(row["us"]) for row in rows])
    library = next((float(row["cublas_us"]) * 1e-6 for row in rows if row["cublas_us"]), float("nan"))
    return Measured(product, first["layout"], columns, blocks, seconds * 1e-6, library)


def config_of(name: str, dtype: str, layout: SkinnyLayout, *, turned: bool) -> dict[str, int]:
    """The configuration that a name of the older tables stands for, without what shares tiles.

    Raises:
        ValueError: For other texts.
    """
    found = _NAMED.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r} names no configuration")
    small, tiles, unroll, warps_rows, warps_k, resident = (int(number) for number in found.groups()[1:7])
    long = tiles * warps_rows * unit_rows(dtype, is_k_major=layout.is_k_major)
    sides = {"tile_m": small, "tile_n": long} if turned else {"tile_m": long, "tile_n": small}
    warps = {"num_warps": warps_rows * warps_k, "warps_k": warps_k, "resident": resident}
    shared = {"mma": int(found[1] == "mma"), "turned": int(turned), "split_k": 1, "persistent": 0}
    shared |= {"num_stages": int(found[8] or 1), "fan_in": int(found[9] or 0)}
    return {**sides, "tile_k": unroll * warps_k * line(dtype), **warps, **shared}


def fit(gpu: GpuModel, measured: Sequence[Measured], names: Sequence[str], start: SkinnyConstants) -> SkinnyConstants:
    """SkinnyConstants by robust least squares over the logarithms of times."""
    seconds = [each.seconds for each in measured]
    return fitted(start, names, seconds, lambda found: [each.predicted(gpu, found) for each in measured], PRIOR)


def judge(gpu: GpuModel, measured: Sequence[Measured]) -> None:
    """Errors and first choices of every product, by a fit without its family."""
    print("# each by a fit without its long side and K: error of the fastest, fastest / first choice, cuBLAS / fastest")
    errors, shares = [], []
    for family in dict.fromkeys(each.family for each in measured):
        found = fit(gpu, [each for each in measured if each.family != family], NAMES, ASSUMED)
        for each in (each for each in measured if each.family == family):
            predicted = each.predicted(gpu, found)
            first, best = int(np.argmin(predicted)), int(np.argmin(each.seconds))
            errors.append(np.abs(predicted / each.seconds - 1))
            shares.append(float(each.seconds[best] / each.seconds[first]))
            bias = predicted[best] / each.seconds[best] - 1
            times = f"{each.seconds[best] * 1e6:7.1f} us {bias:+6.1%}"
            print(f"{each.name:22} {times} {shares[-1]:6.3f} {each.library_s / each.seconds[best]:6.2f}", flush=True)
    middle, most = np.quantile(np.concatenate(errors), (0.5, 0.9))
    print(f"all: median error {middle:.1%}, nine in ten within {most:.1%}", end="; ")
    print(f"fastest / first choice {statistics.geometric_mean(shares):.3f}, worst {min(shares):.3f}", flush=True)


def write(constants: SkinnyConstants, tables: Sequence[Path], number: int) -> None:
    """Replace the values of the package's constants; what each is stays, and what they were assumed to be."""
    measured = ", ".join(str(table) for table in tables)
    write_constants(FILE, constants, measured=measured, note=NOTE.format(number=number))


def main() -> None:
    """Fit, judge, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path, nargs="+")
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--write", action="store_true", help="replace the constants in use")
    args = parser.parse_args()
    gpu = load_gpu(args.gpu)
    measured = [each for table in args.tables for each in read_measured(table)]
    constants = fit(gpu, measured, NAMES, ASSUMED)
    print_constants(constants, NAMES, f"{len(measured)} products")
    judge(gpu, measured)
    if args.write:
        write(constants, args.tables, len(measured))


if __name__ == "__main__":
    main()
