"""A proposed space AND the kernel's own certain rules: what is left can run, whatever was proposed.

Rules and values leave out; preferences only order. Where nothing is left, the answer is the minimal conflict and the
cheapest change of the proposal that mends it: the kernel's and the GPU's own rules are not for a proposer to change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from constrint.errors import ConstrintError, LimitReachedError, UsageError
from constrint.model import Constraint, Problem, Var, is_in
from constrint.model.columns import column_of, test
from constrint.propose.parse import read_rule
from constrint.propose.records import Preference, Refusal, SpaceProposal
from constrint.select.candidates import KernelCandidates, Rows, with_fixed
from constrint.select.rank import KernelProblem, tie_steps
from constrint.solve import Limits, minimal_conflict, relaxations
from constrint.solve.explain.conflict import ways_out

#: Time that one intersection, and its explanation, may take.
MAX_SECONDS: Final = 10.0
#: Why a proposed rule holds whose proposer gave no reason.
_UNSAID: Final = "it was proposed"


@dataclass(frozen=True)
class Intersection:
    """The configurations of one kernel that a proposal leaves.

    Args:
        kernel: The kernel's configurations, which a search takes as they are where the space was solved for itself.
        rows: Those of them that are in the proposal, the most promising first.
    """

    kernel: KernelCandidates
    rows: Rows

    def candidates(self) -> KernelCandidates:
        """What is left as the tuner's search takes it."""
        if len(self.rows) == self.kernel.num_rows:
            return self.kernel
        columns = {name: column[self.rows] for name, column in self.kernel.columns.items()}
        return KernelCandidates(self.kernel.spec, self.kernel.gpu, self.kernel.workload, columns)


def intersect(
    space: SpaceProposal, kernel: KernelCandidates, fixed: Mapping[str, int] | None = None
) -> Intersection | Refusal:
    """The valid configurations of a kernel that a proposal leaves, or why there are none.

    Args:
        space: The proposal, of this kernel.
        kernel: The kernel's valid configurations.
        fixed: Parameters that the caller gave.
    """
    try:
        rules = constraints_of(space, list(kernel.columns))
        if kernel.space is None:
            rows = _rows_of(rules, kernel)
        else:
            problem, _ = _problem(rules, kernel, fixed or {})
            request = KernelProblem(kernel.spec, kernel.gpu, kernel.workload, problem)
            kernel = KernelCandidates.of(request, Limits(max_seconds=MAX_SECONDS))
            rows = np.arange(kernel.num_rows)
        if not len(rows):
            return _explained(rules, kernel, fixed or {})
        return Intersection(kernel, rows[_order(space, kernel, rows)])
    except ConstrintError as error:
        return Refusal(where="", message=f"{space.kernel}: {error}")


def constraints_of(space: SpaceProposal, names: Sequence[str]) -> list[Constraint]:
    """What a proposed space comes to, each constraint with its reason.

    Raises:
        ConstrintError: When a rule is none.
    """
    found: list[Constraint] = []
    for part in space.values:
        found.append(is_in(Var(part.parameter), list(part.values)).labelled(part.because or _UNSAID, "", ""))
    for rule in space.rules:
        found.append(read_rule(rule.rule, names).labelled(rule.because or _UNSAID, "", ""))
    return found


def holds(rule: Constraint, kernel: KernelCandidates, rows: Rows) -> NDArray[np.bool_]:
    """Where a rule holds among the rows of a kernel."""
    columns = {name: column_of(kernel.columns[name][rows]) for name in rule.variables}
    return np.broadcast_to(np.asarray(test(rule, columns), dtype=bool), (len(rows),))


def penalties(preferences: Sequence[Preference], kernel: KernelCandidates, rows: Rows) -> NDArray[np.int64]:
    """The weight of all preferences that each row does not meet."""
    total = np.zeros(len(rows), dtype=np.int64)
    for part in preferences:
        total += part.weight * ~holds(read_rule(part.rule, list(kernel.columns)), kernel, rows)
    return total


def _rows_of(rules: Sequence[Constraint], kernel: KernelCandidates) -> Rows:
    rows: Rows = np.arange(kernel.num_rows)
    for rule in rules:
        rows = rows[holds(rule, kernel, rows)]
    return rows


def _order(space: SpaceProposal, kernel: KernelCandidates, rows: Rows) -> Rows:
    """Places of rows: by preferences, then by predicted time, then by the order in which values were proposed."""
    keys = [tie_steps(kernel.seconds[rows]), penalties(space.preferences, kernel, rows)]
    for part in space.values:
        by_value = np.argsort(part.values, kind="stable")
        at = np.searchsorted(np.asarray(part.values)[by_value], kernel.columns[part.parameter][rows])
        keys.insert(0, by_value[at])
    return np.lexsort(keys)


def _problem(
    rules: Sequence[Constraint], kernel: KernelCandidates, fixed: Mapping[str, int]
) -> tuple[Problem, list[Constraint]]:
    """The kernel's problem with the proposed rules, and these as they stand in it."""
    problem = with_fixed(kernel.spec.problem(kernel.gpu, kernel.workload), fixed)
    return problem, [problem.add(rule) for rule in rules]


def _explained(rules: Sequence[Constraint], kernel: KernelCandidates, fixed: Mapping[str, int]) -> Refusal:
    """Why nothing is left: the conflict, and the cheapest change of the proposal that mends it."""
    problem, proposed = _problem(rules, kernel, fixed)
    head, limits = f"no configuration of {kernel.spec.full_name} is left.", Limits(max_seconds=MAX_SECONDS)
    try:
        conflict = minimal_conflict(problem, limits, domains_in_force=True)
    except UsageError:
        # A table of measurements, say, holds fewer configurations than are valid.
        return Refusal(where="", message=f"{head} Valid ones exist, but none of them may be tried here.")
    except LimitReachedError as error:
        return Refusal(where="", message=f"{head} Why was not found: {error}")
    ways = relaxations(problem, conflict, limits, among=lambda member: any(member.constraint is r for r in proposed))
    told = f"The cheapest change: it {ways_out(ways[:1])}." if ways else "No change of one proposed rule is enough."
    return Refusal(where="", message=f"{head} {conflict}\n{told}")
