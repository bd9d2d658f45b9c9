"""The attacks on stores and imports, a few attempts of each; `python -m benchmarks.attacks.NAME` makes thousands."""

from __future__ import annotations

import os

import pytest

from benchmarks.attacks import imports, store_kills, store_mutations


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_killed_writers_lose_nothing_that_was_acknowledged() -> None:
    faults, num_acknowledged = store_kills.attack(12, seed=2)
    assert faults == []
    assert num_acknowledged > 100


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_killed_writers_of_a_server_lose_nothing_that_was_acknowledged(database: str) -> None:
    faults, num_acknowledged = store_kills.attack(10, seed=3, place=database)
    assert faults == []
    assert num_acknowledged > 100


def test_no_damage_of_a_store_is_believed_or_ends_in_a_traceback() -> None:
    assert store_mutations.attack(15, seed=2) == []


def test_no_mutated_import_ends_in_a_traceback_or_is_taken_in_part() -> None:
    assert imports.attack(30, seed=2) == []
