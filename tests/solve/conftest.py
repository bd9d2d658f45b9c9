from collections.abc import Callable

import pytest

from constrint import model as m
from tests.support.random_problems import draw_listed, problem_of


@pytest.fixture(scope="session")
def random_problem() -> Callable[[int], m.Problem]:
    """Draws a problem from a number, quickly: the bulk of the agreement tests uses it.

    Its numbers are small, wide or huge, and its domains have few values each.
    """
    return lambda number: problem_of(draw_listed(number)).without_objective()
