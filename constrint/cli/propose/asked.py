"""What `constrint propose` was asked for, checked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from constrint.cli.options import Choice
from constrint.cli.output import Output


@dataclass(frozen=True)
class Model:
    """The language model that is named.

    Args:
        url: The endpoint.
        name: The model's name there.
        key_variable: The variable that holds the key; None for the usual one.
        answer_s: Seconds that a reply may take.
        judges: Whether it judges, too.
    """

    url: str
    name: str
    key_variable: str | None
    answer_s: float
    judges: bool


@dataclass(frozen=True)
class Limits:
    """How much is tried and spent: rounds, candidates of a round, seconds, tokens, dollars, dollars for a million."""

    rounds: int
    trials: int
    seconds: float | None
    tokens: int | None
    dollars: float | None
    prices: tuple[float, float] | None


@dataclass(frozen=True)
class Asked:
    """All options."""

    choice: Choice
    model: Model | None
    limits: Limits
    transcript: Path | None
    replay: Path | None
    resume: bool
    is_modelled: bool
    store: str | None
    timeout_s: float
    device: str
    has_profile: bool
    output: Output
