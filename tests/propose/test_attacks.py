"""A small draw of the attack on source; the long one is `python -m benchmarks.attacks.triton_source`."""

from __future__ import annotations

from itertools import islice

from benchmarks.attacks import triton_source
from tests.support.needs import needs_triton

pytestmark = needs_triton


def test_no_drawn_candidate_gets_through() -> None:
    counts, found = triton_source.attack(12, seed=5)
    assert found == []
    assert counts["honest: passed"] == 2


def test_nothing_that_is_read_as_legal_is_foreign() -> None:
    read = (case for case in triton_source.cases(1200, seed=6) if case.kind in ("names", "interior", "texts"))
    wrong = [case.source for case in islice(read, 800) if not case.is_right(*triton_source.judged(case))]
    assert wrong == []
