"""Why a problem has no solution: a minimal set of constraints and domains that cannot hold together.

A domain takes part in the conflict if the rest can hold once its variable may take any value of a wide range. Minimal
means: if any one member is taken away, the others can hold together. Each member is tested by solving.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from constrint.errors import CancelledError, LimitReachedError, UsageError
from constrint.model import Comparison, Const, Constraint, Domain, Expr, IsIn, Problem
from constrint.model.coding import Coding
from constrint.model.problem import named_constants
from constrint.model.values import literal
from constrint.solve.backends.native import NativeBackend
from constrint.solve.budget import Limits, Status
from constrint.solve.explain.questions import Questions
from constrint.solve.explain.reduction import Reduction, Rules, widened

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
    """Finds a minimal set of constraints and domains that cannot hold together.

    Args:
        problem: A problem without a solution.
        limits: How much work is allowed. Where a limit ends the search for a smaller set, the smallest one so far is
            returned, marked as not minimal. Without `max_seconds` a question that is hard is left open after a moment.
        domains_in_force: The domains are facts, not rules that could be given up (a kernel's parameters): all of them
            hold, and one is named only where another value of that variable alone would do. Much quicker.

    Raises:
        UsageError: When the problem has a solution.
        LimitReachedError: When it could not be decided whether it has one.
        CancelledError: When the caller's own signal came.
    """
    questions = Questions(limits)
    reduction = _reduction(problem, questions, domains_in_force)
    seen = reduction.focus()
    if not seen:
        _check_infeasible(problem, questions)
    return _reduced(reduction, questions, together=not seen)


def conflict_of_infeasible(limits: Limits, problem: Problem) -> Conflict:
    """`minimal_conflict` of a problem that is known to have no solution; of all its rules where a limit comes first."""
    questions = Questions(limits)
    reduction = _reduction(problem, questions, domains_in_force=False)
    try:
        seen = reduction.focus()
    except CancelledError:
        raise
    except LimitReachedError:
        seen = False
    return _reduced(reduction, questions, together=not seen)


def _reduction(problem: Problem, questions: Questions, domains_in_force: bool) -> Reduction:
    declared = frozenset(n for n, d in problem.variables.items() if d.declared)
    return Reduction(Rules(problem, problem.constraints, declared, facts=domains_in_force), questions)


def _reduced(reduction: Reduction, questions: Questions, *, together: bool) -> Conflict:
    """The conflict that is left once everything unneeded was dropped, or a limit was reached."""
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
    kept = {id(c) for c in reduction.rules.constraints}
    members += [ConflictMember(rule_text(c), c.because, constraint=c) for c in problem.constraints if id(c) in kept]
    return Conflict(tuple(members), minimal)


def _check_infeasible(problem: Problem, questions: Questions) -> None:
    budget = questions.budget
    answer = NativeBackend().solve(problem.without_objective(), budget.rest())
    if answer.status is Status.FEASIBLE:
        coding = Coding.of(problem)
        found = answer.assignment if coding is None else coding.decoded(answer.assignment)
        raise UsageError(f"problem {problem.name!r} has a solution ({found}); there is no conflict.")
    if answer.status is Status.LIMIT_REACHED:
        questions.check()
        raise LimitReachedError(answer.message)


def _mentioned(rules: Rules) -> list[str]:
    """The variables whose domain is in force and plays a part."""
    return [name for name in rules.in_scope() if name in rules.domains]


def _to_name(rules: Rules, questions: Questions) -> list[str]:
    """The variables whose domain a conflict names."""
    names = _mentioned(rules)
    return [name for name in names if _suggests(rules, name, questions)] if rules.facts else names


def _suggests(rules: Rules, name: str, questions: Questions) -> bool:
    """Whether further values of one variable alone would mend it: powers of two, or what a rule asks for."""
    asked = rules.asked()
    domain = asked.variables[name]
    if domain.listed is None or domain.labels is not None:
        wider = widened(domain)
    else:
        numbers = {n for c in rules.constraints if c.variables == {name} for n in _numbers(c)}
        wider = Domain.from_values(sorted({*domain.listed, *(1 << i for i in range(17)), *numbers}))
    return questions.decide(asked.with_domain(name, wider)).status is Status.FEASIBLE
