"""Time the lexicographic optimum (or the proof that there is none) of a problem the size of a fused recurrent kernel.

    python benchmarks/bench_rnn_problem.py --repeat 3 --out benchmarks/results/solver/rnn.csv

Every case is a fresh process; CPU milliseconds for building the problem, the first solution in declared order or
the proof of infeasibility, and the next one after excluding the first.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks" / "baselines")]


def one(name: str, backend: str) -> None:
    """Measures one case in this process and prints it as JSON."""
    import rnn_problem

    from constrint.solve import Limits, solutions_in_order, solve

    case = next(c for c in rnn_problem.cases() if str(c) == name)
    limits = Limits(max_seconds=100)
    if backend == "cpsat":
        from ortools.sat.python import cp_model  # noqa: F401
    start = time.process_time()
    problem = rnn_problem.rnn_problem(case)
    built = time.process_time()
    if backend == "cpsat":
        # Any solution, not the first in order: the easier question.
        found = solve(problem, limits, backend="cpsat")
        first, solved = found.assignment or None, time.process_time()
        print(json.dumps({"first_ms": 1e3 * (solved - built), "feasible": first is not None}))
        return
    in_order = solutions_in_order(problem, limits)
    first = next(in_order, None)
    solved = time.process_time()
    next(in_order, None)
    after = time.process_time()
    figures = {"build_ms": built - start, "first_ms": solved - built, "next_ms": after - solved}
    print(json.dumps({**{k: 1e3 * v for k, v in figures.items()}, "feasible": first is not None}))


def measured(name: str, backend: str, repeat: int) -> dict[str, object]:
    """Medians over fresh processes."""
    runs = []
    for _ in range(repeat):
        command = [sys.executable, str(Path(__file__)), "--case", name, "--backend", backend]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        runs.append(json.loads(done.stdout))
    row: dict[str, object] = {"case": name, "backend": backend, "feasible": runs[0]["feasible"]}
    for key in ("build_ms", "first_ms", "next_ms"):
        row[key] = round(statistics.median(r[key] for r in runs), 2) if key in runs[0] else ""
    return row


def main() -> None:
    """Measures every case and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case")
    parser.add_argument("--backend", default="native", choices=("native", "cpsat"))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--every", type=int, default=1, help="measure every n-th case")
    parser.add_argument("--cpsat-every", type=int, default=0, help="measure CP-SAT on every n-th of them; 0 for none")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.case:
        one(args.case, args.backend)
        return
    import rnn_problem

    names = [str(c) for c in rnn_problem.cases()][:: args.every]
    rows = []
    for i, name in enumerate(names):
        rows.append(measured(name, "native", args.repeat))
        if args.cpsat_every and i % args.cpsat_every == 0:
            rows.append(measured(name, "cpsat", 1))
    ours = sorted(float(str(r["first_ms"])) for r in rows if r["backend"] == "native")
    after = sorted(float(str(r["next_ms"])) for r in rows if r["backend"] == "native")
    num = len(ours)
    print(f"{num} cases: first median {ours[num // 2]:.1f} ms, 90% {ours[int(0.9 * num)]:.1f}, largest {ours[-1]:.1f};")
    print(f"within 20 ms: {sum(x <= 20 for x in ours)}; next: median {after[num // 2]:.2f} ms, largest {after[-1]:.2f}")
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        with args.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
