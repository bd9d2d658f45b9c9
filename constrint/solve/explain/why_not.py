"""Why a configuration is invalid, which single changes make it valid, and how many configurations each rule removes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from constrint.errors import CancelledError, LimitReachedError, UndefinedValueError, UnknownNameError, UsageError
from constrint.model import Comparison, Constraint, Divides, Domain, Expr, InTable, IsIn, Problem, Word
from constrint.model.columns import ExactColumn, test
from constrint.model.constraint import CERTAIN
from constrint.model.domain import literal, plain
from constrint.model.encode import Coding
from constrint.model.operations import as_int
from constrint.model.text.render import code_text, number_text, unit_of
from constrint.solve.budget import UNLIMITED, Budget, Limits
from constrint.solve.enumeration import count
from constrint.solve.explain.conflict import rule_text
from constrint.solve.space.axes import axis_from_domain

# Largest domain whose alternatives are tried.
_MAX_VALUES: Final = 1 << 16
_SHOWN: Final = 6


@dataclass(frozen=True)
class BrokenRule:
    """One rule that a configuration breaks.

    Attributes:
        text: The rule as a sentence.
        because: Its reason; "" where none is stated.
        values: Values of the variables in it.
        left: Value of its left side (the divisor of `divides`, the expression of `in`); None where it has none.
        right: Value of its right side (the number of `divides`); None where it has none.
        constraint: The constraint; None for a variable's domain.
        variable: The variable whose domain it is; "" for a constraint.
        seen: The violation with its numbers, as a sentence: "98304 <= 65536 is false".
    """

    text: str
    because: str
    values: dict[str, Any]
    left: int | None = None
    right: int | None = None
    constraint: Constraint | None = None
    variable: str = ""
    seen: str = ""

    def __str__(self) -> str:
        where = ", ".join(f"{n} = {literal(v)}" for n, v in self.values.items())
        reason = f", because {self.because}" if self.because else ""
        return f"{self.text}: {self.seen} ({where}){reason}"


@dataclass(frozen=True)
class WhyNot:
    """Why a configuration is not valid.

    Attributes:
        config: The configuration.
        broken: The rules that it breaks; empty for a valid configuration.
        doubts: The estimated rules that it breaks, which do not make it invalid.
        changes: Per variable, the values that would make it valid if only that variable changed.
        together: Where no single change is enough, the fewest variables that have to change, with values near the
            present ones; empty where none were found within the limits.
        is_fewest: Whether fewer than these are not enough; False where a limit came before that was shown.
    """

    config: dict[str, Any]
    broken: tuple[BrokenRule, ...]
    changes: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    doubts: tuple[BrokenRule, ...] = ()
    together: dict[str, Any] = field(default_factory=dict)
    is_fewest: bool = True
    _domains: Mapping[str, Domain] = field(default_factory=dict, repr=False)

    def __bool__(self) -> bool:
        return bool(self.broken)

    def __iter__(self) -> Iterator[BrokenRule]:
        return iter(self.broken)

    def __len__(self) -> int:
        return len(self.broken)

    @property
    def ways_out(self) -> str:
        """The changes as a sentence: "fits if num_stages <= 2, or tile_k <= 32"; "" when none is known."""
        phrases = [_phrase(n, values, self._domains[n], self.config[n]) for n, values in self.changes.items()]
        if not phrases and self.together:
            few = "" if self.is_fewest else ", or perhaps fewer changes"
            pairs = " and ".join(f"{name} = {literal(value)}" for name, value in self.together.items())
            return f"no single change is enough; fits if {pairs}{few}"
        return f"fits if {', or '.join(phrases)}" if phrases else ""

    def __str__(self) -> str:
        return "\n".join([*map(str, self.broken), *([self.ways_out] if self.ways_out else [])])


def why_not(problem: Problem, config: Mapping[str, Any], limits: Limits | None = None) -> WhyNot:
    """Lists every rule that a configuration breaks, with the numbers in it.

    Args:
        problem: The problem.
        config: A value for every variable.
        limits: Limits of the search. The broken rules are always all named; changes that were not tried before a
            limit are left out.

    Raises:
        UsageError: When a variable has no value, or there is no variable of a name.
        CancelledError: When the caller's own signal came.
    """
    budget = Budget(limits or UNLIMITED)
    values = _checked(problem, config)
    coding = Coding.of(problem)
    outside = _outside(problem, values)
    gone = {rule.variable for rule in outside}
    # A value without a code decides no rule; an integer does, also outside its domain.
    codes = values if coding is None else coding.encoded({n: v for n, v in values.items() if n not in gone}) or {}

    def violated(rules: Sequence[Constraint]) -> list[BrokenRule]:
        failing = [_broken(c, codes) for c in rules if c.variables <= codes.keys() and not c.holds(codes)]
        return failing if coding is None else [replace(b, values=coding.decoded(b.values)) for b in failing]

    broken = outside + violated(problem.constraints)
    doubts = [] if outside else violated(problem.estimates)
    changes: dict[str, tuple[Any, ...]] = {}
    together: dict[str, Any] = {}
    is_fewest = True
    if broken:
        variables = problem.variables
        known = {n: codes.get(n, d.lower) for n, d in variables.items()}
        for name, found in _changes(problem, known, budget).items():
            if gone <= {name}:
                changes[name] = tuple(map(variables[name].value_of, found))
        if not changes and (coding is None or not outside):
            coded, is_fewest = _together(problem, known, budget)
            together = {name: variables[name].value_of(code) for name, code in coded.items()}
    return WhyNot(values, tuple(broken), changes, tuple(doubts), together, is_fewest, dict(problem.variables))


def _together(problem: Problem, values: Mapping[str, int], budget: Budget) -> tuple[dict[str, int], bool]:
    """The fewest changes that make a configuration valid together, where they are found within the limits."""
    from constrint.solve.explain.together import nearest_valid  # it solves, which most questions here do not need

    try:
        budget.check_work()
    except CancelledError:
        raise
    except LimitReachedError:
        return {}, True
    return nearest_valid(problem, values, budget.rest()) or ({}, True)


def _outside(problem: Problem, values: Mapping[str, Any]) -> list[BrokenRule]:
    """The domains that do not have their variable's value."""
    return [
        BrokenRule(
            f"{n} in {d}",
            d.because,
            {n: values[n]},
            values[n] if d.labels is None else None,
            variable=n,
            seen=f"{literal(values[n])} is not in the domain",
        )
        for n, d in problem.variables.items()
        if d.code_of(values[n]) is None
    ]


def _checked(problem: Problem, config: Mapping[str, Any]) -> dict[str, Any]:
    for name in config:
        if name not in problem.variables:
            raise UnknownNameError("variable", str(name), problem.variables)
    missing = [n for n in problem.variables if n not in config]
    if missing:
        raise UsageError(f"why_not needs a value for every variable; missing: {', '.join(missing)}.")
    return {
        n: as_int(config[n], f"the value of {n!r}") if d.labels is None else plain(config[n], f"the value of {n!r}")
        for n, d in problem.variables.items()
    }


def _value(expr: Expr, values: Mapping[str, int]) -> int | None:
    try:
        return expr.value(values)
    except UndefinedValueError:
        return None


def _written(number: int | None, side: Expr | None = None) -> str:
    if number is None:
        return "(no value)"
    return str(number) if side is None else code_text(side, number)


def _broken(rule: Constraint, values: Mapping[str, int]) -> BrokenRule:
    mine = {n: v for n, v in values.items() if n in rule.variables}
    left: int | None = None
    right: int | None = None
    if isinstance(rule, Comparison):
        left, right = _value(rule.left, values), _value(rule.right, values)
        unit = unit_of(rule)
        sides = ("(no value)" if number is None else number_text(number, unit) for number in (left, right))
        numbers = f" {rule.op} ".join(sides) + " is false"
    elif isinstance(rule, Divides):
        left, right = _value(rule.divisor, values), _value(rule.number, values)
        rest = f", remainder {right % left}" if left and right is not None else ""
        numbers = f"{_written(left)} does not divide {_written(right)}{rest}"
    elif isinstance(rule, IsIn):
        left = _value(rule.expr, values)
        listed = rule.domain.listed or ()
        members = f"{{{', '.join(code_text(rule.expr, v) for v in listed)}}}" if listed else str(rule.domain)
        numbers = f"{_written(left, rule.expr)} is not in {members}"
    elif isinstance(rule, InTable):
        shown = ", ".join(_written(_value(e, values), e) for e in rule.exprs)
        numbers = f"({shown}) is not among the {len(rule.rows)} rows"
    elif isinstance(rule, Word):
        numbers = rule.broken(values)
    else:
        parts = [str(_broken(c, values).seen) for c in _atoms(rule) if not c.holds(values)]
        numbers = "; ".join(parts) if parts else "it does not hold"
    return BrokenRule(rule_text(rule), rule.because, mine, left, right, rule, seen=numbers)


def _atoms(rule: Constraint) -> list[Constraint]:
    """Comparisons, divisibilities and memberships in a rule."""
    if isinstance(rule, (Comparison, Divides, IsIn, InTable, Word)):
        return [rule]
    return [atom for part in rule.operands() if isinstance(part, Constraint) for atom in _atoms(part)]


def _changes(problem: Problem, values: Mapping[str, int], budget: Budget) -> dict[str, tuple[int, ...]]:
    """Values of each single variable that make the configuration valid."""
    outside = [n for n, d in problem.variables.items() if values[n] not in d]
    changes: dict[str, tuple[int, ...]] = {}
    try:
        for name, domain in problem.variables.items():
            if domain.size <= _MAX_VALUES and all(n == name for n in outside):
                fitting = _fitting(problem, values, name, budget)
                changes |= {name: fitting} if fitting else {}
    except CancelledError:
        raise
    except LimitReachedError:
        pass  # The changes found so far hold.
    return changes


def _fitting(problem: Problem, values: Mapping[str, int], name: str, budget: Budget) -> tuple[int, ...]:
    """Values of one variable with which alone the configuration is valid."""
    budget.check_work()
    if any(name not in c.variables and not c.holds(values) for c in problem.constraints):
        return ()
    axis = axis_from_domain(problem.variables[name])
    columns = {n: ExactColumn(v, (v, v)) for n, v in values.items()}
    columns[name] = ExactColumn(axis.values, axis.bounds)
    fits = np.ones(len(axis), dtype=bool)
    for constraint in problem.constraints:
        if name in constraint.variables:
            budget.check_work()
            fits &= np.asarray(test(constraint, columns), dtype=bool)
    return tuple(sorted(int(v) for v in axis.values[fits]))


def _phrase(name: str, fitting: Sequence[Any], domain: Domain, value: Any) -> str:
    """Says which values fit: as a bound where that says the same."""
    if domain.labels is not None:
        more = f", ... ({len(fitting)} values)" if len(fitting) > _SHOWN else ""
        shown = [literal(label) for label in fitting[:_SHOWN]]
        return f"{name} = {shown[0]}" if len(fitting) == 1 else f"{name} in {{{', '.join(shown)}{more}}}"
    members = list(domain.values)
    if len(members) > 1 and len(fitting) < len(members):
        if fitting[-1] < value and fitting == tuple(members[: len(fitting)]):
            return f"{name} <= {fitting[-1]}"
        if fitting[0] > value and fitting == tuple(members[-len(fitting) :]):
            return f"{name} >= {fitting[0]}"
    if len(fitting) == 1:
        return f"{name} = {fitting[0]}"
    nearest = sorted(sorted(fitting, key=lambda v: abs(v - value))[:_SHOWN])
    more = f", ... ({len(fitting)} values)" if len(fitting) > _SHOWN else ""
    return f"{name} in {{{', '.join(map(str, nearest))}{more}}}"


# Most combinations of one rule that are counted: a longer count would leave no time for the other rules.
_MAX_CELLS: Final = 1 << 32


@dataclass(frozen=True, eq=False)
class RulePruning:
    """Number of combinations that one constraint removes.

    Attributes:
        constraint: The constraint.
        removes_alone: Combinations of the declared domains that violate it.
        removes_only: Combinations that violate it and nothing else: dropping the rule would add them.
        product_size: Combinations of the declared domains.
    """

    constraint: Constraint
    removes_alone: int
    removes_only: int
    product_size: int

    def _content(self) -> tuple[object, ...]:
        rule = self.constraint
        return rule.key(), rule.because, rule.name, self.removes_alone, self.removes_only, self.product_size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RulePruning) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())


def pruning(problem: Problem, limits: Limits | None = None) -> list[RulePruning]:
    """Measures every constraint of a problem, exactly.

    Args:
        problem: The problem.
        limits: Limits of the search; the time is that of all rules together.

    Raises:
        LimitReachedError: When a constraint links more combinations than can be evaluated, or a limit is reached.
    """
    return _measured(problem, limits, estimated=False)


def would_remove(problem: Problem, limits: Limits | None = None) -> list[RulePruning]:
    """Measure the combinations that every estimated rule would remove if it pruned.

    Args:
        problem: The problem.
        limits: Limits of the search; the time is that of all rules together.

    Raises:
        LimitReachedError: When a rule links more combinations than can be evaluated, or a limit is reached.
    """
    return _measured(problem, limits, estimated=True)


def _measured(problem: Problem, limits: Limits | None, *, estimated: bool) -> list[RulePruning]:
    budget = Budget(limits or UNLIMITED)
    product = math.prod(d.size for d in problem.variables.values())
    total = _counted(problem, budget)
    return [
        RulePruning(
            rule, _violating(problem, rule, product, budget), removes_only(problem, rule, total, budget), product
        )
        for rule in (problem.estimates if estimated else problem.constraints)
    ]


def removes_alone(problem: Problem, rule: Constraint, budget: Budget) -> int:
    """Counts the combinations of the declared domains that violate a rule of the problem."""
    return _violating(problem, rule, math.prod(d.size for d in problem.variables.values()), budget)


def removes_only(problem: Problem, rule: Constraint, total: int, budget: Budget) -> int:
    """Counts the combinations that violate a rule of the problem and no other; it has `total` solutions."""
    if any(rule is estimate for estimate in problem.estimates):
        pruned = problem.copy()
        pruned.add(rule, kind=CERTAIN)
        return total - _counted(pruned, budget)
    return _counted(problem.without(rule), budget) - total


def _counted(problem: Problem, budget: Budget) -> int:
    """Counts the solutions within the remaining time."""
    budget.check_work()
    return count(problem, budget.rest())


def _violating(problem: Problem, constraint: Constraint, product: int, budget: Budget) -> int:
    """Counts the combinations of all declared domains, `product` in number, that violate a constraint."""
    alone = Problem()
    for name, domain in problem.variables.items():
        if name in constraint.variables:
            alone.declare(name, domain)
    alone.add(constraint, kind=CERTAIN)
    own = alone.num_combinations
    if own > _MAX_CELLS:
        raise LimitReachedError(
            f"{constraint} links {own} combinations; at most {_MAX_CELLS} are counted. Narrow its variables."
        )
    return (own - _counted(alone, budget)) * (product // own)
