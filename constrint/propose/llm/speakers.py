"""Who answers questions: a language model within its budget, or the rules that are built in."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from constrint.propose.llm.answer import Answer, Question, Speaker, Usage, estimated_tokens
from constrint.propose.llm.budget import Spending
from constrint.propose.llm.client import ModelClient
from constrint.propose.llm.prompt import judging, proposing, texts, writing
from constrint.propose.records import Judge, Proposer, Reply


class ModelSpeaker:
    """A language model.

    Args:
        client: Asks it.
        spending: What may be spent; whoever asks adds what was.
        left_s: Seconds that are left of the run; None for no limit.
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

    def answer(self, question: Question) -> Answer:
        """What the model says; nothing is asked that the budget does not allow."""
        evidence = question.evidence
        if evidence is not None:
            messages = judging(question.facts, evidence)
        else:
            messages = proposing(question.facts) if question.facts.kernels else writing(question.facts)
        most = self._client.endpoint.max_reply_tokens
        room, why = self._spending.reply_tokens(estimated_tokens(texts(messages)), most)
        if not room:
            return Answer(fault="spent", message=why)
        return self._client.ask(messages, room, self._left_s())


class BuiltInSpeaker:
    """Rules that propose and judge. What they say is read like a model's reply.

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

    def answer(self, question: Question) -> Answer:
        """What the rules say."""
        if question.evidence is not None:
            return Answer(text=msgspec.json.encode(self._judge.judge(question.evidence)).decode(), usage=Usage())
        reply = Reply(proposals=tuple(self._proposer.propose(question.facts)))
        return Answer(text=msgspec.json.encode(reply).decode())


class TimedSpeaker:
    """Another speaker for as long as there is time.

    Args:
        speaker: Who answers.
        end: When the time is up, by the monotonic clock.
        budget_s: The time that there was, which is said then.
    """

    def __init__(self, speaker: Speaker, end: float, budget_s: float) -> None:
        self._speaker, self._end, self._budget_s = speaker, end, budget_s
        self.name, self.host = speaker.name, speaker.host

    def answer(self, question: Question) -> Answer:
        """What the other one says, or that the time is up."""
        if time.monotonic() > self._end:
            return Answer(fault="spent", message=f"the time of {self._budget_s:g} s is up")
        return self._speaker.answer(question)
