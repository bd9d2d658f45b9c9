"""Launch random products of every kind, and other operations, and compare each result with fp64.

    python -m benchmarks.launches --count 10000 --out rows.jsonl   # on a GPU, in 16 processes; goes on where it ended
    python -m benchmarks.launches --only 3:128                     # one group of launches again: SEED:GROUP
    python -m benchmarks.launches --device cpu --count 300         # the references, which needs no GPU
    compute-sanitizer --tool memcheck python -m benchmarks.launches --sanitizer   # a few launches of every kernel

Results lie among poison, operands among NaN; values are whole numbers (whose sums are exact), normal, subnormal, of one
sign, large, zeros, or hold infinities and NaN; calls are repeated, run on three streams at once, in graphs, with
deterministic algorithms, and with gradients. Bounds follow from types, K and the epilogue (`bounds.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.launches.pool import Pool


def report(found: list[dict[str, Any]], shown: int) -> int:
    """Print what came of all groups; the number of failures."""
    counts: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    failures = [line for one in found for line in one["failures"]]
    for one in found:
        counts.update(one["counts"])
        refused.update(one["refused"])
    launches = sum(one["launches"] for one in found)
    print(f"{launches} launches in {len(found)} groups, {len(failures)} wrong")
    by_kind: Counter[str] = Counter()
    for name, number in counts.items():
        by_kind[name.split()[0]] += number if not name.startswith("values") else 0
    print("  by kind: " + ", ".join(f"{name} {number}" for name, number in sorted(by_kind.items()) if number))
    ways: Counter[str] = Counter()
    for name, number in counts.items():
        ways[name if name.startswith("values") else name.partition(" ")[2].partition(" of ")[0]] += number
    print("  by way and values: " + ", ".join(f"{name} {number}" for name, number in sorted(ways.items())))
    print(f"  refused and drawn again: {sum(refused.values())}")
    for name, number in refused.most_common(8):
        print(f"    {number:5d} {name}")
    slow = sorted(found, key=lambda one: -one["seconds"])[:3]
    print("  slowest groups: " + ", ".join(f"{one['group']} {one['seconds']:.1f} s" for one in slow))
    for line in failures[:shown]:
        case = line.split()[0]
        print(f"WRONG {line}\n      python -m benchmarks.launches --only {case}")
    return len(failures)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=10_000, help="launches")
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin no group after this time")
    parser.add_argument("--processes", type=int, default=min(16, os.cpu_count() or 1))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--kind", default="", help="one kind alone")
    parser.add_argument("--only", metavar="SEED:GROUP", help="one group again, in this process")
    parser.add_argument("--out", type=Path, help="keep results here, and leave out groups that are there already")
    parser.add_argument("--shown", type=int, default=25, help="failures that are printed")
    parser.add_argument("--sanitizer", action="store_true", help="a few launches of every kernel, in this process")
    parser.add_argument("--part", default="1/1", help="with --sanitizer: this part of the selection, 1/4")
    args = parser.parse_args()
    if args.sanitizer:
        from benchmarks.launches.sanitized import run_sanitized

        return run_sanitized(args.device, args.part, args.seconds, args.kind)
    if args.only:
        from benchmarks.launches.group import run_group

        seed, number = (int(part) for part in args.only.split(":"))
        outcome = run_group(seed, number, args.device, args.kind)
        print(f"{outcome.launches} launches, {len(outcome.failures)} wrong")
        print("\n".join(outcome.failures))
        return 1 if outcome.failures else 0
    done: set[int] = set()
    earlier: list[dict[str, Any]] = []
    if args.out is not None and args.out.exists():
        rows = [json.loads(line) for line in args.out.read_text(encoding="utf-8").splitlines()]
        earlier = [row for row in rows if row["seed"] == args.seed]
        done = {row["group"] for row in earlier}
    options = {
        "seed": args.seed, "device": args.device, "kind": args.kind, "first": 0, "last": 1 << 30, "done": done,
        "until": time.time() + args.seconds, "count": args.count - sum(row["launches"] for row in earlier),
    }  # fmt: skip
    found = Pool(args.processes, options, args.out).run() if options["count"] > 0 else []
    return 1 if report([*earlier, *found], args.shown) else 0


if __name__ == "__main__":
    sys.exit(main())
