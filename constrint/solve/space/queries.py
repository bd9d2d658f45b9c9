"""Methods of a search space with long bodies: neighbours, equality, frames, samples, text and HTML, subscripts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from constrint.errors import UsageError
from constrint.frames import html_table, library
from constrint.model.operations import as_int, shown
from constrint.solve.space.axes import check_listing, places_of
from constrint.solve.space.parts import Part
from constrint.solve.space.tree import Tree

if TYPE_CHECKING:
    from constrint.solve.space.axes import AxisLayout
    from constrint.solve.space.space import SearchSpace


def neighbours_of(space: SearchSpace, assignment: Mapping[str, int]) -> list[dict[str, int]]:
    """Neighbours of an assignment, as dictionaries."""
    layout = space.layout
    rows = layout.row_of(assignment)
    if layout.derived or rows is None or any(assignment.get(n) != v for n, v in layout.fixed.items()):
        return _one_by_one(space, assignment)
    neighbours: list[dict[str, int]] = []
    allowed = _allowed(space, rows)
    for name in space.names:
        if name in allowed:
            values = layout.values(name, np.flatnonzero(allowed[name][0])).tolist()
            neighbours += [{**assignment, name: v} for v in values if v != assignment[name]]
    return neighbours


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


_BATCH: Final = 1 << 16


def same_solutions(one: SearchSpace, other: SearchSpace) -> bool:
    """Whether two spaces have the same variables and the same solutions, in whatever order."""
    if set(one.names) != set(other.names) or one.size != other.size:
        return False
    if one.size == 0 or (one.factors is other.factors and one.gaps == other.gaps):
        return True
    if not (one.gaps or other.gaps) and _same_tables(one, other):
        return True
    return _holds_all(one, other)


def _same_tables(one: SearchSpace, other: SearchSpace) -> bool:
    """Whether the tables are equal, row by row; the solutions may be the same even if they are not."""
    mine, theirs = ({frozenset(p.names): p for p in s.parts or ()} for s in (one, other))
    if mine.keys() != theirs.keys() or one.layout.fixed != other.layout.fixed:
        return False
    derived = [{n: e.key() for n, e in s.layout.derived.items()} for s in (one, other)]
    if derived[0] != derived[1]:
        return False
    return all(_same_part(mine[names], theirs[names], one.layout, other.layout) for names in mine)


def _same_part(one: Part, other: Part, mine: AxisLayout, theirs: AxisLayout) -> bool:
    for name in one.names:
        a, b = mine.axes[name], theirs.axes[name]
        if mine.size(name) != theirs.size(name) or type(a) is not type(b):
            return False
        equal = np.array_equal(a.values, b.values) if hasattr(a, "values") and hasattr(b, "values") else a == b
        if not equal:
            return False
    if not isinstance(one, Tree) or not isinstance(other, Tree):
        return type(one) is type(other) and one == other
    return len(one.tables) == len(other.tables) and all(
        x.rows.keys() == y.rows.keys()
        and np.array_equal(x.starts, y.starts)
        and all(np.array_equal(x.rows[n], y.rows[n]) for n in x.rows)
        and x.links.keys() == y.links.keys()
        and all(np.array_equal(link, y.links[child]) for child, link in x.links.items())
        for x, y in zip(one.tables, other.tables, strict=True)
    )


def _holds_all(one: SearchSpace, other: SearchSpace) -> bool:
    """Whether every solution of one space is in the other, which has as many."""
    for start in range(0, one.size, _BATCH):
        columns = one.take(range(start, min(start + _BATCH, one.size)))
        if not other.contains_columns(columns):
            return False
    return True


_WITHOUT_FRAMES: Final = "Or use columns(), which needs numpy only."


def pandas_frame(space: SearchSpace) -> Any:
    """Implements `SearchSpace.to_pandas`."""
    pandas = library("pandas", "to_pandas", _WITHOUT_FRAMES)
    # Python's own values stay what they are: None does not become not-a-number.
    series = {n: pandas.Series(c, dtype=c.dtype) for n, c in space.columns().items()}
    return pandas.DataFrame(series, index=range(space.size), columns=list(space.names))


def polars_frame(space: SearchSpace) -> Any:
    """Implements `SearchSpace.to_polars`."""
    polars = library("polars", "to_polars", _WITHOUT_FRAMES)
    # Numbers beyond 64 bits, and values that are neither numbers nor text, stay Python's.
    series = {
        n: polars.Series(n, c.tolist(), dtype=polars.String if all(isinstance(v, str) for v in c) else polars.Object)
        if c.dtype == object
        else c
        for n, c in space.columns().items()
    }
    return polars.DataFrame(series)


def sample_indices(size: int, n: int, seed: int | None) -> list[int]:
    """Draws `n` distinct indices below `size` uniformly; all of them, shuffled, where there are fewer."""
    n = min(n, size)
    if size > 1 << 62:
        import random  # loaded where 64 bits do not suffice

        wide = random.Random(seed)
        drawn = dict.fromkeys(wide.randrange(size) for _ in range(n))
        while len(drawn) < n:
            drawn[wide.randrange(size)] = None
        return list(drawn)
    generator = np.random.default_rng(seed)
    if 3 * n > size:
        return [int(i) for i in generator.permutation(size)[:n]]
    drawn_so_far: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
    while len(drawn_so_far) < n:
        more = np.concatenate([drawn_so_far, generator.integers(0, size, n + 16)])
        drawn_so_far = more[np.sort(np.unique(more, return_index=True)[1])]
    return [int(i) for i in drawn_so_far[:n]]


def solution_after(space: SearchSpace, solution: Mapping[str, int]) -> dict[str, int]:
    """Returns the solution of a space without exclusions that follows `solution` in declared order."""
    for i, name in reversed(list(enumerate(space.names))):
        near = space.extend({n: solution[n] for n in space.names[:i]})
        values = near.project([name])[0][name]
        places = places_of(space.problem.variables[name], np.append(values, solution[name]))
        later = np.flatnonzero(places[:-1] > places[-1])
        if len(later):
            return near.extend({name: int(values[later[np.argmin(places[later])]])}).first()
    raise IndexError("the space has no further solution")


_SHOWN_ROWS: Final = 10
_SHOWN_NAMES: Final = 6


def written(number: int) -> str:
    """A number of solutions; a large one rounded down to three digits."""
    if number < 10**15 or number.bit_length() > 1 << 13:
        return shown(number)
    digits = str(number)
    return f"{digits[0]}.{digits[1:3]}e{len(digits) - 1}"


def summary(space: SearchSpace) -> str:
    """The space in one line: its name, its size, its variables."""
    names = ", ".join(space.names[:_SHOWN_NAMES]) + (", ..." if len(space.names) > _SHOWN_NAMES else "")
    return f"<{_sizes(space, written)} over {names or 'no variables'}>"


def _sizes(space: SearchSpace, number: Callable[[int], str]) -> str:
    name = f" {space.problem.name!r}" if space.problem.name else ""
    return f"SearchSpace{name}: {number(space.size)} of {number(space.product_size)} configs"


def _in_groups(number: int) -> str:
    """A number with its digits in groups of three."""
    return f"{number:,}" if number < 10**15 else written(number)


def as_html(space: SearchSpace) -> str:
    """The first solutions as a table; every text in it is escaped."""
    number = min(space.size, _SHOWN_ROWS)
    rows = [[index, *(str(config[n]) for n in space.names)] for index, config in enumerate(space[:number])]
    more = f"... {_in_groups(space.size - number)} more" if space.size > number else ""
    return html_table(_sizes(space, _in_groups), ["", *space.names], rows, more=more)


def indices_of(selection: object, size: int) -> list[int] | range | None:
    """The indices that a subscript means, counted from 0; None where it is a single one.

    Raises:
        UsageError: When it is neither a number, a slice nor a list of numbers.
        IndexError: When an index of a list is outside the space.
        LimitReachedError: When a slice has too many solutions to list.
    """
    if isinstance(selection, slice):
        for part in (selection.start, selection.stop, selection.step):
            if part is not None:
                as_int(part, "a bound of a slice")
        if selection.step == 0:
            raise UsageError("the step of a slice must not be 0.")
        chosen = range(size)[selection]
        # len() of a long range overflows.
        check_listing(max(0, -((chosen.start - chosen.stop) // chosen.step)))
        return chosen
    if isinstance(selection, np.ndarray) and selection.ndim == 1:
        if selection.dtype == bool:
            raise UsageError("a space takes indices, not a mask; numpy.flatnonzero(mask) gives the indices.")
        selection = selection.tolist()
    if not isinstance(selection, Sequence) or isinstance(selection, (str, bytes)):
        return None
    indices = [as_int(i, "an index") for i in selection]
    for index in indices:
        if not -size <= index < size:
            raise IndexError(f"index {index} is outside the space of {size} solutions")
    return [i + size if i < 0 else i for i in indices]
