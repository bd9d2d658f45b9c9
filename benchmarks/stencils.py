"""Sweeps of stencils: `constrint.jacobi` beside what a user of torch would write, eager and compiled.

    python -m benchmarks.stencils --out stencils.csv   # on a GPU
    python -m benchmarks.stencils --show stencils.csv  # what such a file says; no GPU

Everyone is called from plain Python, in turn, each time after the L2 was overwritten. `us_per_step` is a call's time
over its steps; `share` is the time of adding two grids of the same size into a third (two reads and a write, by torch,
in the same turns) over `us_per_step`: a sweep that moves each grid once reaches 1, several steps in a launch exceed it.
Results are checked against fp64 before they are timed, within the bound that follows from type, star and steps.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.harness.table import Table, attempt, described, print_ratios, read_rows
from benchmarks.harness.timing import DTYPES, FLUSHED, cold, host, quiet
from constrint.kernels.jacobi import jacobi
from constrint.kernels.jacobi.reference import NARROW, sweeps_reference
from constrint.kernels.jacobi.star import StarStencil, star_of

COLUMNS = (
    *("case", "who", "median_us", "spread_us", "us_per_step", "share", "to_eager", "to_compile", "host_us"),
    *("error", "bound", "outcome"),
)
ADDING, OURS, EAGER, COMPILED = "add", "ours", "torch eager", "torch.compile"
#: Calls before a case is timed.
FIRST_CALLS = 3
#: A star of nine points on each axis, as in finite differences of eighth order; its factors sum to 0.98.
REACH = (0.16, 0.05, 0.02, 0.01)
WIDE: dict[Any, float] = {
    offset: factor
    for distance, factor in enumerate(REACH, 1)
    for offset in ((0, distance), (0, -distance), (distance, 0), (-distance, 0))
} | {(0, 0): 0.02, "f": 0.25}


@dataclass(frozen=True)
class StencilCase:
    """A grid, a type, a star and a number of steps."""

    shape: tuple[int, ...]
    steps: int
    dtype: str = "fp32"
    stencil: str = ""

    @property
    def name(self) -> str:
        """Name of the case."""
        return " ".join(filter(None, ("x".join(map(str, self.shape)), self.dtype, f"{self.steps} steps", self.stencil)))

    @property
    def star(self) -> StarStencil:
        """The star."""
        return star_of(WIDE if self.stencil else None, len(self.shape))


CASES = (
    *(StencilCase((8192, 8192), steps) for steps in (1, 4, 16, 32)),
    *(StencilCase((512, 512, 512), steps) for steps in (1, 4, 16)),
    *(StencilCase((8192, 8192), 16, dtype) for dtype in ("fp64", "bf16", "fp16")),
    StencilCase((8192, 8192), 8, stencil="wide"),
    StencilCase((8192, 8192), 1, stencil="wide"),
    *(StencilCase(shape, 16) for shape in ((4096, 4096), (2048, 2048), (512, 512), (64, 64))),
    *(StencilCase(shape, 16) for shape in ((256, 256, 256), (128, 128, 128), (32, 32, 32))),
    *(StencilCase(shape, steps) for shape in ((1000, 1001), (300, 301, 303)) for steps in (1, 10)),
)


def main() -> None:
    """Run, or show a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--show", type=Path)
    parser.add_argument("--only", default="", help="cases whose name has this text")
    parser.add_argument("--each", action="store_true", help="each kernel by name, too")
    args = parser.parse_args()
    if args.show:
        show_cases(read_rows(args.show))
        show_ratios(read_rows(args.show))
        return
    with Table(args.out, COLUMNS, described()) as table:
        flush = torch.empty(FLUSHED, dtype=torch.int8, device="cuda")
        for case in CASES:
            if args.only in case.name:
                before = len(table.rows)
                measure(case, table, flush.zero_, with_each=args.each)
                show_cases(table.texts()[before:])
                torch.cuda.empty_cache()
    show_ratios(table.texts())


def measure(case: StencilCase, table: Table, flush: Callable[[], object], *, with_each: bool) -> None:
    """Check and time one case; write its rows."""
    u, f = (torch.randn(case.shape, device="cuda").to(DTYPES[case.dtype]) for _ in range(2))
    given, outcomes = calls_of(case, u, f, with_each=with_each), {}
    for who in list(given):

        def check(who: str = who) -> dict[str, Any]:
            for _ in range(FIRST_CALLS):
                given[who]()
            return errors_of(case, u, f, given[who])

        outcomes[who] = attempt(check)
        if outcomes[who]["outcome"] != "ok":
            del given[who]
    total = torch.empty_like(u)
    given[ADDING] = lambda: torch.add(u, f, out=total)
    figures, of_host = quiet(lambda: cold(given, flush)), host(given)
    for who, (median, spread) in figures.items():
        of_step = median / (1 if who == ADDING else case.steps)
        outcome = outcomes.get(who, {"outcome": "ok"})
        if outcome["outcome"] == "ok" and outcome.get("error", 0.0) > outcome.get("bound", math.inf):
            outcome["outcome"] = "wrong result"
        ratios = {
            key: figures[peer][0] / median
            for key, peer in (("to_eager", EAGER), ("to_compile", COMPILED))
            if peer in figures and who != ADDING
        }
        rest = {"us_per_step": of_step, "share": figures[ADDING][0] / of_step, "host_us": of_host[who][0]}
        table.add(case=case.name, who=who, median_us=median, spread_us=spread, **rest, **ratios, **outcome)
    for who, outcome in outcomes.items():
        if who not in figures:
            table.add(case=case.name, who=who, **outcome)


def calls_of(case: StencilCase, u: Tensor, f: Tensor, *, with_each: bool) -> dict[str, Callable[[], Tensor]]:
    """Who is compared, by name."""
    stencil, star = WIDE if case.stencil else None, case.star
    torch._dynamo.reset()  # else it gives up after some shapes
    compiled = torch.compile(sweep, dynamic=False)
    given: dict[str, Callable[[], Tensor]] = {
        OURS: lambda: jacobi(u, f, case.steps, stencil=stencil),
        EAGER: lambda: swept(sweep, u, f, star, case.steps),
        COMPILED: lambda: swept(compiled, u, f, star, case.steps),
    }
    for kernel in ("cuda", "pointer") if with_each else ():
        given[kernel] = lambda kernel=kernel: jacobi(u, f, case.steps, stencil=stencil, kernel=kernel)  # type: ignore[misc]
    return given


def sweep(u: Tensor, f: Tensor, terms: tuple[tuple[tuple[int, ...], float], ...], right_side: float) -> Tensor:
    """One sweep, as a user of torch writes it with slices."""
    widths = [max(abs(offset[axis]) for offset, _ in terms) for axis in range(u.dim())]

    def near(t: Tensor, offset: tuple[int, ...]) -> Tensor:
        return t[tuple(slice(w + o, n - w + o) for w, o, n in zip(widths, offset, t.shape, strict=True))]

    total = near(f, (0,) * u.dim()) * right_side
    for offset, factor in terms:
        total = total + near(u, offset) * factor
    out = u.clone()
    near(out, (0,) * u.dim()).copy_(total)
    return out


def swept(one: Callable[..., Tensor], u: Tensor, f: Tensor, star: StarStencil, steps: int) -> Tensor:
    """Some sweeps."""
    for _ in range(steps):
        u = one(u, f, star.terms, star.right_side)
    return u


def errors_of(case: StencilCase, u: Tensor, f: Tensor, call: Callable[[], Tensor]) -> dict[str, Any]:
    """The largest error of a call against fp64, and its bound.

    Every step rounds each of its terms and sums in the type of sums, and its result in that of elements; errors of
    earlier steps grow by the sum of the factors' magnitudes.
    """
    star, dtype = case.star, DTYPES[case.dtype]
    exact = sweeps_reference(u.double(), f.double(), star, case.steps)
    error = (call().double() - exact).abs().max().item()
    weight = sum(abs(factor) for _, factor in star.terms)
    of_sums = torch.finfo(torch.float32 if dtype in NARROW else dtype).eps / 2 * 2 * (len(star.terms) + 1)
    of_step = of_sums + (torch.finfo(dtype).eps / 2 if dtype in NARROW else 0.0)
    largest = max(u.abs().max().item(), exact.abs().max().item()) + abs(star.right_side) * f.abs().max().item()
    growth = sum(max(weight, 1e-3) ** step for step in range(case.steps))
    return {"error": error, "bound": of_step * growth * largest}


def show_cases(rows: list[dict[str, str]]) -> None:
    """Every case in a line."""
    by_case: dict[str, dict[str, dict[str, str]]] = {}
    for row in rows:
        by_case.setdefault(row["case"], {})[row["who"]] = row
    for name, of in by_case.items():
        parts = [f"{who} {row['us_per_step']} ({row['share']})" for who, row in of.items() if row["us_per_step"]]
        host_us = of.get(OURS, {}).get("host_us", "")
        print(f"{name}, us a step (share): {', '.join(parts)}; host {host_us} us", flush=True)
        print(*(f"  {who}: {row['outcome']}\n" for who, row in of.items() if row["outcome"] != "ok"), sep="", end="")


def show_ratios(rows: list[dict[str, str]]) -> None:
    """Ratios of torch's times to ours."""
    for peer, key in ((EAGER, "to_eager"), (COMPILED, "to_compile")):
        print_ratios(f"{peer} / ours", list(_ratios(rows, key)), (1.0, 2.5))


def _ratios(rows: list[dict[str, str]], key: str) -> Iterator[float]:
    return (float(row[key]) for row in rows if row["who"] == OURS and row[key])


if __name__ == "__main__":
    main()
