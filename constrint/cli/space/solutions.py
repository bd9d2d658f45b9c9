"""The solutions of a problem: what `constrint solve` prints for a file, and for `--all`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np

from constrint.answers.question import Asked, Question
from constrint.answers.table import Page, Table
from constrint.cli.output import Output
from constrint.cli.running.run import Run
from constrint.cli.space.rows import BATCH, Columns, Solutions, solution_columns
from constrint.errors import LimitReachedError
from constrint.model.coding import Coding
from constrint.solve import Limits, SearchSpace, Solution, Status, best_solutions, solve
from constrint.solve.optimise import DEFAULT_SECONDS

#: Solutions that are sorted by an objective in memory.
MAX_RANKED = 5_000_000
SCHEMA = "constrint.solutions/1"
#: Of the time that is allowed a list of all solutions may take this share; the rest is for a search for one.
LIST_SHARE: Final = 0.5
#: Seconds of that search where the user asked it to stop.
LAST_SECONDS: Final = 0.15


def print_best(question: Question, top: int, backend: str, run: Run, output: Output) -> None:
    """Print up to `top` solutions, the best first where the problem has an objective."""
    (asked,) = question.asked
    problem = asked.problem
    stopped: dict[str, Any] = {}
    with run:
        try:
            limits = run.limits(LIST_SHARE)
            ((_, space),) = question.spaces(backend, limits)
            rows = _best_rows(asked, space, top, limits)
            size: int | None = space.size
        except LimitReachedError as error:
            answer = _one(question, backend, run)
            rows, size = [dict(answer.assignment)] * bool(answer.assignment), None
            stopped = _stopped(answer, error, run)
    num_product = problem.num_combinations
    found = f"{size:,} solutions of {num_product:,}" if size is not None else f"{num_product:,}"
    few = "" if size is not None else ", too many solutions to list"
    order = [f"weight {s.weight} if not {s.constraint}" for s in problem.soft_constraints]
    order += [str(objective) for objective in problem.objectives]
    more = 0 if size is None else size - len(rows)
    page = Page(
        Table(solution_columns(problem.variables), [[row[name] for name in problem.variables] for row in rows], rows),
        lambda items: {
            "schema": SCHEMA,
            "num_product": num_product,
            "num_valid": size,
            "solutions": list(items),
            **({"stopped": stopped} if stopped else {}),
        },
        above=[f"{asked.title}: {found} combinations{few}"]
        + ([f"best first: {'; then '.join(order)}"] if order else []),
        below=[f"... and {more:,} more (--top N prints more, --all prints all)"] if more else [],
    )
    output.show(page)
    if stopped:
        print(f"note: {_note(stopped, bool(rows))}", file=sys.stderr)
    if run.signal or not rows:
        run.leave()


def _stopped(answer: Solution, listing: LimitReachedError, run: Run) -> dict[str, Any]:
    """What is known of the one solution that is shown where not all could be listed."""
    return {
        "why": run.why(listing if answer else answer.message),
        "is_best": answer.status is Status.FEASIBLE,
        "bound": answer.bound,
    }


def _note(stopped: dict[str, Any], is_known: bool) -> str:
    if stopped["is_best"]:
        return f"only one solution is shown: {stopped['why']}"
    bound = stopped["bound"]
    known = "" if bound is None else f", and the first objective cannot be better than {bound}"
    what = "what is shown is the best known, not proven best" if is_known else "no solution is known yet"
    return f"{what}{known}: {stopped['why']}"


def _one(question: Question, backend: str, run: Run) -> Solution:
    """The best known solution of a problem with too many to list."""
    # What has too many solutions to list may be hard, too: CP-SAT helps where it is installed.
    asked, limits = "auto" if backend == "native" else backend, run.limits()
    if run.is_asked_to_stop():
        asked, limits = backend, run.last_limits(LAST_SECONDS)
    elif limits.max_seconds is None:
        # As `solve` has it where no limits are given, from now on.
        limits = replace(limits, max_seconds=DEFAULT_SECONDS, started=None)
    answer = solve(question.asked[0].problem, limits, asked)
    if answer.status is Status.INFEASIBLE:
        raise question.infeasible()
    return answer


def _best_rows(asked: Asked, space: SearchSpace, top: int, limits: Limits) -> list[dict[str, int]]:
    problem, objective = asked.problem, asked.problem.objective
    if objective is None and not problem.soft_constraints:
        return [space[i] for i in range(min(top, space.size))]
    if objective is None or len(problem.objectives) > 1 or problem.soft_constraints:
        return [answer.assignment for answer in best_solutions(problem, top, limits)]
    return [ranked.config for ranked in space.best(top, objective.expr, maximise=objective.maximise, limits=limits)]


def print_all(question: Question, backend: str, run: Run, output: Output) -> None:
    """Print every solution: rows on stdout, how many there are on stderr."""
    with run:
        solutions = Solutions(question, backend, run.limits())
        head = f"{question.title}: {solutions.size:,} solutions of {solutions.product_size:,} combinations"
        run.progress.close()
        print(head, file=sys.stderr)
        for note in question.notes:
            print(f"note: {note}", file=sys.stderr)
        solutions.write(_in_order(question, solutions), solutions.size, run, output)


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
