"""`constrint explain`: what each rule of a space removes, or why nothing fits and what would."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

from constrint.answers.explanation import (
    RULES,
    Removed,
    Section,
    explanation_of,
    fastest_of,
    print_section,
    rule_rows,
)
from constrint.answers.question import Question, StatedProblem
from constrint.answers.table import Page, Table
from constrint.answers.terminal import say, wrap
from constrint.answers.ways_out import ways_out
from constrint.cli.options import Choice, KernelCommand, MaxMemory, MaxSeconds
from constrint.cli.output import Output, printing
from constrint.cli.question import question_of
from constrint.cli.run import Run
from constrint.errors import InfeasibleError, LimitReachedError
from constrint.model import Problem
from constrint.select.rank import reason_of
from constrint.solve import count_within
from constrint.solve.budget import Budget
from constrint.solve.explain.why_not import removes_alone, removes_only

SCHEMA = "constrint.explain/1"
#: Share of the time limit for counting the solutions; the rest is for the rules.
COUNT_SHARE = 0.5


@KernelCommand
@printing
def explain(choice: Choice, max_seconds: MaxSeconds = None, max_memory: MaxMemory = None, *, output: Output) -> None:
    """Say per rule how many configurations it removes; for an infeasible request, the conflict and the way out."""
    run = Run("explaining", max_seconds, max_memory)
    question = question_of(choice)
    with run:
        sections = [_section(stated, run) for stated in question.problems]
        if all(section.reason for section in sections):
            raise _nothing_fits(question, sections)
    explained = [cache(partial(explanation_of, section)) for section in sections]

    def drawn(draw: Callable[[Table], None]) -> None:
        for place, section in enumerate(sections):
            if place:
                say("\n")
            print_section(section, explained[place], draw)
        for note in question.notes:
            say()
            say(wrap(note))

    def document(_: object) -> dict[str, Any]:
        return {"schema": SCHEMA, "results": [each() for each in explained]}

    has_rows = not output.is_table and not output.is_json
    rows = [row for each in explained for row in rule_rows(each(), each().rules)] if has_rows else []
    output.show(Page(Table(RULES, rows), document, draw=drawn))
    stopped = next((section.stopped for section in sections if section.stopped), "")
    if stopped:
        print(f"note: what each rule removes is not counted: {stopped}", file=sys.stderr)
    if run.signal or any(section.valid.exact is None for section in sections) or (stopped and run.reason()):
        run.leave()


def _section(stated: StatedProblem, run: Run) -> Section:
    valid = count_within(stated.problem, run.limits(COUNT_SHARE))
    if valid.exact == 0:
        limits = run.limits()
        reason, conflict = reason_of(stated.problem, is_kernel=stated.request is not None, limits=limits)
        return Section(stated, valid, reason, conflict, tuple(ways_out(stated, conflict, limits)))
    if valid.exact is None:
        valid = replace(valid, stopped=run.why(valid.stopped))
    removed: dict[int, Removed] = {}
    stopped = valid.stopped
    try:
        _count_removed(stated.problem, valid.exact, removed, run)
    except LimitReachedError as error:
        stopped = run.why(error)
    return Section(stated, valid, removed=removed, stopped=stopped, fastest=fastest_of(stated, run.limits()))


def _count_removed(problem: Problem, total: int | None, removed: dict[int, Removed], run: Run) -> None:
    """Count what each rule removes, rule by rule, within the limits of the run.

    Args:
        problem: The problem.
        total: The number of its solutions; None if unknown, which leaves `removes_only` uncounted.
        removed: Receives the counts by the rules' `id`.
        run: The run.

    Raises:
        LimitReachedError: When a limit left a rule uncounted.
    """
    rules, budget = (*problem.constraints, *problem.estimates), Budget(run.limits())
    reached: LimitReachedError | None = None
    for place, rule in enumerate(rules):
        run.progress.say(f"rule {place + 1} of {len(rules)}", place, len(rules))
        alone = only = None
        try:
            alone = removes_alone(problem, rule, budget)
            only = None if total is None else removes_only(problem, rule, total, budget)
        except LimitReachedError as error:
            reached = reached or error
        if alone is not None:
            removed[id(rule)] = alone, only
        if run.reason():
            break
    if reached is not None or len(removed) < len(rules):
        raise reached or LimitReachedError(run.reason())


def _nothing_fits(question: Question, sections: list[Section]) -> InfeasibleError:
    """The error with the reason and the ways out of every kernel."""
    head, last = question.problems[0].has_none, sections[-1]
    if not question.several:
        return InfeasibleError(f"{head} {last.advice}", last.conflict)
    texts = [f"{section.stated.kernel}: {section.advice}" for section in sections]
    by_kernel = {section.stated.kernel: section.conflict for section in sections}
    return InfeasibleError("\n".join([head, *texts, *question.notes]), last.conflict, by_kernel)
