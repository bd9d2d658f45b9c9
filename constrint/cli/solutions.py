"""The solutions of a problem: what `constrint solve` prints for a file, and for `--all`."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator

import numpy as np

from constrint.cli.output import print_json, say, wrap
from constrint.cli.question import Asked, Question
from constrint.cli.rows import BATCH, Columns, Solutions, print_rows
from constrint.errors import LimitReachedError
from constrint.model.coding import Coding
from constrint.solve import SearchSpace, Status, best_solutions, solve

#: Solutions that are sorted by an objective in memory.
MAX_RANKED = 5_000_000
SCHEMA = "constrint.solutions/1"


def print_best(question: Question, top: int, backend: str, *, as_json: bool) -> None:
    """Print up to `top` solutions, the best first where the problem has an objective."""
    (asked,) = question.asked
    problem = asked.problem
    try:
        ((_, space),) = question.spaces(backend)
        rows = _best_rows(asked, space, top)
        size: int | None = space.size
    except LimitReachedError as error:
        rows, size = [_one(question, backend, error)], None
    num_product = math.prod(domain.size for domain in problem.variables.values())
    if as_json:
        print_json({"schema": SCHEMA, "num_product": num_product, "num_valid": size, "solutions": rows})
        return
    if size is not None:
        say(wrap(f"{asked.title}: {size:,} solutions of {num_product:,} combinations"))
    else:
        say(wrap(f"{asked.title}: {num_product:,} combinations, too many solutions to list"))
    order = [f"weight {s.weight} if not {s.constraint}" for s in problem.soft_constraints]
    order += [str(objective) for objective in problem.objectives]
    if order:
        say(wrap(f"best first: {'; then '.join(order)}"))
    say()
    columns = {name: np.array([row[name] for row in rows], dtype=object) for name in problem.variables}
    print_rows(problem.variables, [columns])
    if size is not None and size > len(rows):
        say(f"... and {size - len(rows):,} more (--top N prints more, --all prints all)")


def _one(question: Question, backend: str, limit: LimitReachedError) -> dict[str, int]:
    """One solution (the best, where there is an objective) of a problem with too many to list."""
    # What has too many solutions to list may be hard, too: CP-SAT helps where it is installed.
    answer = solve(question.asked[0].problem, backend="auto" if backend == "native" else backend)
    if answer.status is Status.INFEASIBLE:
        raise question.infeasible()
    assignment = answer.assignment or answer.require()
    print(f"note: only one solution is shown: {limit}", file=sys.stderr)
    if not answer:
        known = "" if answer.bound is None else f", and the first objective cannot be better than {answer.bound}"
        print(f"note: it is the best known, not proven best{known}: {answer.message}", file=sys.stderr)
    return dict(assignment)


def _best_rows(asked: Asked, space: SearchSpace, top: int) -> list[dict[str, int]]:
    problem, objective = asked.problem, asked.problem.objective
    if objective is None and not problem.soft_constraints:
        return [space[i] for i in range(min(top, space.size))]
    if objective is None or len(problem.objectives) > 1 or problem.soft_constraints:
        return [answer.assignment for answer in best_solutions(problem, top)]
    return [ranked.config for ranked in space.best(top, objective.expr, maximise=objective.maximise)]


def print_all(question: Question, backend: str, *, as_json: bool) -> None:
    """Print every solution: rows on stdout, how many there are on stderr."""
    solutions = Solutions(question, backend)
    print(f"{question.title}: {solutions.size:,} solutions of {solutions.product_size:,} combinations", file=sys.stderr)
    for note in question.notes:
        print(f"note: {note}", file=sys.stderr)
    solutions.write(_in_order(question, solutions), as_json=as_json)


def _in_order(question: Question, solutions: Solutions) -> Iterator[Columns]:
    """All solutions, the best first where there are objectives that can be sorted by."""
    problem = question.asked[0].problem
    has_order = bool(problem.objectives or problem.soft_constraints)
    if has_order and solutions.size > MAX_RANKED:
        print(f"note: more than {MAX_RANKED:,} solutions are not sorted by the objective", file=sys.stderr)
        has_order = False
    if not has_order:
        yield from solutions.all()
        return
    ((_, space),) = solutions.spaces
    columns = space.columns()
    coding = Coding.of(problem)
    codes = columns if coding is None else coding.encoded_columns(columns)
    keys = [-o.expr.columns(codes) if o.maximise else o.expr.columns(codes) for o in problem.objectives]
    if problem.soft_constraints:
        wide = {name: column.astype(np.int64) for name, column in codes.items()}
        prices = [s.weight * ~s.constraint.holds_columns(wide) for s in problem.soft_constraints]
        keys.insert(0, np.sum(prices, axis=0))
    order = np.lexsort(keys[::-1])
    for start in range(0, len(order), BATCH):
        rows = order[start : start + BATCH]
        yield {name: column[rows] for name, column in columns.items()}
