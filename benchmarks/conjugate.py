"""`constrint.cg` beside loops that a user of torch would write, and CuPy's where it is installed.

    python -m benchmarks.conjugate --out conjugate.csv    # check, then time every case
    python -m benchmarks.conjugate --ranked 24 --out cg.csv  # configurations along the model's ranking, too
    python -m benchmarks.conjugate --cases poisson_2d     # some cases

Time per iteration is the slope between solves of two numbers of iterations without a tolerance, each the median of
several calls that take turns with the others; `fixed_us` is what remains at no iteration. `share` is the time that the
bytes of an iteration take at the rate of a large copy in the same run, over the time that it took: of eight vectors for
a star, and of the matrix and nine vectors for CSR (`constrint/kernels/cg/cost.py`). It exceeds 1 where vectors stay on
the chip. `--ranked` takes the model's first configurations and others at equal distances down its ranking, with the
predicted time of an iteration, and prints the rank correlation with measured ones and the first choice over the best.
Checks compare iterates and iteration counts with the textbook's loop in fp64, on ragged sizes, with memory of
NaN.
"""

from __future__ import annotations

import argparse
import inspect
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.harness.table import Table, attempt, described
from benchmarks.harness.timing import copy_bytes_per_s, events, gpu_here
from constrint.choose import Request, decide
from constrint.hwmodels import GpuModel
from constrint.kernels.cg import Poisson, StarMatrix, cg
from constrint.kernels.cg.cost import iteration_bytes
from constrint.kernels.cg.launch import Span, cg_launch, memory_of
from constrint.kernels.cg.reference import apply_star, plain_iterations
from constrint.kernels.cg.shape import System
from constrint.ranking import rank
from constrint.select.candidate import Config
from constrint.select.workload import Workload

COLUMNS = (
    *("case", "who", "us_per_iteration", "fixed_us", "spread_us", "share", "ratio", "config", "outcome"),
    "predicted_us",
)
#: First configurations of a ranking that are timed before those at equal distances, and configurations that are ranked.
LEADING, RANKED = 6, 20_000
#: Iterations of the two solves whose difference is timed, and rounds.
FEW, MANY, ROUNDS = 20, 120, 7

Run = Callable[[int], object]


@dataclass(frozen=True)
class Case:
    """A system by name: a star, or the same matrix in CSR."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    is_csr: bool = False

    @property
    def star(self) -> StarMatrix:
        """The star of the matrix."""
        return Poisson(self.shape)

    def matrix(self) -> Any:
        """The matrix as `cg` takes it."""
        return csr_of_star(self.star, self.dtype) if self.is_csr else self.star


CASES = (
    Case("poisson_2d", (2048, 2048), torch.float64),
    Case("poisson_3d", (128, 128, 128), torch.float64),
    Case("poisson_2d_csr", (2048, 2048), torch.float64, is_csr=True),
    Case("poisson_3d_csr", (128, 128, 128), torch.float64, is_csr=True),
    Case("poisson_2d_fp32", (2048, 2048), torch.float32),
    Case("poisson_2d_4096", (4096, 4096), torch.float64),
    Case("poisson_2d_512", (512, 512), torch.float64),
    Case("poisson_2d_64", (64, 64), torch.float64),
)


#: Cases that torch.compile takes part in; it compiles for seconds.
COMPILED = ("poisson_2d", "poisson_3d")
#: Ragged systems that are checked; every one of them is a kernel of its own.
CHECKED = (
    *(((1000,), torch.float64, False), ((257, 129), torch.float64, False), ((17, 19, 23), torch.float64, False)),
    *(((128, 40, 30), torch.float64, False), ((640, 512), torch.float32, False), ((1,), torch.float64, False)),
    *(((7,), torch.float64, True), ((257, 129), torch.float64, True), ((65, 64, 63), torch.float32, True)),
    ((1000, 700), torch.float64, True),
)


def csr_of_star(star: StarMatrix, dtype: torch.dtype) -> Tensor:
    """The matrix of a star in CSR with int32 indices, on the GPU."""
    nz, ny, nx = star.extents
    rows = torch.arange(star.num_rows, device="cuda")
    x, y, z = rows % nx, rows // nx % ny, rows // (nx * ny)
    columns, values = [], []
    points = {(0, 0, 0): star.centre, **star.neighbours}
    for dz, dy, dx in sorted(points):
        inside = (x + dx >= 0) & (x + dx < nx) & (y + dy >= 0) & (y + dy < ny) & (z + dz >= 0) & (z + dz < nz)
        columns.append(torch.where(inside, rows + (dz * ny + dy) * nx + dx, -1))
        values.append(torch.full_like(rows, points[dz, dy, dx], dtype=dtype))
    every, filled = torch.stack(columns, 1), torch.stack(values, 1)
    there = every >= 0
    starts = torch.nn.functional.pad(there.sum(1).cumsum(0), (1, 0))
    n = star.num_rows
    return torch.sparse_csr_tensor(starts.int(), every[there].int(), filled[there], (n, n))


def sliced_product(star: StarMatrix) -> Callable[[Tensor], Tensor]:
    """The product by slices of a padded grid, as one would write it for torch.compile."""

    def product(v: Tensor) -> Tensor:
        grid = v.reshape(star.shape)
        padded = torch.nn.functional.pad(grid, (1, 1) * len(star.shape))
        out = star.centre * grid
        for offset, value in star.offsets.items():
            if any(offset):
                cut = tuple(slice(1 + step, 1 + step + size) for step, size in zip(offset, star.shape, strict=True))
                out = out + value * padded[cut]
        return out.reshape(-1)

    return product


def torch_loop(product: Callable[[Tensor], Tensor], b: Tensor) -> Run:
    """A loop that never waits for the device: as many iterations as are named, scalars in tensors."""

    def run(number: int) -> Tensor:
        x, r = torch.zeros_like(b), b.clone()
        p, rho = r.clone(), torch.dot(r, r)
        for _ in range(number):
            q = product(p)
            alpha = rho / torch.dot(p, q)
            x.addcmul_(alpha, p)
            r.addcmul_(alpha, q, value=-1)
            before, rho = rho, torch.dot(r, r)
            p.mul_(rho / before).add_(r)
        return x

    return run


def compiled_loop(star: StarMatrix, b: Tensor) -> Run:
    """The same with one compiled function an iteration: product, both sums and all updates fused as inductor can."""
    product = sliced_product(star)

    def step(x: Tensor, r: Tensor, p: Tensor, rho: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        q = product(p)
        alpha = rho / (p * q).sum()
        x = x + alpha * p
        r = r - alpha * q
        after = (r * r).sum()
        return x, r, r + (after / rho) * p, after

    compiled = torch.compile(step, dynamic=False)

    def run(number: int) -> Tensor:
        x, r, p = torch.zeros_like(b), b.clone(), b.clone()
        rho = (r * r).sum()
        for _ in range(number):
            x, r, p, rho = compiled(x, r, p, rho)
        return x

    return run


def cupy_loop(case: Case, b: Tensor) -> Run | None:
    """CuPy's solver on the matrix in CSR; None where CuPy is not installed."""
    try:
        import cupy  # type: ignore[import-not-found]
        from cupyx.scipy.sparse import csr_matrix  # type: ignore[import-not-found]
        from cupyx.scipy.sparse.linalg import cg as cupy_cg  # type: ignore[import-not-found]
    except ImportError:
        return None
    matrix = csr_of_star(case.star, case.dtype)
    parts = (matrix.values(), matrix.col_indices(), matrix.crow_indices())
    own = csr_matrix(tuple(cupy.from_dlpack(part) for part in parts), shape=matrix.shape)
    right = cupy.from_dlpack(b)
    # CuPy 14 renamed it.
    tolerance = {"rtol" if "rtol" in inspect.signature(cupy_cg).parameters else "tol": 0.0}

    def run(number: int) -> object:
        with cupy.cuda.Stream.null:
            solved = cupy_cg(own, right, **tolerance, atol=0.0, maxiter=number)
            cupy.cuda.Stream.null.synchronize()
        return solved

    return run


def runs_of(case: Case) -> dict[str, Run]:
    """Everyone who solves a case, ours first."""
    draw = torch.Generator("cuda").manual_seed(1)
    b = torch.randn((case.star.num_rows,), device="cuda", dtype=torch.float64, generator=draw).to(case.dtype)
    matrix = case.matrix()
    runs: dict[str, Run] = {"constrint": lambda number: cg(matrix, b, rtol=0.0, maxiter=number)}
    if case.is_csr:
        runs["torch"] = torch_loop(lambda v: torch.mv(matrix, v), b)
        other = cupy_loop(case, b)
        if other is not None:
            runs["cupy"] = other
    else:
        runs["torch"] = torch_loop(sliced_product(case.star), b)
        if case.name in COMPILED:
            runs["torch_compiled"] = compiled_loop(case.star, b)
        runs["constrint_operator"] = lambda number: cg(sliced_product(case.star), b, rtol=0.0, maxiter=number)
    return runs


def slope(run: Run, rounds: int = ROUNDS) -> Iterator[tuple[float, float]]:
    """(us of a solve of FEW iterations, us of MANY), one pair a round."""
    for _ in range(rounds):
        seen = []
        for number in (FEW, MANY):
            torch.cuda.synchronize()
            began = time.perf_counter()
            run(number)
            torch.cuda.synchronize()
            seen.append(1e6 * (time.perf_counter() - began))
        yield seen[0], seen[1]


def figures(pairs: list[tuple[float, float]]) -> dict[str, float]:
    """Median time per iteration, its spread, and what remains at no iteration."""
    each = [(many - few) / (MANY - FEW) for few, many in pairs]
    low, middle, high = statistics.quantiles(each, n=4)
    fixed = statistics.median(few for few, _ in pairs) - FEW * middle
    return {"us_per_iteration": middle, "spread_us": (high - low) / 2, "fixed_us": fixed}


def system_of(case: Case, matrix: Any) -> System:
    """The system of a case, for its bytes."""
    dtype = "fp64" if case.dtype == torch.float64 else "fp32"
    if isinstance(matrix, StarMatrix):
        return System(matrix.num_rows, dtype, matrix)
    return System(matrix.shape[0], dtype, None, matrix.values().numel())


def solve_once(run: Run) -> None:
    """Solve, so that everything is compiled."""
    run(FEW)
    run(MANY)
    torch.cuda.synchronize()


def measure(case: Case, table: Table, rate: float) -> None:
    """Time everyone in turn; write rows."""
    runs = runs_of(case)
    outcomes = {who: attempt(partial(solve_once, run)) for who, run in runs.items()}
    able = {who: run for who, run in runs.items() if outcomes[who]["outcome"] == "ok"}
    pairs: dict[str, list[tuple[float, float]]] = {who: [] for who in able}
    for _ in range(ROUNDS):
        for who, run in able.items():
            pairs[who] += slope(run, 1)
    best_s = 1e6 * iteration_bytes(system_of(case, case.matrix())) / rate
    seen = {who: figures(found) for who, found in pairs.items()}
    for who in runs:
        figure = seen.get(who, {})
        row = {"case": case.name, "who": who, **figure, **outcomes[who]}
        if figure:
            row["share"] = best_s / figure["us_per_iteration"]
            row["ratio"] = (
                figure["us_per_iteration"] / seen["constrint"]["us_per_iteration"] if "constrint" in seen else ""
            )
        print_row(table.add(**row))


def print_row(row: dict[str, Any]) -> None:
    """One line of the short table."""
    print("  ".join(f"{row.get(name, '')!s:>{width}}" for name, width in zip(COLUMNS, WIDTHS, strict=True)), flush=True)


WIDTHS = (16, 20, 10, 9, 8, 8, 8, 4, 4, 8)


def poison() -> None:
    """Fill memory that torch will hand out next with NaN."""
    for size in (1 << 12, 1 << 16, 1 << 20, 1 << 23):
        torch.full((size,), float("nan"), dtype=torch.float64, device="cuda")


def check() -> int:
    """Compare with the textbook's loop in fp64; the number of failures."""
    failures = 0
    for shape, dtype, is_csr in CHECKED:
        case = Case(f"{shape}", shape, dtype, is_csr)
        star, matrix = case.star, case.matrix()
        b = torch.randn((star.num_rows,), device="cuda", dtype=torch.float64).to(dtype)
        for preconditioner in (None, "jacobi"):
            poison()
            found = cg(matrix, b, rtol=1e-10 if dtype == torch.float64 else 1e-4, preconditioner=preconditioner)
            left = (b.double() - apply_star(star, found.x.double())).norm()
            few = cg(matrix, b, rtol=0.0, maxiter=min(12, star.num_rows // 4 + 1), preconditioner=preconditioner)
            inverse = torch.full_like(b.double(), 1 / star.centre) if preconditioner else None
            expected, _ = plain_iterations(partial(apply_star, star), b.double(), inverse, few.iterations)
            error = (few.x.double() - expected).abs().max() / expected.abs().max()
            bound = 200 * torch.finfo(dtype).eps
            good = found.is_converged and abs(float(left) - found.residual) <= 0.05 * found.residual + 1e-13
            again = cg(matrix, b, rtol=0.0, maxiter=few.iterations, preconditioner=preconditioner)
            if not (good and error <= bound and torch.equal(again.x, few.x) and found.kernel == "cuda"):
                failures += 1
                print(
                    f"FAILED {shape} {dtype} csr={is_csr} {preconditioner} {found.status} {found.kernel} "
                    f"{found.iterations} residual {found.residual:.3g} against {float(left):.3g}, "
                    f"iterate off by {float(error):.3g}"
                )
    return failures


def sweep(
    case: Case,
    table: Table,
    rate: float,
    configs: Sequence[Config],
    until: float,
    predicted_us: Sequence[float] = (),
) -> None:
    """Time configurations of the CUDA kernel, by launches of two numbers of iterations; beside predictions, if any."""
    gpu, matrix = gpu_here(), case.matrix()
    b = torch.randn((case.star.num_rows,), device="cuda", dtype=torch.float64).to(case.dtype)
    held = matrix if isinstance(matrix, StarMatrix) else (matrix.crow_indices(), matrix.col_indices(), matrix.values())
    memory = memory_of(b, torch.empty_like(b), held, MANY + 1, 64 * 132)
    best_us = 1e6 * iteration_bytes(system_of(case, matrix)) / rate

    def launch(config: Config, number: int) -> Any:
        return cg_launch(gpu, memory, config, Span(0.0, 0.0, 0, number, number, has_guess=False))

    with ThreadPoolExecutor(16) as pool:
        built = list(pool.map(lambda config: attempt(launch(config, MANY).warm_up), configs))
    timed: list[tuple[float, float]] = []
    for place, (config, outcome) in enumerate(zip(configs, built, strict=True)):
        if time.time() > until:
            print(f"{case.name}: the time is over")
            break
        spilled: list[int] = []

        def time_it(config: Config = config, spilled: list[int] = spilled) -> dict[str, float]:
            spilled.append(launch(config, MANY).binary.spill_bytes)
            times: dict[int, list[float]] = {FEW: [], MANY: []}
            for number in (FEW, MANY) * 5:
                memory.slots.zero_()
                begin, end = events()
                begin.record()
                launch(config, number).run()
                end.record()
                torch.cuda.synchronize()
                times[number].append(1e3 * begin.elapsed_time(end))
            few, many = statistics.median(times[FEW]), statistics.median(times[MANY])
            each = (many - few) / (MANY - FEW)
            return {"us_per_iteration": each, "fixed_us": few - FEW * each, "share": best_us / each}

        row = attempt(time_it) if outcome["outcome"] == "ok" else outcome
        if predicted_us:
            row = {**row, "predicted_us": predicted_us[place]}
            timed += [(predicted_us[place], row["us_per_iteration"])] if "us_per_iteration" in row else []
        shown = " ".join(f"{name}={value}" for name, value in config.items())
        print_row(table.add(case=case.name, who="config", config=f"{shown} spills={spilled}", **row))
    if len(timed) > 1:
        print(f"{case.name}: {agreement(timed)}", flush=True)


def agreement(timed: Sequence[tuple[float, float]]) -> str:
    """How predicted times, in the order of the model's ranking, agree with measured ones."""
    predicted, measured = zip(*timed, strict=True)
    correlation = rank_correlation(predicted, measured)
    best = min(measured)
    errors = statistics.median(abs(p - m) / m for p, m in timed)
    return (
        f"{len(timed)} configurations, rank correlation {correlation:.2f}, first choice {measured[0] / best:.3f} "
        f"of the best time, median error of predictions {errors:.0%}"
    )


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's; equal values have the mean of their places. 0 where all values of one are equal."""
    places: list[Any] = []
    for values in (a, b):
        _, at, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
        places.append((np.cumsum(counts) - (counts - 1) / 2.0)[at])
    if any(len(set(each.tolist())) == 1 for each in places):
        return 0.0
    return float(np.corrcoef(np.stack(places))[0, 1])


def ranked_configs(case: Case, number: int, gpu: GpuModel) -> tuple[list[Config], list[float]]:
    """Configurations along the model's ranking, and predicted microseconds of an iteration."""
    star, dtype = case.star, "fp64" if case.dtype == torch.float64 else "fp32"
    sizes = {"rows": star.num_rows, "nnz": len(star.offsets) * star.num_rows}
    options = {} if case.is_csr else {"nx": case.shape[-1], "ny": case.shape[-2]}
    many, few = (Workload("cg", sizes, dtype, {**options, "iterations": iterations}) for iterations in (MANY, FEW))
    listed = rank("cg.cuda", gpu, many, top=RANKED).candidates
    step = max(1, (len(listed) - LEADING) // max(1, number - LEADING))
    chosen = [*listed[:LEADING], *listed[LEADING::step]][:number]
    predicted = []
    for each in chosen:
        less = decide(Request("cg", few, gpu, kernel="cuda", config=each.config)).seconds
        predicted.append(1e6 * (each.cost.seconds - less) / (MANY - FEW))
    return [each.config for each in chosen], predicted


def main() -> None:
    """Check, time and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--cases", nargs="+", choices=[case.name for case in CASES])
    parser.add_argument("--ranked", type=int, default=0, help="so many configurations along the model's ranking, too")
    parser.add_argument("--no-cases", action="store_true", help="time configurations alone")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="configurations are timed until then")
    parser.add_argument("--no-check", action="store_true")
    args = parser.parse_args()
    began = time.time()
    if not args.no_check:
        print(f"checks: {check()} failed, {time.time() - began:.0f} s", flush=True)
    rate = copy_bytes_per_s()
    print(f"copy {rate / 1e12:.2f} TB/s")
    print("  ".join(f"{name:>{width}}" for name, width in zip(COLUMNS, WIDTHS, strict=True)))
    with Table(args.out, COLUMNS, described()) as table:
        for case in CASES:
            if not args.no_cases and (args.cases is None or case.name in args.cases):
                measure(case, table, rate)
        for case in CASES[:4] if args.ranked else ():
            configs, predicted = ranked_configs(case, args.ranked, gpu_here())
            sweep(case, table, rate, configs, began + args.seconds, predicted)
    print(f"{time.time() - began:.0f} s")


if __name__ == "__main__":
    main()
