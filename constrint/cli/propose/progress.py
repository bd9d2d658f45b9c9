"""How far it is, on stderr, line by line; and what was proposed and came of it, into the store as it comes."""

from __future__ import annotations

import sys

from constrint.answers.trial import time_text
from constrint.propose.rounds.configs import Round, Tried
from constrint.propose.rounds.provenance import Provenance
from constrint.tune.store.store import RecordStore

#: Characters of what others say that are printed in a line.
LONGEST = 1000


class Progress:
    """Hears the rounds of one workload.

    Args:
        provenance: Who proposes for what.
        store: Where it is kept.
    """

    def __init__(self, provenance: Provenance, store: RecordStore) -> None:
        self._provenance, self._store = provenance, store

    def begun(self, one: Round) -> None:
        """Say what was proposed, and why not all of it is tried."""
        counts = f"{len(one.proposals)} proposals, {len(one.tried)} candidates"
        say(f"round {one.number + 1}: {counts}" + (f"; {one.answer.message}" if one.answer.message else ""))
        for _, refusal in one.refusals:
            where = f"{refusal.where}: " if refusal.where else ""
            say(f"  refused: {where}{refusal.message.splitlines()[0]}")
        self._store.add_proposals(self._provenance.of_refusals(one))

    def finished(self, one: Round, tried: Tried) -> None:
        """Say how far a candidate came."""
        self._store.add_proposals([self._provenance.of_candidate(one, tried)])
        last = tried.gates[-1]
        came = f"{time_text(last.seconds)}{' modelled' if last.is_modelled else ''}" if last.seconds else last.message
        passed = "passed" if last.passed else "failed"
        say(f"  {tried.candidate.kernel} {config_text(tried)}: {passed} {last.gate}: {came}")

    def profiled(self, one: Round, tried: Tried) -> None:
        """Keep what the judge says now."""
        self._store.add_proposals([self._provenance.of_candidate(one, tried)], is_newer=True)
        say(f"  {tried.candidate.kernel} {config_text(tried)}: profiled, {len(tried.metrics)} metrics")


def config_text(tried: Tried) -> str:
    """`tile_m=128 tile_n=64`."""
    return " ".join(f"{name}={value}" for name, value in tried.candidate.config.items())


def plain(text: str) -> str:
    """Text of others in one line: what is no printable character is escaped, and the end of a long one left out."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:LONGEST])
    return shown if len(text) <= LONGEST else f"{shown}..."


def say(text: str) -> None:
    """Print a line about the run."""
    sys.stderr.write(plain(text) + "\n")
    sys.stderr.flush()
