"""Reduces contradictory rules to a minimal set, by many small satisfiability questions within one budget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Final

from constrint.errors import CancelledError, LimitReachedError, UndefinedValueError, UnsupportedError
from constrint.model import Constraint, Domain, Expr, Problem
from constrint.solve.backends.native import NativeBackend
from constrint.solve.budget import UNLIMITED, Budget, Limits, Status
from constrint.solve.explain.narrowing import Core, Differences, Narrowing
from constrint.solve.solution import Solution

#: Work of one question to CP-SAT, in its deterministic seconds: the same on any machine, however busy that is.
WORK: Final = 0.1

#: A constraint by its id, or a variable whose domain it is.
Member = int | str


def widened(domain: Domain) -> Domain:
    """The generous range that stands for "this domain does not limit the variable"."""
    wide = Domain.from_range(min(1, domain.lower), max(2**16, 4 * domain.upper))
    # Codes of other values keep their scale: any number of that many fractions, or any value at all.
    return wide if domain.scale == 1 else replace(wide, scale=domain.scale)


@dataclass(frozen=True)
class Rules:
    """The rules of a problem that are in force; the other domains are wide open.

    Attributes:
        problem: The problem.
        constraints: Those in force.
        domains: The variables whose domain is in force.
        facts: Whether domains are fixed: they stay in force even if a contradiction does not need them.
    """

    problem: Problem
    constraints: tuple[Constraint, ...]
    domains: frozenset[str]
    facts: bool = False

    def in_scope(self) -> dict[str, Domain]:
        """The domains of the variables that the constraints mention, as far as they are in force."""
        mentioned = frozenset().union(*(c.variables for c in self.constraints))
        return {
            name: domain if name in self.domains or not domain.declared else widened(domain)
            for name, domain in self.problem.variables.items()
            if name in mentioned
        }

    def as_problem(self) -> Problem:
        """Build the problem of these rules over their variables."""
        problem = Problem(self.problem.name)
        for name, domain in self.in_scope().items():
            problem.declare(name, domain)
        for constraint in self.constraints:
            problem.add(constraint)
        return problem

    def without(self, members: Iterable[Member]) -> Rules:
        """These rules without some."""
        gone = set(members)
        return replace(
            self,
            constraints=tuple(c for c in self.constraints if id(c) not in gone),
            domains=frozenset(n for n in self.domains if n not in gone),
        )

    def reduced(self, core: Core) -> Rules:
        """The rules of a contradiction among these rules."""
        constraints_left = tuple(c for place, c in enumerate(self.constraints) if place in core.rules)
        return replace(
            self, constraints=constraints_left, domains=self.domains if self.facts else self.domains & core.variables
        )


# Without a time limit: undecided questions after which no more are posed.
_MOST_UNDECIDED: Final = 10
# Questions about several members at once, all in vain, after which members are dropped one by one.
_MOST_IN_VAIN: Final = 4


class Reduction:
    """Reduces contradictory rules to a minimal set by dropping unneeded ones.

    Attributes:
        rules: The rules not yet removed.
    """

    def __init__(self, rules: Rules, questions: Questions) -> None:
        self.rules = rules
        self._questions = questions
        # Undecided members, with the number of rules at that time.
        self._open: dict[Member, int] = {}
        # Per solution that was found: the rules that it breaks.
        self._broken: list[frozenset[Member]] = []
        self._needed: set[Member] = set()
        # Members of rules in which no contradiction is seen without search; nor is one in fewer of them.
        self._unseen: frozenset[Member] = frozenset()
        # Whether a question was too hard for the native engine: CP-SAT is asked from then on.
        self._is_hard = False
        # Questions about several members at once, one after the other, after which all of them stayed.
        self._in_vain = 0

    def contradiction(self, rules: Rules) -> Core | None:
        """A contradiction that is seen without search."""
        members: frozenset[Member] = frozenset({*map(id, rules.constraints), *rules.domains})
        if members <= self._unseen:
            return None
        domains = rules.in_scope()
        differences = Differences(domains, rules.constraints, self._questions.check)
        if differences.core is not None:
            return differences.core
        self._learn({**{n: d.lower for n, d in domains.items()}, **differences.values})
        narrowing = Narrowing(domains, rules.constraints, self._questions.check)
        if narrowing.core is None:
            self._unseen = members
            for values in _corners(narrowing.domains):
                self._learn(values)
        return narrowing.core

    def focus(self) -> bool:
        """Keeps the rules of a contradiction that is seen without search; False where none is."""
        core = self.contradiction(self.rules)
        if core is None:
            return False
        # Rules used early may be unneeded: in the opposite order others come first.
        while core is not None:
            before = len(self.rules.constraints)
            rules_left = self.rules.reduced(core)
            self.rules = replace(rules_left, constraints=rules_left.constraints[::-1])
            core = self.contradiction(self.rules) if len(rules_left.constraints) < before else None
        return True

    def run(self, together: bool) -> bool:
        """Drop unneeded rules, those without a stated reason first, so that the remaining ones explain themselves.

        Args:
            together: Tries many rules at once, which is quick where few are needed.

        Returns:
            Whether every remaining rule is needed; False where that is undecided.
        """
        constraints = [id(c) for c in sorted(self.rules.constraints, key=lambda c: bool(c.because))]
        variables = self.rules.problem.variables
        named = [n for n in variables if n in self.rules.domains and not self.rules.facts]
        named.sort(key=lambda n: bool(variables[n].because))
        for members in (constraints, named):
            if together:
                self._drop(members)
            else:
                for member in members:
                    self._drop([member])
        # With fewer rules an undecided question may become decidable.
        for member, size in list(self._open.items()):
            if self._size() < size:
                del self._open[member]
                self._drop([member])
        return self._open.keys() <= self._needed

    def _by_cpsat(self, rules: Rules) -> Status | Rules | None:
        """As `_status`, by CP-SAT; None where it is not there, cannot express the rules, or has no answer in time."""
        if not self._questions.may_ask_cpsat():
            return None
        answer = self._questions.decide_by_cpsat(rules.as_problem())
        if isinstance(answer, Mapping):
            self._learn(answer)
            return Status.FEASIBLE
        return rules if answer is Status.INFEASIBLE else None

    def _size(self) -> int:
        return len(self.rules.constraints) + len(self.rules.domains)

    def _drop(self, members: Sequence[Member]) -> None:
        present = {*map(id, self.rules.constraints), *self.rules.domains}
        members = [m for m in members if m in present and m not in self._needed]
        if not members:
            return
        if self._open and self._questions.are_enough():
            self._open[members[0]] = 0
            return
        fewer = self.rules.without(members)
        answer = self._status(fewer)
        if isinstance(answer, Rules):
            self._in_vain = 0
            self.rules = answer
        elif len(members) > 1:
            self._in_vain += 1
            # Where nearly all are needed, several at once are never dropped.
            half = len(members) // 2 if self._in_vain < _MOST_IN_VAIN else 1
            for start in range(0, len(members), half):
                self._drop(members[start : start + half])
        elif answer is Status.LIMIT_REACHED:
            self._open[members[0]] = self._size()
        else:
            self._needed.add(members[0])

    def _status(self, rules: Rules) -> Status | Rules:
        """Whether rules can hold together; where they cannot, those of them that are in contradiction."""
        mine = {*map(id, rules.constraints), *rules.domains}
        if any(not broken & mine for broken in self._broken):
            return Status.FEASIBLE
        if self._is_hard and (decided := self._by_cpsat(rules)) is not None:
            return decided
        core = self.contradiction(rules)
        if core is not None:
            return rules.reduced(core)
        if any(not broken & mine for broken in self._broken):
            return Status.FEASIBLE
        answer = self._questions.decide(rules.as_problem())
        if answer.status is Status.LIMIT_REACHED and not self._is_hard:
            self._is_hard = True
            decided = self._by_cpsat(rules)
            if decided is not None:
                self._questions.undecided -= 1
                return decided
        if answer.status is Status.FEASIBLE:
            self._learn(answer.assignment)
        return rules if answer.status is Status.INFEASIBLE else answer.status

    def _learn(self, values: Mapping[str, int]) -> None:
        """Record the rules that an assignment breaks, of those that are left; a single one is needed."""
        domains = self.rules.problem.variables
        everywhere = {n: values.get(n, d.lower) for n, d in domains.items()}
        try:
            broken: set[Member] = {id(c) for c in self.rules.constraints if not c.holds(everywhere)}
        except LimitReachedError:
            return
        broken |= {n for n in self.rules.domains if everywhere[n] not in domains[n]}
        self._broken.append(frozenset(broken))
        if len(broken) == 1:
            self._needed |= broken


def _corners(domains: Mapping[str, Domain]) -> Iterable[dict[str, int]]:
    """Cheap test assignments: all variables at their smallest, and all at their largest values."""
    yield {n: d.lower for n, d in domains.items()}
    yield {n: d.upper for n, d in domains.items()}


# Work that one question may cost, counted so that an answer does not depend on what else the machine does.
_MAX_NODES: Final = 300
_MAX_ROWS: Final = 1 << 20
_MAX_CELLS: Final = 1 << 20
# Variables with more values than this are hardly ever searched through; few nodes show whether there is a quick answer.
_SEARCHED: Final = 4096
_FEW_NODES: Final = 40
# Where CP-SAT is asked next: a node costs propagation through ranges that hardly shrink.
_FEWEST_NODES: Final = 3
# Questions to which CP-SAT had no answer, after which it is not asked; seconds that loading it may take.
_MOST_UNANSWERED: Final = 4
_LOADING_S: Final = 1.0
# Share of the caller's time that one question may take.
_SHARE: Final = 0.25


class Questions:
    """Poses satisfiability questions to the native engine, each within a share of the remaining budget.

    Attributes:
        undecided: Number of undecided questions.
    """

    def __init__(self, limits: Limits | None) -> None:
        self.budget = Budget(limits or UNLIMITED)
        self.undecided = 0
        self._unanswered = 0

    def may_ask_cpsat(self) -> bool:
        """Whether CP-SAT may be asked: it is installed, has had answers, and there is time to load it."""
        left = self.budget.seconds_left()
        return (
            self._unanswered < _MOST_UNANSWERED
            and (left is None or left > _LOADING_S)
            and find_spec("ortools") is not None
        )

    def are_enough(self) -> bool:
        """Whether no more questions are posed, since many had no answer; where there is a time limit, it decides."""
        return self.budget.limits.max_seconds is None and self.undecided >= _MOST_UNDECIDED

    def decide_by_cpsat(self, problem: Problem) -> Status | Mapping[str, int] | None:
        """INFEASIBLE, or a solution, by CP-SAT with counted work; None where that was not enough."""
        from constrint.solve.backends.cpsat import CpSatBackend

        left = self.budget.seconds_left()
        limits = self.budget.rest() if left is None else self.budget.part(_SHARE * left)
        try:
            values = CpSatBackend(WORK).best(problem, Budget(limits))
        except CancelledError:
            raise
        except (LimitReachedError, UnsupportedError):
            self.check()
            self._unanswered += 1
            return None
        return Status.INFEASIBLE if values is None else values

    def check(self) -> None:
        """Ends the explanation where its limit is reached.

        Raises:
            LimitReachedError: When the time is over; CancelledError when the caller's signal came.
        """
        self.budget.check_work()

    def decide(self, problem: Problem, objective: Expr | None = None) -> Solution:
        """One solution of a problem, the one with the smallest `objective` if that is given."""
        question = problem.without_objective()
        if objective is not None:
            question.minimise(objective)
        self.check()
        limits = self.budget.limits
        left = self.budget.seconds_left()
        few = _FEWEST_NODES if objective is None and self.may_ask_cpsat() else _FEW_NODES
        is_wide = any(d.size > _SEARCHED for d in question.variables.values())
        mine = replace(
            self.budget.rest() if left is None else self.budget.part(_SHARE * left),
            max_rows=min(limits.max_rows, _MAX_ROWS),
            max_nodes=min(limits.max_nodes, few if is_wide else _MAX_NODES),
            max_cells=min(limits.max_cells, _MAX_CELLS),
        )
        try:
            answer = NativeBackend().solve(question, mine)
        except CancelledError:
            raise
        except LimitReachedError as error:
            answer = Solution(Status.LIMIT_REACHED, question, message=str(error))
        except UndefinedValueError:
            # The objective is a side of a rule: without a value no bound makes the rule hold.
            answer = Solution(Status.INFEASIBLE, question)
        if answer.status is Status.LIMIT_REACHED:
            # The limit may be the caller's own rather than the question's.
            self.check()
            self.undecided += 1
        return answer
