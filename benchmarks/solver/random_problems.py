"""Random problems through every way in and every back-end, against plain Python.

    python -m benchmarks.solver.random_problems --number 100000 --seed 1

Prints how many answers were looked at, and how many were wrong, over the limit or crashed; exits 1 where any was. Every
bad problem is printed with its seed: `--seed SEED --number 1` asks it again.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from constrint.errors import LimitReachedError, UndefinedValueError, UnsupportedError
from constrint.model import Problem, parse, render
from constrint.model.python.restrictions import problem_from_space
from constrint.solve import (
    Limits,
    Solution,
    enumerate_space,
    minimal_conflict,
    solutions_in_order,
    solve,
    why_not,
)
from constrint.solve.backends.backend import get_backend
from tests.support import random_problems as plain
from tests.support.conflicts import fault_of
from tests.support.random_problems import Assignment, Drawn, TooLongError

NATIVE: Final = ("native", "numpy")
SLOW: Final = ("brute", "python-constraint", "cpsat")
#: Seconds that one question may take; one that takes more, and some, is over the limit.
MAX_SECONDS: Final = 5.0
SLACK_SECONDS: Final = 0.2
#: A conflict is given less: where it is not shown minimal within this, more seldom helps.
CONFLICT_SECONDS: Final = 0.2
#: One problem in this many also goes through the back-ends that list solutions one by one.
EVERY: Final = 8
#: Bad answers that are printed in full.
SHOWN: Final = 20


class Wrong(Exception):
    """Raised where an answer is not what plain Python says."""


@dataclass
class Report:
    """Outcomes of the compared problems."""

    counts: Counter[str] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)

    def add(self, other: Report) -> None:
        """Adds another report to this one."""
        self.counts.update(other.counts)
        self.bad += other.bad

    @property
    def failed(self) -> int:
        """Number of bad answers."""
        return sum(self.counts[kind] for kind in ("wrong", "over the limit", "crashed"))


class Comparison:
    """One problem, asked in every way."""

    def __init__(self, drawn: Drawn, report: Report) -> None:
        self.drawn, self.report = drawn, report
        self.random = random.Random(drawn.seed)
        self.limits = Limits(max_seconds=MAX_SECONDS)
        self.names = tuple(drawn.domains)
        self.expected = list(plain.solutions_of(drawn))
        self.rows = sorted(self.row(s) for s in self.expected)

    def row(self, assignment: Assignment) -> tuple[int, ...]:
        """An assignment's values in declared order."""
        return tuple(assignment[n] for n in self.names)

    @contextmanager
    def question(self, what: str) -> Iterator[None]:
        """Counts what becomes of one question."""
        # Of this process alone: on a busy machine others take of the time that the clock shows.
        started = time.process_time()
        kind = "right"
        try:
            yield
        except (LimitReachedError, UnsupportedError) as error:
            # Refusing is honest; how often it is done is shown.
            kind = f"refused: {type(error).__name__} of {what.split()[0]}"
        except TooLongError:
            kind = "unknown to plain Python (too long a number)"
        except Wrong as error:
            kind = "wrong"
            self.note(what, str(error))
        except Exception:  # noqa: BLE001 - whatever it is, it is counted
            kind = "crashed"
            self.note(what, traceback.format_exc(limit=-6))
        took = time.process_time() - started
        if took > 1.2 * MAX_SECONDS + SLACK_SECONDS:
            self.report.counts["over the limit"] += 1
            self.note(what, f"took {took:.2f} s with max_seconds={MAX_SECONDS}")
        self.report.counts[kind] += 1

    def note(self, what: str, problem: str) -> None:
        """Keeps a bad answer."""
        self.report.bad.append(f"--seed {self.drawn.seed}: {what}: {problem}\n{plain.problem_text(self.drawn)}")

    def equal(self, found: object, expected: object) -> None:
        """Raises where both differ."""
        if found != expected:
            raise Wrong(f"{str(found)[:300]} instead of {str(expected)[:300]}")

    def run(self) -> None:
        """Asks everything."""
        ways: list[Problem] = []
        with self.question("expressions"):
            ways.append(plain.problem_of(self.drawn))
        with self.question("text"):
            ways.append(parse(plain.problem_text(self.drawn)))
        if len(ways) < 2:
            return
        built, parsed = ways
        with self.question("rendered text"):
            self.equal(parse(render(built)), built)
            self.equal(parse(render(parsed)), parsed)
        for backend in NATIVE:
            self.space(built, backend)
            self.in_order(built, backend)
            self.solved(built, backend)
        self.space(parsed, "native")
        self.restrictions()
        if built.constraints:
            self.reasons(built)
        if not self.expected:
            self.conflict(built)
        if self.drawn.seed % EVERY == 0 and self.drawn.is_listed:
            for backend in SLOW:
                self.listed(parsed, backend)
                self.solved(parsed, backend)

    def space(self, problem: Problem, backend: str) -> None:
        """All solutions, and what a space says of them."""
        with self.question(f"{backend} space"):
            space = enumerate_space(problem, self.limits, backend)
            self.equal(space.size, len(self.expected))
            columns = space.columns()
            found = list(zip(*(columns[n].tolist() for n in self.names), strict=True))
            self.equal(sorted(found), self.rows)
            if found:
                self.equal(space.first(), self.expected[0])
                for at in {0, len(found) // 2, len(found) - 1}:
                    self.equal(self.row(space[at]), found[at])
                    self.equal(space.index(space[at]), at)
            for assignment in self.tried():
                self.equal(space.contains(assignment), self.row(assignment) in self.rows)
            name = self.random.choice(self.names)
            values, counts = space.project([name])
            per_value = Counter(s[name] for s in self.expected)
            self.equal(dict(zip(values[name].tolist(), counts.tolist(), strict=True)), dict(per_value))
            if found:
                start = self.random.choice(self.expected)
                near = [r for r in self.rows if sum(x != y for x, y in zip(r, self.row(start), strict=True)) == 1]
                self.equal(sorted(self.row(n) for n in space.neighbours(start)), near)
                fixed = {name: start[name]}
                self.equal(space.extend(fixed).size, per_value[start[name]])
        if self.drawn.objective is not None:
            self.ranked(problem, backend)

    def ranked(self, problem: Problem, backend: str) -> None:
        """The best few by the objective."""
        assert self.drawn.objective is not None
        maximise, expr = self.drawn.objective
        with self.question(f"{backend} best"):
            costs = [plain.value_of(expr, s) for s in self.expected]
            best = sorted((c for c in costs if c is not None), reverse=maximise)[:3]
            ranked = enumerate_space(problem, self.limits, backend).best(3, plain.expression(expr), maximise=maximise)
            self.equal([r.cost for r in ranked], best)
            for r in ranked:
                self.equal(plain.value_of(expr, r.config), r.cost)

    def tried(self) -> list[Assignment]:
        """Assignments that may be solutions or not."""
        pick = self.random
        found = [{n: pick.choice(v or [0]) for n, v in self.drawn.candidates.items()} for _ in range(2)]
        if self.expected:
            near = dict(pick.choice(self.expected))
            near[pick.choice(self.names)] += pick.choice((-1, 1, 2**32))
            found += [near, pick.choice(self.expected)]
        return found

    def in_order(self, problem: Problem, backend: str) -> None:
        """Solutions in declared order."""
        with self.question(f"{backend} order"):
            found = list(itertools.islice(solutions_in_order(problem, self.limits, backend), 40))
            self.equal([self.row(s) for s in found], [self.row(s) for s in self.expected[:40]])

    def solved(self, problem: Problem, backend: str) -> None:
        """The best solution; without an objective the first in declared order where the back-end promises that."""
        with self.question(f"{backend} solve"):
            objective = self.drawn.objective
            costs = [] if objective is None else [plain.value_of(objective[1], s) for s in self.expected]
            known = [c for c in costs if c is not None]
            try:
                found: Solution | None = solve(problem, self.limits, backend)
            except UndefinedValueError:
                found = None
            if found is None or (objective is not None and self.expected and not known):
                self.equal((found, bool(self.expected), known), (None, True, []))
                return
            if found.status.name == "LIMIT_REACHED":
                raise LimitReachedError(found.message)
            self.equal(bool(found), bool(self.expected))
            if not found:
                return
            self.equal(self.row(found.assignment) in self.rows, True)
            if objective is not None:
                self.equal(found.value, max(known) if objective[0] else min(known))
                self.equal(plain.value_of(objective[1], found.assignment), found.value)
            elif backend in (*NATIVE, "brute"):
                self.equal(found.assignment, self.expected[0])

    def listed(self, problem: Problem, backend: str) -> None:
        """All solutions from a back-end that lists them."""
        with self.question(f"{backend} solutions"):
            columns = get_backend(backend).solutions(problem, self.limits)
            self.equal(sorted(zip(*(columns[n].tolist() for n in self.names), strict=True)), self.rows)

    def restrictions(self) -> None:
        """State the same rules as parameters and restrictions in Python's syntax."""
        texts = [text for rule in self.drawn.rules if (text := plain.python_of(rule)) is not None]
        if not self.drawn.is_listed or len(texts) < len(self.drawn.rules):
            return
        params = {n: self.drawn.candidates[n] for n in self.names}
        for backend in NATIVE:
            with self.question("restrictions"):
                space = enumerate_space(problem_from_space(params, texts), self.limits, backend)
                columns = space.columns()
                self.equal(sorted(zip(*(columns[n].tolist() for n in self.names), strict=True)), self.rows)

    def reasons(self, problem: Problem) -> None:
        """Which rules an assignment breaks."""
        with self.question("why not"):
            assignment = self.tried()[0]
            broken = [not plain.holds(rule, assignment) for rule in self.drawn.rules]
            found = why_not(problem, assignment)
            named = {id(r.constraint) for r in found if r.constraint is not None}
            self.equal([id(c) in named for c in problem.constraints], broken)

    def conflict(self, problem: Problem) -> None:
        """Which rules cannot hold together; each answer is checked anew, and so is that it is minimal."""
        with self.question("conflict"):
            started = time.process_time()
            conflict = minimal_conflict(problem, Limits(max_seconds=CONFLICT_SECONDS))
            took = time.process_time() - started
            self.report.counts["conflicts shown minimal" if conflict.minimal else "conflicts not shown minimal"] += 1
            if took > 1.2 * CONFLICT_SECONDS + SLACK_SECONDS:
                self.report.counts["over the limit"] += 1
                self.note("conflict", f"took {took:.2f} s with max_seconds={CONFLICT_SECONDS}")
            fault = fault_of(problem, conflict)
            if fault:
                raise Wrong(fault)


def compared(seed: int) -> Report:
    """One problem, asked in every way."""
    report = Report()
    drawn = plain.draw(seed)
    try:
        comparison = Comparison(drawn, report)
    except TooLongError:
        report.counts["unknown to plain Python (too long a number)"] += 1
        return report
    comparison.run()
    return report


def asked_of_each(seeds: range, ask: Callable[[int], Report], say: Callable[[str], None]) -> Report:
    """Several problems, one for each seed; `say` is called with every bad answer."""
    for backend in SLOW:
        # What a back-end loads when it is first asked is not part of a question.
        solve(parse("var x in 1..2"), backend=backend)
    report = Report()
    for seed in seeds:
        found = ask(seed)
        report.add(found)
        for text in found.bad:
            say(text)
    return report


def compared_range(seeds: range) -> Report:
    """Several problems of a run, whose bad answers are printed at its end."""
    return asked_of_each(seeds, compared, lambda text: None)


def run(number: int, seed: int, processes: int, say: Callable[[str], None]) -> Report:
    """Compare `number` problems; `say` is called with the progress."""
    step = max(1, min(200, number // (4 * processes) or 1))
    pieces = [range(at, min(at + step, seed + number)) for at in range(seed, seed + number, step)]
    report = Report()
    started = said = time.monotonic()
    done = 0
    with ProcessPoolExecutor(processes) as pool:
        for piece, found in zip(pieces, pool.map(compared_range, pieces), strict=True):
            report.add(found)
            done += len(piece)
            if time.monotonic() - said > 5:
                said = time.monotonic()
                say(f"{done} of {number} problems, {report.failed} bad, {said - started:.0f} s")
    return report


def main() -> int:
    """Runs from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=2000, help="how many problems")
    parser.add_argument("--seed", type=int, default=1, help="the first problem's seed; the others follow it")
    parser.add_argument("--processes", type=int, default=1)
    asked = parser.parse_args()
    report = run(asked.number, asked.seed, asked.processes, lambda text: print(text, file=sys.stderr, flush=True))
    for text in report.bad[:SHOWN]:
        print(text, file=sys.stderr)
    print(f"{asked.number} problems from seed {asked.seed}, {sum(report.counts.values())} questions")
    for kind, count in sorted(report.counts.items()):
        print(f"{count:>10}  {kind}")
    for kind in ("wrong", "over the limit", "crashed"):
        if not report.counts[kind]:
            print(f"{0:>10}  {kind}")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
