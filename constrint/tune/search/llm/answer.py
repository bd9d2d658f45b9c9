"""One question to a speaker and its answer, as a transcript keeps them; and the budget of tokens and money."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import msgspec

from constrint.tune.search.llm.records import CandidateEvidence, TaskFacts

#: `late`, `too_long`, `broken` (no answer of the protocol), `busy` (HTTP 429 and 5xx), `unreachable`; after `refused`
#: (a wrong key, an unknown model) and `spent` (the budget) a further question is of no use.
Fault: TypeAlias = Literal["", "late", "too_long", "broken", "busy", "unreachable", "refused", "spent"]
Purpose: TypeAlias = Literal["propose", "judge"]
#: Faults after which no question follows.
FINAL: tuple[Fault, ...] = ("refused", "spent")
#: Characters of a token, counted low so that an estimate errs upwards.
TOKEN_CHARS = 3
#: Tokens of a reply below which a question is of no use.
LEAST_REPLY = 256
PER_MILLION = 1e-6


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One message of a conversation."""

    role: Literal["system", "user"]
    content: str


class Usage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tokens of a question and its reply, estimated from the length of the text where the endpoint reports none."""

    input_tokens: int = 0
    output_tokens: int = 0
    is_estimated: bool = False


class Response(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The outcome of a question.

    Args:
        text: The reply.
        fault: The reason for which there is no reply; empty where there is one.
        message: The fault as a sentence, or a note on the text, such as that it was cut.
        usage: Tokens of the question and the reply.
    """

    text: str = ""
    fault: Fault = ""
    message: str = ""
    usage: Usage = Usage()


@dataclass(frozen=True)
class PromptRequest:
    """A request for proposals, or for a verdict on one candidate.

    Args:
        facts: The facts of the task so far.
        evidence: The candidate to judge; None where proposals are requested.
    """

    facts: TaskFacts
    evidence: CandidateEvidence | None = None

    @property
    def purpose(self) -> Purpose:
        """Kind of the answer."""
        return "propose" if self.evidence is None else "judge"

    @property
    def digest(self) -> str:
        """Hash of the contents, by which a transcript compares questions."""
        return hashlib.sha256(msgspec.json.encode([self.facts, self.evidence])).hexdigest()[:32]


class Speaker(Protocol):
    """Answers questions: a language model, the built-in rules, or a transcript."""

    @property
    def name(self) -> str:
        """Origin of its proposals in the store."""

    @property
    def host(self) -> str:
        """Host of the endpoint; empty without one."""

    def answer(self, question: PromptRequest) -> Response:
        """JSON of a `Reply`, or of a `Verdict`, as text; or a fault."""


def estimated_tokens(texts: Iterable[str]) -> int:
    """Upper estimate of the tokens in texts."""
    return sum(-(-len(text) // TOKEN_CHARS) for text in texts)


@dataclass
class Spending:
    """Tokens and money spent, against their limits.

    Args:
        max_tokens: Limit of all questions and replies; None for no limit.
        max_dollars: Limit of their cost; None for no limit.
        prices: Dollars for a million tokens of questions, and of replies.
    """

    max_tokens: int | None = None
    max_dollars: float | None = None
    prices: tuple[float, float] = (0.0, 0.0)
    input_tokens: int = 0
    output_tokens: int = 0
    is_estimated: bool = False

    @property
    def tokens(self) -> int:
        """Tokens so far."""
        return self.input_tokens + self.output_tokens

    @property
    def dollars(self) -> float:
        """Dollars so far."""
        return (self.input_tokens * self.prices[0] + self.output_tokens * self.prices[1]) * PER_MILLION

    def add(self, usage: Usage) -> None:
        """Count a question; negative counts of an endpoint are taken as zero."""
        self.input_tokens += max(0, usage.input_tokens)
        self.output_tokens += max(0, usage.output_tokens)
        self.is_estimated |= usage.is_estimated

    def reply_tokens(self, question_tokens: int, most: int) -> tuple[int, str]:
        """Most tokens of the next reply, and the reason where it is zero.

        Args:
            question_tokens: Estimated tokens of the question.
            most: Limit of a reply whatever the budget.
        """
        room, why = most, ""
        if self.max_tokens is not None and self.max_tokens - self.tokens - question_tokens < room:
            room = self.max_tokens - self.tokens - question_tokens
            why = f"of {self.max_tokens:,} tokens {self.tokens:,} are spent"
        if self.max_dollars is not None and self.prices[1] > 0:
            left = self.max_dollars - self.dollars - question_tokens * self.prices[0] * PER_MILLION
            affordable = int(left / (self.prices[1] * PER_MILLION))
            if affordable < room:
                room, why = affordable, f"of ${self.max_dollars:g} ${self.dollars:.4f} are spent"
        if room < LEAST_REPLY:
            return 0, f"{why}, and the next question takes about {question_tokens:,} tokens before any reply"
        return room, ""
