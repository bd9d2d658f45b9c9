"""How the time of counting grows where a problem does, from `search.csv`: printed, and drawn for the docs.

    python -m benchmarks.solver.growth                                            # print the growth per doubling
    python -m benchmarks.solver.growth --picture docs/explanations/growth.svg     # and draw the picture

A doubling may take 1.2 times as much more as there are more solutions, plus the square of a domain.
"""

from __future__ import annotations

import argparse
import itertools
import re
from collections import defaultdict
from pathlib import Path

from benchmarks.harness.table import read_rows
from benchmarks.solver.bench_search import EQUATIONS

RESULTS = Path(__file__).resolve().parents[1] / "results" / "solver" / "search.csv"
ALLOWED = 1.2
NAME = re.compile(r"(?P<family>.+) to (?P<size>\d+)")


def families(path: Path) -> dict[str, list[tuple[int, float, int]]]:
    """Sizes of a domain, least milliseconds and numbers of solutions, by family."""
    found: dict[str, list[tuple[int, float, int]]] = defaultdict(list)
    for row in read_rows(path):
        match = NAME.fullmatch(row["case"])
        if match and match["family"] in EQUATIONS:
            found[match["family"]].append((int(match["size"]), float(row["min_ms"]), int(row["answer"])))
    return found


def draw(found: dict[str, list[tuple[int, float, int]]], path: Path) -> None:
    """Draw milliseconds over the work that there is: solutions and squares of domains."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "growth"
    plt.rcParams["svg.fonttype"] = "none"
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for family, points in found.items():
        axes.loglog([s + d * d for d, _, s in points], [ms for _, ms, _ in points], "o-", label=family)
    axes.set(xlabel="solutions + square of a domain", ylabel="CPU time of a count, ms")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Print the growth of every doubling beside what is allowed, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--picture", type=Path)
    args = parser.parse_args()
    found = families(args.results)
    for family, points in found.items():
        for (d, ms, s), (d2, ms2, s2) in itertools.pairwise(points):
            allowed = ALLOWED * (s2 + d2 * d2) / (s + d * d)
            verdict = "ok" if ms2 / ms <= allowed else "more"
            times = f"{ms:9.2f} to {ms2:9.2f} ms: {ms2 / ms:5.2f}"
            print(f"{family:18} {d:>4} to {d2:<4} {times}, allowed {allowed:5.2f} {verdict}")
    if args.picture:
        draw(found, args.picture)


if __name__ == "__main__":
    main()
