"""Rounds of source: a speaker writes kernels for a task, and each goes through the gates of source.

What runs is `examine` of `constrint/propose/source`, in its sandbox. Here nothing of a candidate is executed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from constrint.errors import UsageError
from constrint.hwmodels import GpuModel
from constrint.model.text.lexer import read_text
from constrint.propose import Examined, Task
from constrint.tune.search.llm.answer import FINAL, PromptRequest, Response, Speaker, Spending
from constrint.tune.search.llm.facts import limits_of
from constrint.tune.search.llm.judge import judge
from constrint.tune.search.llm.parse import parse_reply
from constrint.tune.search.llm.records import (
    MAX_PROPOSALS,
    MAX_SOURCE,
    CandidateEvidence,
    KernelLaunch,
    PredictedConfig,
    ProposalRefusal,
    Reply,
    SourceProposal,
    TaskFacts,
    Verdict,
)

#: Takes a candidate through the gates of source.
Examine = Callable[[SourceProposal], Examined]


@dataclass
class Written:
    """A written candidate, its gates, and the verdict; None for a sound one that was not timed."""

    proposal: SourceProposal
    origin: str
    examined: Examined
    verdict: Verdict | None


@dataclass
class SourceRound:
    """One round: the answer, its refusals, and the candidates."""

    number: int
    answer: Response
    refusals: list[ProposalRefusal] = field(default_factory=list)
    written: list[Written] = field(default_factory=list)


class SourceWatcher(Protocol):
    """Follows the rounds."""

    def begun(self, one: SourceRound, number: int) -> None:
        """A round begins, with `number` candidates."""

    def finished(self, one: SourceRound, written: Written) -> None:
        """A candidate reached its last gate."""


class SourceRounds:
    """The rounds of one task.

    Args:
        task: The task to write for.
        gpu: The GPU.
        speaker: Writes.
        examine: The gates.
        rounds: Most questions.
        trials: Most candidates of a round.
        spending: Counts tokens.
        watcher: Follows the rounds.
    """

    def __init__(
        self,
        task: Task,
        gpu: GpuModel,
        speaker: Speaker,
        examine: Examine,
        *,
        rounds: int = 5,
        trials: int = 4,
        spending: Spending | None = None,
        watcher: SourceWatcher | None = None,
    ) -> None:
        self.task, self._gpu, self._speaker, self._examine = task, gpu, speaker, examine
        self._num_rounds, self._trials, self._watcher = rounds, trials, watcher
        self.spending = spending or Spending()
        self.rounds: list[SourceRound] = []
        self.stopped = ""

    @property
    def written(self) -> list[Written]:
        """All candidates, in the order in which they were examined."""
        return [written for one in self.rounds for written in one.written]

    @property
    def best(self) -> Written | None:
        """The fastest correct and honest candidate; the first one where none was timed."""
        sound = [written for written in self.written if written.examined.is_sound]
        return max(sound, key=lambda written: written.examined.score or 0.0, default=None)

    @property
    def facts(self) -> TaskFacts:
        """Facts of the next question."""
        last = self.rounds[-1] if self.rounds else None
        shown = [] if last is None else [written.proposal for written in last.written]
        best = self.best
        if best is not None and all(best.proposal is not one for one in shown):
            shown.insert(0, best.proposal)
        return TaskFacts(
            operation=self.task.name,
            workload=self.task.describe(),
            sizes={},
            dtype="",
            gpu=self._gpu.name,
            limits=limits_of(self._gpu, "bf16"),
            kernels=(),
            round=len(self.rounds),
            refusals=() if last is None else tuple(last.refusals),
            results=tuple(result for written in self.written for result in written.examined.results),
            verdicts=() if last is None else tuple(one.verdict for one in last.written if one.verdict is not None),
            sources=tuple(shown),
        )

    def run(self) -> None:
        """Run all rounds."""
        while not self.stopped and len(self.rounds) < self._num_rounds:
            facts = self.facts
            answer = self._speaker.answer(PromptRequest(facts))
            self.spending.add(answer.usage)
            if answer.fault in FINAL:
                self.stopped = answer.message
                return
            one = SourceRound(len(self.rounds), answer)
            self.rounds.append(one)
            proposals = self._read(one)
            if self._watcher:
                self._watcher.begun(one, len(proposals))
            for proposal in proposals:
                one.written.append(self._through(proposal))
                if self._watcher:
                    self._watcher.finished(one, one.written[-1])

    def _read(self, one: SourceRound) -> list[SourceProposal]:
        """The candidates of a reply, each once."""
        if one.answer.fault:
            one.refusals.append(ProposalRefusal(where="", message=one.answer.message))
            return []
        parsed = parse_reply(one.answer.text, ())
        one.refusals += parsed.refusals
        sources = {written.proposal.source for written in self.written}
        taken: list[SourceProposal] = []
        for number, proposal in enumerate(parsed.proposals):
            reason = ""
            if not isinstance(proposal, SourceProposal):
                reason = "source is asked for here, and nothing else."
            elif proposal.task != self.task.name:
                reason = f"the task is {self.task.name!r}, not {proposal.task!r}."
            elif proposal.source in sources:
                reason = "this very source was tried before."
            elif len(taken) >= self._trials:
                reason = f"left out: a round has {self._trials} candidates."
            elif isinstance(proposal, SourceProposal):
                sources.add(proposal.source)
                taken.append(proposal)
            if reason:
                one.refusals.append(ProposalRefusal(where=f"proposals[{number}]", message=reason))
        return taken

    def _through(self, proposal: SourceProposal) -> Written:
        examined = self._examine(proposal)
        written = Written(proposal, self._speaker.name, examined, None)
        if examined.is_sound and examined.speed_up is None:
            return written
        candidate = PredictedConfig(kernel=self.task.name, config={}, predicted_s=examined.results[-1].seconds or 0.0)
        best = self.best
        best_s = None if best is None else best.examined.results[-1].seconds
        evidence = CandidateEvidence(candidate=candidate, gates=examined.results, best_s=best_s)
        written.verdict = judge(evidence)
        return written


#: Prefix of the lines with the launches in a file of CUDA C++.
_STATED = "//!"


class _Launches(msgspec.Struct, forbid_unknown_fields=True):
    """The launches at the head of a file of CUDA C++."""

    launches: tuple[KernelLaunch, ...] = ()
    scratch: dict[str, str] = {}


class Files:
    """A speaker with candidates from files: all are proposed in the first round.

    Args:
        task: The task's name.
        paths: The files; `.cu` is CUDA C++, with its launches in lines `//!`.
        name: Name of their author.

    Raises:
        UsageError: When a file cannot be read, is too long, or there are too many.
    """

    host = ""

    def __init__(self, task: str, paths: Iterable[Path], name: str) -> None:
        self.name = name
        self.proposals: Sequence[SourceProposal] = [_from_file(task, path) for path in paths]
        if len(self.proposals) > MAX_PROPOSALS:
            raise UsageError(f"{len(self.proposals)} files of source; at most {MAX_PROPOSALS} are taken at once.")

    def answer(self, question: PromptRequest) -> Response:
        """All of them, then nothing."""
        if question.facts.round:
            return Response(fault="spent", message="all files were examined")
        return Response(text=msgspec.json.encode(Reply(proposals=tuple(self.proposals))).decode())


def _from_file(task: str, path: Path) -> SourceProposal:
    text = read_text(path, "the source", MAX_SOURCE)
    if not 0 < len(text) <= MAX_SOURCE:
        raise UsageError(f"the source {path} has {'nothing' if not text else f'more than {MAX_SOURCE:,} characters'}.")
    try:
        language = "cuda" if path.suffix == ".cu" else "triton"
        return proposal_of_text(task, language, text, because=f"from the file {path.name}")
    except UsageError as error:
        raise UsageError(f"the source {path}: {error}") from None


def proposal_of_text(task: str, language: str, text: str, *, because: str) -> SourceProposal:
    """A candidate from the text of a file.

    Args:
        task: The task's name.
        language: `triton`, or `cuda` with the launches in lines `//!`.
        text: The text.
        because: The writer's reason.

    Raises:
        UsageError: When the lines of launches cannot be read.
    """
    because = because[:200]
    if language != "cuda":
        return SourceProposal(task=task, language="triton", source=text, because=because)
    stated = "\n".join(line.removeprefix(_STATED) for line in text.splitlines() if line.startswith(_STATED))
    try:
        launches = msgspec.json.decode(stated or "{}", type=_Launches)
    except msgspec.DecodeError as error:
        raise UsageError(f"the lines `{_STATED}` are no JSON of launches and scratch: {error}.") from None
    return SourceProposal(
        task=task,
        language="cuda",
        source=text,
        launches=launches.launches,
        scratch=launches.scratch,
        because=because,
    )


def built_in_files(task: str) -> list[Path]:
    """The candidates that come with the package for one of its tasks."""
    return sorted(Path(__file__).with_name("candidates").glob(f"{task}_*.py"))
