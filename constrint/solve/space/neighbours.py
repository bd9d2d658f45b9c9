"""Neighbours in a factored space: solutions that differ from an assignment in exactly one variable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from constrint.errors import UsageError

if TYPE_CHECKING:
    from constrint.solve.space.space import SearchSpace


def neighbours_of(space: SearchSpace, assignments: Sequence[Mapping[str, int]]) -> list[dict[str, int]]:
    """Neighbours of one assignment after the other, as dictionaries."""
    layout = space.layout
    known = [layout.rows_of([a]) for a in assignments]
    if layout.derived or any(rows is None for rows in known) or any(_off(space, a) for a in assignments):
        return [n for a in assignments for n in _one_by_one(space, a)]
    neighbours: list[dict[str, int]] = []
    for assignment, rows in zip(assignments, known, strict=True):
        allowed = _allowed(space, rows or {})
        for name in space.names:
            if name in allowed:
                positions = np.flatnonzero(allowed[name][0])
                values = layout.values(name, positions).tolist()
                neighbours += [{**assignment, name: v} for v in values if v != assignment[name]]
    return neighbours


def _off(space: SearchSpace, assignment: Mapping[str, int]) -> bool:
    return any(assignment.get(n) != v for n, v in space.layout.fixed.items())


def _one_by_one(space: SearchSpace, values: Mapping[str, int]) -> list[dict[str, int]]:
    """For assignments outside the axes, and with derived variables: asks the space for every variable."""
    neighbours: list[dict[str, int]] = []
    for name in space.names:
        near = space.extend({n: v for n, v in values.items() if n != name})
        if near.size:
            listed = near.project([name])[0][name].tolist()
            neighbours += [{**values, name: v} for v in listed if v != values.get(name)]
    return neighbours


def _allowed(space: SearchSpace, rows: dict[str, NDArray[Any]]) -> dict[str, NDArray[np.bool_]]:
    """Per variable a table (row, position): whether that one change yields a solution."""
    if space.parts is None:
        return {}
    answers = [part.moves(rows) for part in space.parts]
    wrong: Any = sum((~fits).astype(np.int64) for fits, _ in answers)
    allowed: dict[str, NDArray[np.bool_]] = {}
    for fits, moves in answers:
        others = (wrong - ~fits) == 0
        allowed.update({name: inside & others[:, None] for name, inside in moves.items()})
    return allowed


def neighbour_columns(
    space: SearchSpace, assignments: Mapping[str, NDArray[Any]]
) -> tuple[NDArray[np.intp], dict[str, NDArray[Any]]]:
    """Implements `SearchSpace.neighbour_columns`."""
    layout = space.layout
    missing = [n for n in space.names if n not in assignments]
    if missing:
        raise UsageError(f"neighbour_columns needs a column for every variable; missing: {', '.join(missing)}.")
    if layout.derived or space.excluded:
        raise UsageError("neighbour_columns works on spaces without derived variables and exclusions.")
    rows = layout.positions_of(assignments)
    if rows is None or any(bool(np.any(assignments[n] != v)) for n, v in layout.fixed.items()):
        raise UsageError("neighbour_columns takes assignments of the space; some value is outside it.")
    sources: list[NDArray[np.intp]] = []
    changed: list[tuple[str, NDArray[Any]]] = []
    for name, table in _allowed(space, rows).items():
        table[np.arange(len(table)), rows[name]] = False
        source, positions = np.nonzero(table)
        sources.append(source)
        changed.append((name, layout.values(name, positions)))
    if not sources:
        return np.zeros(0, dtype=np.intp), {n: np.zeros(0, dtype=np.int64) for n in space.names}
    source = np.concatenate(sources)
    columns = {n: np.asarray(assignments[n])[source] for n in space.names}
    at = 0
    for name, values in changed:
        columns[name][at : at + len(values)] = values
        at += len(values)
    return source, columns
