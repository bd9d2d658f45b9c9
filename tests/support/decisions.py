"""Decisions about products, and a process that has just begun: nothing remembered, nothing refused."""

from __future__ import annotations

import pytest

from constrint.choose import Decision, Refusal, forget, memo, refusals, refuse
from constrint.kernels.gemm.candidates import forget_tables


def begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the test a memory of its own; the one before it comes back afterwards."""
    monkeypatch.setattr(memo, "_MEMORY", {})
    monkeypatch.setattr(refusals, "_REFUSED", {})
    monkeypatch.setattr(refusals, "_REFUSED_STEPS", set())


def refuse_product(decision: Decision, what: str, required: int, limit: int) -> Decision:
    """The decision after a device refused this one."""
    return refuse(decision, Refusal(decision.program.name, dict(decision.config), what, required, limit))


def forget_products() -> None:
    """Decide about products again, and read their tables again."""
    forget()
    forget_tables()
