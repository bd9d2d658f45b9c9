"""Decisions as in a process that has just begun: nothing remembered, nothing refused."""

from __future__ import annotations

import pytest

from constrint.choose import memo, refusals


def begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the test a memory of its own; the one before it comes back afterwards."""
    monkeypatch.setattr(memo, "_MEMORY", {})
    monkeypatch.setattr(refusals, "_REFUSED", {})
    monkeypatch.setattr(refusals, "_REFUSED_STEPS", set())
