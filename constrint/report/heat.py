"""The heat map: the best modelled time over two parameters, and for an empty cell the rules that exclude it.

The axes are the pair of parameters that explains most of the time. For every pair the valid configurations are grouped
by their two values; the pair is worth the share of the variance of log time that lies between the groups. A pair of
tile sizes is preferred unless another pair explains much more. Tile sizes are the parameters that a proposal's macro
action `tile` moves; no kernel is known by name.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.answers.facts import BrokenFacts, CellFacts, HeatFacts, Value, shown_config, shown_value
from constrint.errors import InfeasibleError, LimitReachedError, UnknownNameError
from constrint.model import Constraint, Domain, Problem, Var
from constrint.select import Candidate, Operation
from constrint.select.core_space import core_space
from constrint.select.rank import KernelProblem, rank_requests
from constrint.solve import Conflict, Limits, minimal_conflict, relaxations, why_not
from constrint.solve.explain.conflict import ConflictMember

#: Most values of a parameter in the map; a longer list is thinned.
MAX_VALUES = 16
#: Seconds for the conflict of one cell.
MAX_SECONDS = 2.0


def heat_facts(request: KernelProblem, best: Candidate | None, over: tuple[str, str] | None) -> HeatFacts | None:
    """The heat map of a kernel with valid configurations; None without two axes or a valid cell.

    Args:
        request: The kernel and its space.
        best: The best configuration, whose values are always shown.
        over: The parameters that the user named.
    """
    axes = telling_axes(request, over)
    if axes is None:
        return None
    values = {name: _shown(request.problem.variables[name], best, name) for name in (axes.x, axes.y)}
    is_thinned = any(len(values[name]) < request.problem.variables[name].size for name in values)
    cells = [_cell(request, {axes.x: x, axes.y: y}) for y in values[axes.y] for x in values[axes.x]]
    if all(cell.seconds is None for cell in cells):
        return None  # all valid configurations have values that are not shown
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
    """The index of the best configuration's cell; of the fastest cell without a best configuration."""
    for at, cell in enumerate(cells):
        if best and (best[axes.x], best[axes.y]) == (cell.x, cell.y):
            return at
    return min(range(len(cells)), key=lambda at: cells[at].seconds or math.inf)


def _shown(domain: Domain, best: Candidate | None, name: str) -> list[int]:
    """The codes of the shown values in ascending order, including the best configuration's value."""
    codes = sorted(domain)
    if len(codes) > MAX_VALUES:
        at = {round(place * (len(codes) - 1) / (MAX_VALUES - 1)) for place in range(MAX_VALUES)}
        chosen = {codes[place] for place in at} | ({best.config[name]} if best is not None else set())
        codes = sorted(chosen)
    return codes


def _cell(request: KernelProblem, fixed: dict[str, int]) -> CellFacts:
    """The facts of one pair of values."""
    spec = request.spec
    x, y = (shown_value(spec, name, code) for name, code in fixed.items())
    problem = request.problem.copy()
    held = [problem.add(Var(name) == code, because=f"the cell has {name} = {code}") for name, code in fixed.items()]
    narrowed = replace(request, problem=problem)
    try:
        ranking = rank_requests(Operation(spec.full_name, (spec,)), [narrowed], {}, top=1)
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
    """The rules of a conflict, with the numbers of a configuration that breaks as few as possible.

    Args:
        problem: A problem without a solution.
        conflict: Its conflict, if it is known.
        held: Rules that only fix the cell and are no reasons.
        own: The user's own rules, by `id`; they get ways out instead of numbers.
    """
    limits = Limits(max_seconds=MAX_SECONDS)
    try:
        members = (
            conflict if isinstance(conflict, Conflict) else minimal_conflict(problem, limits, domains_in_force=True)
        )
    except LimitReachedError:
        return ()
    are_held = {id(rule) for rule in held}

    def is_reason(member: ConflictMember) -> bool:
        return id(member.constraint) not in are_held

    reasons = [member for member in members.members if is_reason(member)]
    numbers = _numbers(problem, members, limits, are_held | set(own))
    return tuple(
        BrokenFacts(
            name="" if member.constraint is None else member.constraint.name,
            rule=member.text,
            seen=numbers.get(id(member.constraint), ""),
            because=member.because,
        )
        for member in sorted(reasons, key=lambda member: id(member.constraint) not in numbers)
    )


def _numbers(problem: Problem, conflict: Conflict, limits: Limits, held: set[int]) -> dict[int, str]:
    """The numbers of each rule in the configuration nearest to it: `20480 <= 16384 is false`, by the rule's `id`."""
    own = {id(rule) for rule in problem.constraints} - held
    ways = relaxations(problem, conflict, limits, among=lambda m: m.constraint is not None and id(m.constraint) in own)
    texts: dict[int, str] = {}
    for relaxation in ways:
        for rule in why_not(problem, relaxation.solution, limits):
            if rule.constraint is not None and id(rule.constraint) not in held:
                texts.setdefault(id(rule.constraint), rule.seen)
    return texts


#: Least share of the best pair's explanation at which a pair of tile sizes is preferred.
TILES_PREFERRED = 0.5


@dataclass(frozen=True)
class Axes:
    """Two parameters, and the share of the variance of log time that they explain, from 0 to 1."""

    x: str
    y: str
    share: float


def telling_axes(request: KernelProblem, over: tuple[str, str] | None = None) -> Axes | None:
    """The axes of a kernel's heat map; None if fewer than two parameters vary.

    Args:
        request: The kernel and its space, which has valid configurations.
        over: The parameters that the user named; ignored for a kernel that lacks one of them.
    """
    columns, logs = _priced(request)
    if not len(logs) or not np.isfinite(logs).any():
        return None
    if over is not None and set(over) <= columns.keys():
        return Axes(*over, _share(columns, logs, over))
    varying = [name for name, column in columns.items() if len(np.unique(column)) > 1]
    shares = {pair: _share(columns, logs, pair) for pair in combinations(varying, 2)}
    if not shares:
        return None
    best = max(shares, key=lambda pair: shares[pair])
    tiles = _tile_names(request, list(columns))
    of_tiles = [pair for pair in shares if set(pair) <= tiles]
    if of_tiles:
        tiled = max(of_tiles, key=lambda pair: shares[pair])
        best = tiled if shares[tiled] >= TILES_PREFERRED * shares[best] else best
    # The first parameter, usually the rows of the output, is the vertical axis, as in a matrix.
    return Axes(best[1], best[0], shares[best])


def check_over(requests: Sequence[KernelProblem], over: tuple[str, str]) -> None:
    """Check the axes that the user named.

    Raises:
        UnknownNameError: When no kernel has a parameter of the name.
    """
    for name in over:
        names = {param for request in requests for param in request.problem.variables}
        if name not in names:
            raise UnknownNameError("parameter", name, names)


def _tile_names(request: KernelProblem, names: Sequence[str]) -> set[str]:
    from constrint.tune.search.llm.actions import actions_of

    return set(actions_of(request.spec, names).get("tile", ()))


def _priced(request: KernelProblem) -> tuple[Mapping[str, NDArray[Any]], NDArray[np.float64]]:
    """The valid configurations, without the order of blocks and the compiler's knobs, and the log of their times."""
    spec, gpu, workload = request.spec, request.gpu, request.workload
    space = core_space(spec, gpu, workload, request.problem)
    if not space.num_valid or not space.columns:
        return {}, np.zeros(0)
    cost = spec.cost(gpu, workload, space.columns, space.blocks.blocks_per_sm)
    seconds = np.broadcast_to(np.asarray(cost.seconds, dtype=np.float64), space.num_variants.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        return space.columns, np.log(seconds * space.blocks.slowdown(gpu))


def _share(columns: Mapping[str, NDArray[Any]], logs: NDArray[np.float64], pair: tuple[str, str]) -> float:
    """The share of the variance between the groups of two parameters' values."""
    finite = np.isfinite(logs)
    logs = logs[finite]
    total = float(logs.var())
    if total <= 0.0:
        return 0.0
    codes = [np.unique(columns[name][finite], return_inverse=True)[1].astype(np.int64) for name in pair]
    groups = np.unique(codes[0] * (int(codes[1].max()) + 1) + codes[1], return_inverse=True)[1]
    numbers = np.bincount(groups)
    means = np.bincount(groups, weights=logs) / numbers
    return float((numbers * (means - logs.mean()) ** 2).sum() / len(logs) / total)
