"""Time well-known hard problems with the native engine, with CP-SAT, and with `auto`, which runs both.

    python -m benchmarks.solver.classics --repeat 3 --out benchmarks/results/solver/classics.csv

OR-tools is loaded before the clock starts. The three must agree wherever they end; another answer ends the run. They
take turns, so that whatever else the machine does hits them alike, and the least time of each counts. `ratio` is that
of auto over that of the better of the two alone.
"""

from __future__ import annotations

import argparse
import itertools
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.harness.table import Table, print_ratios
from constrint.model import parse
from constrint.solve import Limits, Status, solve

BACKENDS = ("native", "cpsat", "auto")


def _list(values: object) -> str:
    """A list in the language."""
    return str(values).replace("(", "[").replace(")", "]")


def job_shop(jobs: int, machines: int, rng: random.Random) -> str:
    """Tasks of a job follow each other, those of a machine do not overlap; the last ends early."""
    lengths = [[rng.randint(7, 99) for _ in range(machines)] for _ in range(jobs)]
    orders = [rng.sample(range(machines), machines) for _ in range(jobs)]
    horizon = sum(map(sum, lengths))
    text = f"var s[{jobs}, {machines}] in 0..{horizon}; var end in 0..{horizon}; minimise end\n"
    for job, (order, length) in enumerate(zip(orders, lengths, strict=True)):
        for before, after in itertools.pairwise(order):
            text += f"s[{job}, {before}] + {length[before]} <= s[{job}, {after}]\n"
        text += f"s[{job}, {order[-1]}] + {length[order[-1]]} <= end\n"
    for machine in range(machines):
        text += f"no_overlap(s[.., {machine}], {_list([length[machine] for length in lengths])})\n"
    return text


def bin_packing(items: int, rng: random.Random) -> str:
    """Items in as few bins as possible."""
    sizes, bins = [rng.randint(20, 60) for _ in range(items)], items - 4
    return f"""
const size[{items}] = {sizes}
var x[{items}, {bins}] in 0..1; var open[{bins}] in 0..1; var used in 0..{bins}
forall(i in 0..{items - 1}) (sum(x[i, ..]) == 1)
forall(b in 0..{bins - 1}) (sum(i in 0..{items - 1}) (size[i] * x[i, b]) <= 100 * open[b])
used == sum(open); minimise used
"""


def correlated_knapsack(items: int, rng: random.Random) -> str:
    """Values near weights, and a second bound."""
    weights = [rng.randint(10, 100) for _ in range(items)]
    values = [weight + rng.randint(0, 10) for weight in weights]
    second = [i * 7 % 40 + 10 for i in range(items)]
    last = items - 1
    return f"""
const w[{items}] = {weights}; const v[{items}] = {values}; const u[{items}] = {second}
var x[{items}] in 0..1
sum(i in 0..{last}) (w[i] * x[i]) <= {sum(weights) // 2}; sum(i in 0..{last}) (u[i] * x[i]) <= {10 * items}
maximise sum(i in 0..{last}) (v[i] * x[i])
"""


def quasigroup(size: int, rng: random.Random) -> str:
    """A Latin square of which two fifths are given."""
    rows, columns, symbols = (rng.sample(range(size), size) for _ in range(3))
    text = f"var q[{size}, {size}] in 0..{size - 1}\n"
    for i in range(size):
        text += f"all_different(q[{i}, ..]); all_different(q[.., {i}])\n"
        for j in range(size):
            if rng.random() < 0.4:
                text += f"q[{i}, {j}] == {symbols[(rows[i] + columns[j]) % size]}\n"
    return text


def tour(cities: int, rng: random.Random) -> str:
    """The shortest way through all cities and back."""
    places = [(rng.randint(0, 99), rng.randint(0, 99)) for _ in range(cities)]
    far = [[int(((a - c) ** 2 + (b - d) ** 2) ** 0.5) for c, d in places] for a, b in places]
    text = f"var next[{cities}] in 0..{cities - 1}; circuit(next); var leg[{cities}] in 0..142; minimise sum(leg)\n"
    for city, row in enumerate(far):
        text += f"leg[{city}] == element(next[{city}], {', '.join(map(str, row))}); next[{city}] != {city}\n"
    return text


def queens(size: int, _rng: random.Random) -> str:
    """No two queens attack each other."""
    last = size - 1
    return f"""
var q[{size}] in 0..{last}
all_different(q); all_different([q[i] + i for i in 0..{last}]); all_different([q[i] - i for i in 0..{last}])
"""


def golomb(marks: int, _rng: random.Random) -> str:
    """The shortest ruler whose distances all differ."""
    return f"""
var m[{marks}] in 0..{marks * marks}; m[0] == 0; minimise m[{marks - 1}]
forall(i in 1..{marks - 1}) (m[i - 1] < m[i])
all_different([m[j] - m[i] for i in 0..{marks - 1}, j in i + 1..{marks - 1}])
"""


def magic_square(size: int, _rng: random.Random) -> str:
    """Rows, columns and diagonals have one sum."""
    total, last = size * (size * size + 1) // 2, size - 1
    return f"""
var x[{size}, {size}] in 1..{size * size}; all_different(x)
forall(i in 0..{last}) (sum(x[i, ..]) == {total}); forall(i in 0..{last}) (sum(x[.., i]) == {total})
sum(i in 0..{last}) (x[i, i]) == {total}; sum(i in 0..{last}) (x[i, {last} - i]) == {total}
"""


def colouring(nodes: int, rng: random.Random) -> str:
    """As few colours as possible, where neighbours differ."""
    text = f"var c[{nodes}] in 1..8; var most in 1..8; minimise most\nforall(i in 0..{nodes - 1}) (c[i] <= most)\n"
    for a in range(nodes):
        for b in range(a):
            if rng.random() < 0.3:
                text += f"c[{a}] != c[{b}]\n"
    return text


def set_cover(elements: int, rng: random.Random) -> str:
    """The cheapest sets that cover all elements."""
    sets = [(rng.randint(1, 20), rng.sample(range(elements), rng.randint(2, 6))) for _ in range(elements)]
    text = f"var x[{elements}] in 0..1\n"
    for element in range(elements):
        covering = [i for i, (_, members) in enumerate(sets) if element in members] or [element]
        text += " + ".join(f"x[{i}]" for i in covering) + " >= 1\n"
    return text + "minimise " + " + ".join(f"{cost} * x[{i}]" for i, (cost, _) in enumerate(sets))


def assignment(size: int, rng: random.Random) -> str:
    """Each worker one task, at the least cost."""
    text = f"var t[{size}] in 0..{size - 1}; var c[{size}] in 0..99; all_different(t); minimise sum(c)\n"
    for worker in range(size):
        text += f"c[{worker}] == element(t[{worker}], {', '.join(str(rng.randint(1, 99)) for _ in range(size))})\n"
    return text


def open_shop(jobs: int, rng: random.Random) -> str:
    """Tasks of a job and of a machine do not overlap, in any order."""
    lengths = [[rng.randint(2, 30) for _ in range(jobs)] for _ in range(jobs)]
    horizon = max(map(sum, lengths)) * 2
    text = f"var s[{jobs}, {jobs}] in 0..{horizon}; var end in 0..{horizon}; minimise end\n"
    for a, row in enumerate(lengths):
        text += f"no_overlap(s[{a}, ..], {row}); no_overlap(s[.., {a}], {[other[a] for other in lengths]})\n"
        text += "".join(f"s[{a}, {b}] + {length} <= end\n" for b, length in enumerate(row))
    return text


def project(tasks: int, rng: random.Random) -> str:
    """Tasks with predecessors share a resource; the last ends early."""
    lengths, demands = ([rng.randint(low, high) for _ in range(tasks)] for low, high in ((2, 9), (1, 4)))
    text = f"var s[{tasks}] in 0..{sum(lengths)}; var end in 0..{sum(lengths)}; minimise end\n"
    text += f"cumulative(s, {lengths}, {demands}, 6)\n"
    for task, length in enumerate(lengths):
        text += f"s[{task}] + {length} <= end\n"
        for before in rng.sample(range(task), min(task, 2)):
            text += f"s[{before}] + {lengths[before]} <= s[{task}]\n"
    return text


def roster(days: int, rng: random.Random) -> str:
    """Three workers: no more than two nights in a row, then a day off; enough of them a day, at the least cost."""
    rows = "[(0, 0, 0), (0, 1, 0), (0, 2, 1), (1, 0, 0), (1, 2, 2), (2, 0, 0)]"
    text = f"var w[3, {days}] in 0..2; minimise "
    text += " + ".join(f"{rng.randint(1, 9)} * w[{i}, {d}]" for i in range(3) for d in range(days)) + "\n"
    text += "".join(f"regular(w[{i}, ..], 0, [0, 1, 2], {rows})\n" for i in range(3))
    for day in range(days):
        text += (
            f"count(i in 0..2) (w[i, {day}] == 1) >= 1; count(i in 0..2) (w[i, {day}] == 2) >= {rng.randint(0, 1)}\n"
        )
    return text


def warehouses(stores: int, rng: random.Random) -> str:
    """Each store is served by an open warehouse; opening and serving cost."""
    places = stores // 2
    text = f"var at[{stores}] in 0..{places - 1}; var open[{places}] in 0..1; var c[{stores}] in 0..99\n"
    for store in range(stores):
        text += f"c[{store}] == element(at[{store}], {', '.join(str(rng.randint(5, 99)) for _ in range(places))})\n"
        text += f"element(at[{store}], {', '.join(f'open[{p}]' for p in range(places))}) == 1\n"
    return text + "minimise sum(c) + 40 * sum(open)"


def independent_set(nodes: int, rng: random.Random) -> str:
    """As many nodes as possible, no two of them neighbours."""
    text = f"var x[{nodes}] in 0..1; maximise sum(x)\n"
    for a in range(nodes):
        text += "".join(f"x[{a}] + x[{b}] <= 1\n" for b in range(a) if rng.random() < 0.2)
    return text


def subset_sum(numbers: int, rng: random.Random) -> str:
    """Numbers whose sum is given."""
    values = [rng.randint(1, 2000) for _ in range(numbers)]
    terms = " + ".join(f"{value} * x[{i}]" for i, value in enumerate(values))
    return f"var x[{numbers}] in 0..1; {terms} == {sum(rng.sample(values, numbers // 2))}"


def partition(numbers: int, _rng: random.Random) -> str:
    """1 to n in two halves with equal sums, and equal sums of squares."""
    total, squares = numbers * (numbers + 1) // 2, numbers * (numbers + 1) * (2 * numbers + 1) // 6
    return f"""
var x[1..{numbers}] in 0..1; sum(x) == {numbers // 2}; sum(i in 1..{numbers}) (i * x[i]) == {total // 2}
sum(i in 1..{numbers}) (i * i * x[i]) == {squares // 2}
"""


def langford(pairs: int, _rng: random.Random) -> str:
    """Between the two k there are k other numbers."""
    return f"""
var p[1..{pairs}] in 1..{2 * pairs}; var q[1..{pairs}] in 1..{2 * pairs}
forall(k in 1..{pairs}) (q[k] == p[k] + k + 1)
all_different({", ".join(f"{name}[{k}]" for name in "pq" for k in range(1, pairs + 1))})
"""


def magic_sequence(size: int, _rng: random.Random) -> str:
    """The number i occurs x[i] times."""
    last = size - 1
    return f"var x[{size}] in 0..{last}; global_cardinality(x, [i for i in 0..{last}], x)"


def letters(_size: int, _rng: random.Random) -> str:
    """SEND + MORE == MONEY."""
    return """
var s in 1..9; var e in 0..9; var n in 0..9; var d in 0..9; var m in 1..9; var o in 0..9; var r in 0..9; var y in 0..9
all_different(s, e, n, d, m, o, r, y)
1000*s + 100*e + 10*n + d + 1000*m + 100*o + 10*r + e == 10000*m + 1000*o + 100*n + 10*e + y
"""


def coins(kinds: int, rng: random.Random) -> str:
    """A sum in as few coins as possible."""
    values = sorted(rng.sample(range(2, 90), kinds))
    terms = " + ".join(f"{value} * x[{i}]" for i, value in enumerate(values))
    return f"var x[{kinds}] in 0..60; {terms} == 997; minimise sum(x)"


#: Generator and size; the place in the list is the seed.
CASES: tuple[tuple[Callable[[int, random.Random], str], int], ...] = (
    (bin_packing, 12), (bin_packing, 16), (bin_packing, 20), (correlated_knapsack, 40), (correlated_knapsack, 120),
    (correlated_knapsack, 320), (quasigroup, 10), (quasigroup, 20), (quasigroup, 25), (tour, 8), (tour, 11),
    (tour, 16), (queens, 12), (queens, 40), (golomb, 6), (golomb, 8), (magic_square, 3), (magic_square, 4),
    (colouring, 20), (colouring, 40), (set_cover, 30), (set_cover, 80), (assignment, 8), (assignment, 16),
    (open_shop, 3), (open_shop, 4), (open_shop, 5), (project, 8), (project, 14), (project, 20), (roster, 7),
    (roster, 14), (roster, 28), (warehouses, 8), (warehouses, 14), (warehouses, 20), (independent_set, 20),
    (independent_set, 40), (independent_set, 60), (subset_sum, 20), (subset_sum, 40), (subset_sum, 80),
    (partition, 8), (partition, 16), (partition, 24), (langford, 7), (langford, 8), (langford, 12),
    (magic_sequence, 8), (magic_sequence, 20), (letters, 8), (coins, 4), (coins, 6), (coins, 8), (queens, 20),
    (golomb, 7), (colouring, 30), (set_cover, 50),
)  # fmt: skip


def problems() -> Iterator[tuple[str, str]]:
    """Names and texts."""
    for jobs in (6, 10):
        yield f"job shop {jobs}x5", job_shop(jobs, 5, random.Random(jobs))
    for seed, (generate, size) in enumerate(CASES):
        yield f"{generate.__name__.replace('_', ' ')} {size}", generate(size, random.Random(seed))


def timed(text: str, repeat: int, limit: float) -> dict[str, tuple[float, object]]:
    """Per way the least seconds, and the answer: an optimum, that there is a solution, or that a limit came."""
    least: dict[str, tuple[float, object]] = {}
    for _ in range(repeat):
        for backend in BACKENDS:
            if backend in least and least[backend][0] > 1:
                continue
            problem = parse(text)
            start = time.perf_counter()
            found = solve(problem, Limits(max_seconds=limit), backend)
            seconds = time.perf_counter() - start
            limited = found.status is Status.LIMIT_REACHED
            answer = "limit" if limited else found.value if found.value is not None else str(found.status.value)
            least[backend] = min(least.get(backend, (seconds, answer)), (seconds, answer), key=lambda pair: pair[0])
    return least


def main() -> None:
    """Measure every case and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--limit", type=float, default=20.0, help="seconds for one answer")
    parser.add_argument("--only", default="", help="measure the cases with this in their name")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    import ortools.sat.python.cp_model  # noqa: F401 - loaded before the clock starts

    ratios = []
    columns = ("case", "native_s", "cpsat_s", "auto_s", "ratio", "answer")
    with Table(args.out, columns) as table:
        for name, text in problems():
            if args.only not in name:
                continue
            found = timed(text, args.repeat, args.limit)
            answers = {answer for _, answer in found.values() if answer != "limit"}
            if len(answers) > 1:
                raise SystemExit(f"{name}: the answers differ: {found}")
            alone = [found[backend][0] for backend in ("native", "cpsat") if found[backend][1] != "limit"]
            ratio = found["auto"][0] / min(alone) if alone else float("nan")
            ratios += [ratio] if alone else []
            row = {f"{backend}_s": round(found[backend][0], 4) for backend in BACKENDS}
            table.add(case=name, **row, ratio=round(ratio, 2), answer=found["auto"][1])
            print(
                f"{name:26} {'  '.join(f'{seconds:8.4f} {answer}' for seconds, answer in found.values())}  {ratio:5.2f}"
            )
    print_ratios("auto / the better alone", ratios, limits=(1.3,))


if __name__ == "__main__":
    main()
