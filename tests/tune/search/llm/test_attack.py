"""A few cases of the attacks on proposals; `python -m benchmarks.attacks.endpoint` (and `transcript`) run many."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.attacks import endpoint, transcript


def test_a_changed_transcript_is_replayed_or_refused(tmp_path: Path) -> None:
    assert list(transcript.attack(40, 20261124, tmp_path)) == []


def test_a_hostile_endpoint_costs_rounds_and_learns_nothing(tmp_path: Path) -> None:
    pytest.importorskip("openai", reason="the client goes through the openai package, which is not installed")
    assert list(endpoint.attack(8, 20261124, tmp_path)) == []
