"""Times are medians of rounds that take turns; on the CPU by the clock."""

from __future__ import annotations

import itertools
import time

import pytest

from constrint.tune.measure import Measurement, Timer

TIMER = Timer("cpu")


def test_the_spread_leaves_out_the_extremes() -> None:
    figure = Measurement.of([100.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    assert (figure.median_s, figure.spread_s, figure.num_rounds) == (3.5, 3.0, 6)


@pytest.mark.parametrize("how", ["cold", "from_python", "warm"])
def test_calls_take_turns_and_the_slower_one_takes_longer(how: str) -> None:
    made: list[str] = []

    def slow() -> None:
        made.append("slow")
        time.sleep(2e-3)

    def quick() -> None:
        made.append("quick")

    figures = TIMER.warm([slow, quick], 2e-3) if how == "warm" else getattr(TIMER, how)([slow, quick], 7)
    assert figures[0].median_s >= 2e-3
    assert all(figure.num_rounds == (3 if how == "warm" else 7) for figure in figures)
    changes = sum(a != b for a, b in itertools.pairwise(made))
    assert changes >= 3


def test_a_graph_of_repeats_makes_the_call_as_often() -> None:
    made: list[int] = []
    graph = TIMER.graph(lambda: made.append(1), 5)
    graph()
    assert len(made) == 5
