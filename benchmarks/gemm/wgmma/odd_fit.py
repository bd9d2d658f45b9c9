"""Fit what gathering takes to times of random products, and judge the cost model of `gemm.unaligned` by them.

    python -m benchmarks.gemm.wgmma.odd_fit gemm_unaligned_random.csv --gpu h200 [--judge gemm_unaligned.csv] [--write]

The constants of `gemm.cuda` stay as they are. Tables are those of `benchmarks.gemm.wgmma.odd`: `explore` for the fit,
`time` for the judgement, which no fit has seen.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.gemm.constants_fit import fitted, write_constants
from benchmarks.gemm.wgmma.odd_cases import PARAMS, Places, product_of
from benchmarks.gemm.wgmma.products import End
from benchmarks.harness.table import read_rows
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.cuda.shape import depth
from constrint.kernels.gemm.cuda.unaligned.constants import ASSUMED, CONSTANTS, FILE, Constants
from constrint.kernels.gemm.cuda.unaligned.cost import UnalignedModel
from constrint.kernels.gemm.product import Product

NAMES = [field.name for field in fields(Constants) if field.name != "measured"]
#: What a change of a constant by a factor of e costs, in rows.
STIFFNESS = 1.0
NOTE = (
    "What gathering operands takes, beside the constants of gemm.cuda. Values are fitted by "
    "benchmarks.gemm.wgmma.odd_fit to times of {number} random products in the files that `measured` names. A value "
    "that these times do not determine stays near what was assumed, which stands beside it with its source."
)


@dataclass(frozen=True)
class Measured:
    """One product with its timed configurations.

    Args:
        product: As the model sees it.
        columns: The configurations' parameters.
        seconds: Their times.
    """

    product: Product
    columns: Mapping[str, NDArray[np.int64]]
    seconds: NDArray[np.float64]

    def predicted(self, gpu: GpuModel, constants: Constants) -> NDArray[np.float64]:
        """Predicted seconds."""
        return UnalignedModel(gpu, self.product, self.columns, constants).cost(self.product).seconds


def read_measured(path: Path) -> list[Measured]:
    """Every product of a table, with its configurations that were right; those with a note are left out."""
    by_product: dict[tuple[str, ...], list[Mapping[str, str]]] = defaultdict(list)
    for row in read_rows(path):
        if row["us"] and not row["note"]:
            by_product[tuple(row[name] for name in ("m", "n", "k", "dtype", "layout"))].append(row)
    return [_measured(key, rows) for key, rows in by_product.items()]


def _measured(key: tuple[str, ...], rows: Sequence[Mapping[str, str]]) -> Measured:
    m, n, k, dtype, layout = key
    product = product_of((int(m), int(n), int(k)), dtype, layout, End(), Places())
    columns = {name: np.array([int(row[name]) for row in rows]) for name in PARAMS}
    columns |= {name: np.ones(len(rows), np.int64) for name in ("cluster_m", "cluster_n")}
    columns |= {"tile_k": np.full(len(rows), depth(dtype))}
    return Measured(product, columns, np.array([float(row["us"]) for row in rows]) * 1e-6)


def judge(gpu: GpuModel, measured: Sequence[Measured], constants: Constants) -> str:
    """Errors, and first choices among what was timed."""
    errors, shares = [], []
    for each in measured:
        predicted = each.predicted(gpu, constants)
        errors.append(np.log(predicted / each.seconds))
        shares.append(float(each.seconds.min() / each.seconds[int(np.argmin(predicted))]))
    all_ = np.concatenate(errors)
    middle, most = np.quantile(np.abs(all_), (0.5, 0.9))
    mean = float(np.exp(np.mean(np.log(shares))))
    return (
        f"{len(all_)} configurations of {len(measured)} products: predicted / measured {np.exp(np.median(all_)):.2f} "
        f"in the middle, off by {middle:.1%}, nine in ten by {most:.1%}; fastest / first choice {mean:.3f}, worst "
        f"{min(shares):.3f}"
    )


def write(constants: Constants, tables: Sequence[Path], number: int) -> None:
    """Replace the values of the package's constants; what each is stays, and what they were assumed to be."""
    measured = ", ".join(table.name for table in tables)
    write_constants(FILE, constants, measured=measured, note=NOTE.format(number=number))


def main() -> None:
    """Fit, judge, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path, nargs="+")
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--judge", type=Path, nargs="*", default=[], help="tables that are not fitted to")
    parser.add_argument("--write", action="store_true", help="replace the constants in use")
    args = parser.parse_args()
    gpu = load_gpu(args.gpu)
    measured = [each for table in args.tables for each in read_measured(table)]
    others = [each for table in args.judge for each in read_measured(table)]
    seconds = [each.seconds for each in measured]
    found = fitted(ASSUMED, NAMES, seconds, lambda at: [each.predicted(gpu, at) for each in measured], STIFFNESS)
    for name, value in asdict(found).items():
        if name in NAMES:
            print(
                f"{name:24} {value:.4g} (assumed {getattr(ASSUMED, name):.4g}, in use {getattr(CONSTANTS, name):.4g})"
            )
    for words, constants in (("as assumed", ASSUMED), ("fitted", found)):
        print(f"{words}: fit: {judge(gpu, measured, constants)}")
        if others:
            print(f"{words}: others: {judge(gpu, others, constants)}", flush=True)
    if args.write:
        write(found, args.tables, len(measured))


if __name__ == "__main__":
    main()
