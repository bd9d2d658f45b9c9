"""What a rule is worth: certain and redundant rules leave configurations out, estimated ones only where it is asked."""

from __future__ import annotations

import copy
import pickle

import pytest

from constrint.errors import UnknownNameError, UsageError
from constrint.model import Constraint, Domain, Problem, Var
from constrint.model.constraint import CERTAIN, ESTIMATED, REDUNDANT
from constrint.model.python.restrictions import problem_from_space
from constrint.solve import brute_force, count, enumerate_space, solve


def problem() -> Problem:
    """Of x in 1..8: 7 and 8 cannot be, odd ones repeat others, more than 4 may be too many."""
    made = Problem("kinds")
    x = made.int_var("x", lower=1, upper=8)
    made.add(x <= 6, because="there are six", name="fits", kind=CERTAIN)
    made.add(x % 2 == 0, because="an odd one does the work of the next", name="even", kind=REDUNDANT)
    made.add(x <= 4, because="more than four were seen to be slow", name="few", kind=ESTIMATED)
    return made


def values(of: Problem) -> list[int]:
    """The values of x that solve a problem; every way to solve it has to find the same."""
    found = sorted(row["x"] for row in enumerate_space(of))
    assert found == sorted(row["x"] for row in brute_force(of))
    assert count(of) == len(found)
    return found


def of_kinds(rules: tuple[Constraint, ...]) -> list[tuple[str, str]]:
    return [(rule.name, rule.kind) for rule in rules]


def test_an_estimated_rule_is_kept_beside_the_others_and_leaves_nothing_out() -> None:
    made = problem()
    assert of_kinds(made.constraints) == [("fits", CERTAIN), ("even", REDUNDANT)]
    assert of_kinds(made.estimates) == [("few", ESTIMATED)]
    assert made.estimates[0].because == "more than four were seen to be slow"
    assert values(made) == [2, 4, 6]


def test_strict_leaves_out_what_breaks_an_estimated_rule_and_changes_no_other_problem() -> None:
    made = problem()
    strict = made.strict()
    assert values(strict) == [2, 4]
    assert of_kinds(strict.constraints) == [("fits", CERTAIN), ("even", REDUNDANT), ("few", ESTIMATED)]
    assert strict.estimates == ()
    assert values(strict.strict()) == [2, 4]
    assert values(made) == [2, 4, 6]
    assert len(made.estimates) == 1


def test_strict_keeps_the_objective() -> None:
    made = problem()
    made.maximise(Var("x"))
    for of, best in ((made, 6), (made.strict(), 4)):
        assert solve(of).assignment == {"x": best}


def test_a_rule_that_is_added_to_a_solved_problem_counts() -> None:
    """What the compiled core was told of a problem is forgotten when a rule is added, and only then."""
    made = problem()
    assert values(made) == [2, 4, 6]
    x = Var("x")
    made.add(x >= 4, kind=ESTIMATED)
    assert values(made) == [2, 4, 6]
    assert values(made.strict()) == [4]
    made.add(x >= 4, kind=CERTAIN)
    assert values(made) == [4, 6]


def test_a_constraint_that_says_what_it_is_worth_is_stored_as_such() -> None:
    made = Problem("p")
    x = made.int_var("x", lower=1, upper=8)
    assert made.add((x <= 4).labelled("many", "few", ESTIMATED)) in made.estimates
    assert made.add((x <= 4).labelled("many", "few", ESTIMATED), kind=CERTAIN).kind == CERTAIN
    assert made.add(x <= 5).kind == ""
    assert values(made) == [1, 2, 3, 4]
    assert of_kinds(made.constraints) == [("few", CERTAIN), ("", "")]


def copies(made: Problem) -> dict[str, Problem]:
    return {
        "copy": made.copy(),
        "copy.copy": copy.copy(made),
        "copy.deepcopy": copy.deepcopy(made),
        "pickle": pickle.loads(pickle.dumps(made)),
        "without_objective": made.without_objective(),
    }


@pytest.mark.parametrize("how", copies(problem()))
def test_copies_keep_what_every_rule_is_worth(how: str) -> None:
    made = problem()
    values(made)  # a problem that was solved has been told to the core
    twin = copies(made)[how]
    assert of_kinds(twin.constraints) == of_kinds(made.constraints)
    assert of_kinds(twin.estimates) == of_kinds(made.estimates)
    assert twin == made
    assert (values(twin), values(twin.strict())) == ([2, 4, 6], [2, 4])


@pytest.mark.parametrize("how", ["copy", "copy.deepcopy", "pickle"])
def test_rules_that_are_added_to_a_copy_stay_there(how: str) -> None:
    made = problem()
    twin = copies(made)[how]
    twin.add(Var("x") >= 4, kind=ESTIMATED)
    assert len(twin.estimates) == 2
    assert len(made.estimates) == 1
    assert twin != made


def test_without_and_with_domain_keep_estimates_and_kinds() -> None:
    less = problem().without("even")
    assert of_kinds(less.constraints) == [("fits", CERTAIN)]
    assert (values(less), values(less.strict())) == ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4])
    odd = problem().with_domain("x", Domain.from_values([3, 4, 6]))
    assert (values(odd), values(odd.strict())) == ([4, 6], [4])
    assert values(problem().strict().without("few")) == [2, 4, 6]


def test_estimates_are_part_of_what_a_problem_is() -> None:
    assert problem() == problem()
    bare = Problem("kinds")
    x = bare.int_var("x", lower=1, upper=8)
    bare.add(x <= 6, because="there are six", name="fits", kind=CERTAIN)
    bare.add(x % 2 == 0, because="an odd one does the work of the next", name="even", kind=REDUNDANT)
    assert bare != problem()


def test_a_space_in_pythons_syntax_takes_estimates_too() -> None:
    made = problem_from_space({"x": [1, 2, 3]}, ["x < 3"], "space")
    assert made.estimates == ()
    assert values(made.copy()) == [1, 2]
    made.add(Var("x") <= 1, kind=ESTIMATED)
    assert values(made) == [1, 2]
    assert values(made.strict()) == [1]


def test_a_kind_that_does_not_exist_is_refused() -> None:
    """A rule with a misspelt kind would otherwise leave out what it only estimates."""
    made = problem()
    x = Var("x")
    with pytest.raises(UnknownNameError, match=r"unknown kind of rule 'estimate'\. Nearest: estimated"):
        made.add(x <= 2, kind="estimate")
    with pytest.raises(UsageError, match="because, name and kind of a constraint must be text"):
        made.add(x <= 2, kind=3)  # type: ignore[arg-type]
    assert values(made) == [2, 4, 6]
