"""A few runs against a hostile endpoint; `python -m benchmarks.attacks.endpoint --count N --seed S` runs many."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.attacks.endpoint import attack

pytest.importorskip("openai", reason="the client goes through the openai package, which is not installed")


def test_a_hostile_endpoint_costs_rounds_and_learns_nothing(tmp_path: Path) -> None:
    assert list(attack(8, 20261124, tmp_path)) == []
