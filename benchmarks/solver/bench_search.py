"""Time searches where lists would be long: sums of 0/1 variables, sudokus, knapsacks, fused kernels, the best of many.

    python -m benchmarks.solver.bench_search --repeat 5 --out benchmarks/results/solver/search.csv

Every figure is the median time of questions about freshly built problems, in milliseconds: CPU time of the process, or
wall-clock time for `cpsat` and `auto`, which use several threads; `min_ms` is the least. Every answer is
compared with what is known of it, and a wrong one ends the run. `known` is what the answer must be, `answer` what came:
a number of solutions, an optimum, or "limit" with the best solution that was known then and the bound.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from benchmarks.harness.table import Table
from constrint.errors import LimitReachedError
from constrint.model import Comparison, Problem, parse, parse_constraint
from constrint.solve import Limits, Status, count, enumerate_space, solve
from tests.support import rnn_problem
from tests.support.puzzles import SUDOKUS, bits, knapsack, pigeonholes, sudoku

LIMIT_S = 20.0
# Equations that nobody answers quickly: what counts is that the limit holds.
SHORT_S = 1.0


class Case(NamedTuple):
    """A question, and what the answer must be (None where that is not known)."""

    name: str
    build: Callable[[], Problem]
    ask: Callable[[Problem, str], object]
    known: object
    backends: tuple[str, ...] = ("native",)


def num_solutions(problem: Problem, backend: str) -> object:
    """The number of solutions."""
    return count(problem, Limits(max_seconds=LIMIT_S), backend)


def listed(problem: Problem, backend: str) -> object:
    """The number of solutions, each of them listed."""
    columns = enumerate_space(problem, Limits(max_seconds=LIMIT_S), backend).columns()
    return len(next(iter(columns.values())))


def optimum(problem: Problem, backend: str, seconds: float = LIMIT_S) -> object:
    """The first objective's value in the best solution, or what is known at the limit."""
    answer = solve(problem, Limits(max_seconds=seconds), backend)
    if answer.status is Status.INFEASIBLE:
        return "infeasible"
    if answer.status is Status.LIMIT_REACHED:
        return f"limit: {answer.value if answer.assignment else 'nothing'} known, bound {answer.bound}"
    return answer.value


def in_short(problem: Problem, backend: str) -> object:
    """The same task within one second."""
    return optimum(problem, backend, SHORT_S)


def at_most_three(number: int) -> Problem:
    """0/1 variables of which at most three are 1."""
    problem, variables = bits(number)
    problem.add(sum(variables) <= 3)
    return problem


def under_cardinality(number: int, condition: str) -> str:
    """0/1 variables of which at most three are 1, and a condition on a weighted sum of them."""
    weighted = " + ".join(f"{(i * 37 + 11) % 101 + 1} * x{i}" for i in range(number))
    declared = "".join(f"var x{i} in 0..1\n" for i in range(number))
    return f"{declared}{' + '.join(f'x{i}' for i in range(number))} <= 3\n{condition.format(sum=f'({weighted})')}"


def weights(number: int, total: int) -> str:
    """0/1 variables whose weighted sum is one number."""
    declared = "".join(f"var x{i} in 0..1\n" for i in range(number))
    return declared + " + ".join(f"{1 + i * 37 % 101} * x{i}" for i in range(number)) + f" == {total}"


def equation(text: str, most: int) -> str:
    """An equation between variables from 1 to a number."""
    return "".join(f"var {name} in 1..{most}\n" for name in "abcd" if name in text) + text


def splits(size: int, parts: int) -> str:
    """Three loops of one size, each split into factors, and bounds on the factors of all three together."""
    divisors = ", ".join(str(by) for by in range(1, size + 1) if size % by == 0)
    loops = [[f"{loop}{part}" for part in range(parts)] for loop in "fyx"]
    declared = "".join(f"var {name} in {{{divisors}}}\n" for loop in loops for name in loop)
    products = "".join(f"{' * '.join(loop)} == {size}\n" for loop in loops)
    return f"{declared}{products}f1 * y1 * x1 <= 1024\nf2 * y2 * x2 <= 64"


#: Conditions that no bound decides early.
CONDITIONS = ("{sum} % 3 == 1", "{sum} in {{30, 60, 90, 120}}", "{sum} // 10 == 6", "max({sum}, 40) == 50")
#: Equations, and how far their variables go.
EQUATIONS = {
    "a * b == c * d": (40, 80, 160, 320),
    "a + b + c == d": (40, 80, 160, 320, 640),
    "a * b % c == 7": (100, 200, 400, 800),
}


def families() -> Iterator[Case]:
    """Counts of growing problems: time should grow as solutions do, or as the square of a domain."""
    for number in (30, 200):
        for condition in CONDITIONS:
            name = f"{number} bits, sum <= 3, {condition.format(sum='weighted sum')}"
            yield Case(name, partial(parse, under_cardinality(number, condition)), num_solutions, None)
    for number, total in ((160, 480), (320, 960)):
        yield Case(f"{number} weights == {total}", partial(parse, weights(number, total)), num_solutions, None)
    for text, sizes in EQUATIONS.items():
        for most in sizes:
            yield Case(f"{text} to {most}", partial(parse, equation(text, most)), num_solutions, None)
    for parts in (5, 6, 7):
        yield Case(f"three splits of 512 into {parts}", partial(parse, splits(512, parts)), num_solutions, None)


def odd(number: int) -> Problem:
    """Twice a sum is odd: there is no solution."""
    problem, variables = bits(number)
    problem.add(2 * sum(variables) == number // 2 * 2 + 1)
    return problem


def fused(case: rnn_problem.Case, wide: bool) -> Problem:
    """A fused recurrent kernel with one objective per variable."""
    return rnn_problem.with_preferences(rnn_problem.rnn_problem(case), wide)


#: A space of 22,543,150 solutions, and what its solutions may be ranked by.
LARGE = """
var a in 1..42; var b in 1..42; var c in 1..42; var d in 1..42; var e in 1..42
a * b <= 882; b + c <= 63; c % 3 == d % 3; d * e <= 588
"""
COSTS = (
    *("a", "a + b + c + d + e", "a * b * c * d * e", "a * b - c * d", "(a + e) * (b + d)", "max(a, b, c, d, e)"),
    *("(a - 20) * (b - 17) + abs(c - d) * e", "a * e - b * d + c", "a * c + e * b"),
    "abs(a - b) + abs(b - c) + abs(c - d) + abs(d - e)",
    "a * a + b * b + c * c + d * d + e * e - 40 * a - 30 * e",
    "a % 7 + b % 5 + c % 11 + d % 3 + e % 13",
)


def best_ten(cost: str, maximise: bool, problem: Problem, backend: str) -> object:
    """Count how many of the ten best solutions are found without listing the others."""
    rule = parse_constraint(f"{cost} == 0")
    assert isinstance(rule, Comparison)
    return len(enumerate_space(problem, backend=backend).best(10, rule.left, maximise=maximise))


def cases() -> Iterator[Case]:
    """All questions."""
    for n in (20, 26, 60, 100, 200):
        known = sum(math.comb(n, k) for k in range(4))
        yield Case(f"count {n} bits, sum <= 3", partial(at_most_three, n), num_solutions, known)
        yield Case(f"list {n} bits, sum <= 3", partial(at_most_three, n), listed, known)
    yield from families()
    for name, clues in SUDOKUS.items():
        yield Case(f"sudoku, {name}", partial(sudoku, clues), listed, 1, ("native", "python-constraint"))
    for n in (9, 12, 40):
        yield Case(f"{n} pigeons", partial(pigeonholes, n), num_solutions, 0)
    yield Case("odd sum of 60 even numbers", partial(odd, 60), num_solutions, 0)
    for n in (24, 40, 80):
        for seed in range(3):
            problem, best = knapsack(n, seed)
            yield Case(f"knapsack, {n} items, seed {seed}", problem.copy, optimum, best, ("native", "cpsat"))
    for case in [*rnn_problem.cases()[::11], rnn_problem.Case("slstm", "bf16", 768, 16)]:
        for wide in (False, True):
            name = f"28 objectives, {case}{', wide' if wide else ''}"
            yield Case(name, partial(fused, case, wide), optimum, None)
    for cost in COSTS:
        for maximise in (False, True):
            ask = partial(best_ten, cost, maximise)
            yield Case(
                f"10 {'largest' if maximise else 'smallest'} of 22 million, {cost}", partial(parse, LARGE), ask, 10
            )
    cubes = "var x in 1..100000; var y in 1..100000; var z in 1..100000; x ^ 3 + y ^ 3 == z ^ 3"
    yield Case("x^3 + y^3 = z^3 to 10^5", partial(parse, cubes), in_short, None, ("auto",))
    squares = "x ^ 2 + y ^ 2 == 1000000016000000063"
    yield Case(squares.replace("==", "="), partial(parse, squares), in_short, None, ("auto",))


def measured(case: Case, backend: str, repeat: int) -> dict[str, object]:
    """The median of several runs; raises where an answer is wrong."""
    clock = time.perf_counter if backend in ("cpsat", "auto") else time.process_time
    spent = []
    answer: object = None
    for _ in range(repeat):
        problem = case.build()
        start = clock()
        try:
            answer = case.ask(problem, backend)
        except LimitReachedError:
            answer = "limit"
        spent.append(1e3 * (clock() - start))
        if answer != "limit" and case.known is not None and answer != case.known:
            raise SystemExit(f"{case.name}, {backend}: {answer} is wrong, it is {case.known}")
    return {"ms": round(statistics.median(spent), 3), "min_ms": round(min(spent), 3), "answer": answer}


def main() -> None:
    """Measure every case and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--only", default="", help="measure the cases with this in their name")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    library = {"cpsat": "ortools", "python-constraint": "constraint"}
    family: dict[bool, list[float]] = {False: [], True: []}
    with Table(args.out, ("case", "backend", "ms", "min_ms", "answer")) as table:
        for case in cases():
            if args.only not in case.name:
                continue
            for backend in case.backends:
                if find_spec(library.get(backend, "constrint")) is None:
                    print(f"{case.name}: no {backend}, its library is not installed")
                    continue
                row = measured(case, backend, args.repeat if backend == "native" else 1)
                table.add(case=case.name, backend=backend, **row)
                print(f"{case.name:44} {backend:18} {row['ms']:>10} ms  {row['answer']}")
                if case.name.startswith("28 objectives"):
                    family[case.name.endswith("wide")].append(float(str(row["ms"])))
    for wide, spent in family.items():
        if spent:
            what = "positive integers" if wide else "listed values"
            print(f"28 objectives, {what}: median {statistics.median(spent):.2f} ms, largest {max(spent):.2f} ms")


if __name__ == "__main__":
    main()
