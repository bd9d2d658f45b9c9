"""Whether chances are right: as many events as they add up to, within what chance alone allows, and told apart well."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

#: How often a check of right chances fails by chance alone: one run in ten thousand.
ERROR_RATE = 1e-4


def distribution(chances: Iterable[float]) -> NDArray[np.float64]:
    """The probability of every number of events, when each has its own chance."""
    found = np.ones(1)
    for chance in chances:
        found = np.append(found * (1 - chance), 0.0) + np.append(0.0, found * chance)
    return found


def tails(chances: Iterable[float], events: int) -> tuple[float, float]:
    """The probabilities of so many events or fewer, and of so many or more."""
    of = distribution(chances)
    return float(of[: events + 1].sum()), float(of[events:].sum())


def check_count(chances: Sequence[float], events: Sequence[bool], error_rate: float = ERROR_RATE) -> None:
    """Fail where so few, or so many, events are all but impossible if the chances are right."""
    number = int(np.sum(np.asarray(events, dtype=bool)))
    fewer, more = tails(chances, number)
    text = f"{number} of {len(chances)} where {sum(chances):.1f} were expected"
    assert fewer >= error_rate / 2, f"too few: {text}, p = {fewer:.1e}"
    assert more >= error_rate / 2, f"too many: {text}, p = {more:.1e}"


def bound(number: int, events: int, expected: float) -> float:
    """At most the probability of a number of events so far from the expected one, whatever the single chances are.

    This is Chernoff's bound; of all chances with the same mean, equal ones have the widest distribution (Hoeffding).
    """
    share, mean = events / number, min(max(expected / number, 1e-9), 1 - 1e-9)
    divergence = sum(part * np.log(part / right) for part, right in ((share, mean), (1 - share, 1 - mean)) if part > 0)
    return float(np.exp(-number * divergence))


def log_loss(chances: Sequence[float], events: Sequence[bool]) -> float:
    """Mean of -ln of the chance that was given to what came true."""
    p, y = np.clip(np.asarray(chances), 1e-6, 1 - 1e-6), np.asarray(events, dtype=bool)
    return float(-np.log(np.where(y, p, 1 - p)).mean())


def rate_loss(events: Sequence[bool]) -> float:
    """The least log loss of one chance for all: the share of events."""
    return entropy(float(np.mean(np.asarray(events, dtype=bool))))


def entropy(share: float) -> float:
    """The log loss of a share that is given as the chance of all."""
    return float(-sum(part * np.log(part) for part in (share, 1 - share) if part > 0))
