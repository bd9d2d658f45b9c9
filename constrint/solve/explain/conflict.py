"""Why a problem has no solution: a minimal set of constraints and domains that cannot hold together.

A domain takes part in the conflict if the rest can hold once its variable may take any value of a wide range. Minimal
means: if any one member is taken away, the others can hold together. Each member is tested by solving.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from constrint.errors import LimitReachedError, UsageError
from constrint.model import Comparison, Const, Constraint, Domain, Expr, IsIn, Problem
from constrint.model.coding import Coding
from constrint.model.problem import named_constants
from constrint.model.values import literal
from constrint.solve.backends.native import NativeBackend
from constrint.solve.budget import Limits, Status

_SHOWN_VALUES = 12
# A rule longer than this is shown as a function of its variables.
_LONG_TEXT = 72
# In a rule that is longer than this only the first rows of tables are shown.
_LONG_TABLE = 240
_ROWS = re.compile(r"\{(\([^(){}]*\), \([^(){}]*\)), \([^{}]*\)\}")
# Each of the many small questions may cost this much.
QUESTION: Limits = Limits(max_nodes=300, max_rows=1 << 20, max_seconds=5.0, max_cells=1 << 21)


@dataclass(frozen=True)
class ConflictMember:
    """One constraint or one variable's domain that takes part in a conflict.

    Attributes:
        text: The rule as a sentence, for example "tile_k in {16, 32, 64}".
        because: Its reason; "" when nobody said.
        constraint: The constraint, or None for a domain.
        variable: The variable whose domain it is, or "" for a constraint.
    """

    text: str
    because: str
    constraint: Constraint | None = None
    variable: str = ""


@dataclass(frozen=True)
class Conflict:
    """Rules that cannot hold together.

    Attributes:
        members: The rules.
        minimal: True when it was shown that without any one member the others can hold together; False when a
            limit left some member undecided.
    """

    members: tuple[ConflictMember, ...]
    minimal: bool = True

    def __str__(self) -> str:
        if len(self.members) == 1:
            head = "This rule cannot hold:"
        else:
            head = f"These {len(self.members)} constraints cannot hold together:"
        width = max((len(m.text) for m in self.members), default=0)
        lines = [
            f"  {m.text.ljust(min(width, 64))}   because {m.because}" if m.because else f"  {m.text}"
            for m in self.members
        ]
        return "\n".join([head, *lines])


def domain_text(name: str, domain: Domain) -> str:
    """Writes a variable's domain as a sentence; long lists are shortened."""
    if domain.listed is None:
        return f"{name} in {domain}"
    values = sorted(domain.listed) if domain.labels is None else [literal(label) for label in domain.labels]
    if len(values) <= _SHOWN_VALUES:
        return f"{name} in {{{', '.join(map(str, values))}}}"
    first = ", ".join(map(str, values[: _SHOWN_VALUES - 2]))
    return f"{name} in {{{first}, ... {values[-1]}}} ({len(values)} values)"


def rule_text(constraint: Constraint) -> str:
    """Writes a constraint with the values of the named numbers in it; a long one as a function of its variables.

    `smem(num_stages, tile_k, tile_m) <= 65536` stands for a bound on an expression that would fill several lines.
    """
    if constraint.name and isinstance(constraint, Comparison) and len(str(constraint)) > _LONG_TEXT:
        left = _as_function(constraint.name, constraint.left)
        right = _as_function(constraint.name if left == str(constraint.left) else "limit", constraint.right)
        return f"{left} {constraint.op} {right}"
    values = ", ".join(f"{name} = {number}" for name, number in sorted(named_constants(constraint).items()))
    text = str(constraint)
    if len(text) > _LONG_TABLE:
        text = _ROWS.sub(_first_rows, text)
    return f"{text} [{values}]" if values else text


def _first_rows(hit: re.Match[str]) -> str:
    """The first rows of a long table, and how many there are."""
    rows = hit.group(0).count("), (") + 1
    return f"{{{hit.group(1)}, ... ({rows} rows)}}"


def _as_function(name: str, side: Expr) -> str:
    text = str(side)
    return text if len(text) <= _LONG_TEXT // 2 else f"{name}({', '.join(sorted(side.variables))})"


def widened(domain: Domain) -> Domain:
    """The generous range that stands for "this domain does not limit the variable"."""
    wide = Domain.from_range(min(1, domain.lower), max(2**16, 4 * domain.upper))
    # Codes of other values keep their scale: any number of that many fractions, or any value at all.
    return replace(wide, scale=domain.scale)


@dataclass(frozen=True)
class _Rules:
    """The rules of a problem that are in force; the other domains are wide open."""

    problem: Problem
    constraints: tuple[Constraint, ...]
    domains: frozenset[str]

    def asked(self) -> Problem:
        """Builds the problem of these rules, over the variables that they mention."""
        mentioned = frozenset().union(*(c.variables for c in self.constraints))
        asked = Problem(self.problem.name)
        for name, domain in self.problem.variables.items():
            if name in mentioned:
                kept = name in self.domains or not domain.declared
                asked.declare(name, domain if kept else widened(domain))
        for constraint in self.constraints:
            asked.add(constraint)
        return asked

    def status(self) -> Status:
        """Decides whether these rules can hold together."""
        return NativeBackend().solve(self.asked(), QUESTION).status

    def suggests(self, name: str) -> bool:
        """Whether further values of one variable alone would mend it: powers of two, or what a rule asks for."""
        asked = self.asked()
        domain = asked.variables[name]
        if domain.listed is None or domain.labels is not None:
            wider = widened(domain)
        else:
            numbers = {n for c in self.constraints if c.variables == {name} for n in _numbers(c)}
            wider = Domain.from_values(sorted({*domain.listed, *(1 << i for i in range(17)), *numbers}))
        return NativeBackend().solve(asked.with_domain(name, wider), QUESTION).status is Status.FEASIBLE


def _numbers(constraint: Constraint) -> Iterable[int]:
    """The numbers that a rule on one variable compares the variable with."""
    if isinstance(constraint, IsIn):
        return constraint.domain.listed or ()
    return [part.number for part in constraint.operands() if isinstance(part, Const)]


def _reduce(rules: _Rules, *, in_force: bool) -> tuple[_Rules, bool]:
    """Drops every rule that the contradiction does not need."""
    minimal = True

    def try_with(fewer: _Rules) -> None:
        nonlocal rules, minimal
        status = fewer.status()
        minimal &= status is not Status.LIMIT_REACHED
        rules = fewer if status is Status.INFEASIBLE else rules

    # Rules without a reason are dropped first: what stays should speak for itself.
    for constraint in sorted(rules.constraints, key=lambda c: bool(c.because)):
        try_with(replace(rules, constraints=tuple(c for c in rules.constraints if c is not constraint)))
    mentioned: Iterable[str] = frozenset().union(*(c.variables for c in rules.constraints))
    candidates = [n for n in rules.problem.variables if n in mentioned and n in rules.domains]
    rules = replace(rules, domains=frozenset(candidates))
    if in_force:
        return replace(rules, domains=frozenset(filter(rules.suggests, candidates))), minimal
    for name in sorted(candidates, key=lambda n: bool(rules.problem.variables[n].because)):
        try_with(replace(rules, domains=rules.domains - {name}))
    return rules, minimal


def minimal_conflict(problem: Problem, *, domains_in_force: bool = False) -> Conflict:
    """Finds a minimal set of constraints and domains that cannot hold together.

    Args:
        problem: A problem without a solution.
        domains_in_force: The domains are facts, not rules that could be given up (a kernel's parameters): all of them
            hold, and one is named only where another value of that variable alone would do. Much quicker.

    Raises:
        UsageError: When the problem has a solution.
        LimitReachedError: When it could not be decided whether it has one.
    """
    answer = NativeBackend().solve(problem.without_objective(), Limits())
    if answer.status is Status.FEASIBLE:
        coding = Coding.of(problem)
        found = answer.assignment if coding is None else coding.decoded(answer.assignment)
        raise UsageError(f"problem {problem.name!r} has a solution ({found}); there is no conflict.")
    if answer.status is Status.LIMIT_REACHED:
        raise LimitReachedError(answer.message)
    declared = frozenset(n for n, d in problem.variables.items() if d.declared)
    rules, minimal = _reduce(_Rules(problem, problem.constraints, declared), in_force=domains_in_force)
    members = [
        ConflictMember(domain_text(n, d), d.because, variable=n)
        for n, d in problem.variables.items()
        if n in rules.domains
    ]
    members += [ConflictMember(rule_text(c), c.because, constraint=c) for c in rules.constraints]
    return Conflict(tuple(members), minimal)
