"""A few cases of the attack on solved layouts; `python -m benchmarks.attacks.banks` makes hundreds."""

from __future__ import annotations

from benchmarks.attacks.banks import attack


def test_random_tiles_get_layouts_without_conflicts_or_a_sentence() -> None:
    counts, finds = attack(12, seed=3)
    assert finds == []
    assert counts["solved"] > 0
