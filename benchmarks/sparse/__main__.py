"""`spmv` beside torch (cuSPARSE), as it is called, on matrices that programs make.

    python -m benchmarks.sparse --out spmv.csv                        # every matrix, fp32
    python -m benchmarks.sparse --dtypes fp32 fp64 --only poisson uniform
    python -m benchmarks.sparse --show spmv.csv                       # what such a file says; no GPU
    python -m benchmarks.sparse --limits spmv.csv                     # beside what bytes and sectors of x take; no GPU

A matrix is made by its program (`matrices.py`) and multiplied until trials are over and copies that pay are made, by
the argument `reuse`. Nothing else holds its values, so that torch's counters of writes say that copies are of them;
with `--compare` values are compared in every product. Then both are called from Python in turn, with a cold L2. Results
are compared with fp64. `share` is the least traffic (entries with indices of 32 bits, offsets, x and y, each once) over
time, as a share of the rate at which a copy of 1 GiB reads and writes on the same device. `first_ms` is the time of the
calls before.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.harness.table import Table, described, print_ratios, read_rows
from benchmarks.harness.timing import DTYPES, FLUSHED, cold, copy_bytes_per_s, host, quiet
from benchmarks.sparse.matrices import MATRICES, pattern_of
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.spmv import spmv
from constrint.kernels.spmv.cost import SECTOR_BYTES, SparseShape, sectors_per_s
from constrint.kernels.spmv.reference import spmv_reference
from constrint.kernels.spmv.structure import known
from constrint.select.workload import Workload

COLUMNS = (
    *("matrix", "dtype", "rows", "cols", "nnz", "longest", "spread", "scattered", "who", "median_us", "spread_us"),
    *("share", "ratio", "host_us", "first_ms", "copied_mb", "outcome", "program"),
)
#: Products that `reuse` announces, and calls before a measurement.
REUSE, FIRST_CALLS = 10_000, 8


def main() -> None:
    """Run, or show a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--show", type=Path)
    parser.add_argument("--limits", type=Path)
    parser.add_argument("--gpu", default="h200", help="whose L2 `--limits` takes")
    parser.add_argument("--dtypes", nargs="+", choices=list(DTYPES), default=["fp32"])
    parser.add_argument("--only", nargs="+", default=[], help="matrices whose names contain one of these")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="time after which no matrix is begun")
    parser.add_argument(
        "--compare", action="store_true", help="compare values with those that were copied in every product"
    )
    args = parser.parse_args()
    if args.show:
        summarise(read_rows(args.show))
        return
    if args.limits:
        limits(read_rows(args.limits), load_gpu(args.gpu))
        return
    began = time.time()
    rate = copy_bytes_per_s()
    print(f"copy: {rate / 1e12:.2f} TB/s")
    flush = torch.empty(FLUSHED, dtype=torch.int8, device="cuda")
    with Table(args.out, COLUMNS, described()) as table:
        for name in MATRICES:
            if (args.only and not any(each in name for each in args.only)) or time.time() - began > args.seconds:
                continue
            pattern = pattern_of(name, "cuda")
            for dtype in args.dtypes:
                measure(
                    name,
                    pattern.matrix(DTYPES[dtype]),
                    dtype,
                    table,
                    flush.zero_,
                    rate,
                    frozen=False if args.compare else None,
                )
            torch.cuda.empty_cache()
        summarise(table.texts())
    print(f"{time.time() - began:.0f} s")


def measure(
    name: str, matrix: Tensor, dtype: str, table: Table, flush: Any, rate: float, *, frozen: bool | None = None
) -> None:
    """Check and time one matrix; write a row for each caller."""
    x = torch.randn(matrix.shape[1], device="cuda").to(matrix.dtype)
    torch.cuda.synchronize()
    before = time.perf_counter()
    for _ in range(FIRST_CALLS):
        out = spmv(matrix, x, reuse=REUSE, frozen=frozen)
        torch.cuda.synchronize()
    first_ms = 1e3 * (time.perf_counter() - before)
    outcome = "ok" if is_right(out, matrix, x) else "wrong result"
    calls = {
        "torch": lambda: torch.mv(matrix, x),
        "ours": lambda: spmv(matrix, x, reuse=REUSE, frozen=frozen),
    }
    figures, hosts = quiet(lambda: cold(calls, flush)), host(calls)
    found = known(matrix)
    facts, entries, element = found.read().facts, matrix.values().numel(), x.element_size()
    moved = entries * (element + 4) + 4 * (matrix.shape[0] + 1) + element * sum(matrix.shape)
    theirs = figures["torch"][0]
    for who, (median_us, spread_us) in figures.items():
        row: dict[str, Any] = {"matrix": name, "dtype": dtype, "rows": matrix.shape[0], "cols": matrix.shape[1]}
        row |= {"nnz": entries, "longest": facts.longest, "spread": facts.spread, "scattered": facts.scattered}
        row |= {"who": who, "median_us": median_us, "spread_us": spread_us, "ratio": theirs / median_us}
        row |= {"share": moved / (1e-6 * median_us) / rate, "host_us": hosts[who][0], "outcome": outcome}
        if who == "ours":
            row |= {"first_ms": first_ms, "copied_mb": found.num_copied_bytes / 1e6, "program": program_of(found)}
        table.add(**row)
    ours = figures["ours"][0]
    share = moved / (1e-6 * ours) / rate
    print(
        f"{name:22} {dtype:5} {theirs:8.1f} {ours:8.1f} us  x{theirs / ours:5.2f}  share {share:.2f}"
        f"  host {hosts['torch'][0]:.1f} {hosts['ours'][0]:.1f}  {outcome}  {program_of(found)}",
        flush=True,
    )


def program_of(found: Any) -> str:
    """Kernel and configuration that run now."""
    return ", ".join(run.describe() for run in found.runs.values() if hasattr(run, "describe"))


def is_right(out: Tensor, matrix: Tensor, x: Tensor) -> bool:
    """Whether a result is within the rounding of its sums."""
    crow, columns, values = matrix.crow_indices(), matrix.col_indices(), matrix.values()
    exact, weight = spmv_reference(crow, columns, values, x), spmv_reference(crow, columns, values.abs(), x.abs())
    unit = torch.finfo(torch.float64 if x.dtype == torch.float64 else torch.float32).eps
    bound = (crow[1:] - crow[:-1] + 3) * unit * weight + torch.finfo(x.dtype).eps * exact.abs() + 1e-30
    return bool(((out.double() - exact).abs() <= bound).all())


def limits(rows: list[dict[str, str]], gpu: GpuModel) -> None:
    """What products have to wait for: the least bytes at a copy's rate, and x from the L2 by the rate of the model.

    A kernel that reads CSR takes the sectors of x that its entries touch. `panels` takes x from shared memory instead.
    """
    print("us: measured; least bytes at the rate of a copy; sectors of x from the L2 for entries in the order of CSR")
    for row in rows:
        if row["who"] == "ours":
            sizes = {name: int(row[name]) for name in ("rows", "cols", "nnz")}
            options = {name: int(row[name]) for name in ("longest", "spread", "scattered")}
            shape = SparseShape.of(Workload("spmv", sizes, row["dtype"], options))
            measured = float(row["median_us"])
            gathered = 1e6 * shape.gathered_bytes(gpu) / SECTOR_BYTES / sectors_per_s(gpu)
            times = f"{measured:7.1f} {measured * float(row['share']):7.1f} {gathered:7.1f}"
            print(f"{row['matrix']:22} {row['dtype']:5} {times}  x{float(row['ratio']):5.2f}  {row['program']}")


def summarise(rows: list[dict[str, str]]) -> None:
    """Ratios over all matrices, by dtype."""
    for dtype in dict.fromkeys(row["dtype"] for row in rows):
        ours = [row for row in rows if row["dtype"] == dtype and row["who"] == "ours"]
        wrong = [row["matrix"] for row in ours if row["outcome"] != "ok"]
        print_ratios(f"torch / ours, {dtype}, cold", [float(row["ratio"]) for row in ours])
        if wrong:
            print(f"wrong: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
