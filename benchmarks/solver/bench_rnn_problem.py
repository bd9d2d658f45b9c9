"""Time the lexicographic optimum (or the proof that there is none) of a problem the size of a fused recurrent kernel.

    python -m benchmarks.solver.bench_rnn_problem --repeat 3 --out benchmarks/results/solver/rnn.csv

Every case is a fresh process; CPU milliseconds for building the problem, the first solution in declared order or
the proof of infeasibility, and the next one after excluding the first.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.harness.table import Table
from benchmarks.solver.processes import figures_of
from constrint.solve import Limits, solutions_in_order, solve
from tests.support.rnn_problem import cases, rnn_problem

FIGURES = ("build_ms", "first_ms", "next_ms")
LIMIT_S = 100.0


def one(name: str, backend: str) -> dict[str, Any]:
    """Measure one case in this process."""
    case = next(c for c in cases() if str(c) == name)
    limits = Limits(max_seconds=LIMIT_S)
    if backend == "cpsat":
        from ortools.sat.python import cp_model  # noqa: F401  imported before the clock starts
    start = time.process_time()
    problem = rnn_problem(case)
    built = time.process_time()
    if backend == "cpsat":
        # Any solution, not the first in order: the easier question.
        answer = solve(problem, limits, backend="cpsat")
        return {"first_ms": 1e3 * (time.process_time() - built), "feasible": bool(answer.assignment)}
    in_order = solutions_in_order(problem, limits)
    first = next(in_order, None)
    solved = time.process_time()
    next(in_order, None)
    spans = (built - start, solved - built, time.process_time() - solved)
    return {name: 1e3 * span for name, span in zip(FIGURES, spans, strict=True)} | {"feasible": first is not None}


def measured(name: str, backend: str, repeat: int) -> dict[str, Any]:
    """Medians over fresh processes."""
    command = [sys.executable, "-m", "benchmarks.solver.bench_rnn_problem", "--case", name, "--backend", backend]
    runs = [figures_of(command, 2 * LIMIT_S) for _ in range(repeat)]
    good = [run for run in runs if isinstance(run, dict)]
    if not good:
        return {"case": name, "backend": backend, "feasible": runs[0]}
    figures = {key: round(statistics.median(run[key] for run in good), 2) for key in FIGURES if key in good[0]}
    return {"case": name, "backend": backend, "feasible": good[0]["feasible"], **figures}


def main() -> None:
    """Measure every case and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", help="measure this one in this process and print it as JSON")
    parser.add_argument("--backend", default="native", choices=("native", "cpsat"))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--every", type=int, default=1, help="measure every n-th case")
    parser.add_argument("--cpsat-every", type=int, default=0, help="measure CP-SAT on every n-th of them; 0 for none")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.case:
        print(json.dumps(one(args.case, args.backend)))
        return
    rows = []
    with Table(args.out, ("case", "backend", "feasible", *FIGURES)) as table:
        for i, name in enumerate([str(c) for c in cases()][:: args.every]):
            rows.append(measured(name, "native", args.repeat))
            table.add(**rows[-1])
            if args.cpsat_every and i % args.cpsat_every == 0:
                table.add(**measured(name, "cpsat", 1))
    first, after = (sorted(row[key] for row in rows if key in row) for key in ("first_ms", "next_ms"))
    num = len(first)
    print(
        f"{num} cases: first median {first[num // 2]:.1f} ms, 90% {first[int(0.9 * num)]:.1f}, largest {first[-1]:.1f};"
    )
    print(
        f"within 20 ms: {sum(x <= 20 for x in first)}; next: median {after[num // 2]:.2f} ms, largest {after[-1]:.2f}"
    )


if __name__ == "__main__":
    main()
