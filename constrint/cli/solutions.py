"""The solutions of a problem: what `constrint solve` prints for a file, and for `--all`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from constrint.cli.rows import BATCH, Columns, Solutions, listed_rows, print_json_lines, print_rows
from constrint.errors import LimitReachedError

if TYPE_CHECKING:
    from constrint.cli.question import Asked, Question
    from constrint.solve import SearchSpace

#: Solutions that are sorted by an objective in memory.
MAX_RANKED = 5_000_000
SCHEMA = "constrint.solutions/1"


def print_best(asked: Asked, top: int, backend: str, *, as_json: bool) -> None:
    """Print up to `top` solutions, the best first where the problem has an objective."""
    from constrint.cli.output import print_json, say, wrap

    problem = asked.problem
    try:
        space = asked.space(backend)
        rows = _best_rows(asked, space, top)
        size: int | None = space.size
    except LimitReachedError as error:
        rows, size = [_one(asked, backend, error)], None
    num_product = _product(asked)
    if as_json:
        print_json({"schema": SCHEMA, "num_product": num_product, "num_valid": size, "solutions": rows})
        return
    if size is not None:
        say(wrap(f"{asked.title}: {size:,} solutions of {num_product:,} combinations"))
    else:
        say(wrap(f"{asked.title}: {num_product:,} combinations, too many solutions to list"))
    if problem.objective is not None:
        say(wrap(f"best first: {problem.objective}"))
    say()
    print_rows(problem.variables, listed_rows(problem.variables, rows))
    if size is not None and size > len(rows):
        say(f"... and {size - len(rows):,} more (--top N prints more, --all prints all)")


def _product(asked: Asked) -> int:
    import math

    return math.prod(domain.size for domain in asked.problem.variables.values())


def _one(asked: Asked, backend: str, limit: LimitReachedError) -> dict[str, int]:
    """One solution (the best, where there is an objective) of a problem with too many to list."""
    from constrint.solve import Status, solve

    answer = solve(asked.problem, backend=backend)
    if answer.status is Status.INFEASIBLE:
        raise asked.infeasible()
    assignment = answer.require()
    print(f"note: only one solution is shown: {limit}", file=sys.stderr)
    return dict(assignment)


def _best_rows(asked: Asked, space: SearchSpace, top: int) -> list[dict[str, int]]:
    objective = asked.problem.objective
    if objective is None:
        return [space[i] for i in range(min(top, space.size))]
    return [ranked.config for ranked in space.best(top, objective.expr, maximise=objective.maximise)]


def print_all(question: Question, backend: str, *, as_json: bool) -> None:
    """Print every solution: rows on stdout, how many there are on stderr."""
    solutions = Solutions.of(question, backend)
    product = solutions.product_size
    print(f"{question.title}: {solutions.size:,} solutions of {product:,} combinations", file=sys.stderr)
    for note in question.notes:
        print(f"note: {note}", file=sys.stderr)
    batches = _in_order(question, solutions)
    if as_json:
        print_json_lines(batches)
    else:
        print_rows(solutions.names, batches)


def _in_order(question: Question, solutions: Solutions) -> Iterator[Columns]:
    """All solutions, the best first where there is an objective that can be sorted by."""
    objective = question.asked[0].problem.objective
    if objective is None:
        yield from solutions.all()
        return
    if solutions.size > MAX_RANKED:
        print(f"note: more than {MAX_RANKED:,} solutions are not sorted by the objective", file=sys.stderr)
        yield from solutions.all()
        return
    import numpy as np

    ((_, space),) = solutions.spaces
    columns = space.columns()
    values = objective.expr.columns(columns)
    order = np.argsort(-values if objective.maximise else values, kind="stable")
    for start in range(0, len(order), BATCH):
        rows = order[start : start + BATCH]
        yield {name: column[rows] for name, column in columns.items()}
