"""What came of one question to a proposer: its text, or what went wrong. It is what a transcript keeps."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import msgspec

from constrint.propose.records import Evidence, Facts

#: What went wrong: `late`, `too_long`, `broken` (no answer of the protocol), `busy` (HTTP 429 and 5xx), `unreachable`;
#: after `refused` (a wrong key, an unknown model) and `spent` (the budget) asking again is of no use.
Fault: TypeAlias = Literal["", "late", "too_long", "broken", "busy", "unreachable", "refused", "spent"]
Purpose: TypeAlias = Literal["propose", "judge"]
#: Faults after which nobody is asked any more.
FINAL: tuple[Fault, ...] = ("refused", "spent")
#: Characters of a token, counted low so that what is not told is not underestimated.
TOKEN_CHARS = 3


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One message of a conversation."""

    role: Literal["system", "user"]
    content: str


class Usage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tokens that a question took; estimated from the length of the text where the endpoint does not say."""

    input_tokens: int = 0
    output_tokens: int = 0
    is_estimated: bool = False


class Answer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What came of a question.

    Args:
        text: What was said.
        fault: Why there is nothing; empty where there is.
        message: The same in a sentence; or what is worth knowing of the text, such as that it was cut.
        usage: The tokens that it took.
    """

    text: str = ""
    fault: Fault = ""
    message: str = ""
    usage: Usage = Usage()


@dataclass(frozen=True)
class Question:
    """What is asked: what to try in a round, or what to say of a candidate.

    Args:
        facts: What is known.
        evidence: The candidate that is judged; None where proposals are wanted.
    """

    facts: Facts
    evidence: Evidence | None = None

    @property
    def purpose(self) -> Purpose:
        """What the answer is for."""
        return "propose" if self.evidence is None else "judge"

    @property
    def digest(self) -> str:
        """What tells it from other questions."""
        return hashlib.sha256(msgspec.json.encode([self.facts, self.evidence])).hexdigest()[:32]


class Speaker(Protocol):
    """Answers questions: a language model, rules that are built in, or a transcript."""

    @property
    def name(self) -> str:
        """Its name, which is kept with what it proposed."""

    @property
    def host(self) -> str:
        """The host of the endpoint that answers; empty where there is none."""

    def answer(self, question: Question) -> Answer:
        """The answer as text: JSON of a `Reply`, or of a `Verdict`."""


def estimated_tokens(texts: Iterable[str]) -> int:
    """Tokens that texts have at most, roughly."""
    return sum(-(-len(text) // TOKEN_CHARS) for text in texts)
