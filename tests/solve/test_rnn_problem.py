"""The problem of the size of a fused recurrent kernel: answers are first in order, or proven not to exist."""

from collections.abc import Iterator

import pytest

from constrint.model import Problem, Var
from constrint.solve import Limits, Status, enumerate_space, solutions_in_order, solve
from constrint.solve.backends import native
from tests.support import rnn_problem as rnn
from tests.support.clock import PATIENCE_S

LIMITS = Limits(max_seconds=PATIENCE_S)
CASES = [c for c in rnn.cases() if c.batch in (8, 64) and c.head_dim in (64, 768, 2688, 3072)]


def halves(problem: Problem) -> Iterator[Problem]:
    """The two passes share no variable: each alone is small enough for the other solvers."""
    for prefix in ("fw", "bw"):
        half = Problem(prefix)
        for name, domain in problem.variables.items():
            if name.startswith(prefix):
                half.declare(name, domain)
        for rule in problem.constraints:
            if rule.name.startswith(prefix):
                half.add(rule)
        yield half


@pytest.mark.parametrize("case", CASES, ids=str)
def test_answers_hold_and_agree_with_cpsat_on_feasibility(case: rnn.Case) -> None:
    problem = rnn.rnn_problem(case)
    assert len(problem.variables) == 28
    answer = solve(problem, LIMITS)
    other = solve(problem, LIMITS, backend="cpsat")
    assert answer.status is other.status
    assert answer.status is not Status.LIMIT_REACHED
    if answer:
        assert all(c.holds(answer.assignment) for c in problem.constraints)


def test_four_gates_of_3072_do_not_fit() -> None:
    for cell in ("lstm", "slstm"):
        assert solve(rnn.rnn_problem(rnn.Case(cell, "bf16", 3072, 8)), LIMITS).status is Status.INFEASIBLE
    assert solve(rnn.rnn_problem(rnn.Case("lstm", "bf16", 2688, 8)), LIMITS)


def test_the_first_is_the_lexicographic_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    # CP-SAT, which begins where a search counts as hard, answers with any.
    monkeypatch.setattr(native, "_has_cpsat", lambda: False)
    problem = rnn.rnn_problem(rnn.Case("lstm", "bf16", 64, 16))
    in_order = solutions_in_order(problem, LIMITS)
    first, second = next(in_order), next(in_order)
    assert solve(problem, LIMITS).assignment == first
    space = enumerate_space(problem)
    assert space.first() == first
    assert space.exclude(first).first() == second


def test_cpsat_finds_nothing_earlier_in_order() -> None:
    problem = next(halves(rnn.rnn_problem(rnn.Case("elman", "bf16", 512, 16))))
    first = next(solutions_in_order(problem, LIMITS))
    names = list(problem.variables)
    for i, name in enumerate(names):
        better = [v for v in problem.variables[name].listed or () if _before(problem, name, v, first[name])]
        if not better:
            continue
        trial = problem.copy()
        for earlier in names[:i]:
            trial.add(Var(earlier) == first[earlier])
        from constrint.model import is_in

        trial.add(is_in(Var(name), better))
        assert solve(trial, LIMITS, backend="cpsat").status is Status.INFEASIBLE


def _before(problem: Problem, name: str, value: int, other: int) -> bool:
    order = list(problem.variables[name])
    return order.index(value) < order.index(other)
