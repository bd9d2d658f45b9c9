"""The language model as a search of the tuner: rounds of a question, its proposals and their candidates.

One round:

1. `ask` puts the facts (kernels, limits, ranking, results so far) to the speaker: a language model, a transcript or
   the built-in rules.
2. The reply is parsed (`parse.py`). Each proposal is intersected with its kernel's certain rules (`resolve.py`), and
   the proposals share the round's candidates. The cost model's first choice leads the first round, as the baseline.
3. All candidates are compiled for the GPU (`gates.py`). A candidate that the compiler refuses ends here.
4. The tuner runs the others as trials: checked on inputs drawn after the round was proposed, then timed. `hear` takes
   each record.
5. Every finished candidate is judged (`judge.py`, or the model itself). Results, verdicts and refusals are part of the
   next question.

Without a GPU the cost model's time of the compiled kernel ends a candidate at step 3: one call of `ask` then runs all
rounds and returns no trial.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from constrint.errors import UsageError
from constrint.select.as_compiled import one_by_one
from constrint.select.candidates import Candidates
from constrint.tune.search.interface import Proposal as Trial
from constrint.tune.search.interface import SearchTask
from constrint.tune.search.llm.answer import FINAL, PromptRequest, Response, Speaker, Spending
from constrint.tune.search.llm.gates import NUM_INPUTS, CompileGate, measured, modelled_fast, result_of
from constrint.tune.search.llm.judge import RuleJudge
from constrint.tune.search.llm.parse import parse_reply, read_verdict
from constrint.tune.search.llm.records import (
    CandidateEvidence,
    GateResult,
    PredictedConfig,
    Proposal,
    ProposalRefusal,
    StrategyProposal,
    TaskFacts,
    Verdict,
)
from constrint.tune.search.llm.resolve import Key, Resolver, key_of
from constrint.tune.store.record import TuningRecord

#: Origin of the cost model's first choice, the baseline that every gain is counted from.
BASELINE = "cost model"
#: Bits of a seed of random inputs.
SEED_BITS = 31
#: Candidates of a round, unless the caller says otherwise.
CANDIDATES = 4


@dataclass
class Attempt:
    """A candidate of a round, its origin, and the gates that it reached.

    Args:
        candidate: The configuration with its predicted time.
        origin: Name of the proposer, or `BASELINE`.
        proposal: The proposal that the candidate belongs to; None for the baseline.
        round: Number of its round, from 0.
        gates: Results in the order of the gates.
        verdict: The judge's verdict; None until the last gate is decided.
        record: The measurement; None where nothing was measured.
        metrics: Metrics of a profiler by name.
    """

    candidate: PredictedConfig
    origin: str
    proposal: Proposal | None
    round: int
    gates: list[GateResult] = field(default_factory=list)
    verdict: Verdict | None = None
    record: TuningRecord | None = None
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """Kernel and configuration, hashable."""
        return key_of(self.candidate.kernel, self.candidate.config)

    @property
    def seconds(self) -> float | None:
        """Measured or modelled time; None unless every gate was passed."""
        last = self.gates[-1] if self.gates else None
        return last.seconds if last is not None and last.gate == "fast" and last.passed else None


@dataclass
class Round:
    """One question and everything that followed from the answer.

    Args:
        number: From 0.
        answer: The speaker's answer.
        proposals: The proposals that could be read.
        refusals: Reasons for which a proposal, or a part of one, was refused; with the proposal's number, or None for
            the reply as a whole.
        attempts: The candidates.
    """

    number: int
    answer: Response
    proposals: Sequence[Proposal] = ()
    refusals: list[tuple[int | None, ProposalRefusal]] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)


class Watcher(Protocol):
    """Follows a search: progress on a terminal, proposals into the store."""

    def begun(self, one: Round) -> None:
        """A round has its candidates and refusals."""

    def finished(self, one: Round, attempt: Attempt) -> None:
        """A candidate reached its last gate and was judged."""

    def profiled(self, one: Round, attempt: Attempt) -> None:
        """A candidate was profiled and judged again."""


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
        watcher: Follows the rounds.
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
        watcher: Watcher | None = None,
        profile: Callable[[PredictedConfig], Mapping[str, float]] | None = None,
        draw_seed: Callable[[], int | None] | None = None,
    ) -> None:
        self._resolver, self._speaker, self._compiles, self.effort = resolver, speaker, compiles, effort
        self.spending, self._watcher = spending or Spending(), watcher
        self._profile, self._draw_seed = profile, draw_seed or _random_seed
        self._rules = RuleJudge()
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
        while not self._waiting and not self._open and not self.is_finished:
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
    def is_finished(self) -> bool:
        """Whether no further round begins."""
        return bool(self.stopped) or len(self.rounds) >= self.effort.rounds

    @property
    def attempts(self) -> list[Attempt]:
        """Candidates of all rounds in their order."""
        return [attempt for one in self.rounds for attempt in one.attempts]

    @property
    def best(self) -> Attempt | None:
        """The fastest candidate that passed every gate."""
        return _fastest(self.attempts)

    @property
    def facts(self) -> TaskFacts:
        """Contents of the next question."""
        last = self.rounds[-1] if self.rounds else None
        verdicts = [] if last is None else [one.verdict for one in last.attempts if one.verdict is not None]
        return msgspec.structs.replace(
            self._resolver.facts,
            round=len(self.rounds),
            refusals=() if last is None else tuple(refusal for _, refusal in last.refusals),
            results=tuple(self._results),
            verdicts=tuple(verdicts),
        )

    def _next_round(self) -> list[Attempt]:
        """Run a round up to the gate `compiles`; the candidates that are to be measured."""
        self._profile_best()
        facts = self.facts
        answer = self._speaker.answer(PromptRequest(facts))
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

    def _read(self, one: Round, facts: TaskFacts) -> None:
        """Parse a round's answer."""
        answer = one.answer
        if answer.fault:
            one.refusals.append((None, ProposalRefusal(where="", message=answer.message)))
            return
        parsed = parse_reply(answer.text, facts.kernels)
        one.proposals = parsed.proposals
        one.refusals += [(None, refusal) for refusal in parsed.refusals]
        if parsed.refusals and answer.message:
            one.refusals.append(
                (None, ProposalRefusal(where="", message=f"of the reply as a whole: {answer.message}."))
            )

    def _choose(self, one: Round) -> None:
        """Resolve proposals to candidates: equal shares, and the rest of a share goes to the other proposals."""
        best = self.best
        start = None if best is None else best.candidate
        most = self.effort.candidates
        fruitful: list[Proposal] = []
        for number, proposal in enumerate(one.proposals):
            if len(one.attempts) >= most:
                message = f"left out: a round has {most} candidates, and earlier proposals took them."
                one.refusals.append((number, ProposalRefusal(where=f"proposals[{number}]", message=message)))
                continue
            share = -(-(most - len(one.attempts)) // (len(one.proposals) - number))
            resolved = self._resolver.resolve(proposal, share, self._seen, start)
            one.refusals += [(number, refusal) for refusal in resolved.refusals]
            self._add(one, proposal, resolved.configs)
            if resolved.configs:
                fruitful.append(proposal)
        for proposal in fruitful:
            left = most - len(one.attempts)
            if left > 0:
                self._add(one, proposal, self._resolver.resolve(proposal, left, self._seen, start).configs)
        if one.number == 0:
            self._put_baseline_first(one)

    def _add(self, one: Round, proposal: Proposal, configs: Sequence[PredictedConfig]) -> None:
        for config in configs:
            self._seen.add(key_of(config.kernel, config.config))
            one.attempts.append(Attempt(config, self._speaker.name, proposal, one.number))

    def _put_baseline_first(self, one: Round) -> None:
        """Begin the first round with the cost model's first choice, whether or not it was proposed."""
        first = self._resolver.facts.ranking[0]
        key = key_of(first.kernel, first.config)
        baseline = next((attempt for attempt in one.attempts if attempt.key == key), None)
        if baseline is None:
            baseline = Attempt(first, BASELINE, None, one.number)
            self._seen.add(key)
        one.attempts = [baseline, *(attempt for attempt in one.attempts if attempt is not baseline)]

    def _compiled(self, one: Round) -> list[Attempt]:
        """Take a round's candidates through the first two gates; those that are to be measured."""
        results = self._compiles([attempt.candidate for attempt in one.attempts], self._speaker.name)
        waiting = []
        for attempt, compiled in zip(one.attempts, results, strict=True):
            result = msgspec.structs.replace(compiled.result, origin=attempt.origin)
            attempt.gates = [result_of("legal", attempt.candidate, attempt.origin), result]
            if not result.passed:
                self._finish(attempt)
            elif self.effort.is_modelled:
                attempt.gates.append(modelled_fast(attempt.candidate, compiled, attempt.origin))
                self._finish(attempt)
            elif attempt.key in self._measured:
                self._decide(attempt, self._measured[attempt.key])
            else:
                waiting.append(attempt)
        return waiting

    def _decide(self, attempt: Attempt, record: TuningRecord) -> None:
        """Decide the last gates by a measurement."""
        attempt.record = record
        attempt.gates += measured(attempt.candidate, record, attempt.origin, self.effort.num_inputs)
        self._finish(attempt)

    def _finish(self, attempt: Attempt) -> None:
        """Judge a candidate at its last gate, and report it."""
        candidate = attempt.candidate
        self._resolver.hear(candidate.kernel, candidate.config, attempt.seconds)
        self._results += attempt.gates
        attempt.verdict = self._judged(attempt)
        if self._watcher:
            self._watcher.finished(self.rounds[attempt.round], attempt)

    def _profile_best(self) -> None:
        """Profile the last round's best candidate while the GPU is idle, and judge it again by the metrics."""
        best = _fastest(self.rounds[-1].attempts) if self.rounds else None
        if self._profile is None or best is None:
            return
        metrics = self._profile(best.candidate)
        if metrics:
            best.metrics = dict(metrics)
            best.verdict = self._judged(best)
            if self._watcher:
                self._watcher.profiled(self.rounds[-1], best)

    def _judged(self, attempt: Attempt) -> Verdict:
        """The speaker's verdict where it judges and gives one, else that of the rules."""
        best = self.best
        evidence = CandidateEvidence(
            candidate=attempt.candidate,
            gates=tuple(attempt.gates),
            kernel=self._resolver.kernel(attempt.candidate.kernel),
            best_s=None if best is None else best.seconds,
            roofline_s=self._resolver.facts.roofline_s,
            metrics=attempt.metrics,
        )
        verdict = self._verdict_of_speaker(evidence) if self.effort.speaker_judges and not self.stopped else None
        return verdict or self._rules.judge(evidence)

    def _verdict_of_speaker(self, evidence: CandidateEvidence) -> Verdict | None:
        """The speaker's verdict; None where its answer is no verdict."""
        facts = msgspec.structs.replace(self.facts, round=len(self.rounds) - 1)
        answer = self._speaker.answer(PromptRequest(facts, evidence))
        self.spending.add(answer.usage)
        if answer.fault in FINAL:
            self.stopped = answer.message
        return read_verdict(answer.text, facts.kernels)

    def _trial(self, attempt: Attempt) -> Trial:
        candidate = attempt.candidate
        because = f"round {len(self.rounds)} of {attempt.origin}"
        return Trial(candidate.kernel, dict(candidate.config), candidate.predicted_s, because, self._seed)


def reason_of(proposal: Proposal | None) -> str:
    """The proposer's reason for a proposal; None stands for the baseline."""
    if proposal is None:
        return "the cost model's first choice"
    return proposal.text if isinstance(proposal, StrategyProposal) else proposal.because


def _fastest(attempts: Sequence[Attempt]) -> Attempt | None:
    timed = [attempt for attempt in attempts if attempt.seconds is not None]
    return min(timed, key=lambda attempt: attempt.seconds or 0.0, default=None)


def _random_seed() -> int:
    return secrets.randbits(SEED_BITS)


def engine_seed() -> None:
    """Leave the seed of the inputs to the engine, as other searches do."""


#: Argument of `--search llm:rules`: the built-in rules answer, and nothing leaves this machine.
RULES = "rules"


def make(task: SearchTask, candidates: Candidates, argument: str) -> LlmSearch:
    """Make the search `llm:rules`.

    Raises:
        UsageError: For `llm` alone, which needs an endpoint, and for any other argument.
    """
    from constrint.tune.search.llm.speakers import built_in

    if argument != RULES:
        raise UsageError(
            f"search {f'llm:{argument}' if argument else 'llm'!r} has no model to ask: constrint tune --search llm "
            f"--llm URL --model NAME, or --search llm:{RULES} for the built-in rules."
        )
    resolver = Resolver(task, candidates)
    effort = Effort(rounds=max(1, candidates.size), is_modelled=False)
    gate = CompileGate(task, one_by_one)
    return LlmSearch(resolver, built_in(resolver), gate, effort, draw_seed=engine_seed)
