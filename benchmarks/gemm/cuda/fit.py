"""Fit the constants of the CUDA GEMM's cost model to random products, and judge them on products that they never saw.

    cd benchmarks/results/h200
    python -m benchmarks.gemm.cuda.fit gemm_cuda_present.csv.gz --gpu h200 --write
    python -m benchmarks.gemm.cuda.fit gemm_cuda_present.csv.gz --gpu h200 --judge gemm_cuda_random.csv.gz

Tables are what `python -m benchmarks.gemm.candidates time` wrote, or a program of commit befc2ab. Shapes that the
project names are judged and never fitted: what `--write` puts into `constrint/kernels/gemm/cuda/constants.json` is
fitted to random products alone, and each of these is judged by a fit without it. A first choice is the measured time of
the configuration that is predicted to be the fastest of those that were timed; its share is the fastest time over that.
With `--only` the other constants stay as they are: what changes with the start and the end of a kernel needs no second
look at its slices. Tables after `--judge` are in no fit.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.gemm.candidates import config_of
from benchmarks.gemm.constants_fit import fitted, print_constants, rows_by_product, write_constants
from benchmarks.harness.workloads import HARD_SHAPES
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.cuda.cost import ASSUMED, CONSTANTS, FILE, CudaConstants, CudaModel
from constrint.kernels.gemm.cuda.shape import size_rules
from constrint.kernels.gemm.measured import ConstantsFile
from constrint.kernels.gemm.product import MatrixLayout, Product
from constrint.kernels.gemm.rules import COLUMNS
from constrint.kernels.gemm.units import ELEMENT_BYTES, LINE_BYTES, OUTPUT_BYTES

NAMES = [field.name for field in fields(CudaConstants) if field.name != "measured"]
KERNEL = "gemm.cuda"
#: The distance of rows of timed operands is a multiple of this.
ROW_ELEMENTS = 16
#: Columns of a table that are parameters of the same meaning, whichever way the tile lies.
SAME = {"num_stages": "stages", "group_m": "group", "split_k": "parts"}
SAME |= {name: name for name in ("consumers", "by_columns", "in_turns", "turned", "only_last")}
#: The side of wgmma that each of the others is, and that it is where the tile is turned.
TILE = {"tile_m": ("rows", "columns"), "tile_n": ("columns", "rows")}
TILE |= {"cluster_m": ("cluster_rows", "cluster_columns"), "cluster_n": ("cluster_columns", "cluster_rows")}
#: Clusters of four that are resident at once, of the 33 that `explore` launched.
RESIDENT_FOURS = 30
#: A constant that times say nothing of stays where it was: what a change by a factor of e costs, in rows.
PRIOR = 1.0
#: A first choice below this share of the fastest is shown beside it.
WORTH_SHOWING = 0.97
NOTE = (
    "What the cost model of gemm.cuda has beside the GPU's model. Values are fitted by benchmarks.gemm.cuda.fit to "
    "times of {number} random products in the files that `measured` names; shapes that the project names are in no "
    "fit, but were seen while the model was written. A value that these times do not determine stays near what was "
    "assumed, which stands beside it with its source."
)


@dataclass(frozen=True)
class Measured:
    """Timed configurations of one product.

    Args:
        product: The product.
        layout: How A and B lie, by rows or columns.
        columns: Parameters of the kernel, per configuration.
        seconds: Times of its kernel alone, with a cold L2.
        library_s: The time of torch's own product.
    """

    product: Product
    layout: str
    columns: Mapping[str, NDArray[np.int64]]
    seconds: NDArray[np.float64]
    library_s: float

    @property
    def name(self) -> str:
        """Sizes and layout."""
        return f"{self.product.m}x{self.product.n}x{self.product.k} {self.layout}"

    @property
    def is_named(self) -> bool:
        """Whether it is one of the shapes that the project names."""
        return (self.product.m, self.product.n, self.product.k) in HARD_SHAPES

    def predicted(self, gpu: GpuModel, constants: CudaConstants) -> NDArray[np.float64]:
        """Predicted seconds."""
        return CudaModel(gpu, self.product, self.columns, constants).cost(self.product).seconds


@dataclass(frozen=True)
class Judgement:
    """Quality of constants on one product: errors of times, and the speed of the first choice.

    Args:
        name: The product's.
        errors: Relative errors of predicted times.
        share: The fastest time over that of the first choice.
        bias: Predicted over measured time of the fastest, less one.
        took: Measured over predicted time of the first choice.
        chosen, best: The chosen configuration and the fastest one.
    """

    name: str
    errors: NDArray[np.float64]
    share: float
    bias: float
    took: float
    chosen: str
    best: str

    @staticmethod
    def of(measured: Measured, predicted: NDArray[np.float64]) -> Judgement:
        """Build from the rows of one product."""
        first, best = int(np.argmin(predicted)), int(np.argmin(measured.seconds))
        return Judgement(
            measured.name,
            np.abs(predicted / measured.seconds - 1),
            float(measured.seconds[best] / measured.seconds[first]),
            float(predicted[best] / measured.seconds[best] - 1),
            float(measured.seconds[first] / predicted[first]),
            *(described(measured, row, predicted[row]) for row in (first, best)),
        )


def described(measured: Measured, row: int, predicted_s: float) -> str:
    """A configuration in words."""
    c = {name: int(column[row]) for name, column in measured.columns.items()}
    schedule = "turns" if c["in_turns"] else f"{c['consumers'] // c['by_columns']}x{c['by_columns']}"
    cluster = f"{c['cluster_m']}x{c['cluster_n']}"
    text = f"{c['tile_m']}x{c['tile_n']}x{c['num_stages']} {schedule} cluster {cluster}" + " turned" * c["turned"]
    parts = f" {c['split_k']} parts" if c["split_k"] > 1 else ""
    return f"{text}{parts}: {measured.seconds[row] * 1e6:.1f} us, predicted {predicted_s * 1e6:.1f}"


def product_of(shape: tuple[int, int, int], dtype: str, layout: str, *, is_plain: bool = True) -> Product:
    """A product of operands whose rows are multiples of 16 elements apart, however long they are.

    Args:
        shape: M, N and K.
        dtype: Type of A and B.
        layout: How A and B lie: "r" by rows, "c" by columns.
        is_plain: Whether nothing is added.
    """
    m, n, k = shape
    by_rows, element = [letter == "r" for letter in layout], ELEMENT_BYTES[dtype]
    lengths = (k if by_rows[0] else m), (n if by_rows[1] else k)
    # A row takes up whole multiples of 16 elements.
    steps = [math.gcd(-(-length // ROW_ELEMENTS) * ROW_ELEMENTS * element, LINE_BYTES) for length in lengths]
    a = MatrixLayout(step_bytes=steps[0], is_k_major=by_rows[0])
    b = MatrixLayout(step_bytes=steps[1], is_k_major=not by_rows[1])
    return Product(*shape, dtype, a, b, OUTPUT_BYTES[dtype], has_bias=not is_plain)


def read_measured(path: Path, gpu: GpuModel) -> list[Measured]:
    """Every product of a table, with those of its configurations that the kernel's space has, timed as it launches."""
    products = rows_by_product(path, KERNEL, lambda row: row.get("resident", "1") == "1")
    return [_kept(gpu, _measured(rows)) for rows in products]


def _kept(gpu: GpuModel, measured: Measured) -> Measured:
    """Without tiles of nothing but padding, and without clusters of four of which some waited for others to end."""
    p, c = measured.product, measured.columns
    cluster = c["cluster_m"] * c["cluster_n"]
    tiles = -(-p.m // (c["tile_m"] * c["cluster_m"])) * -(-p.n // (c["tile_n"] * c["cluster_n"]))
    holds = (cluster < 4) | (tiles * c["split_k"] <= RESIDENT_FOURS)
    for rule in size_rules(gpu, p, {name: column for name, column in c.items() if name != "group_m"}, COLUMNS):
        holds = holds & rule.condition
    columns = {name: column[holds] for name, column in c.items()}
    return replace(measured, columns=columns, seconds=measured.seconds[holds])


def _measured(rows: Sequence[dict[str, str]]) -> Measured:
    def column(name: str) -> NDArray[np.int64]:
        return np.array([int(row[name]) if row[name].isdigit() else row[name] == "True" for row in rows], np.int64)

    first = rows[0]
    if "config" in first:
        rows = [row | {name: str(value) for name, value in config_of(row).items()} for row in rows]
    if "tile_m" in rows[0]:
        columns = {name: column(name) for name in (*TILE, *SAME)}
    else:
        # Tables of before the kernel was in the package have sides of tiles and clusters as wgmma sees them.
        turned = column("turned") > 0
        columns = {name: column(other) for name, other in SAME.items()}
        for name, (along_m, along_n) in TILE.items():
            columns[name] = np.where(turned, column(along_n), column(along_m))
    shape = int(first["m"]), int(first["n"]), int(first["k"])
    product = product_of(shape, first["dtype"], first["layout"])
    seconds = np.array([float(row["us"]) for row in rows]) * 1e-6
    return Measured(product, first["layout"], columns, seconds, float(first["cublas_us"]) * 1e-6)


def fit(gpu: GpuModel, measured: Sequence[Measured], names: Sequence[str], start: CudaConstants) -> CudaConstants:
    """CudaConstants by robust least squares over the logarithms of times."""
    seconds = [each.seconds for each in measured]
    return fitted(start, names, seconds, lambda found: [each.predicted(gpu, found) for each in measured], PRIOR)


def left_out(
    gpu: GpuModel, measured: Sequence[Measured], names: Sequence[str] = NAMES, start: CudaConstants = ASSUMED
) -> Iterator[tuple[Measured, CudaConstants]]:
    """Every product with constants that were fitted without it: named shapes are in no fit."""
    drawn = [each for each in measured if not each.is_named]
    yield from ((each, fit(gpu, [other for other in drawn if other is not each], names, start)) for each in drawn)
    whole = fit(gpu, drawn, names, start)
    yield from ((each, whole) for each in measured if each.is_named)


def show(judged: Sequence[Judgement], what: str) -> None:
    """Errors and first choices of products, and what all of them come to."""
    print(f"# {what}: median and 90 % error of times; error of the fastest; fastest / first choice")
    for each in judged:
        middle, most = np.quantile(each.errors, (0.5, 0.9))
        print(f"{each.name:21} {middle:6.1%} {most:6.1%} {each.bias:+6.1%} {each.share:6.3f}", end="")
        print(f"  chosen {each.chosen}; fastest {each.best}" if each.share < WORTH_SHOWING else "")
    middle, most = np.quantile(np.concatenate([each.errors for each in judged]), (0.5, 0.9))
    shares = [each.share for each in judged]
    print(f"{'all':21} {middle:6.1%} {most:6.1%}        {statistics.geometric_mean(shares):6.3f}", end="")
    took = statistics.median(each.took for each in judged)
    print(f"  worst {min(shares):.3f}; first choices, measured over predicted: median {took:.3f}", flush=True)


def write(constants: CudaConstants, tables: Sequence[Path], number: int, only: Sequence[str]) -> None:
    """Replace the values of the package's constants; what each is stays, and what they were assumed to be."""
    names, note = ", ".join(table.name for table in tables), NOTE.format(number=number)
    if only:
        read = msgspec.json.decode(FILE.read_bytes(), type=ConstantsFile)
        names = f"{read.measured}; {', '.join(only)}: {names}"
        note = f"{read.note} Of these {', '.join(only)} were fitted once more, to {number} other random products."
    write_constants(FILE, constants, measured=names, note=note)


def main() -> None:
    """Fit, judge, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path, nargs="+")
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--judge", type=Path, nargs="+", default=[], help="tables that are in no fit")
    parser.add_argument("--only", nargs="+", default=[], choices=NAMES, metavar="NAME", help="constants to fit")
    parser.add_argument("--write", action="store_true", help="replace the constants in use")
    args = parser.parse_args()
    gpu = load_gpu(args.gpu)
    measured = [each for table in args.tables for each in read_measured(table, gpu)]
    drawn = [each for each in measured if not each.is_named]
    names, start = (args.only, CONSTANTS) if args.only else (NAMES, ASSUMED)
    constants = fit(gpu, drawn, names, start)
    print_constants(constants, names, f"{len(drawn)} random products")
    left = left_out(gpu, measured, names, start)
    judged = [(each, Judgement.of(each, each.predicted(gpu, found))) for each, found in left]
    show([judgement for each, judgement in judged if not each.is_named], "random products, each by a fit without it")
    if len(judged) > len(drawn):
        show([judgement for each, judgement in judged if each.is_named], "named shapes, by a fit to random products")
    for table in args.judge:
        others = read_measured(table, gpu)
        show([Judgement.of(each, each.predicted(gpu, constants)) for each in others], f"{table.name}, in no fit")
    if args.write:
        write(constants, args.tables, len(drawn), args.only)


if __name__ == "__main__":
    main()
