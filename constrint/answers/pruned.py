"""A space as other tools state one: the values that occur in valid configurations, and rules in Python's syntax."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from constrint.answers.exported import Export
from constrint.errors import UsageError
from constrint.model import Constraint, Domain, Problem
from constrint.model.constraint import AllOf, Comparison, negate
from constrint.model.expr import Const
from constrint.model.python.write import CannotWrite, check_parameter, is_literal, write_restriction, write_value
from constrint.model.ratio import code_variable
from constrint.model.table import table_of
from constrint.solve import SearchSpace

#: Most values of a parameter in a file.
MAX_VALUES = 1_000_000
#: Most combinations of values that are tried to write a rule without a Python form as a table.
MAX_TRIED = 20_000


@dataclass(frozen=True)
class WrittenRule:
    """A rule.

    Args:
        text: A Python expression over the parameters' values that is true exactly where the rule holds.
        rule: The rule.
    """

    text: str
    rule: Constraint


@dataclass(frozen=True)
class PrunedSpace:
    """A space for another tool to build: all combinations of values that satisfy every restriction.

    Args:
        params: The values of each parameter that occur in valid configurations, under its new name, in the order of
            preference.
        restrictions: The rules over these values.
    """

    params: Mapping[str, tuple[Any, ...]]
    restrictions: tuple[WrittenRule, ...]


def pruned(export: Export) -> PrunedSpace:
    """The values and the rules of a space.

    Raises:
        UsageError: When a name, a value or a rule has no Python form; names it, and the way out.
    """
    space = export.space
    assert space is not None
    if not export.shown:
        raise UsageError(f"{export.title} has no parameters, so that there is no space to write.")
    domains = {name: _occurring(space, name) for name in space.names}
    shown = dict(export.shown)
    for name in shown.values():
        check_parameter(name)
    params = {shown[name]: _values(name, domain) for name, domain in domains.items() if name in shown}
    for name, domain in domains.items():
        if name not in shown:
            shown[name] = write_value(_only(name, _values(name, domain)))
    rules = [*space.problem.constraints, *_exclusions(space)]
    written = [WrittenRule(_text(rule, space.problem, domains, shown), rule) for rule in rules]
    # The space has a solution, so a rule without parameters is true; equal rules are written once.
    by_text = {one.text: one for one in reversed(written) if params.keys() & set(re.findall(r"\w+", one.text))}
    return PrunedSpace(params, tuple(reversed(by_text.values())))


def _occurring(space: SearchSpace, name: str) -> Domain:
    """The values of a variable that occur in solutions, in declared order."""
    whole = space.problem.variables[name]
    columns, _ = space.project([name])
    values = columns[name].tolist()
    if len(values) > MAX_VALUES:
        raise UsageError(f"{name} has {len(values):,} values in this space; at most {MAX_VALUES:,} are listed.")
    if whole.listed is None:
        return Domain.from_members(tuple(sorted(values)))
    codes = {whole.code_of(value) for value in values}
    listed = tuple(code for code in whole.listed if code in codes)
    if whole.labels is None:
        return Domain.from_members(listed)
    labels = tuple(whole.value_of(code) for code in listed)
    return Domain(min(listed), max(listed), 1, listed, labels=labels, scale=whole.scale)


def _values(name: str, domain: Domain) -> tuple[Any, ...]:
    values = domain.labels or domain.listed or ()
    for value in values:
        if not is_literal(value):
            raise UsageError(f"{name} has the value {value!r}, which has no literal in Python; leave it out.")
    return values


def _only(name: str, values: tuple[Any, ...]) -> Any:
    if len(values) > 1:
        shown = ", ".join(map(str, values[:8]))
        raise UsageError(f"{name} cannot be left out: it has the values {shown} here. Fix it first, or give it a name.")
    return values[0]


def _exclusions(space: SearchSpace) -> list[Constraint]:
    """Rules against the solutions that were excluded from the space."""
    variables = space.problem.variables
    rules = []
    for solution in space.excluded:
        codes = {name: variables[name].code_of(value) for name, value in solution.items()}
        equal = [Comparison(code_variable(n, variables[n]), "==", Const(code)) for n, code in codes.items()]
        rules.append(negate(AllOf(tuple(equal))).labelled("it was taken out of the space"))
    return rules


def _text(rule: Constraint, problem: Problem, domains: Mapping[str, Domain], shown: Mapping[str, str]) -> str:
    """A rule in Python; as a table of satisfying values if it has no other form.

    Raises:
        UsageError: When the table would be too large.
    """
    try:
        return write_restriction(rule, domains, shown)
    except CannotWrite as error:
        reason = str(error)
    names = [name for name in problem.names if name in rule.variables]
    if not names:
        return "True"  # it holds, since there is a solution
    if math.prod(domains[name].size for name in names) <= MAX_TRIED:
        every = itertools.product(*(domains[name] for name in names))
        rows = [row for row in every if rule.holds(dict(zip(names, row, strict=True)))]
        variables = tuple(code_variable(name, domains[name]) for name in names)
        return write_restriction(table_of(variables, rows), domains, shown)
    raise UsageError(
        f"the rule {str(rule)[:200]} cannot be said in Python's syntax ({reason}), and its parameters have too many "
        "values to list what satisfies it. --export csv --all lists the configurations themselves."
    )
