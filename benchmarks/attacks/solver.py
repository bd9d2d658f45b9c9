"""Problems that the solver is apt to answer wrongly, in every back-end, against plain Python.

    python -m benchmarks.attacks.solver --count 3000 --seed 1

Six families by turns: variables declared before those that they follow from; rules that bounds imply; rules and
objectives without a value; numbers at the borders of 64 bits; soft rules; limits. `benchmarks.solver.random_problems`
asks the questions; this file draws other problems and asks a few more. A bad answer is printed with its seed, and
makes the exit code 1.
"""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Callable
from typing import Final

from benchmarks.attacks import asked_of
from benchmarks.solver.random_problems import NATIVE, SLOW, Comparison, Report, asked_of_each
from constrint.errors import ConstrintError, LimitReachedError, UndefinedValueError
from constrint.model import Problem, parse, render
from constrint.solve import Limits, best_solutions, count, enumerate_space, relaxations, solutions_in_order, solve
from constrint.solve.optimise import best_order
from tests.support import random_problems as plain
from tests.support.random_problems import Assignment, Drawn, TooLongError, Tree

#: Around these numbers words wrap.
BORDERS: Final = (-(2**63), 2**63 - 1, 2**62, -(2**62), 2**31, 2**53, 2**64)
#: Backends of `solve` that take any problem of a few combinations.
EVERY: Final = (*NATIVE, "auto", *SLOW)


def var(name: str) -> Tree:
    """A variable as plain data."""
    return ("var", name)


def number(value: int) -> Tree:
    """A number as plain data."""
    return ("number", value)


class Attack(Comparison):
    """One problem with soft rules or without, asked in every way and under limits."""

    def __init__(self, drawn: Drawn, soft: list[tuple[Tree, int]], report: Report) -> None:
        super().__init__(drawn, report)
        self.soft = soft

    def run(self) -> None:
        """Ask everything."""
        super().run()
        for backend in EVERY:
            self.best(backend)
        self.sorted_rows()
        self.limited()
        self.odd()

    def stated(self) -> Problem:
        """The problem with its soft rules, read from text so that these are read, too."""
        lines = [f"soft {plain.text_of(rule)} weight {weight}" for rule, weight in self.soft]
        return parse(plain.problem_text(self.drawn) + "\n".join(lines))

    def costs(self, assignment: Assignment) -> tuple[int, ...] | None:
        """The numbers to minimise, the most important first; None where the objective has no value."""
        penalty = sum(weight for rule, weight in self.soft if not plain.holds(rule, assignment))
        if self.drawn.objective is None:
            return (penalty,)
        maximise, expr = self.drawn.objective
        value = plain.value_of(expr, assignment)
        return None if value is None else (penalty, -value if maximise else value)

    def best(self, backend: str) -> None:
        """The best few, and the first few where there is nothing to optimise."""
        with self.question(f"{backend} best few"):
            problem, number = self.stated(), 4
            self.equal(parse(render(problem)), problem)
            all_costs = [self.costs(s) for s in self.expected]
            expected = sorted(c for c in all_costs if c is not None)[:number]
            try:
                answers = best_solutions(problem, number, self.limits, backend)
            except UndefinedValueError:
                self.equal((bool(self.expected), expected), (True, []))
                return
            if any(answer.status.name == "LIMIT_REACHED" for answer in answers):
                raise LimitReachedError(answers[0].message)
            found = [answer.assignment for answer in answers]
            self.equal([self.costs(s) for s in found], expected)
            self.equal(len({self.row(s) for s in found}), len(found))
            self.equal(all(self.row(s) in self.rows for s in found), True)
            if self.drawn.objective is None and not self.soft and backend in NATIVE:
                self.equal(found, self.expected[:number])

    def sorted_rows(self) -> None:
        """The order of all rows, those without a value last."""
        with self.question("native sorted"):
            problem = self.stated()
            space = enumerate_space(problem, self.limits)
            columns = space.columns()
            order = best_order(problem, columns, space.size).tolist()
            rows = [{n: int(columns[n][at]) for n in self.names} for at in order]
            found = [self.costs(row) for row in rows]
            known = [c for c in found if c is not None]
            self.equal(known, sorted(known))
            self.equal(found, known + [None] * (len(found) - len(known)))

    def limited(self) -> None:
        """Under a limit an answer is right or refused, and more memory answers what less has answered."""
        problem = plain.problem_of(self.drawn).without_objective()
        for backend in NATIVE:
            with self.question(f"{backend} limits"):
                answered = False
                for most in (1_000, 30_000, 100_000, 300_000, 1_000_000, 10_000_000, 100_000_000):
                    limits = Limits(max_seconds=self.limits.max_seconds, max_bytes=most)
                    try:
                        self.equal(count(problem, limits, backend), len(self.expected))
                        answered = True
                    except LimitReachedError as error:
                        if answered and "max_bytes" in str(error):
                            self.equal(f"refused with max_bytes={most}: {error}", "answered as with less")
                for cells in (0, 10, 1000):
                    walk = solutions_in_order(problem, Limits(max_cells=cells, max_nodes=cells), backend)
                    found: list[Assignment] = []
                    try:
                        found.extend(itertools.islice(walk, 9))
                        self.equal(len(found), min(9, len(self.expected)))
                    except LimitReachedError:
                        pass
                    self.equal(found, self.expected[: len(found)])

    def odd(self) -> None:
        """Questions that used to end in an exception of Python."""
        with self.question("native odd questions"):
            problem = self.stated()
            space = enumerate_space(problem, self.limits)
            self.equal(len(space.sample(3, 1)), min(3, len(self.expected)))
            self.equal((space[:2], len(repr(space)) > 0, space[[]]), (space.sample(0) + space[:2], True, []))
            hint = {self.names[0]: self.random.choice((10**20, -(2**63), 0))}
            try:
                self.equal(bool(solve(problem, self.limits, hint=hint)), bool(self.expected))
            except UndefinedValueError:
                self.equal(any(self.costs(s) is not None for s in self.expected), False)
        if not self.expected and self.drawn.rules and self.random.random() < 0.2:
            with self.question("native relaxations"):
                for way in relaxations(plain.problem_of(self.drawn), limits=Limits(max_seconds=1)):
                    assert all(rule.holds(way.solution) for rule in way.problem.constraints)


def early(pick: random.Random, drawn: Drawn) -> None:
    """A variable with a wide range before the variables that it follows from."""
    inputs = [f"y{i}" for i in range(pick.randint(1, 2))]
    values = {n: pick.sample(range(-6, 30), pick.randint(1, 5)) for n in inputs}
    factor, offset = pick.choice((1, -1, 3, -5000, 10**6)), pick.choice((0, 7, 20_000, -(2**40)))
    inner: Tree = var(inputs[0])
    for name in inputs[1:]:
        inner = (pick.choice("+*-"), inner, var(name))
    if pick.random() < 0.3:
        inner = (pick.choice(("//", "%", "/")), inner, number(pick.choice((2, 3, -2))))
    found = {
        plain.value_of(("+", number(offset), ("*", number(factor), inner)), dict(zip(inputs, row, strict=True)))
        for row in itertools.product(*values.values())
    }
    known = sorted(v for v in found if v is not None) or [0]
    lower, upper = known[0] - pick.choice((0, 1, 9000)), known[-1] + pick.choice((0, 5000, 10**7))
    if pick.random() < 0.3:
        lower = known[len(known) // 2]
    sides: list[Tree] = [var("x"), ("+", number(offset), ("*", number(factor), inner))]
    pick.shuffle(sides)
    drawn.rules.append(("==", *sides))
    names = ["x", *inputs]
    if pick.random() < 0.3:
        pick.shuffle(names)
    inside = [v for v in known if lower <= v <= upper]
    for name in names:
        drawn.domains[name] = ("range", lower, max(lower, upper), 1) if name == "x" else ("values", *values[name])
        drawn.candidates[name] = inside if name == "x" else values[name]
    if pick.random() < 0.4:
        drawn.rules.append((pick.choice(("!=", "<=")), ("%", var("x"), number(pick.choice((3, 11)))), number(1)))
    if pick.random() < 0.3:
        drawn.objective = pick.random() < 0.5, pick.choice((var("x"), ("%", var("x"), number(7)), var(inputs[0])))


def implied(pick: random.Random, drawn: Drawn) -> None:
    """Rules on a wide range that bounds and steps decide, or nearly."""
    step = pick.choice((1, 2, 7, 1000))
    lower = pick.choice((-5, 0, 3, 10**9))
    size = pick.randint(1, 12)
    upper = lower + step * pick.choice((10**5, 10**12))
    low = lower + step * pick.randint(0, 4)
    high = low + step * (size - 1)
    drawn.domains = {"x": ("range", lower, upper, step), "y": ("values", *pick.sample(range(-2, 6), 3))}
    drawn.candidates = {"x": list(range(low, high + 1, step)), "y": list(drawn.domains["y"][1:])}
    drawn.rules += [(">=", var("x"), number(low)), ("<=", var("x"), number(high))]
    near = pick.choice((low, high, low - 1, high + 1, low + 1))
    by = pick.choice((1, step, 2 * step, 3))
    for _ in range(pick.randint(1, 3)):
        drawn.rules.append(
            pick.choice(
                (
                    (pick.choice(("<=", "<", "!=", ">=")), var("x"), number(near)),
                    ("==", ("%", var("x"), number(by)), number(low % by)),
                    ("divides", number(by), ("-", var("x"), number(low))),
                    ("divides", number(by), var("x")),
                    ("in", var("x"), ("range", low - by, high + by, by)),
                    ("or", (">", var("x"), number(near)), ("<", var("y"), number(4))),
                    (">", ("+", var("x"), var("y")), number(near)),
                    ("<=", ("//", var("x"), var("y")), number(abs(near) + 1)),
                )
            )
        )


def undefined(pick: random.Random, drawn: Drawn) -> None:
    """Rules and an objective that have no value for some values."""
    for name in ("a", "b"):
        drawn.domains[name] = ("values", *pick.sample(range(-3, 7), pick.randint(1, 5)))
        drawn.candidates[name] = list(drawn.domains[name][1:])

    def partial() -> Tree:
        left = pick.choice((number(6), var("a"), ("*", var("a"), number(3))))
        right = pick.choice((var("b"), ("-", var("b"), number(1)), ("-", var("a"), var("a")), number(4)))
        if pick.random() < 0.15:
            return ("element", right, left, number(3))
        return (pick.choice(("//", "%", "/", "ceildiv", "^")), left, right)

    for _ in range(pick.randint(0, 2)):
        rule: Tree = (pick.choice(("<=", "==", "!=", ">")), partial(), number(pick.randint(-2, 5)))
        rule = ("not", rule) if pick.random() < 0.3 else rule
        rule = ("<=", ("truth", rule), number(pick.randint(0, 1))) if pick.random() < 0.2 else rule
        drawn.rules.append(rule)
    drawn.objective = pick.random() < 0.5, partial()


def borders(pick: random.Random, drawn: Drawn) -> None:
    """Values and objectives beside the borders of words."""
    for name in ("a", "b")[: pick.randint(1, 2)]:
        values = [pick.choice(BORDERS) + pick.randint(-2, 2) for _ in range(pick.randint(1, 4))] + [pick.randint(-3, 9)]
        drawn.domains[name] = ("values", *dict.fromkeys(values))
        drawn.candidates[name] = list(drawn.domains[name][1:])
    names = list(drawn.domains)
    expr: Tree = var(pick.choice(names))
    if pick.random() < 0.6:
        expr = (pick.choice("+-*"), expr, pick.choice((var(names[-1]), number(pick.choice(BORDERS)))))
    drawn.objective = pick.random() < 0.5, expr
    if pick.random() < 0.5:
        drawn.rules.append((pick.choice(("!=", "<=", ">")), var(names[0]), number(pick.choice(BORDERS))))


def small(pick: random.Random, drawn: Drawn) -> None:
    """A few small numbers, and rules of all kinds."""
    other = plain.draw_listed(pick.randrange(10**9))
    drawn.domains, drawn.candidates = other.domains, other.candidates
    drawn.rules, drawn.objective = other.rules, other.objective


def soft_rules(pick: random.Random, drawn: Drawn) -> list[tuple[Tree, int]]:
    """Soft rules, some of which begin with a minus or have no value, with weights up to beyond 64 bits."""
    names = list(drawn.domains)
    found = []
    for _ in range(pick.randint(1, 3)):
        left: Tree = pick.choice((var(pick.choice(names)), ("neg", var(names[0])), ("*", number(-3), var(names[-1]))))
        left = ("//", number(6), left) if pick.random() < 0.2 else left
        middle = plain.value_of(left, {n: c[0] if c else 0 for n, c in drawn.candidates.items()}) or 0
        rule: Tree = (pick.choice(("<=", "!=", "==", ">")), left, number(middle + pick.randint(-1, 1)))
        found.append((rule, pick.choice((1, 2, 5, 2**62, 2**63 - 1, 2**70))))
    return found


FAMILIES: Final[tuple[Callable[[random.Random, Drawn], None], ...]] = (early, implied, undefined, borders, small, small)


def attacked(seed: int) -> Report:
    """One problem, drawn by its seed and asked in every way."""
    report = Report()
    pick, drawn = random.Random(seed), Drawn(seed)
    FAMILIES[seed % len(FAMILIES)](pick, drawn)
    soft = soft_rules(pick, drawn) if seed % len(FAMILIES) == len(FAMILIES) - 1 or pick.random() < 0.1 else []
    try:
        Attack(drawn, soft, report).run()
    except TooLongError:
        report.counts["unknown to plain Python (too long a number)"] += 1
    except ConstrintError as error:
        report.counts["crashed"] += 1
        report.bad.append(f"--seed {seed}: {error}")
    return report


def attack(seeds: range) -> Report:
    """Several problems; a bad answer is printed at once, since a long run may be stopped."""
    return asked_of_each(seeds, attacked, lambda text: print(text, file=sys.stderr, flush=True))


def main() -> int:
    """Runs from the command line."""
    asked = asked_of(__doc__, 600)
    report = attack(range(asked.seed, asked.seed + asked.count))
    kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(report.counts.items()))
    print(f"solver: {asked.count} problems from seed {asked.seed}, {report.failed} finds; {kinds}")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
