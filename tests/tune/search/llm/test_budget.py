"""What questions may cost: the limits hold before a question is asked, not only afterwards."""

from __future__ import annotations

import pytest

from constrint.tune.search.llm.answer import LEAST_REPLY, Spending, Usage


def test_without_limits_a_reply_has_what_the_endpoint_allows() -> None:
    assert Spending().reply_tokens(10**9, 8192) == (8192, "")


def test_tokens_of_question_and_reply_stay_within_the_limit() -> None:
    spending = Spending(max_tokens=10_000)
    spending.add(Usage(input_tokens=4000, output_tokens=1000))
    room, _ = spending.reply_tokens(3000, 8192)
    assert room == 10_000 - 5000 - 3000


def test_where_too_little_is_left_the_reason_has_the_figures() -> None:
    spending = Spending(max_tokens=5000)
    spending.add(Usage(input_tokens=3000, output_tokens=500))
    room, why = spending.reply_tokens(1500 - LEAST_REPLY + 1, 8192)
    assert room == 0
    assert "5,000" in why
    assert "3,500" in why


def test_money_is_counted_by_the_prices() -> None:
    spending = Spending(max_dollars=0.02, prices=(2.0, 10.0))
    spending.add(Usage(input_tokens=1000, output_tokens=1000))
    assert spending.dollars == pytest.approx(0.012)
    room, _ = spending.reply_tokens(1000, 8192)
    assert room == int((0.02 - 0.012 - 0.002) / 10e-6)
    assert room * 10e-6 + 0.002 + spending.dollars <= 0.02
    spending.add(Usage(input_tokens=0, output_tokens=600))
    assert spending.reply_tokens(1000, 8192)[0] == 0


def test_an_endpoint_cannot_give_tokens_back() -> None:
    spending = Spending(max_tokens=1000)
    spending.add(Usage(input_tokens=-(10**9), output_tokens=-5))
    assert spending.tokens == 0
