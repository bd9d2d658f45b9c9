"""Who answers in a run: a model within its budget, built-in rules, or a transcript; and who writes it down."""

from __future__ import annotations

import time

from constrint.cli.propose.asked import Asked
from constrint.cli.propose.progress import say
from constrint.propose.builtin import BuiltInProposer
from constrint.propose.judge import RuleJudge
from constrint.propose.llm.answer import Speaker
from constrint.propose.llm.budget import Prices, Spending
from constrint.propose.llm.client import ModelClient
from constrint.propose.llm.endpoint import KEY_VARIABLE, Endpoint
from constrint.propose.llm.speakers import BuiltInSpeaker, ModelSpeaker, TimedSpeaker
from constrint.propose.llm.transcript import SCHEMA, Header, recorded, replayed
from constrint.propose.resolve import Resolver
from constrint.tune.tuner import new_run


class Speaking:
    """Finds who answers for each workload of a run; close it.

    Args:
        asked: The options.
        gpu: The GPU's name.
        kernel, workload: What is asked about, by which transcripts are told apart.
        otherwise: Who answers where no model is named.
    """

    def __init__(self, asked: Asked, gpu: str, kernel: str, workload: str, otherwise: str) -> None:
        self._asked, self._started = asked, time.monotonic()
        limits = asked.limits
        prices = Prices(*limits.prices) if limits.prices else Prices()
        self.spending = Spending(limits.tokens, limits.dollars, prices)
        self._endpoint = endpoint_of(asked)
        self._client = None if self._endpoint is None else ModelClient(self._endpoint)
        self.header = self._new_header(gpu, kernel, workload, otherwise)
        self._transcript = None
        if asked.replay is not None:
            self._transcript = replayed(asked.replay, self.header, say)
        elif asked.transcript is not None:
            self._transcript = recorded(asked.transcript, self.header, resume=asked.resume, note=say)
        if self._transcript is not None:
            self.header = self._transcript.header

    def speaker(self, otherwise: Speaker) -> Speaker:
        """Who answers for one workload: the model, a transcript, or who knows the workload where neither is named."""
        if self._asked.replay is not None:
            assert self._transcript is not None
            return self._transcript
        speaker = otherwise
        if self._client is not None:
            speaker = ModelSpeaker(self._client, self.spending, self.left_s)
        seconds = self._asked.limits.seconds
        if seconds is not None:
            speaker = TimedSpeaker(speaker, self._started + seconds, seconds)
        return speaker if self._transcript is None else self._transcript.speaking(speaker)

    def left_s(self) -> float | None:
        """Seconds that are left of the run; None without a limit."""
        seconds = self._asked.limits.seconds
        return None if seconds is None else max(0.0, self._started + seconds - time.monotonic())

    def close(self) -> None:
        """Close the transcript."""
        if self._transcript is not None:
            self._transcript.close()

    def _new_header(self, gpu: str, kernel: str, workload: str, otherwise: str) -> Header:
        """What a new transcript says of the run."""
        asked, endpoint = self._asked, self._endpoint
        return Header(
            schema=SCHEMA,
            run=new_run(),
            proposer=otherwise if endpoint is None else endpoint.model,
            host="" if endpoint is None else endpoint.host,
            gpu=gpu,
            kernel=kernel,
            workload=workload,
            rounds=asked.limits.rounds,
            trials=asked.limits.trials,
            judge=asked.model is not None and asked.model.judges,
        )


def endpoint_of(asked: Asked) -> Endpoint | None:
    """The endpoint that is named; None where none is."""
    model = asked.model
    if model is None:
        return None
    return Endpoint(model.url, model.name, model.key_variable or KEY_VARIABLE, model.answer_s)


def built_in(resolver: Resolver) -> BuiltInSpeaker:
    """The rules that propose and judge without a model."""
    return BuiltInSpeaker(BuiltInProposer(resolver), RuleJudge())
