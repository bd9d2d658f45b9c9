"""The core declines malformed encodings of conditions as numbers, elements, tables and bitwise operations."""

from __future__ import annotations

import pytest

from constrint.core import compiled
from constrint.model.encode import OPERATIONS

CODE = {name: place for place, name in enumerate(OPERATIONS)}
VAR, ONE = (CODE["var"], 0, 0), (CODE["const"], 0, 1)
EQUAL = (*VAR, *ONE, CODE["=="], 2, 0)

pytestmark = pytest.mark.skipif(compiled is None, reason="the compiled core was not built")


@pytest.mark.parametrize(
    "expression",
    [
        (CODE["truth"], 0, 0),
        (*VAR, CODE["truth"], 1, 0),
        (*EQUAL, *EQUAL, CODE["truth"], 2, 0),
        (CODE["element"], 0, 0),
        (*VAR, CODE["element"], 1, 0),
        (*VAR, *EQUAL, CODE["element"], 2, 0),
        (CODE["bitand"], 0, 0),
        (*VAR, *EQUAL, CODE["bitxor"], 2, 0),
    ],
)
def test_malformed_expressions_are_declined(expression: tuple[int, ...]) -> None:
    assert compiled is not None
    assert compiled.build([[0, 1, 2]], [[*expression, *ONE, CODE["=="], 2, 0]]) is None


@pytest.mark.parametrize(
    "condition",
    [
        (*VAR, CODE["table"], 1, 0),
        (*VAR, CODE["table"], 1, -1),
        (*VAR, CODE["table"], 1, 3, 1),
        (CODE["table"], 0, 1, 1),
        (*VAR, *ONE, CODE["table"], 2, 3, 1, 2, 3),
        (*EQUAL, CODE["table"], 1, 1, 1),
        (*VAR, CODE["table"], 1, 2**61, 1),
    ],
)
def test_malformed_tables_are_declined(condition: tuple[int, ...]) -> None:
    assert compiled is not None
    assert compiled.build([[0, 1, 2]], [list(condition)]) is None


def test_wellformed_ones_are_taken() -> None:
    assert compiled is not None
    for condition in (
        (*EQUAL, CODE["truth"], 1, 0, *ONE, CODE["=="], 2, 0),
        (*VAR, *ONE, *VAR, CODE["element"], 3, 0, *ONE, CODE["=="], 2, 0),
        (*VAR, *ONE, CODE["table"], 2, 4, 0, 1, 2, 1),
        (*VAR, *ONE, CODE["bitor"], 2, 0, *ONE, CODE["=="], 2, 0),
    ):
        model = compiled.build([[0, 1, 2]], [list(condition)])
        assert model is not None
        answer = compiled.enumerate(model, 10**6, 10**6, 0, None)
        assert answer is not None
        assert answer[0] in ("space", "infeasible")
