"""What questions to a language model may cost, in tokens and in money, and what they have cost."""

from __future__ import annotations

from dataclasses import dataclass

from constrint.propose.llm.answer import Usage

#: Tokens of a reply below which asking is of no use.
LEAST_REPLY = 256
PER_MILLION = 1e-6


@dataclass(frozen=True)
class Prices:
    """Dollars for a million tokens."""

    per_million_input: float = 0.0
    per_million_output: float = 0.0

    def of(self, usage: Usage) -> float:
        """Dollars that a question took."""
        told = usage.input_tokens * self.per_million_input + usage.output_tokens * self.per_million_output
        return told * PER_MILLION


@dataclass
class Spending:
    """Counts what was spent against what may be.

    Args:
        max_tokens: Tokens of all questions and replies; None without a limit.
        max_dollars: Money for the same; None without a limit.
        prices: What a token costs.
    """

    max_tokens: int | None = None
    max_dollars: float | None = None
    prices: Prices = Prices()
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
        return self.prices.of(Usage(input_tokens=self.input_tokens, output_tokens=self.output_tokens))

    def add(self, usage: Usage) -> None:
        """Count a question; what an endpoint tells less than nothing of counts as nothing."""
        self.input_tokens += max(0, usage.input_tokens)
        self.output_tokens += max(0, usage.output_tokens)
        self.is_estimated |= usage.is_estimated

    def reply_tokens(self, question_tokens: int, most: int) -> tuple[int, str]:
        """Tokens that a reply may have, and why there may be none.

        Args:
            question_tokens: What the question takes, estimated.
            most: What a reply may have at most, whatever is left.
        """
        room, why = most, ""
        if self.max_tokens is not None and self.max_tokens - self.tokens - question_tokens < room:
            room = self.max_tokens - self.tokens - question_tokens
            why = f"of {self.max_tokens:,} tokens {self.tokens:,} are spent"
        if self.max_dollars is not None and self.prices.per_million_output > 0:
            left = self.max_dollars - self.dollars - question_tokens * self.prices.per_million_input * PER_MILLION
            affordable = int(left / (self.prices.per_million_output * PER_MILLION))
            if affordable < room:
                room, why = affordable, f"of ${self.max_dollars:g} ${self.dollars:.4f} are spent"
        if room < LEAST_REPLY:
            return 0, f"{why}, and the next question takes about {question_tokens:,} tokens before any reply"
        return room, ""
