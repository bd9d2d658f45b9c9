"""Words that CP-SAT knows by itself: all_different, inverse, circuit, no_overlap, cumulative, regular."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from constrint.model import Word

if TYPE_CHECKING:
    from constrint.solve.backends.cpsat_model import ModelBuilder, Term


def require_word(builder: ModelBuilder, item: Word) -> bool:
    """Adds a word by the library's own constraint; False where it has to be taken apart."""
    add = _WORDS.get(item.word)
    return add is not None and add(builder, *item.arguments)


def _terms(builder: ModelBuilder, exprs: Sequence[Any]) -> list[Term]:
    """Terms of expressions, which must have values."""
    terms = [builder.term(expr) for expr in exprs]
    for term in terms:
        for literal in term.defined:
            builder.model.add(literal == 1)
    return terms


def _variable(builder: ModelBuilder, term: Term) -> Any:
    """A term as a variable of the model, or a number."""
    if isinstance(term.linear, int):
        return builder.model.new_constant(term.linear)
    if type(term.linear).__name__ == "IntVar":
        return term.linear
    made = builder.new(term.bounds, "a sum")
    builder.model.add(made == term.linear)
    return made


def _all_different(builder: ModelBuilder, exprs: Sequence[Any]) -> bool:
    if len(exprs) < 2:
        return False
    terms = _terms(builder, exprs)
    builder.model.add_all_different([builder.library.LinearExpr.sum([t.linear]) for t in terms])
    return True


def _inverse(builder: ModelBuilder, first: Sequence[Any], second: Sequence[Any]) -> bool:
    if first:
        lists = ([_variable(builder, t) for t in _terms(builder, exprs)] for exprs in (first, second))
        builder.model.add_inverse(*lists)
    return True


def _circuit(builder: ModelBuilder, successors: Sequence[Any]) -> bool:
    if len(successors) < 2:
        return False
    arcs = []
    for place, term in enumerate(_terms(builder, successors)):
        there = [builder.is_value(term, to) if to != place else None for to in range(len(successors))]
        builder.model.add_exactly_one([literal for literal in there if literal is not None])
        arcs += [(place, to, literal) for to, literal in enumerate(there) if literal is not None]
    builder.model.add_circuit(arcs)
    return True


def _intervals(builder: ModelBuilder, starts: Sequence[Any], durations: Sequence[Any]) -> list[Any] | None:
    """Intervals of tasks; None where a duration may be negative."""
    begin, last = _terms(builder, starts), _terms(builder, durations)
    if any(duration.bounds[0] < 0 for duration in last):
        return None
    intervals = []
    for start, duration in zip(begin, last, strict=True):
        first = _variable(builder, start)
        size = duration.linear if isinstance(duration.linear, int) else _variable(builder, duration)
        end = builder.new((start.bounds[0] + duration.bounds[0], start.bounds[1] + duration.bounds[1]), "an end")
        intervals.append(builder.model.new_interval_var(first, size, end, ""))
    return intervals


def _no_overlap(builder: ModelBuilder, starts: Sequence[Any], durations: Sequence[Any]) -> bool:
    intervals = _intervals(builder, starts, durations)
    if intervals is None:
        return False
    builder.model.add_no_overlap(intervals)
    return True


def _cumulative(
    builder: ModelBuilder, starts: Sequence[Any], durations: Sequence[Any], demands: Sequence[Any], capacity: Any
) -> bool:
    take, (most,) = _terms(builder, demands), _terms(builder, [capacity])
    if most.bounds[0] < 0 or any(demand.bounds[0] < 0 for demand in take):
        return False
    intervals = _intervals(builder, starts, durations)
    if intervals is None:
        return False
    linear = [t.linear if isinstance(t.linear, int) else _variable(builder, t) for t in (*take, most)]
    builder.model.add_cumulative(intervals, linear[:-1], linear[-1])
    return True


def _regular(
    builder: ModelBuilder, exprs: Sequence[Any], start: int, accepting: Sequence[int], transitions: Sequence[Any]
) -> bool:
    if not exprs or not accepting or not transitions:
        return False
    # The library takes states from 0 on.
    states = sorted({start, *accepting, *itertools.chain.from_iterable((a, b) for a, _, b in transitions)})
    number = {state: place for place, state in enumerate(states)}
    builder.model.add_automaton(
        [_variable(builder, term) for term in _terms(builder, exprs)],
        number[start],
        [number[state] for state in accepting],
        [(number[a], value, number[b]) for a, value, b in transitions],
    )
    return True


_WORDS: Final[dict[str, Callable[..., bool]]] = {
    "all_different": _all_different,
    "inverse": _inverse,
    "circuit": _circuit,
    "no_overlap": _no_overlap,
    "cumulative": _cumulative,
    "regular": _regular,
}
#: Words that are handed to CP-SAT whole where they must hold.
WHOLE: Final = frozenset(_WORDS)
