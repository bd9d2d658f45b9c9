"""The best modelled time over two parameters, and for every pair of values that nothing fits the rules that say why."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from constrint.errors import InfeasibleError, LimitReachedError
from constrint.model import Constraint, Domain, Problem, Var
from constrint.report.facts.records import BrokenFacts, CellFacts, HeatFacts, Value
from constrint.report.facts.telling import Axes, telling_axes
from constrint.report.facts.values import shown_config, shown_value
from constrint.select import Candidate, Operation
from constrint.select.rank import KernelProblem, rank_requests
from constrint.solve import Conflict, Limits, minimal_conflict, relaxations, why_not
from constrint.solve.explain.conflict import ConflictMember

#: Values of one parameter that are shown; of more some are left out.
MAX_VALUES = 16
#: Seconds for the reasons of one cell.
MAX_SECONDS = 2.0


def heat_facts(request: KernelProblem, best: Candidate | None, over: tuple[str, str] | None) -> HeatFacts | None:
    """The heat map of a kernel with valid configurations; None where there is nothing to show.

    Args:
        request: The kernel and its space.
        best: Its best configuration, whose values are shown in any case.
        over: The two parameters that the user named.
    """
    axes = telling_axes(request, over)
    if axes is None:
        return None
    values = {name: _shown(request.problem.variables[name], best, name) for name in (axes.x, axes.y)}
    is_thinned = any(len(values[name]) < request.problem.variables[name].size for name in values)
    cells = [_cell(request, {axes.x: x, axes.y: y}) for y in values[axes.y] for x in values[axes.x]]
    if all(cell.seconds is None for cell in cells):
        return None  # what is valid has other values than those that are shown
    spec = request.spec
    x_values, y_values = (tuple(shown_value(spec, name, code) for code in values[name]) for name in (axes.x, axes.y))
    return HeatFacts(
        x=axes.x,
        y=axes.y,
        x_values=x_values,
        y_values=y_values,
        is_thinned=is_thinned,
        is_asked=over is not None and set(over) == {axes.x, axes.y},
        share=axes.share,
        best=_best_cell(cells, {} if best is None else shown_config(spec, best.config), axes),
        cells=tuple(cells),
    )


def _best_cell(cells: Sequence[CellFacts], best: Mapping[str, Value], axes: Axes) -> int:
    """The place of the best configuration's cell, of which others may tie with; the fastest where none is known."""
    for at, cell in enumerate(cells):
        if best and (best[axes.x], best[axes.y]) == (cell.x, cell.y):
            return at
    return min(range(len(cells)), key=lambda at: cells[at].seconds or math.inf)


def _shown(domain: Domain, best: Candidate | None, name: str) -> list[int]:
    """The codes of the values that are shown, in ascending order, the best configuration's among them."""
    codes = sorted(domain)
    if len(codes) > MAX_VALUES:
        at = {round(place * (len(codes) - 1) / (MAX_VALUES - 1)) for place in range(MAX_VALUES)}
        kept = {codes[place] for place in at} | ({best.config[name]} if best is not None else set())
        codes = sorted(kept)
    return codes


def _cell(request: KernelProblem, fixed: dict[str, int]) -> CellFacts:
    """What is known of one pair of values."""
    spec = request.spec
    x, y = (shown_value(spec, name, code) for name, code in fixed.items())
    problem = request.problem.copy()
    held = [problem.add(Var(name) == code, because=f"the cell has {name} = {code}") for name, code in fixed.items()]
    asked = replace(request, problem=problem)
    try:
        ranking = rank_requests(Operation(spec.full_name, (spec,)), [asked], {}, top=1)
    except InfeasibleError as error:
        conflict = error.conflict
        return CellFacts(x=x, y=y, broken=broken_facts(problem, conflict, held))
    best = ranking.candidates[0]
    return CellFacts(
        x=x,
        y=y,
        num_valid=ranking.num_valid,
        seconds=best.cost.seconds,
        bound_by=best.cost.bound_by,
        config=shown_config(spec, best.config),
    )


def broken_facts(
    problem: Problem, conflict: object, held: Sequence[Constraint] = (), own: Collection[int] = ()
) -> tuple[BrokenFacts, ...]:
    """The rules of a conflict with the numbers in them: those of a configuration that breaks as little as can be.

    Args:
        problem: A problem without a solution.
        conflict: Its conflict, where it is known.
        held: Rules that are no reasons: they say which cell is meant.
        own: The user's own rules, by `id`: what another value of them would be is told as a way out, not as a number.
    """
    limits = Limits(max_seconds=MAX_SECONDS)
    try:
        known = conflict if isinstance(conflict, Conflict) else minimal_conflict(problem, limits, domains_in_force=True)
    except LimitReachedError:
        return ()
    are_held = {id(rule) for rule in held}

    def is_reason(member: ConflictMember) -> bool:
        return id(member.constraint) not in are_held

    reasons = [member for member in known.members if is_reason(member)]
    seen = _numbers(problem, known, limits, are_held | set(own))
    return tuple(
        BrokenFacts(
            name="" if member.constraint is None else member.constraint.name,
            rule=member.text,
            seen=seen.get(id(member.constraint), ""),
            because=member.because,
        )
        for member in sorted(reasons, key=lambda member: id(member.constraint) not in seen)
    )


def _numbers(problem: Problem, conflict: Conflict, limits: Limits, held: set[int]) -> dict[int, str]:
    """What is seen of each rule in the configuration nearest to it: `20480 <= 16384 is false`, by the rule's id."""
    own = {id(rule) for rule in problem.constraints} - held
    ways = relaxations(problem, conflict, limits, among=lambda m: m.constraint is not None and id(m.constraint) in own)
    seen: dict[int, str] = {}
    for way in ways:
        for rule in why_not(problem, way.solution, limits):
            if rule.constraint is not None and id(rule.constraint) not in held:
                seen.setdefault(id(rule.constraint), rule.seen)
    return seen
