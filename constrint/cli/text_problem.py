"""Solving a user's own text problem: `constrint solve --problem FILE`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from constrint.errors import InfeasibleError, UsageError

if TYPE_CHECKING:
    from constrint.model import Problem
    from constrint.solve import SearchSpace

#: Solutions that are ranked by an objective in memory.
MAX_RANKED = 5_000_000
SCHEMA = "constrint.solutions/1"


def load_problem(path: Path) -> Problem:
    """Read and parse a problem file; warnings of the parser go to stderr."""
    import warnings

    from constrint.model import parse

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read the problem file {path}: {reason}.") from None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        problem = parse(text, source=str(path))
    for warning in caught:
        print(f"warning: {warning.message}", file=sys.stderr)
    return problem


def best_rows(problem: Problem, space: SearchSpace, top: int) -> list[dict[str, int]]:
    """The first `top` solutions: by the objective where there is one, else in the order of declared values."""
    import numpy as np

    objective = problem.objective
    if objective is None:
        return [space[i] for i in range(min(top, space.size))]
    if space.size > MAX_RANKED:
        from constrint.solve import solve

        print(f"note: {space.size:,} solutions are too many to rank; only the best is shown", file=sys.stderr)
        return [solve(problem).require()]
    columns = space.columns()
    values = objective.expr.columns(columns)
    order = np.argsort(-values if objective.maximise else values, kind="stable")[:top]
    return [{name: int(column[row]) for name, column in columns.items()} for row in order]


def solve_text(path: Path, top: int, *, as_json: bool) -> None:
    """Print up to `top` solutions, the best first where the problem has an objective."""
    from constrint.cli.output import print_json, print_table, say
    from constrint.solve import enumerate_space, minimal_conflict

    problem = load_problem(path)
    space = enumerate_space(problem)
    if space.size == 0:
        conflict = minimal_conflict(problem)
        raise InfeasibleError(f"{path} has no solution. {conflict}", conflict)
    rows = best_rows(problem, space, top)
    if as_json:
        print_json({"schema": SCHEMA, "num_product": space.product_size, "num_valid": space.size, "solutions": rows})
        return
    say(f"{path}: {space.size:,} solutions of {space.product_size:,} combinations")
    if problem.objective is not None:
        say(f"best first: {problem.objective}")
    say()
    names = list(problem.variables)
    print_table(names, [[row[name] for name in names] for row in rows])
    if space.size > len(rows):
        say(f"... and {space.size - len(rows):,} more (--top N prints more)")
