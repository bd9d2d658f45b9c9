"""Questions as text: the task, the schema of the reply, and all results so far.

The text depends on the facts alone: equal facts give equal prompts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from constrint.tune.search.llm.answer import Message, PromptRequest
from constrint.tune.search.llm.records import (
    CandidateEvidence,
    Config,
    GateResult,
    PredictedConfig,
    Reply,
    Success,
    TaskFacts,
    TaskKernel,
    Verdict,
)

#: Most entries of the ranking, winners nearby and gate results in a prompt; of older results the fastest remain.
MAX_RANKED, MAX_NEARBY, MAX_RESULTS = 8, 5, 40
#: Most characters of a message of a compiler or a check.
MAX_MESSAGE = 300
TASK = """\
You propose configurations of a GPU kernel. You do not run anything, and nothing that you write is run: your reply is \
parsed as data, intersected with the kernel's certain rules, compiled for the named GPU, checked against a reference \
and timed. Only what passes all of this counts. What is refused or fails comes back to you with the reason.

Reply with one JSON object and nothing else: {"proposals": [...]}, at most 16 proposals, the most promising first. A \
proposal is one of
- "space": a part of one kernel's search space. "values" restricts parameters to some of their values, "rules" are \
conditions that have to hold, "preferences" are conditions that decide what is tried first.
- "strategy": the same with a name and a short text, which later proposals refer to.
- "action": one step from a configuration or a strategy; without either it starts from the best so far.
Give a reason in every "because". Conditions are text: integers, the kernel's parameters, + - * / // %, comparisons, \
and, or, not, min(...), max(...). Name only kernels, parameters and values that are listed below. A proposal that \
leaves exactly one value of everything is one configuration; of a larger one the configurations that the cost model \
predicts to be fastest are tried. What was tried already is not tried again: propose something else."""
WRITING = """\
You write the source of a GPU kernel for a stated function. Your reply is parsed as data. The source is read, compiled \
for the named GPU, run in a sandbox on inputs that are drawn after you wrote it, compared with a reference in fp64, \
watched for shortcuts (a library call that does the work, results that are kept, constants, other streams, the timer) \
and timed. What fails a gate comes to no later one, and comes back to you with the reason.

Reply with one JSON object and nothing else: {"proposals": [{"type": "source", "task": ..., "language": "triton", \
"source": ..., "entry": "run", "because": ...}]}, the most promising first. In CUDA C++ the language is "cuda", and \
"launches" and "scratch" stand in the place of "entry"."""
JUDGING = """\
You judge one configuration of a GPU kernel that was compiled, checked and timed as far as it got. Reply with one JSON \
object and nothing else. If a gate failed: {"type": "failure", ...} with the critical issue, why it matters and the \
smallest change that mends it. If it was timed: {"type": "success", ...} with what binds it, where on the roofline \
that lies, and the figures that say so. Put the change that you advise into "edit", as constraints over the kernel's \
parameters; leave it null if there is nothing to gain."""


def messages_of(question: PromptRequest) -> tuple[Message, ...]:
    """A question to a model: for a verdict, for proposals, or for source where there is no kernel yet."""
    if question.evidence is not None:
        return judging(question.facts, question.evidence)
    return proposing(question.facts) if question.facts.kernels else writing(question.facts)


def proposing(facts: TaskFacts) -> tuple[Message, ...]:
    """The request for a round's proposals."""
    return _asking(TASK, Reply, _sections(facts))


def writing(facts: TaskFacts) -> tuple[Message, ...]:
    """The request for a kernel's source."""
    parts = [f"The task {facts.operation!r}, on {facts.gpu}:\n{facts.workload}", _limits(facts)]
    for number, source in enumerate(facts.sources, 1):
        parts.append(f"Candidate {number}, which was tried ({_short(source.because)}):\n{source.source}")
    return _asking(WRITING, Reply, [*parts, *_outcomes(facts)])


def judging(facts: TaskFacts, evidence: CandidateEvidence) -> tuple[Message, ...]:
    """The request for a verdict on a candidate."""
    kernels = [kernel for kernel in facts.kernels if kernel.name == evidence.candidate.kernel]
    parts = [_head(facts), *map(_kernel, kernels), f"The candidate, as modelled:\n{_ranked(evidence.candidate)}"]
    parts.append("The gates that it came to:\n" + "\n".join(map(_result, evidence.gates)))
    if evidence.best_s is not None:
        parts.append(f"The best candidate so far takes {_us(evidence.best_s)}.")
    if evidence.metrics:
        figures = "\n".join(f"- {name}: {value:.6g}" for name, value in evidence.metrics.items())
        parts.append(f"Metrics of the profiler:\n{figures}")
    return _asking(JUDGING, Verdict, parts)


def _asking(task: str, reply: object, parts: Iterable[str]) -> tuple[Message, ...]:
    schema = msgspec.json.encode(msgspec.json.schema(reply)).decode()
    return Message("system", f"{task}\n\nThe JSON schema of the reply:\n{schema}"), Message("user", "\n\n".join(parts))


def _sections(facts: TaskFacts) -> Iterator[str]:
    yield _head(facts)
    yield from map(_kernel, facts.kernels)
    ranking = facts.ranking[:MAX_RANKED]
    if ranking:
        yield "The cost model's first choices:\n" + "\n".join(map(_ranked, ranking))
    if facts.nearby:
        lines = [
            f"- {near.workload} ({near.distance:.3g} powers of two away): {near.kernel} {config_text(near.config)}: "
            f"{_us(near.seconds)}"
            for near in facts.nearby[:MAX_NEARBY]
        ]
        yield "Measured winners of the nearest workloads:\n" + "\n".join(lines)
    yield from _outcomes(facts)


def _outcomes(facts: TaskFacts) -> Iterator[str]:
    """Results, verdicts and refusals so far."""
    if facts.results:
        yield "What came of the candidates so far:\n" + "\n".join(map(_result, shown_results(facts.results)))
    if facts.verdicts:
        yield "What the judge said in the round before:\n" + "\n".join(map(_verdict, facts.verdicts))
    if facts.refusals:
        lines = [f"- {refusal.where or 'the reply'}: {_short(refusal.message)}" for refusal in facts.refusals]
        yield "What was refused in the round before:\n" + "\n".join(lines)
    yield f"This is round {facts.round + 1}. Reply with JSON."


def _head(facts: TaskFacts) -> str:
    zone = f" The model sees it bound by {facts.zone}." if facts.zone else ""
    least = f" No implementation can take less than {_us(facts.roofline_s)}." if facts.roofline_s else ""
    return f"The workload: {facts.workload} on {facts.gpu}.{least}{zone}\n{_limits(facts)}"


def _limits(facts: TaskFacts) -> str:
    limits = "\n".join(f"- {name}: {value:.10g}" for name, value in facts.limits.items())
    return f"Limits of the GPU:\n{limits}"


def _kernel(kernel: TaskKernel) -> str:
    lines = [f"Kernel {kernel.name}: {kernel.summary} ({kernel.num_valid:,} valid configurations)", "Parameters:"]
    for param in kernel.params:
        values = ", ".join(map(str, param.values))
        lines.append(f"- {param.name} in {{{values}}}: {param.meaning}")
    certain = [f"- {rule.rule}   because {rule.because}" for rule in kernel.rules if rule.is_certain]
    estimated = [f"- {rule.rule}   because {rule.because}" for rule in kernel.rules if not rule.is_certain]
    lines += ["Certain rules:", *certain] if certain else []
    lines += ["Estimated rules, which leave nothing out:", *estimated] if estimated else []
    if kernel.actions:
        lines.append("Actions and the parameters that they move:")
        lines += [f"- {action}: {', '.join(params)}" for action, params in kernel.actions.items()]
    return "\n".join(lines)


def _ranked(one: PredictedConfig) -> str:
    parts = ", ".join(f"{name} {_us(seconds)}" for name, seconds in one.parts_s.items())
    bound = f", bound by {one.bound_by}" if one.bound_by else ""
    return f"- {one.kernel} {config_text(one.config)}: {_us(one.predicted_s)} predicted{bound}" + (
        f" ({parts})" if parts else ""
    )


def shown_results(results: tuple[GateResult, ...]) -> tuple[GateResult, ...]:
    """The results in a prompt, oldest first: the newest half, and the fastest of the older ones."""
    if len(results) <= MAX_RESULTS:
        return results
    half = MAX_RESULTS // 2
    older = range(len(results) - half)
    timed = sorted((place for place in older if results[place].seconds), key=lambda place: results[place].seconds or 0)
    return tuple(results[place] for place in sorted([*timed[:half], *range(len(results) - half, len(results))]))


def _result(result: GateResult) -> str:
    came = "passed" if result.passed else "FAILED"
    time = "" if result.seconds is None else f", {_us(result.seconds)}{' modelled' if result.is_modelled else ''}"
    taken = ""
    if result.resources is not None:
        used = result.resources
        taken = f", {used.registers} registers, {used.spill_bytes} bytes spilled, {used.smem_bytes} bytes shared memory"
    message = f": {_short(result.message)}" if result.message else ""
    return f"- {result.kernel} {config_text(result.config)}: gate {result.gate} {came}{time}{taken}{message}"


def _verdict(verdict: Verdict) -> str:
    text = msgspec.json.encode(verdict).decode()
    summary = verdict.bottleneck if isinstance(verdict, Success) else verdict.critical_issue
    return f"- {summary}: {text}"


def config_text(config: Config) -> str:
    """A configuration: `tile_m=128 tile_n=64`."""
    return " ".join(f"{name}={value}" for name, value in config.items())


def _us(seconds: float) -> str:
    return f"{1e6 * seconds:.4g} us"


def _short(text: str) -> str:
    """A message as one line of bounded length."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_MESSAGE else line[:MAX_MESSAGE] + "..."
