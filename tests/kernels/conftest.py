"""Fixtures of the kernels' tests: where figures of compiled ones are kept."""

import pytest

from tests.support.compiled import Compiler


@pytest.fixture(scope="session")
def compiler(pytestconfig: pytest.Config) -> Compiler:
    """Compiles, and keeps figures in pytest's cache (`--cache-clear` forgets them)."""
    return Compiler(getattr(pytestconfig, "cache", None))
