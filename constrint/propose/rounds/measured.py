"""Rounds on a GPU: for the tuner they are a search, which proposes what passed the first two gates.

The tuner checks and times what it is given, survives whatever it does, keeps every record, times the best of all rounds
once more in turn, and publishes the winner. Each round's candidates are checked on inputs that are drawn after the
round was proposed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from constrint.propose.resolve import Key, key_of
from constrint.propose.rounds.configs import Rounds, Tried
from constrint.tune.search.interface import Proposal
from constrint.tune.session import Session, Tuned
from constrint.tune.store.record import TuningRecord

#: Bits of a seed of random inputs.
SEED_BITS = 31


class ProposedSearch:
    """What the tuner asks, and whom it tells what came of it: it is a search and a listener.

    Args:
        rounds: The rounds.
        draw_seed: Draws a seed for the inputs of a round.
    """

    def __init__(self, rounds: Rounds, draw_seed: Callable[[], int] = lambda: secrets.randbits(SEED_BITS)) -> None:
        self._rounds, self._draw_seed = rounds, draw_seed
        self._waiting: list[Tried] = []
        self._open: dict[Key, Tried] = {}
        self._seed = 0

    def ask(self, number: int) -> list[Proposal]:
        """Up to so many candidates; a new round begins when all of the last one are known."""
        while not self._waiting and not self._open and not self._rounds.is_through:
            self._waiting = self._rounds.next()
            self._seed = self._draw_seed()
        given, self._waiting = self._waiting[:number], self._waiting[number:]
        self._open |= {tried.key: tried for tried in given}
        return [self._proposal(tried) for tried in given]

    def tell(self, proposal: Proposal, seconds: float | None) -> None:
        """A time says less than the record, which `tried` hears."""

    def started(self, slot: int, session: Session) -> None:
        """Nothing follows from it."""

    def tried(self, slot: int, session: Session, record: TuningRecord, left_s: float | None) -> None:
        """What came of a candidate; figures of finalists are not asked for again."""
        config = {name: value for name, value in record.config.items() if isinstance(value, int)}
        tried = self._open.pop(key_of(record.kernel, config), None)
        if tried is not None:
            self._rounds.hear(tried, record)

    def finished(self, slot: int, tuned: Tuned) -> None:
        """Nothing follows from it."""

    def _proposal(self, tried: Tried) -> Proposal:
        candidate = tried.candidate
        told = f"round {len(self._rounds.rounds)} of {tried.origin}"
        return Proposal(candidate.kernel, dict(candidate.config), candidate.predicted_s, told, self._seed)
