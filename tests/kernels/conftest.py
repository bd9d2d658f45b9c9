"""Fixtures of the kernels' tests: where figures of compiled ones are kept, and tables that begin anew."""

import os
from collections.abc import Iterator

import pytest

from constrint import cache
from constrint.choose import forget
from constrint.kernels.gemm import candidates, tables
from tests.support.compiled import Compiler
from tests.support.needs import missing_packages


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """Tests that run side by side have a core each; threads that wait for each other's cores take them in vain."""
    if "PYTEST_XDIST_WORKER" not in os.environ or missing_packages("torch"):
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def compiler(pytestconfig: pytest.Config) -> Compiler:
    """Compiles, and keeps figures in pytest's cache (`--cache-clear` forgets them)."""
    return Compiler(getattr(pytestconfig, "cache", None))


@pytest.fixture
def _tables_of_its_own(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The GEMM's tables begin anew, and no other test reads them: for tests that change what tables rest on.

    Those of others are not made again: they take seconds.
    """
    monkeypatch.setattr(candidates, "_TABLES", {})
    monkeypatch.setattr(tables, "cache", cache)
    forget()
    yield
    forget()


@pytest.fixture
def _choices_anew() -> Iterator[None]:
    """Choices are made again, from the tables that are known: for what decides among tables, and changes none."""
    forget()
    yield
    forget()
