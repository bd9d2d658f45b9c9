"""The speakers of a run: a language model within its budget, the built-in rules, or a transcript.

`Conversation` decides which of them answers, counts the budget, and keeps the transcript.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from constrint.tune.search.llm.answer import PromptRequest, Response, Speaker, Spending, Usage, estimated_tokens
from constrint.tune.search.llm.client import ModelClient
from constrint.tune.search.llm.endpoint import Endpoint
from constrint.tune.search.llm.judge import RuleJudge
from constrint.tune.search.llm.prompt import judging, proposing, texts, writing
from constrint.tune.search.llm.records import Judge, Proposer, Reply
from constrint.tune.search.llm.resolve import Resolver
from constrint.tune.search.llm.rules import BuiltInProposer
from constrint.tune.search.llm.transcript import Header, Transcript, recorded, replayed


class ModelSpeaker:
    """A language model.

    Args:
        client: Asks the model.
        spending: The budget; the caller adds the usage of each answer.
        left_s: Seconds left of the run; None for no limit.
    """

    def __init__(self, client: ModelClient, spending: Spending, left_s: Callable[[], float | None]) -> None:
        self._client, self._spending, self._left_s = client, spending, left_s

    @property
    def name(self) -> str:
        """The model's name."""
        return self._client.endpoint.model

    @property
    def host(self) -> str:
        """The endpoint's host."""
        return self._client.endpoint.host

    def answer(self, question: PromptRequest) -> Response:
        """The model's answer, or the fault `spent` where the budget does not allow the question."""
        evidence = question.evidence
        if evidence is not None:
            messages = judging(question.facts, evidence)
        else:
            messages = proposing(question.facts) if question.facts.kernels else writing(question.facts)
        most = self._client.endpoint.max_reply_tokens
        room, why = self._spending.reply_tokens(estimated_tokens(texts(messages)), most)
        if not room:
            return Response(fault="spent", message=why)
        return self._client.ask(messages, room, self._left_s())


class BuiltInSpeaker:
    """Rules that propose and judge. Their answers are parsed like a model's reply.

    Args:
        proposer: Proposes.
        judge: Judges.
    """

    host = ""

    def __init__(self, proposer: Proposer, judge: Judge) -> None:
        self._proposer, self._judge = proposer, judge

    @property
    def name(self) -> str:
        """The proposer's name."""
        return self._proposer.name

    def answer(self, question: PromptRequest) -> Response:
        """The answer of the rules."""
        if question.evidence is not None:
            return Response(text=msgspec.json.encode(self._judge.judge(question.evidence)).decode(), usage=Usage())
        reply = Reply(proposals=tuple(self._proposer.propose(question.facts)))
        return Response(text=msgspec.json.encode(reply).decode())


def built_in(resolver: Resolver) -> BuiltInSpeaker:
    """The rules that propose and judge without a model."""
    return BuiltInSpeaker(BuiltInProposer(resolver), RuleJudge())


class TimedSpeaker:
    """Another speaker until a deadline.

    Args:
        speaker: Answers.
        end: The deadline, by the monotonic clock.
        budget_s: The whole time of the run, for the message.
    """

    def __init__(self, speaker: Speaker, end: float, budget_s: float) -> None:
        self._speaker, self._end, self._budget_s = speaker, end, budget_s
        self.name, self.host = speaker.name, speaker.host

    def answer(self, question: PromptRequest) -> Response:
        """The other speaker's answer, or the fault `spent` after the deadline."""
        if time.monotonic() > self._end:
            return Response(fault="spent", message=f"the time of {self._budget_s:g} s is up")
        return self._speaker.answer(question)


class Conversation:
    """All questions of a run: the speaker of each workload, one budget, one transcript. Close it.

    Args:
        header: Head of a new transcript.
        endpoint: The model's endpoint; None where the built-in rules or a transcript answer.
        spending: The budget of tokens and money.
        budget_s: Seconds of the run; None for no limit.
        transcript: File that questions and answers are written to.
        replay: Transcript that answers in place of a model.
        resume: Whether `transcript` continues an earlier run's file.
        note: Prints a remark on a transcript.

    Raises:
        UsageError: When the `openai` package is missing, or a transcript cannot be used.
    """

    def __init__(
        self,
        header: Header,
        endpoint: Endpoint | None,
        spending: Spending,
        *,
        budget_s: float | None = None,
        transcript: Path | None = None,
        replay: Path | None = None,
        resume: bool = False,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.spending, self._budget_s, self._started = spending, budget_s, time.monotonic()
        self._client = None if endpoint is None else ModelClient(endpoint)
        self.is_replayed = replay is not None
        self._transcript: Transcript | None = None
        if replay is not None:
            self._transcript = replayed(replay, header, note)
        elif transcript is not None:
            self._transcript = recorded(transcript, header, resume=resume, note=note)
        self.header = header if self._transcript is None else self._transcript.header

    def speaker(self, otherwise: Speaker) -> Speaker:
        """The speaker of one workload: a replayed transcript, the model, or `otherwise` where neither is named."""
        if self.is_replayed and self._transcript is not None:
            return self._transcript
        speaker = otherwise
        if self._client is not None:
            speaker = ModelSpeaker(self._client, self.spending, self.left_s)
        if self._budget_s is not None:
            speaker = TimedSpeaker(speaker, self._started + self._budget_s, self._budget_s)
        return speaker if self._transcript is None else self._transcript.speaking(speaker)

    def left_s(self) -> float | None:
        """Seconds left of the run; None for no limit."""
        return None if self._budget_s is None else max(0.0, self._started + self._budget_s - time.monotonic())

    def close(self) -> None:
        """Close the transcript."""
        if self._transcript is not None:
            self._transcript.close()
