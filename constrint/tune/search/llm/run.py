"""One run: its conversation with a speaker, and the search of each workload, which share budget, store and compiler."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from constrint.select.compiled import Compile
from constrint.tune.search.interface import SearchTask
from constrint.tune.search.llm.answer import PromptRequest, Response, Speaker, Spending, estimated_tokens
from constrint.tune.search.llm.client import ModelClient
from constrint.tune.search.llm.endpoint import Endpoint
from constrint.tune.search.llm.gates import CompileGate
from constrint.tune.search.llm.prompt import messages_of
from constrint.tune.search.llm.provenance import ProposalLog, blank_record
from constrint.tune.search.llm.records import PredictedConfig
from constrint.tune.search.llm.resolve import Resolver
from constrint.tune.search.llm.rules import BuiltInProposer
from constrint.tune.search.llm.search import Effort, LlmSearch
from constrint.tune.search.llm.transcript import Header, Transcript, recorded, replayed
from constrint.tune.store.store import RecordStore


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
        self.spending, self.budget_s, self._started = spending, budget_s, time.monotonic()
        self.client = None if endpoint is None else ModelClient(endpoint)
        self.is_replayed = replay is not None
        self._transcript: Transcript | None = None
        if replay is not None:
            self._transcript = replayed(replay, header, note)
        elif transcript is not None:
            self._transcript = recorded(transcript, header, resume=resume, note=note)
        self.header = header if self._transcript is None else self._transcript.header

    def speaker(self, otherwise: Speaker) -> Speaker:
        """The speaker of one workload: a replayed transcript, the model, or `otherwise` where neither is named."""
        if self._transcript is None:
            return _WithinBudget(self, otherwise)
        return self._transcript if self.is_replayed else self._transcript.speaking(_WithinBudget(self, otherwise))

    def left_s(self) -> float | None:
        """Seconds left of the run; None for no limit."""
        return None if self.budget_s is None else max(0.0, self._started + self.budget_s - time.monotonic())

    def close(self) -> None:
        """Close the transcript."""
        if self._transcript is not None:
            self._transcript.close()


class _WithinBudget:
    """The model, or another speaker where none is named, until the time or the tokens of a run are spent."""

    def __init__(self, talk: Conversation, otherwise: Speaker) -> None:
        self._talk, self._otherwise, client = talk, otherwise, talk.client
        self.name = otherwise.name if client is None else client.endpoint.model
        self.host = otherwise.host if client is None else client.endpoint.host

    def answer(self, question: PromptRequest) -> Response:
        """The answer, or the fault `spent`; the caller adds its usage to the budget."""
        talk, left_s = self._talk, self._talk.left_s()
        if left_s == 0.0:
            return Response(fault="spent", message=f"the time of {talk.budget_s:g} s is up")
        if talk.client is None:
            return self._otherwise.answer(question)
        messages = messages_of(question)
        most = talk.client.endpoint.max_reply_tokens
        room, why = talk.spending.reply_tokens(estimated_tokens(one.content for one in messages), most)
        return talk.client.ask(messages, room, left_s) if room else Response(fault="spent", message=why)


@dataclass(frozen=True)
class LlmRun:
    """Makes the searches of a run.

    Args:
        conversation: The speaker, the budget and the transcript.
        store: Keeps proposals with their gates.
        compile_all: Compiles candidates for a GPU that need not be present.
        effort: Bounds of each search.
        say: Prints a line of progress.
        draw_seed: Draws the seed of a round's inputs; a random one where it is None.
    """

    conversation: Conversation
    store: RecordStore
    compile_all: Compile
    effort: Effort
    say: Callable[[str], None]
    draw_seed: Callable[[], int | None] | None = None

    def search(
        self,
        task: SearchTask,
        profile: Callable[[PredictedConfig], Mapping[str, float]] | None = None,
    ) -> LlmSearch:
        """Make the search of a workload.

        Args:
            task: The workload and the GPU.
            profile: Takes metrics of a candidate; None without a profiler.
        """
        resolver, talk, work = Resolver(task), self.conversation, task.workload
        speaker = talk.speaker(BuiltInProposer(resolver))
        blank = blank_record(
            talk.header.run, speaker, work.operation, task.gpu.name, is_replayed=talk.is_replayed, dtype=work.dtype,
            sizes=dict(work.sizes), options=dict(work.options), fixed=dict(task.fixed),
        )  # fmt: skip
        return LlmSearch(
            resolver,
            speaker,
            CompileGate(task, self.compile_all),
            self.effort,
            spending=talk.spending,
            log=ProposalLog(blank, self.store, self.say),
            profile=profile,
            draw_seed=self.draw_seed,
        )
