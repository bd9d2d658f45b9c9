"""Why a problem has no solution: a minimal set of rules and domains in conflict, and the nearest relaxations."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from constrint.errors import CancelledError, LimitReachedError, RulesInConflict, UsageError
from constrint.model import Comparison, Const, Constraint, Domain, Expr, IsIn, Problem, Var, is_in
from constrint.model.domain import literal
from constrint.model.encode import Coding
from constrint.model.problem import named_constants
from constrint.model.text.render import number_text, unit_of
from constrint.solve.backends.native import AutoBackend, NativeBackend
from constrint.solve.budget import UNLIMITED, Budget, Limits, Status
from constrint.solve.explain.reduction import Questions, Reduction, Rules, widened

_SHOWN_VALUES = 12
# A rule longer than this is shown as a function of its variables.
_LONG_TEXT = 72
# In a rule that is longer than this only the first rows of tables are shown.
_LONG_TABLE = 240
_ROWS = re.compile(r"\{(\([^(){}]*\), \([^(){}]*\)), \([^{}]*\)\}")


@dataclass(frozen=True)
class ConflictMember:
    """One constraint or one variable's domain that takes part in a conflict.

    Attributes:
        text: The rule as a sentence, for example "tile_k in {16, 32, 64}".
        because: Its reason; "" where none is stated.
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
        minimal: True if, as was proven, the others can hold together without any one member; False when a limit left
            some member undecided.
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
        if not self.minimal:
            lines.append("A limit came before it was known whether fewer of them are enough.")
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
        return _with_values(f"{left} {constraint.op} {right}", constraint)
    text = str(constraint)
    if len(text) > _LONG_TABLE:
        text = _ROWS.sub(_first_rows, text)
    return _with_values(text, constraint)


def _with_values(text: str, constraint: Constraint) -> str:
    """The text of a rule with the values of the named numbers that stand in it."""
    named = sorted(named_constants(constraint).items())
    values = ", ".join(f"{name} = {number}" for name, number in named if name in text)
    return f"{text} [{values}]" if values else text


def _first_rows(hit: re.Match[str]) -> str:
    """The first rows of a long table, and how many there are."""
    rows = hit.group(0).count("), (") + 1
    return f"{{{hit.group(1)}, ... ({rows} rows)}}"


def _as_function(name: str, side: Expr) -> str:
    text = str(side)
    return text if len(text) <= _LONG_TEXT // 2 else f"{name}({', '.join(sorted(side.variables))})"


def _numbers(constraint: Constraint) -> Iterable[int]:
    """The numbers that a rule on one variable compares the variable with."""
    if isinstance(constraint, IsIn):
        return constraint.domain.listed or ()
    return [part.number for part in constraint.operands() if isinstance(part, Const)]


def minimal_conflict(problem: Problem, limits: Limits | None = None, *, domains_in_force: bool = False) -> Conflict:
    """Find a minimal set of constraints and domains that cannot hold together.

    Args:
        problem: A problem without a solution.
        limits: Limits of the search. Where a limit ends the search for a smaller set, the smallest one so far is
            returned, marked as not minimal. Without `max_seconds` a question that is hard is left open after a moment.
        domains_in_force: Domains are fixed (a kernel's parameters), not candidates for the conflict: one is named only
            where another value of its variable alone would resolve the conflict. Much quicker.

    Raises:
        UsageError: When the problem has a solution.
        LimitReachedError: When it could not be decided whether it has one.
        CancelledError: When the caller's own signal came.
    """
    questions = Questions(limits)
    reduction = _reduction(problem, questions, domains_in_force)
    is_focused = reduction.focus()
    if not is_focused:
        _check_infeasible(problem, questions)
    return _reduced(reduction, questions, together=not is_focused)


def conflict_of_infeasible(limits: Limits, problem: Problem) -> Conflict:
    """`minimal_conflict` of a problem that is known to have no solution; of all its rules where a limit comes first."""
    questions = Questions(limits)
    reduction = _reduction(problem, questions, domains_in_force=False)
    try:
        is_focused = reduction.focus()
    except CancelledError:
        raise
    except LimitReachedError:
        is_focused = False
    return _reduced(reduction, questions, together=not is_focused)


def _reduction(problem: Problem, questions: Questions, domains_in_force: bool) -> Reduction:
    declared = frozenset(n for n, d in problem.variables.items() if d.declared)
    return Reduction(Rules(problem, problem.constraints, declared, facts=domains_in_force), questions)


def _reduced(reduction: Reduction, questions: Questions, *, together: bool) -> Conflict:
    """The conflict after all unneeded rules were dropped, or a limit was reached."""
    problem = reduction.rules.problem
    try:
        minimal = reduction.run(together)
        domains = _to_name(reduction.rules, questions)
    except CancelledError:
        raise
    except LimitReachedError:
        minimal, domains = False, _mentioned(reduction.rules)
    variables = problem.variables
    members = [ConflictMember(domain_text(n, variables[n]), variables[n].because, variable=n) for n in domains]
    ids_left = {id(c) for c in reduction.rules.constraints}
    members += [ConflictMember(rule_text(c), c.because, constraint=c) for c in problem.constraints if id(c) in ids_left]
    return Conflict(tuple(members), minimal)


def _check_infeasible(problem: Problem, questions: Questions) -> None:
    budget = questions.budget
    # A problem that no single rule contradicts may be hard for the native engine, and easy for CP-SAT beside it.
    backend = AutoBackend() if questions.may_ask_cpsat() else NativeBackend()
    answer = backend.solve(problem.without_objective(), budget.rest())
    if answer.status is Status.FEASIBLE:
        coding = Coding.of(problem)
        found = answer.assignment if coding is None else coding.decoded(answer.assignment)
        raise UsageError(f"problem {problem.name!r} has a solution ({found}); there is no conflict.")
    if answer.status is Status.LIMIT_REACHED:
        questions.check()
        raise LimitReachedError(answer.message)


def _mentioned(rules: Rules) -> list[str]:
    """Variables in the conflict whose domain is in force."""
    return [name for name in rules.in_scope() if name in rules.domains]


def _to_name(rules: Rules, questions: Questions) -> list[str]:
    """Variables whose domains the conflict names."""
    names = _mentioned(rules)
    return [name for name in names if _suggests(rules, name, questions)] if rules.facts else names


def _suggests(rules: Rules, name: str, questions: Questions) -> bool:
    """Whether further values of one variable alone would resolve it: powers of two, or numbers in a rule."""
    problem = rules.as_problem()
    domain = problem.variables[name]
    if domain.listed is None or domain.labels is not None:
        wider = widened(domain)
    else:
        numbers = {n for c in rules.constraints if c.variables == {name} for n in _numbers(c)}
        wider = Domain.from_values(sorted({*domain.listed, *(1 << i for i in range(17)), *numbers}))
    return questions.decide(problem.with_domain(name, wider)).status is Status.FEASIBLE


# Most values of a variable that are tried one by one; beyond, the nearest value is found by minimisation.
_TRIED_VALUES: Final = 32


@dataclass(frozen=True)
class Relaxation:
    """One change after which the whole problem has a solution.

    Attributes:
        member: The rule that is changed.
        text: The change as a sentence.
        problem: The changed problem.
        solution: A solution of the changed problem.
        condition: The change as a condition: "num_stages <= 2".
        cost: How far the rule is moved, relative to its bound; infinite for a rule that is dropped.
    """

    member: ConflictMember
    text: str
    problem: Problem
    solution: dict[str, Any]
    condition: str = ""
    cost: float = math.inf

    def __str__(self) -> str:
        return self.text


def relaxations(
    problem: Problem,
    conflict: RulesInConflict | None = None,
    limits: Limits | None = None,
    *,
    among: Callable[[ConflictMember], bool] | None = None,
) -> list[Relaxation]:
    """Finds, for each rule of a minimal conflict, the smallest change of that rule alone that is enough.

    The bound of a comparison is moved as little as possible. A domain gets the nearest value that works. A rule that
    lists values of a variable gets the nearest other value of that variable's domain. Any other rule is dropped. Rules
    for which no such change is enough, because a second conflict remains, are left out: the list may be empty.

    Args:
        problem: A problem without a solution.
        conflict: The rules in conflict, where they are known already.
        limits: Limits of the search, for the conflict as well. What was not tried before a limit is left out.
        among: The rules that may be changed, for example only a user's own; all when None.

    Returns:
        The relaxations, the cheapest first.

    Raises:
        UsageError: When the problem has a solution.
        LimitReachedError: When it could not be decided whether it has one.
        CancelledError: When the caller's own signal came.
    """
    budget = Budget(limits or UNLIMITED)
    in_conflict = conflict or minimal_conflict(problem, limits)
    questions = Questions(budget.rest())
    ways: list[Relaxation] = []
    try:
        for member in in_conflict.members:
            if among is None or among(member):
                relaxation = _SmallestChange(problem, member, questions).relaxation()
                ways += [relaxation] if relaxation is not None else []
    except CancelledError:
        raise
    except LimitReachedError:
        pass  # The relaxation found so far is valid.
    return sorted(ways, key=lambda relaxation: relaxation.cost)


def ways_out(ways: Sequence[Relaxation]) -> str:
    """Write relaxations as a sentence: "fits if num_stages <= 2, or tile_k <= 32"; "" when there is none."""
    return f"fits if {', or '.join(relaxation.condition for relaxation in ways)}" if ways else ""


class _SmallestChange:
    """The smallest sufficient change of one rule or one domain."""

    def __init__(self, problem: Problem, member: ConflictMember, questions: Questions) -> None:
        self.problem, self.member, self.questions = problem, member, questions

    def relaxation(self) -> Relaxation | None:
        """The change; None where no change of this member suffices."""
        rule = self.member.constraint
        if rule is None:
            return self._wider_domain()
        without = self.problem.without(rule)
        changed: Relaxation | None = None
        if isinstance(rule, Comparison) and all(self.problem.variables[name].scale for name in rule.variables):
            changed = self._moved_bound(without, rule)
        elif (
            isinstance(rule, IsIn) and isinstance(rule.expr, Var) and self.problem.variables[rule.expr.name].scale == 1
        ):
            changed = self._other_value(without, rule, rule.expr)
        named = rule.name or str(rule)
        return changed or self._if_feasible(without, f"drop {named}", f"{named} is dropped")

    def _if_feasible(self, changed: Problem, text: str, condition: str, cost: float = math.inf) -> Relaxation | None:
        """Make the relaxation of a change, if the changed problem has a solution."""
        answer = self.questions.decide(changed)
        coding = Coding.of(changed)
        solution = answer.assignment if coding is None else coding.decoded(answer.assignment)
        return Relaxation(self.member, text, changed, solution, condition, cost) if answer else None

    def _wider_domain(self) -> Relaxation | None:
        """Extend the domain by the nearest further value that suffices."""
        name = self.member.variable
        domain = self.problem.variables[name]
        if domain.labels is not None:
            # No value is nearest to those that it has.
            return None
        open_problem = self.problem.with_domain(name, widened(domain))
        nearest = None
        # Nearest above and nearest below the range of the domain; inside it, any value that is not a member.
        for low, high, sign in ((domain.lower, widened(domain).upper, 1), (widened(domain).lower, domain.upper, -1)):
            part = open_problem.with_domain(name, Domain.from_range(low, high))
            answer = self.questions.decide(part, sign * Var(name))
            if answer and (nearest is None or _distance(domain, answer[name]) < _distance(domain, nearest)):
                nearest = answer[name]
        if nearest is None:
            return None
        if domain.listed is not None:
            wider = Domain.from_values([*domain.listed, nearest], domain.because)
        else:
            wider = Domain.from_range(min(domain.lower, nearest), max(domain.upper, nearest), 1, domain.because)
        changed = self.problem.with_domain(name, wider)
        relation = "<=" if nearest < domain.lower else ">=" if nearest > domain.upper else "="
        cost = _distance(domain, nearest) / max(1, abs(domain.lower), abs(domain.upper))
        return self._if_feasible(changed, f"allow {name} = {nearest}", f"{name} {relation} {nearest}", cost)

    def _other_value(self, without: Problem, rule: IsIn, variable: Var) -> Relaxation | None:
        """Replace the listed values of a rule by the nearest other value of the variable's domain."""
        domain = rule.domain
        if domain.size > _TRIED_VALUES:
            return None
        value = next(self._values_that_fit(without, variable, set(domain)), None)
        if value is None:
            return None
        changed = without.copy()
        changed.add(is_in(variable, [value]), because=rule.because, name=rule.name)
        cost = min(abs(value - v) for v in domain) / max(1, abs(domain.lower), abs(domain.upper))
        text = f"{variable} == {value} (instead of one of {domain})"
        return self._if_feasible(changed, text, f"{variable} = {value}", cost)

    def _values_that_fit(self, problem: Problem, variable: Var, away_from: Collection[int]) -> Iterator[int]:
        """Values of a variable with which the problem has a solution, the nearest to some numbers first.

        Of equally near ones the upper one comes first. Nothing is yielded for a variable with many values.
        """
        domain = problem.variables[variable.name]
        if domain.size > _TRIED_VALUES:
            return
        for value in sorted(domain, key=lambda v: (min(abs(v - w) for w in away_from), -v)):
            only = Domain.from_values([value])
            if value not in away_from and self.questions.decide(problem.with_domain(variable.name, only)):
                yield value

    def _moved_bound(self, without: Problem, rule: Comparison) -> Relaxation | None:
        """A comparison with its constant bound moved as far as the others need; None where it has no such bound."""
        moved = self._moved(rule, without)
        if moved is None:
            return None
        changed = without.copy()
        stored = changed.add(moved, because=rule.because, name=rule.name)
        old, new = _bound(rule), _bound(moved)
        unit = unit_of(rule)
        text = f"{rule_text(stored)} (instead of {number_text(old, unit)})"
        condition = f"the bound of {rule.name or rule} were {number_text(new, unit)}"
        return self._if_feasible(changed, text, condition, abs(new - old) / max(1, abs(old)))

    def _moved(self, rule: Comparison, without: Problem) -> Comparison | None:
        """The comparison with another number."""
        left, op, right = rule.left, rule.op, rule.right
        if op == "==":
            return self._nearest_equality(rule, without)
        if op == "!=":
            return None
        if isinstance(right, Const) and left.variables:
            side, at_most = left, op in ("<=", "<")
        elif isinstance(left, Const) and right.variables:
            side, at_most = right, op in (">=", ">")
        else:
            return None
        answer = self.questions.decide(without, side if at_most else -side)
        if not answer:
            return None
        return Comparison(side, "<=" if at_most else ">=", Const(side.value(answer.assignment)))

    def _nearest_equality(self, rule: Comparison, without: Problem) -> Comparison | None:
        """An equality with a number, moved to the nearest number that the others allow."""
        side, number = (rule.left, rule.right) if isinstance(rule.right, Const) else (rule.right, rule.left)
        if not isinstance(number, Const) or not side.variables:
            return None
        if isinstance(side, Var) and without.variables[side.name].size <= _TRIED_VALUES:
            value = next(self._values_that_fit(without, side, (number.number,)), None)
            return None if value is None else Comparison(side, "==", Const(value))
        nearest = []
        for sign in (1, -1):
            half = without.copy()
            half.add(sign * side >= sign * number.number)
            answer = self.questions.decide(half, sign * side)
            if answer:
                nearest.append(side.value(answer.assignment))
        if not nearest:
            return None
        return Comparison(side, "==", Const(min(nearest, key=lambda value: abs(value - number.number))))


def _distance(domain: Domain, value: int) -> int:
    members = domain.listed if domain.listed is not None else (domain.lower, domain.upper)
    return min(abs(value - v) for v in members)


def _bound(rule: Comparison) -> int:
    """The number that a comparison bounds its other side by; 0 where neither side is a number."""
    for side in (rule.right, rule.left):
        if isinstance(side, Const):
            return side.number
    return 0
