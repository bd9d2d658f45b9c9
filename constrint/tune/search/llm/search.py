"""The language model as a search of the tuner: rounds of a question, its proposals and their candidates.

`ask` asks one question and resolves, compiles and returns its candidates (the package's docstring has the steps). The
tuner runs them as trials, checked on inputs that are drawn after the round was proposed. `hear` takes each record and
judges its candidate. Results, verdicts and refusals are part of the next question.

Without a GPU the cost model's time of the compiled kernel ends a candidate: one call of `ask` then runs all rounds and
returns no trial.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from constrint.errors import UsageError
from constrint.select.candidates import Candidates
from constrint.select.compiled import one_by_one
from constrint.tune.search.interface import Proposal as Trial
from constrint.tune.search.interface import SearchTask
from constrint.tune.search.llm.answer import FINAL, PromptRequest, Response, Speaker, Spending
from constrint.tune.search.llm.gates import BASELINE, NUM_INPUTS, Attempt, CompileGate, Round, fastest
from constrint.tune.search.llm.judge import judge
from constrint.tune.search.llm.parse import parse_reply, read_verdict
from constrint.tune.search.llm.provenance import ProposalLog
from constrint.tune.search.llm.records import (
    CandidateEvidence,
    GateResult,
    PredictedConfig,
    Proposal,
    ProposalRefusal,
    TaskFacts,
    Verdict,
)
from constrint.tune.search.llm.resolve import Key, Resolver, key_of
from constrint.tune.search.llm.rules import BuiltInProposer
from constrint.tune.store.record import TuningRecord

#: Bits of a seed of random inputs.
SEED_BITS: Final = 31
#: Candidates of a round, unless the caller says otherwise.
CANDIDATES: Final = 4
#: Argument of `--search llm:rules`.
RULES: Final = "rules"


@dataclass(frozen=True)
class Effort:
    """Bounds of a search.

    Args:
        rounds: Most questions.
        candidates: Most candidates of a round.
        is_modelled: Whether the cost model's time replaces the measurement.
        speaker_judges: Whether the speaker judges candidates; the built-in rules do otherwise.
        num_inputs: Sets of inputs that the engine checks a candidate on.
    """

    rounds: int = 5
    candidates: int = CANDIDATES
    is_modelled: bool = True
    speaker_judges: bool = False
    num_inputs: int = NUM_INPUTS


class LlmSearch:
    """Search of one workload by rounds; see the module's docstring.

    Args:
        resolver: Turns proposals into configurations of the workload.
        speaker: Answers questions.
        compiles: The gate `compiles`.
        effort: Bounds of the search.
        spending: Counts tokens.
        log: Follows the rounds: proposals go to the store, progress to the terminal.
        profile: Takes metrics of a candidate on the GPU; None without a profiler.
        draw_seed: Draws the seed of a round's inputs; None stands for the engine's own seed.
    """

    def __init__(
        self,
        resolver: Resolver,
        speaker: Speaker,
        compiles: CompileGate,
        effort: Effort,
        *,
        spending: Spending | None = None,
        log: ProposalLog | None = None,
        profile: Callable[[PredictedConfig], Mapping[str, float]] | None = None,
        draw_seed: Callable[[], int | None] | None = None,
    ) -> None:
        self._resolver, self._speaker, self._compiles, self.effort = resolver, speaker, compiles, effort
        self.spending, self._log, self._profile = spending or Spending(), log, profile
        self._draw_seed = draw_seed or (lambda: secrets.randbits(SEED_BITS))
        self._seen: set[Key] = set()
        self._results: list[GateResult] = []
        #: Candidates that wait for a trial, and those under way.
        self._waiting: list[Attempt] = []
        self._open: dict[Key, Attempt] = {}
        #: Measurements of earlier runs, which are not repeated.
        self._measured: dict[Key, TuningRecord] = {}
        self._seed: int | None = None
        self.rounds: list[Round] = []
        #: Reason for which the speaker is not asked again; empty while it may be.
        self.stopped = ""

    def ask(self, number: int) -> list[Trial]:
        """Up to `number` trials; the next round begins when all results of the last one are there."""
        while not (self._waiting or self._open or self.stopped) and len(self.rounds) < self.effort.rounds:
            self._waiting = self._next_round()
            self._seed = self._draw_seed()
        batch, self._waiting = self._waiting[:number], self._waiting[number:]
        self._open |= {attempt.key: attempt for attempt in batch}
        return [self._trial(attempt) for attempt in batch]

    def tell(self, proposal: Trial, seconds: float | None) -> None:
        """Ignored: `hear` takes the whole record, of which the time is a part."""

    def hear(self, record: TuningRecord) -> None:
        """Take the record of a trial, or of an earlier run's measurement that need not be repeated."""
        key = key_of(record.kernel, {name: value for name, value in record.config.items() if isinstance(value, int)})
        attempt = self._open.pop(key, None)
        if attempt is None:
            self._measured[key] = record
        else:
            self._decide(attempt, record)

    @property
    def attempts(self) -> list[Attempt]:
        """Candidates of all rounds in their order."""
        return [attempt for one in self.rounds for attempt in one.attempts]

    @property
    def best(self) -> Attempt | None:
        """The fastest candidate that passed every gate."""
        return fastest(self.attempts)

    @property
    def facts(self) -> TaskFacts:
        """Contents of the next question."""
        last = self.rounds[-1] if self.rounds else Round(0, Response())
        return msgspec.structs.replace(
            self._resolver.facts,
            round=len(self.rounds),
            refusals=tuple(refusal for _, refusal in last.refusals),
            results=tuple(self._results),
            verdicts=tuple(attempt.verdict for attempt in last.attempts if attempt.verdict is not None),
        )

    def _next_round(self) -> list[Attempt]:
        """Run a round up to the gate `compiles`; the candidates that are to be measured."""
        self._profile_best()
        facts = self.facts
        answer = self._answer(PromptRequest(facts))
        if answer.fault in FINAL and (self.rounds or answer.fault == "refused"):
            return []
        one = Round(len(self.rounds), answer)
        self._read(one, facts)
        self.rounds.append(one)
        self._choose(one)
        if self._log:
            self._log.begun(one)
        return self._compiled(one)

    def _answer(self, question: PromptRequest) -> Response:
        """The speaker's answer, which may be its last."""
        answer = self._speaker.answer(question)
        self.spending.add(answer.usage)
        if answer.fault in FINAL:
            self.stopped = answer.message
        return answer

    def _read(self, one: Round, facts: TaskFacts) -> None:
        """Parse a round's answer."""
        if one.answer.fault:
            one.refuse(one.answer.message)
            return
        parsed = parse_reply(one.answer.text, facts.kernels)
        one.proposals = parsed.proposals
        one.refusals += [(None, refusal) for refusal in parsed.refusals]
        if parsed.refusals and one.answer.message:
            one.refuse(f"of the reply as a whole: {one.answer.message}.")

    def _choose(self, one: Round) -> None:
        """Resolve proposals to candidates: equal shares, and the rest of a share goes to the other proposals."""
        most = self.effort.candidates
        fruitful: list[Proposal] = []
        for number, proposal in enumerate(one.proposals):
            if len(one.attempts) >= most:
                message = f"left out: a round has {most} candidates, and earlier proposals took them."
                one.refuse(message, number, f"proposals[{number}]")
                continue
            share = -(-(most - len(one.attempts)) // (len(one.proposals) - number))
            refusals = self._add(one, proposal, share)
            one.refusals += [(number, refusal) for refusal in refusals]
            fruitful += [] if refusals else [proposal]
        for proposal in fruitful:
            if len(one.attempts) < most:
                self._add(one, proposal, most - len(one.attempts))
        if one.number == 0:
            self._put_baseline_first(one)

    def _add(self, one: Round, proposal: Proposal, number: int) -> Sequence[ProposalRefusal]:
        """Add candidates of a proposal to a round; the reasons where it has none."""
        best = self.best
        resolved = self._resolver.resolve(proposal, number, self._seen, None if best is None else best.candidate)
        for config in resolved.configs:
            self._seen.add(key_of(config.kernel, config.config))
            one.attempts.append(Attempt(config, self._speaker.name, proposal, one.number))
        return resolved.refusals

    def _put_baseline_first(self, one: Round) -> None:
        """Begin the first round with the cost model's first choice, whether or not it was proposed."""
        first = Attempt(self._resolver.facts.ranking[0], BASELINE, None, one.number)
        baseline = next((attempt for attempt in one.attempts if attempt.key == first.key), first)
        self._seen.add(first.key)
        one.attempts = [baseline, *(attempt for attempt in one.attempts if attempt is not baseline)]

    def _compiled(self, one: Round) -> list[Attempt]:
        """Take a round's candidates through the first two gates; those that are to be measured."""
        waiting = []
        results = self._compiles([attempt.candidate for attempt in one.attempts])
        for attempt, after in zip(one.attempts, results, strict=True):
            attempt.compiled(after, is_modelled=self.effort.is_modelled)
            if self.effort.is_modelled or not attempt.gates[-1].passed:
                self._finish(attempt)
            elif attempt.key in self._measured:
                self._decide(attempt, self._measured[attempt.key])
            else:
                waiting.append(attempt)
        return waiting

    def _decide(self, attempt: Attempt, record: TuningRecord) -> None:
        attempt.measured(record, self.effort.num_inputs)
        self._finish(attempt)

    def _finish(self, attempt: Attempt) -> None:
        """Judge a candidate at its last gate, and report it."""
        self._resolver.hear(attempt.candidate.kernel, attempt.candidate.config, attempt.seconds)
        self._results += attempt.gates
        attempt.verdict = self._judged(attempt)
        if self._log:
            self._log.finished(self.rounds[attempt.round], attempt)

    def _profile_best(self) -> None:
        """Profile the last round's best candidate while the GPU is idle, and judge it again by the metrics."""
        best = fastest(self.rounds[-1].attempts) if self.rounds else None
        if self._profile is None or best is None:
            return
        best.metrics = self._profile(best.candidate)
        if best.metrics:
            best.verdict = self._judged(best)
            if self._log:
                self._log.profiled(self.rounds[-1], best)

    def _judged(self, attempt: Attempt) -> Verdict:
        """The speaker's verdict where it judges and gives one, else that of the rules."""
        best = self.best
        evidence = CandidateEvidence(
            candidate=attempt.candidate,
            gates=tuple(attempt.gates),
            kernel=self._resolver.kernel(attempt.candidate.kernel),
            best_s=None if best is None else best.seconds,
            roofline_s=self._resolver.facts.roofline_s,
            metrics=dict(attempt.metrics),
        )
        verdict = None
        if self.effort.speaker_judges and not self.stopped:
            facts = msgspec.structs.replace(self.facts, round=len(self.rounds) - 1)
            verdict = read_verdict(self._answer(PromptRequest(facts, evidence)).text, facts.kernels)
        return verdict or judge(evidence)

    def _trial(self, attempt: Attempt) -> Trial:
        candidate = attempt.candidate
        because = f"round {len(self.rounds)} of {attempt.origin}"
        return Trial(candidate.kernel, dict(candidate.config), candidate.predicted_s, because, self._seed)


def engine_seed() -> None:
    """Leave the seed of the inputs to the engine, as other searches do."""


def make(task: SearchTask, candidates: Candidates, argument: str) -> LlmSearch:
    """Make the search `llm:rules`: the built-in rules answer, and nothing leaves this machine.

    Raises:
        UsageError: For `llm` alone, which needs an endpoint, and for any other argument.
    """
    if argument != RULES:
        raise UsageError(
            f"search {f'llm:{argument}' if argument else 'llm'!r} has no model to ask: constrint tune --search llm "
            f"--llm URL --model NAME, or --search llm:{RULES} for the built-in rules."
        )
    resolver = Resolver(task, candidates)
    effort = Effort(rounds=max(1, candidates.size), is_modelled=False)
    return LlmSearch(resolver, BuiltInProposer(resolver), CompileGate(task, one_by_one), effort, draw_seed=engine_seed)
