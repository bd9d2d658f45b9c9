"""The rounds: ask what to try, read it, intersect it, compile it, have it measured or modelled, judge it, ask again.

Nothing here measures. `next` runs a round up to the gate `compiles` and gives the candidates that may be measured;
whoever measures them tells `hear`. Where there is no GPU the cost model's word ends a candidate at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from constrint.propose.judge import RuleJudge
from constrint.propose.llm.answer import FINAL, Answer, Question, Speaker
from constrint.propose.llm.budget import Spending
from constrint.propose.parse import edit_faults, parse_reply
from constrint.propose.records import (
    Evidence,
    Facts,
    GateResult,
    Proposal,
    Ranked,
    Refusal,
    StrategyProposal,
    Verdict,
)
from constrint.propose.resolve import Key, Resolver, key_of
from constrint.propose.rounds.gates import CompileGate, measured, modelled_fast, result_of
from constrint.tune.store.record import TuningRecord

#: Who stands for the cost model's first choice, which is tried first so that others can be compared with it.
BASELINE = "cost model"


@dataclass
class Tried:
    """A candidate, where it came from, and how far it came.

    Args:
        candidate: The configuration.
        origin: Who proposed it.
        proposal: What it is a part of; None for the cost model's first choice.
        round: The round that it belongs to.
        gates: The gates that it came to, in their order.
        verdict: What the judge said; None until all its gates are known.
        record: What was measured.
        metrics: What a profiler says of it, by the metrics' names.
    """

    candidate: Ranked
    origin: str
    proposal: Proposal | None
    round: int
    gates: list[GateResult] = field(default_factory=list)
    verdict: Verdict | None = None
    record: TuningRecord | None = None
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """What tells it from other candidates."""
        return key_of(self.candidate.kernel, self.candidate.config)

    @property
    def seconds(self) -> float | None:
        """Its time; None where it did not pass every gate."""
        last = self.gates[-1]
        return last.seconds if last.gate == "fast" and last.passed else None


@dataclass
class Round:
    """One round.

    Args:
        number: From 0.
        answer: What the proposer said.
        proposals: What could be read of it.
        refusals: Why the rest, or a part of it, was not taken; with the number of the proposal where there is one.
        tried: The candidates.
    """

    number: int
    answer: Answer
    proposals: Sequence[Proposal] = ()
    refusals: list[tuple[int | None, Refusal]] = field(default_factory=list)
    tried: list[Tried] = field(default_factory=list)


class Watcher(Protocol):
    """Hears how far it is."""

    def begun(self, one: Round) -> None:
        """A round's candidates are known, and what was refused."""

    def finished(self, one: Round, tried: Tried) -> None:
        """A candidate came as far as it comes."""

    def profiled(self, one: Round, tried: Tried) -> None:
        """A candidate was profiled and judged again."""


@dataclass(frozen=True)
class Plan:
    """How much is tried.

    Args:
        rounds: How often the proposer is asked at most.
        trials: Candidates of a round.
        is_modelled: Whether the cost model stands in for a GPU.
        speaker_judges: Whether the proposer judges, too; else the built-in rules do.
    """

    rounds: int = 5
    trials: int = 4
    is_modelled: bool = True
    speaker_judges: bool = False


class Rounds:
    """The rounds of one workload.

    Args:
        resolver: Knows the workload, and turns proposals into configurations.
        speaker: Who proposes.
        compiles: The second gate.
        plan: How much is tried.
        spending: Counts tokens.
        watcher: Hears how far it is.
        known: What was measured before and need not be measured again.
        profile: Takes metrics of a candidate on the GPU; None where there is no profiler.
    """

    def __init__(
        self,
        resolver: Resolver,
        speaker: Speaker,
        compiles: CompileGate,
        plan: Plan,
        *,
        spending: Spending | None = None,
        watcher: Watcher | None = None,
        known: Iterable[TuningRecord] = (),
        profile: Callable[[Ranked], Mapping[str, float]] | None = None,
    ) -> None:
        self._resolver, self._speaker, self._compiles, self.plan = resolver, speaker, compiles, plan
        self.spending, self._watcher = spending or Spending(), watcher
        self._known = {key_of(one.kernel, _numbers(one.config)): one for one in known}
        self._profile = profile
        self._rules = RuleJudge()
        self._seen: set[Key] = set()
        self._results: list[GateResult] = []
        self.rounds: list[Round] = []
        self.stopped = ""

    @property
    def is_through(self) -> bool:
        """Whether nobody is asked any more."""
        return bool(self.stopped) or len(self.rounds) >= self.plan.rounds

    @property
    def tried(self) -> list[Tried]:
        """All candidates, in the order in which they were tried."""
        return [tried for one in self.rounds for tried in one.tried]

    @property
    def best(self) -> Tried | None:
        """The fastest candidate that passed every gate."""
        timed = [tried for tried in self.tried if tried.gates and tried.seconds is not None]
        return min(timed, key=lambda tried: tried.seconds or 0.0, default=None)

    @property
    def facts(self) -> Facts:
        """What the proposer is told next."""
        last = self.rounds[-1] if self.rounds else None
        told = [] if last is None else [tried.verdict for tried in last.tried if tried.verdict is not None]
        return msgspec.structs.replace(
            self._resolver.facts,
            round=len(self.rounds),
            refusals=() if last is None else tuple(refusal for _, refusal in last.refusals),
            results=tuple(self._results),
            verdicts=tuple(told),
        )

    def next(self) -> list[Tried]:
        """Run a round up to the gate `compiles`; gives the candidates that are to be measured."""
        self._look_closer()
        facts = self.facts
        answer = self._speaker.answer(Question(facts))
        self.spending.add(answer.usage)
        if answer.fault in FINAL:
            self.stopped = answer.message
            if self.rounds or answer.fault == "refused":
                return []
        one = Round(len(self.rounds), answer)
        self._read(one, facts)
        self.rounds.append(one)
        self._choose(one)
        if self._watcher:
            self._watcher.begun(one)
        return self._compiled(one)

    def hear(self, tried: Tried, record: TuningRecord) -> None:
        """What was measured of a candidate."""
        tried.record = record
        tried.gates += measured(tried.candidate, record, tried.origin)
        self._finish(tried)

    def _read(self, one: Round, facts: Facts) -> None:
        """Read what was said."""
        answer = one.answer
        if answer.fault:
            one.refusals.append((None, Refusal(where="", message=answer.message)))
            return
        parsed = parse_reply(answer.text, facts.kernels)
        one.proposals = parsed.proposals
        one.refusals += [(None, refusal) for refusal in parsed.refusals]
        if parsed.refusals and answer.message:
            one.refusals.append((None, Refusal(where="", message=f"of the reply as a whole: {answer.message}.")))

    def _choose(self, one: Round) -> None:
        """Turn proposals into candidates: each has an equal share, and what one leaves goes to the next ones."""
        best = self.best
        start = None if best is None else best.candidate
        able: list[Proposal] = []
        for number, proposal in enumerate(one.proposals):
            if len(one.tried) >= self.plan.trials:
                told = f"left out: a round has {self.plan.trials} candidates, and earlier proposals took them."
                one.refusals.append((number, Refusal(where=f"proposals[{number}]", message=told)))
                continue
            share = -(-(self.plan.trials - len(one.tried)) // (len(one.proposals) - number))
            found = self._resolver.resolve(proposal, share, self._seen, start)
            one.refusals += [(number, refusal) for refusal in found.refusals]
            self._take(one, proposal, found.configs)
            if found.configs:
                able.append(proposal)
        for proposal in able:
            left = self.plan.trials - len(one.tried)
            if left > 0:
                self._take(one, proposal, self._resolver.resolve(proposal, left, self._seen, start).configs)
        if one.number == 0:
            self._put_first_choice_first(one)

    def _take(self, one: Round, proposal: Proposal, configs: Sequence[Ranked]) -> None:
        for config in configs:
            self._seen.add(key_of(config.kernel, config.config))
            one.tried.append(Tried(config, self._speaker.name, proposal, one.number))

    def _put_first_choice_first(self, one: Round) -> None:
        """The cost model's first choice is what gains are counted from, whoever proposes."""
        first = self._resolver.facts.ranking[0]
        key = key_of(first.kernel, first.config)
        found = next((tried for tried in one.tried if tried.key == key), None)
        if found is None:
            found = Tried(first, BASELINE, None, one.number)
            self._seen.add(key)
        one.tried = [found, *(tried for tried in one.tried if tried is not found)]

    def _compiled(self, one: Round) -> list[Tried]:
        """Pass a round's candidates through the first two gates; gives those that are to be measured."""
        through = self._compiles([tried.candidate for tried in one.tried], self._speaker.name)
        waiting = []
        for tried, compiled in zip(one.tried, through, strict=True):
            result = msgspec.structs.replace(compiled.result, origin=tried.origin)
            tried.gates = [result_of("legal", tried.candidate, tried.origin), result]
            if not result.passed:
                self._finish(tried)
            elif self.plan.is_modelled:
                tried.gates.append(modelled_fast(tried.candidate, compiled, tried.origin))
                self._finish(tried)
            elif tried.key in self._known:
                self.hear(tried, self._known[tried.key])
            else:
                waiting.append(tried)
        return waiting

    def _finish(self, tried: Tried) -> None:
        """Judge a candidate that came as far as it comes, and tell everyone."""
        candidate = tried.candidate
        self._resolver.hear(candidate.kernel, candidate.config, tried.seconds)
        self._results += tried.gates
        tried.verdict = self._judged(tried)
        if self._watcher:
            self._watcher.finished(self.rounds[tried.round], tried)

    def _look_closer(self) -> None:
        """Profile the best candidate of the last round, while nothing else is on the GPU, and judge it again."""
        last = self.rounds[-1].tried if self.rounds else []
        timed = [tried for tried in last if tried.gates and tried.seconds is not None]
        if self._profile is None or not timed:
            return
        best = min(timed, key=lambda tried: tried.seconds or 0.0)
        metrics = self._profile(best.candidate)
        if metrics:
            best.metrics = dict(metrics)
            best.verdict = self._judged(best)
            if self._watcher:
                self._watcher.profiled(self.rounds[-1], best)

    def _judged(self, tried: Tried) -> Verdict:
        best = self.best
        evidence = Evidence(
            candidate=tried.candidate,
            gates=tuple(tried.gates),
            kernel=self._resolver.kernel(tried.candidate.kernel),
            best_s=None if best is None else best.seconds,
            roofline_s=self._resolver.facts.roofline_s,
            metrics=tried.metrics,
        )
        said = self._said(evidence) if self.plan.speaker_judges and not self.stopped else None
        return said or self._rules.judge(evidence)

    def _said(self, evidence: Evidence) -> Verdict | None:
        """What the proposer says of a candidate; None where that is no verdict, or its edit no constraint."""
        facts = msgspec.structs.replace(self.facts, round=len(self.rounds) - 1)
        answer = self._speaker.answer(Question(facts, evidence))
        self.spending.add(answer.usage)
        if answer.fault in FINAL:
            self.stopped = answer.message
        return read_verdict(answer.text, facts)


def read_verdict(text: str, facts: Facts) -> Verdict | None:
    """A verdict from a model's reply; None where it is none, or edits what its kernel does not have."""
    try:
        verdict: Verdict = msgspec.json.decode(_object_of(text), type=Verdict)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    is_wrong = verdict.edit is not None and any(edit_faults(verdict.edit, facts.kernels))
    return msgspec.structs.replace(verdict, edit=None) if is_wrong else verdict


def _object_of(text: str) -> str:
    """What stands between the first and the last brace: a reply may be in a code fence."""
    return text[max(text.find("{"), 0) : text.rfind("}") + 1]


def reason_of(proposal: Proposal | None) -> str:
    """Why something was proposed, in the proposer's words."""
    if proposal is None:
        return "the cost model's first choice"
    return proposal.text if isinstance(proposal, StrategyProposal) else proposal.because


def run_modelled(rounds: Rounds) -> None:
    """Run all rounds where there is no GPU."""
    while not rounds.is_through:
        rounds.next()


def _numbers(config: Mapping[str, object]) -> dict[str, int]:
    return {name: value for name, value in config.items() if isinstance(value, int)}
