"""Restrictions that are Python functions: asked about every combination of the values that they read.

Only the explicit trusted mode of `problem_from_space` comes here: a function runs whatever its author wrote.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from constrint.errors import UsageError
from constrint.model import constraint as c
from constrint.model import expr as e
from constrint.model.domain import Domain
from constrint.model.table import MAX_ROWS, table_of

MAX_CALLS: Final = 1_000_000


class _Asked(Exception):
    """Raised where a function reads a parameter that has no value yet."""


class _Values(Mapping[str, Any]):
    """What a function reads: `p["x"]`. A parameter that is read for the first time ends the call."""

    def __init__(self, domains: Mapping[str, Domain]) -> None:
        self.domains = domains
        self.known: dict[str, Any] = {}
        self.wanted = ""

    def __getitem__(self, name: str) -> Any:
        if name in self.known:
            return self.known[name]
        if name not in self.domains:
            raise KeyError(name)
        self.wanted = name
        raise _Asked

    def __iter__(self) -> Iterator[str]:
        return iter(self.domains)

    def __len__(self) -> int:
        return len(self.domains)


def constraint_of(
    function: Callable[..., Any], domains: Mapping[str, Domain], variable: Callable[[str], e.Expr], place: str
) -> c.Constraint:
    """What a function says of the parameters, as a table over those that it reads.

    Args:
        function: It takes parameters by name (`lambda x, y: x < y`), or one mapping from names to values
            (`lambda p: p["x"] < p["y"]`).
        domains: The parameters with their values.
        variable: What stands for a parameter in a constraint.
        place: Where the function stands, for messages.

    Raises:
        UsageError: When it raises anything but ZeroDivisionError, which makes it false, or depends on too many values.
    """
    values = _Values(domains)
    call = _caller(function, domains, values, place)
    decided: list[tuple[dict[str, int], bool]] = []
    waiting: list[dict[str, int]] = [{}]
    calls = 0
    while waiting:
        codes = waiting.pop()
        calls += 1
        if calls > MAX_CALLS:
            raise UsageError(
                f"{place} depends on too many combinations of values to try (more than {MAX_CALLS:,}); "
                "write it as the text of an expression."
            )
        values.known = {name: domains[name].value_of(code) for name, code in codes.items()}
        try:
            decided.append((codes, bool(call())))
        except _Asked:
            waiting += [{**codes, values.wanted: code} for code in domains[values.wanted]]
        except ZeroDivisionError:
            decided.append((codes, False))
        except Exception as error:
            shown = ", ".join(f"{name} = {value!r}" for name, value in values.known.items())
            raise UsageError(f"{place} raised {type(error).__name__}: {error} for {shown or 'no values'}.") from error
    return _table(decided, domains, variable, place)


def _caller(
    function: Callable[..., Any], domains: Mapping[str, Domain], values: _Values, place: str
) -> Callable[[], Any]:
    import inspect

    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise UsageError(f"{place}: Python does not tell the arguments of {function!r}; wrap it in a lambda.") from None
    needed = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if needed and all(p.name in domains for p in needed):
        return lambda: function(**{p.name: values[p.name] for p in needed})
    if len(needed) == 1:
        return lambda: function(values)
    unknown = ", ".join(p.name for p in needed if p.name not in domains) or "none"
    raise UsageError(
        f"{place} must take one mapping of all parameters, or parameters by name; its arguments are unknown: {unknown}."
    )


def _table(
    decided: list[tuple[dict[str, int], bool]],
    domains: Mapping[str, Domain],
    variable: Callable[[str], e.Expr],
    place: str,
) -> c.Constraint:
    names = [name for name in domains if any(name in codes for codes, _ in decided)]
    if all(holds for _, holds in decided):
        return c.AllOf(())
    counts = {True: 0, False: 0}
    for codes, holds in decided:
        free = 1
        for name in names:
            free *= 1 if name in codes else domains[name].size
        counts[holds] += free
    listing = counts[True] <= counts[False]
    if counts[listing] > MAX_ROWS:
        raise UsageError(
            f"{place} becomes a table of {counts[listing]:,} rows; at most {MAX_ROWS:,} are taken. "
            "Write it as the text of an expression."
        )
    rows: list[tuple[int, ...]] = []
    for codes, holds in decided:
        if holds is listing:
            rows += itertools.product(*((codes[name],) if name in codes else tuple(domains[name]) for name in names))
    found = table_of(tuple(variable(name) for name in names), rows)
    return found if listing else c.negate(found)
