"""`axpy` and `gemv` beside torch: public calls, cold L2, in turn, as shares of the rate of a copy in the same run.

    python -m benchmarks.vectors --out vectors.csv            # the cases of the table; needs a GPU
    python -m benchmarks.vectors --only gemv --dtypes bf16 --sizes 4096x4096   # some of them
    python -m benchmarks.vectors --random 40 --seed 3         # further products, drawn at random
    python -m benchmarks.vectors --each 8                     # and the model's first configurations, by name
    python -m benchmarks.vectors --sweep gemv_configs.csv     # configurations of gemv.triton (gemv_configs.py)
    python -m benchmarks.vectors --fit                        # torch's own times into gemv/measured.json
    python -m benchmarks.vectors --show vectors.csv           # what such a file says; no GPU

Every case is called until its trials are over, is checked against fp64, and is timed: `cold` is a call between two
events after the L2 was overwritten, `loop` calls back to back, `host` the time that a call takes the host. Bytes are
those of all operands and the result, each once; the rate is that of a copy of 1 GiB.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import constrint
from benchmarks.gemv_configs import sweep
from benchmarks.harness.table import Table, described, read_rows
from benchmarks.harness.timing import DTYPES, FLUSHED, cold, copy_bytes_per_s, gpu_here, host, loop, quiet
from constrint.hwmodels import GpuModel
from constrint.kernels.axpy.spec import AxpySpec
from constrint.kernels.gemv.library import MEASURED, GemvLibrarySpec
from constrint.kernels.gemv.shape import MatrixShape
from constrint.select.workload import Workload

COLUMNS = ("operation", "case", "dtype", "who", "how", "median_us", "spread_us", "share", "ratio", "outcome", "program")
#: Sizes of vectors, and (m, n, by columns) of matrices.
LENGTHS = (1 << 16, 1 << 20, 1 << 22, 1 << 24, 1 << 28)
MATRICES = (
    *((4096, 4096, 0), (4096, 4096, 1), (16384, 16384, 0), (16384, 16384, 1), (8192, 28672, 0), (8192, 28672, 1)),
    *((1 << 20, 64, 0), (64, 1 << 20, 1), (64, 1 << 20, 0), (1 << 20, 64, 1), (1024, 1024, 0), (1024, 1024, 1)),
    *((256, 256, 0), (4097, 4099, 0), (4097, 4099, 1), (16, 1 << 20, 0), (1, 1 << 24, 0), (1 << 24, 1, 0)),
)
#: Sizes (log2 of m and n) at which torch's own product is measured for `--fit`, up to this many elements.
GRID, MOST_ELEMENTS = tuple((i, j) for i in range(4, 25, 4) for j in range(4, 25, 4)), 1 << 28
#: Calls until trials are over.
FIRST_CALLS = 4


@dataclass(frozen=True)
class VectorCase:
    """One case: calls by name that return the same, what they should return, and the bytes that they move.

    Args:
        name: Its sizes.
        calls: `ours`, `torch` and others.
        exact: The result in fp64.
        size: Sums of absolute values, from which the error bound follows.
        terms: Terms of a sum.
        moved_bytes: Of all operands and the result.
        program: Says what ours runs.
    """

    name: str
    calls: Mapping[str, Callable[[], Tensor]]
    exact: Tensor
    size: Tensor
    terms: int
    moved_bytes: int
    program: Callable[[], str]


def main() -> None:
    """Run the cases, or show a file."""
    args = parsed()
    if args.show:
        for row in read_rows(args.show):
            print(line_of(row))
        return
    flush = torch.empty(FLUSHED, dtype=torch.int8, device="cuda").zero_
    if args.sweep:
        sweep(gpu_here(), flush, args.sweep, args.dtypes, args.sizes)
        return
    if args.fit:
        fit(gpu_here(), flush)
        return
    rate = copy_bytes_per_s()
    print(f"copy: {rate / 1e12:.3f} TB/s")
    with Table(args.out, COLUMNS, f"{described()}; copy {rate / 1e12:.3f} TB/s") as table:
        for operation, dtype, make in cases_of(args):
            run(operation, dtype, make(), rate, flush, table)


def parsed() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--show", type=Path)
    parser.add_argument("--only", choices=("axpy", "gemv"), default="")
    parser.add_argument("--sizes", nargs="+", default=[], help="cases by name: 4096x4096")
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=["fp32", "bf16"])
    parser.add_argument("--random", type=int, default=0, help="further products of random sizes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", type=int, default=0, help="configurations of the model that are timed by name, too")
    parser.add_argument("--sweep", type=Path, help="time configurations of gemv.triton into this file")
    parser.add_argument("--fit", action="store_true", help="write torch's own times")
    return parser.parse_args()


def cases_of(args: argparse.Namespace) -> Iterator[tuple[str, str, Callable[[], VectorCase]]]:
    """Operation, dtype and maker of every case."""
    draw = random.Random(args.seed)
    matrices = list(MATRICES)
    for _ in range(args.random):
        m, n = (int(2 ** draw.uniform(0, 22)) for _ in range(2))
        if m * n <= MOST_ELEMENTS:
            matrices.append((m, n, draw.randrange(2)))
    for dtype in args.dtypes:
        for length in LENGTHS if args.only != "gemv" else ():
            if not args.sizes or f"{length}" in args.sizes:
                yield "axpy", dtype, partial(axpy_case, length, dtype, args.each)
        for m, n, by_columns in matrices if args.only != "axpy" else ():
            if not args.sizes or f"{m}x{n}" in args.sizes:
                yield "gemv", dtype, partial(gemv_case, m, n, by_columns, dtype, args.each)


def axpy_case(length: int, dtype: str, each: int = 0) -> VectorCase:
    """Sums of vectors of a length."""
    x, y = (torch.randn(length, device="cuda").to(DTYPES[dtype]) for _ in range(2))
    target = torch.zeros_like(y)
    calls: dict[str, Callable[[], Tensor]] = {
        "ours": lambda: constrint.axpy(1.5, x, y),
        "torch": lambda: torch.add(y, x, alpha=1.5),
        "ours in place": lambda: constrint.axpy(1.5, x, target, inplace=True),
        "torch in place": lambda: target.add_(x, alpha=1.5),
    }
    workload = Workload("axpy", {"n": length}, dtype)
    ranked = constrint.rank("axpy", gpu_here(), workload=workload, top=each).candidates if each else ()
    for number, candidate in enumerate(ranked):
        forced: dict[str, Any] = {"kernel": "triton", "config": candidate.config}
        calls[f"{number} {dict(candidate.config)}"] = partial(constrint.axpy, 1.5, x, y, **forced)
    moved = AxpySpec().moved_bytes(workload)
    exact = 1.5 * x.double() + y.double()
    size = 1.5 * x.double().abs() + y.double().abs()
    return VectorCase(f"{length}", calls, exact, size, 2, moved, lambda: why("axpy", 1.5, x, y))


def gemv_case(m: int, n: int, by_columns: int, dtype: str, each: int = 0) -> VectorCase:
    """A product of a matrix of a layout."""
    a = torch.randn((n, m) if by_columns else (m, n), device="cuda").to(DTYPES[dtype])
    a, x = a.T if by_columns else a, torch.randn(n, device="cuda").to(DTYPES[dtype])
    calls: dict[str, Callable[[], Tensor]] = {"ours": lambda: constrint.gemv(a, x), "torch": lambda: torch.mv(a, x)}
    workload = Workload("gemv", {"m": m, "n": n}, dtype, {"transposed": 1} if by_columns else {})
    ranked = constrint.rank("gemv.triton", gpu_here(), workload=workload, top=each).candidates if each else ()
    for number, candidate in enumerate(ranked):
        forced: dict[str, Any] = {"kernel": "triton", "config": candidate.config}
        calls[f"{number} {dict(candidate.config)}"] = partial(constrint.gemv, a, x, **forced)
    exact, size = products_of(a, x)
    moved = MatrixShape.of(workload).moved_bytes
    name = f"{m}x{n}{' by columns' if by_columns else ''}"
    return VectorCase(name, calls, exact, size, n, moved, lambda: why("gemv", a, x))


def products_of(a: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """a x and |a| |x| in fp64, in pieces of rows."""
    exact, size = (torch.zeros(a.shape[0], dtype=torch.float64, device=a.device) for _ in range(2))
    step = max(1, (1 << 26) // max(1, a.shape[1]))
    wide = x.double()
    for first in range(0, a.shape[0], step):
        rows = a[first : first + step].double()
        exact[first : first + step] = rows @ wide
        size[first : first + step] = rows.abs_() @ wide.abs()
    return exact, size


def why(name: str, *arguments: Any) -> str:
    """The program that later calls run."""
    decision = getattr(constrint, name).why(*arguments)
    return str(decision.recorded or f"{decision.program.name} {dict(decision.config)}")


def run(operation: str, dtype: str, case: VectorCase, rate: float, flush: Callable[[], Any], table: Table) -> None:
    """Check a case and time its calls."""
    kind = DTYPES[dtype]
    eps = torch.finfo(torch.float64 if dtype == "fp64" else torch.float32).eps
    bound = 2 * (case.terms**0.5 + 8) * eps * case.size + torch.finfo(kind).eps * case.exact.abs() + 1e-30
    outcomes = {}
    for who, call in case.calls.items():
        for _ in range(FIRST_CALLS):
            result = call()
            torch.cuda.synchronize()
        over = 0.0 if "in place" in who else float(((result.double() - case.exact).abs() / bound).max())
        outcomes[who] = "right" if over <= 1 else f"{over:.1f} times the bound"
    for how, measure in (("cold", lambda: cold(case.calls, flush)), ("loop", lambda: loop(case.calls))):
        figures = quiet(measure)
        for who, (median, spread) in figures.items():
            peer = figures["torch in place" if "in place" in who else "torch"][0]
            row: dict[str, Any] = {"operation": operation, "case": case.name, "dtype": dtype, "who": who, "how": how}
            row |= {"median_us": median, "spread_us": spread, "share": case.moved_bytes / (median * 1e-6) / rate}
            row |= {
                "ratio": peer / median,
                "outcome": outcomes[who],
                "program": case.program() if who == "ours" else "",
            }
            print(line_of(table.add(**row)), flush=True)
    if case.moved_bytes < 1 << 20:
        print("  host us", {who: round(median, 2) for who, (median, _) in host(case.calls).items()})


def line_of(row: Mapping[str, Any]) -> str:
    """A row as a line of text."""
    places = f"{row['operation']} {row['case']:>20} {row['dtype']:5} {row['how']:5} {row['who']:15.60}"
    numbers = (
        f"{float(row['median_us']):9.2f} us  share {float(row['share']):5.3f}  torch/ours {float(row['ratio']):5.2f}"
    )
    return f"{places} {numbers} {row['outcome']} {row['program']}"


def fit(gpu: GpuModel, flush: Callable[[], Any]) -> None:
    """Measure torch's own products at a grid of sizes, and write them beside those of other GPUs."""
    rows = []
    for dtype, by_columns, (i, j) in product(DTYPES, (0, 1), GRID):
        m, n = 1 << i, 1 << j
        if m * n <= MOST_ELEMENTS:
            a = torch.ones((n, m) if by_columns else (m, n), device="cuda", dtype=DTYPES[dtype])
            x = torch.ones(n, device="cuda", dtype=DTYPES[dtype])
            seconds = 1e-6 * cold({"torch": partial(torch.mv, a.T if by_columns else a, x)}, flush)["torch"][0]
            row = {"dtype": dtype, "transposed": by_columns, "m": m, "n": n}
            moved = (m * n + m + n) * a.element_size()
            rows.append(row | {"bytes": moved, "seconds": round(seconds, 9)})
    tables = json.loads(MEASURED.read_text()) if MEASURED.is_file() else {}
    tables[gpu.name] = rows
    texts = {name: ",\n".join(f"  {json.dumps(row)}" for row in of) for name, of in tables.items()}
    lines = [f' "{name}": [\n{text}\n ]' for name, text in texts.items()]
    MEASURED.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(rows)} times of {GemvLibrarySpec().full_name} on {gpu.name} into {MEASURED}")


if __name__ == "__main__":
    main()
