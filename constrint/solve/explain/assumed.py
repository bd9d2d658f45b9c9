"""Rules as assumptions of one CP-SAT model: whether some can hold together, and if not, which of them contradict.

The work of a question is counted by CP-SAT's own deterministic time, so that an answer does not depend on what else the
machine does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib.util import find_spec
from typing import Any, Final

from constrint.errors import UnsupportedError
from constrint.model import Comparison, Constraint, Domain, Var, is_in
from constrint.model.constraint import OPERATORS
from constrint.solve.backends.cpsat import run_counted
from constrint.solve.backends.cpsat_model import ModelBuilder
from constrint.solve.budget import Budget
from constrint.solve.engine.prepare import flatten

#: Work of one question, in CP-SAT's deterministic seconds.
WORK: Final = 0.1

#: A constraint by its id, or a variable whose domain it is.
Member = int | str


def has_cpsat() -> bool:
    """Whether OR-tools is installed."""
    return find_spec("ortools") is not None


class Assumed:
    """Constraints, and domains of variables, each of which holds where its literal is assumed.

    Args:
        constraints: The constraints.
        domains: The widest domains of their variables, which always hold.
        own: Domains that may be assumed, by their variables.
        budget: Limits of time and signals.

    Attributes:
        members: Those that may be assumed.

    Raises:
        UnsupportedError: When CP-SAT cannot express a constraint.
    """

    def __init__(
        self,
        constraints: Collection[Constraint],
        domains: Mapping[str, Domain],
        own: Mapping[str, Domain],
        budget: Budget,
    ) -> None:
        self._builder = ModelBuilder(domains)
        self._model: Any = self._builder.model
        self._literals: dict[Member, Any] = {}
        with budget.watching():
            for constraint in constraints:
                budget.tick()
                literal = self._literals[id(constraint)] = self._model.new_bool_var("")
                for part in flatten((constraint,)):
                    self._imply(literal, part)
            for name, domain in own.items():
                literal = self._literals[name] = self._model.new_bool_var("")
                self._keep(literal, name, domain)
        self._by_index = {literal.index: member for member, literal in self._literals.items()}
        complaint = self._model.validate()
        if complaint:
            raise UnsupportedError(f"CP-SAT refuses the rules: {complaint.splitlines()[0][:120]}")

    @property
    def members(self) -> frozenset[Member]:
        """Constraints by their ids, and variables whose domains may be assumed."""
        return frozenset(self._literals)

    def ask(self, members: Collection[Member], budget: Budget) -> frozenset[Member] | dict[str, int] | None:
        """Members that contradict each other, or values with which all hold; None where the work was not enough.

        Args:
            members: The members that are assumed; the others are left out.
            budget: Limits of time and signals.

        Raises:
            LimitReachedError, CancelledError: When the time is over, or the caller's signal came.
        """
        self._model.clear_assumptions()
        self._model.add_assumptions([self._literals[member] for member in members])
        solver = self._builder.library.CpSolver()
        status = run_counted(self._model, solver, budget, WORK)
        if status == "INFEASIBLE":
            core = solver.sufficient_assumptions_for_infeasibility()
            return frozenset(self._by_index[index] for index in core) or frozenset(members)
        if status in ("FEASIBLE", "OPTIMAL"):
            return {name: int(solver.value(variable)) for name, variable in self._builder.variables.items()}
        return None

    def _imply(self, literal: Any, constraint: Constraint) -> None:
        """A constraint holds where a literal does."""
        if isinstance(constraint, Comparison):
            left, right = self._builder.term(constraint.left), self._builder.term(constraint.right)
            relation = OPERATORS[constraint.op](left.linear, right.linear)
            if not isinstance(relation, bool):
                for defined in (*left.defined, *right.defined):
                    self._model.add_implication(literal, defined)
                self._model.add(relation).only_enforce_if(literal)
                return
        self._model.add_implication(literal, self._builder.literal(constraint))

    def _keep(self, literal: Any, name: str, domain: Domain) -> None:
        """A variable keeps its own domain where a literal holds."""
        library, variable = self._builder.library, self._builder.variables[name]
        if domain.listed is None and domain.step != 1:
            self._model.add_implication(literal, self._builder.literal(is_in(Var(name), domain)))
            return
        values = (
            library.Domain.from_values(domain.listed)
            if domain.listed is not None
            else library.Domain(domain.lower, domain.upper)
        )
        expr = library.LinearExpr.sum([variable])
        self._model.add_linear_expression_in_domain(expr, values).only_enforce_if(literal)


def assumed_or_none(
    constraints: Collection[Constraint], domains: Mapping[str, Domain], own: Mapping[str, Domain], budget: Budget
) -> Assumed | None:
    """The model of some rules; None where CP-SAT cannot express them."""
    try:
        return Assumed(constraints, domains, own, budget)
    except UnsupportedError:
        return None
