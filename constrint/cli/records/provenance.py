"""Where a measurement came from: who proposed what was measured, as text and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from constrint.tune.store.proposals import ProposalRecord


def document_of(one: ProposalRecord) -> dict[str, Any]:
    """A proposal as JSON, with its id."""
    import msgspec

    told = msgspec.to_builtins(one)
    for name in ("proposal", "verdict"):
        told[name] = msgspec.json.decode(told[name]) if told[name] else None
    return {"id": one.id, **told}


def told_of(one: ProposalRecord) -> str:
    """Who proposed something, when and why, in a sentence."""
    at = f" at {one.host}" if one.host else ""
    how = " (from a transcript)" if one.is_replayed else ""
    because = f": {one.because}" if one.because else ""
    return f"{one.origin}{at}{how}, round {one.round + 1}{because}".encode("unicode_escape").decode()
