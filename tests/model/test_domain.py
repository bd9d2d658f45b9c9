"""A domain is a set of integers, or an error that says what it lacks."""

from __future__ import annotations

import copy
import itertools
import pickle
from typing import Any

import pytest

from constrint.errors import UsageError
from constrint.model import Domain, Problem, is_in, not_in


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((9, 1), "empty"),
        ((1, 9, 0), "at least 1, got 0"),
        ((1, 9, -2), "at least 1, got -2"),
        ((1, 10, 4), "9 for example"),
        ((1, 2, 1, (5, 6)), "from_values"),
        ((5, 6, 1, (5, 6, 5)), "distinct"),
        ((5, 6, 2, (5, 6)), "step 1"),
        ((1, 2, 1, ()), "from_values"),
        ((True, 2), "integer"),
        ((1.0, 2), "integer"),
        ((1, "2"), "integer"),
        ((1, 2, 1, (1, 2.0)), "integer"),
    ],
)
def test_what_is_no_set_of_integers_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Domain(*arguments)


def test_a_domain_that_was_stated_equals_one_that_was_built() -> None:
    for one, other in (
        (Domain(1, 9, 4), Domain.from_range(1, 12, 4)),
        (Domain(2, 8, 1, (8, 2, 4)), Domain.from_values([8, 2, 4, 8])),
        (Domain(2, 8, 1, (8, 2)), Domain.from_members((8, 2))),
    ):
        assert one == other
        assert pickle.loads(pickle.dumps(one)) == copy.deepcopy(one) == other


def test_ranges_of_any_length_are_domains() -> None:
    wide = Domain.from_values(range(-(2**70), 2**70, 3))
    assert wide
    assert wide.size == (2**71 + 2) // 3
    assert -(2**70) + 3 * 2**69 in wide
    assert 2**70 - 3 not in wide
    with pytest.raises(OverflowError, match=r"domain\.size"):
        len(wide)
    x = Problem().int_var("x", lower=0, upper=9)
    assert is_in(x, range(10**12, 0, -1)) == is_in(x, Domain(1, 10**12))
    assert str(not_in(x, range(0))) == "not false"
    with pytest.raises(UsageError, match="state a range"):
        is_in(x, Domain.from_values(itertools.count()))


def test_problems_take_domains_only() -> None:
    wrong: Any = range(3)
    with pytest.raises(UsageError, match="declared with a Domain"):
        Problem().declare("x", wrong)
