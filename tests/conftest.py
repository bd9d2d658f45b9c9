"""Fixtures of all tests; what tests share as plain functions stands in `tests/support`."""

from types import ModuleType

import pytest

from tests.support import strategies as shared_strategies


@pytest.fixture(scope="session")
def strategies() -> ModuleType:
    """The shared hypothesis strategies."""
    return shared_strategies
