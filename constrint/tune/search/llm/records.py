"""Typed records of proposals, gate results and verdicts.

A proposer's reply is JSON of these records (`parse.py` reads it). Its schema is part of every prompt, with the
docstrings of the records from `Values` to `Reply` and from `Edit` to `Success` as descriptions: a change of their words
changes what models are asked. Expressions are text of the constraint language, parsed and never evaluated. Times are
in seconds.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

#: Most characters of a name, a rule, a reason or a strategy's text, and source.
MAX_NAME, MAX_RULE, MAX_REASON, MAX_SOURCE = 120, 400, 1_000, 60_000
#: Most values of a parameter, items of a list, and proposals of a reply.
MAX_VALUES, MAX_ITEMS, MAX_PROPOSALS = 64, 32, 16
#: Most launches of one call of a candidate in CUDA C++.
MAX_LAUNCHES = 8

Name: TypeAlias = Annotated[str, Meta(max_length=MAX_NAME)]
Reason: TypeAlias = Annotated[str, Meta(max_length=MAX_REASON)]
Expression: TypeAlias = Annotated[str, Meta(max_length=MAX_RULE)]
Number: TypeAlias = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
#: A value for each parameter of a kernel.
Config: TypeAlias = dict[str, int]
#: Limit of a configuration on the roofline: bytes, arithmetic, or latency.
Zone: TypeAlias = Literal["memory", "compute", "latency"]
#: The macro actions, each of which moves one parameter.
Action: TypeAlias = Literal["tile", "fuse", "pipeline", "reorder", "vectorise", "split"]
#: The gates in the order in which a candidate passes them; `honest` is for candidates that are source.
Gate: TypeAlias = Literal["legal", "compiles", "right", "honest", "fast"]


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all records: immutable, unknown fields are refused."""


class Values(Record, frozen=True):
    """Values to which a parameter is restricted, some of those that its kernel has; the preferred ones first."""

    parameter: Name
    values: Annotated[tuple[Number, ...], Meta(min_length=1, max_length=MAX_VALUES)]
    because: Reason = ""


class Restriction(Record, frozen=True):
    """A condition over a kernel's parameters in the constraint language, such as `tile_m * tile_n <= 16384`."""

    rule: Expression
    because: Reason = ""


class Preference(Record, frozen=True):
    """A condition that a good configuration meets: it decides what is tried first, and leaves nothing out."""

    rule: Expression
    weight: Annotated[int, Meta(ge=1, le=100)] = 1
    because: Reason = ""


SeveralValues: TypeAlias = Annotated[tuple[Values, ...], Meta(max_length=MAX_ITEMS)]
SeveralRules: TypeAlias = Annotated[tuple[Restriction, ...], Meta(max_length=MAX_ITEMS)]
SeveralPreferences: TypeAlias = Annotated[tuple[Preference, ...], Meta(max_length=MAX_ITEMS)]


class SpaceProposal(Record, frozen=True, tag="space"):
    """A part of one kernel's search space that is worth trying; a single configuration has one value of everything.

    Args:
        kernel: The implementation's full name, `gemm.pointer`.
        values: Values of parameters; a parameter that is not named keeps all that its kernel has.
        rules: Conditions that have to hold.
        preferences: Conditions that decide what is tried first.
        because: Why this part.
    """

    kernel: Name
    values: SeveralValues = ()
    rules: SeveralRules = ()
    preferences: SeveralPreferences = ()
    because: Reason = ""


class StrategyProposal(SpaceProposal, frozen=True, kw_only=True, tag="strategy"):
    """A way to make a kernel fast: a short text, and the constraints that it comes to, as of a space.

    Args:
        name: By which others refer to it.
        text: What is done and why, in a sentence or two: "keep A resident".
        zones: Where on the roofline it helps; anywhere if empty.
        parents: Names of the strategies that it was crossed from.
    """

    name: Name
    text: Reason
    zones: Annotated[tuple[Zone, ...], Meta(max_length=3)] = ()
    parents: Annotated[tuple[Name, ...], Meta(max_length=MAX_ITEMS)] = ()


class ActionProposal(Record, frozen=True, tag="action"):
    """One step from a configuration or a strategy: one parameter is moved, and the result is checked and measured.

    Args:
        kernel: The implementation's full name.
        action: What is done; a kernel says which of its parameters each action moves.
        parameter: Which of these; the first if empty.
        value: The parameter's new value; None for a step in the `direction`.
        direction: The next larger (`more`) or smaller (`less`) of the parameter's values, where no value is given.
        config: What it starts from; None for the `strategy`, or for the best so far where that is empty too.
        strategy: The name of the strategy that it changes.
        because: Why.
    """

    kernel: Name
    action: Action
    parameter: Name = ""
    value: Number | None = None
    direction: Literal["more", "less"] = "more"
    config: dict[Name, Number] | None = None
    strategy: Name = ""
    because: Reason = ""


class KernelLaunch(Record, frozen=True):
    """One launch of a kernel in CUDA C++. Numbers are expressions over sizes and strides: `x_size0`, `x_stride1`.

    Args:
        kernel: The kernel, as the source names it: `rows<x_t, 256>`.
        grid: Blocks along each dimension.
        block: Threads of a block along each dimension.
        arguments: What it is given: names of tensors and of scratch memory, and numbers, which are `long long`.
        smem_bytes: Dynamic shared memory of a block.
        when: The condition under which it is launched; empty for always.
    """

    kernel: Name
    grid: Annotated[tuple[Expression, ...], Meta(min_length=1, max_length=3)]
    block: Annotated[tuple[Expression, ...], Meta(min_length=1, max_length=3)]
    arguments: Annotated[tuple[Expression, ...], Meta(max_length=MAX_ITEMS)]
    smem_bytes: Expression = "0"
    when: Expression = ""


class SourceProposal(Record, frozen=True, tag="source"):
    """Source of a kernel for a stated reference function.

    Args:
        task: The name of what it computes.
        language: What it is written in.
        source: The whole text.
        entry: The name of the function that is called, in Triton.
        launches: The launches of a call in their order, in CUDA C++.
        scratch: Bytes of memory that a call works in, by name, in CUDA C++.
        because: What makes it fast.
    """

    task: Name
    language: Literal["triton", "cuda"]
    source: Annotated[str, Meta(min_length=1, max_length=MAX_SOURCE)]
    entry: Name = "run"
    launches: Annotated[tuple[KernelLaunch, ...], Meta(max_length=MAX_LAUNCHES)] = ()
    scratch: Annotated[dict[Name, Expression], Meta(max_length=MAX_LAUNCHES)] = {}
    because: Reason = ""


Proposal: TypeAlias = SpaceProposal | StrategyProposal | ActionProposal | SourceProposal


class Reply(Record, frozen=True):
    """The answer of a proposer in one round."""

    proposals: Annotated[tuple[Proposal, ...], Meta(max_length=MAX_PROPOSALS)]


class ProposalRefusal(Record, frozen=True):
    """The reason for which a proposal, or a part of it, is refused; the message goes back to the proposer.

    Args:
        where: The part, `proposals[0].rules[1]`; empty for the whole reply.
        message: The rule, what was seen and the way out.
    """

    where: str
    message: str


class Resources(Record, frozen=True):
    """Resources of a compiled configuration: registers and spilled bytes per thread, shared memory per block."""

    registers: int
    spill_bytes: int
    smem_bytes: int


class GateResult(Record, frozen=True):
    """The result of one gate for one candidate.

    Args:
        gate: The gate.
        passed: Whether the next gate may run.
        kernel: The implementation's full name, or the task of a candidate that is source.
        config: The candidate's configuration; empty for one that is source.
        message: The fault of a failed gate, or a remark on a passed one.
        seconds: The candidate's time, of the gate `fast`.
        is_modelled: Whether the time is the cost model's rather than measured.
        resources: Resources of the compiled kernel, of the gate `compiles`.
        candidate: Digest of the configuration, or of the source.
        origin: Name of the proposer: `built-in`, `human`, or the model's name.
    """

    gate: Gate
    passed: bool
    kernel: str
    config: Config = {}
    message: str = ""
    seconds: float | None = None
    is_modelled: bool = False
    resources: Resources | None = None
    candidate: str = ""
    origin: str = ""


class Edit(Record, frozen=True):
    """A change of constraints: what is added to a kernel's proposed space, and what is taken back.

    Args:
        kernel: The implementation's full name.
        values: Values to which parameters are restricted from now on, in place of earlier ones.
        add: Conditions that have to hold from now on.
        drop: Rules of earlier proposals, as they were written, that no longer hold.
        prefer: Conditions that decide what is tried first.
    """

    kernel: Name
    values: SeveralValues = ()
    add: SeveralRules = ()
    drop: Annotated[tuple[str, ...], Meta(max_length=MAX_ITEMS)] = ()
    prefer: SeveralPreferences = ()


class Failure(Record, frozen=True, tag="failure"):
    """The verdict on a candidate that did not pass a gate.

    Args:
        critical_issue: What went wrong.
        why_it_matters: What follows from it.
        minimal_fix_hint: The least change that mends it, in words.
        edit: The same as constraints; None where no constraint mends it, as in a candidate that is source.
    """

    critical_issue: Reason
    why_it_matters: Reason
    minimal_fix_hint: Reason
    edit: Edit | None = None


class Success(Record, frozen=True, tag="success"):
    """The verdict on a candidate that was timed.

    Args:
        bottleneck: What binds it: a part of the cost model, or what the metrics show.
        zone: Where that lies on the roofline.
        evidence: The figures that say so.
        edit: What to try next, as constraints; None where nothing is left to gain.
    """

    bottleneck: Reason
    zone: Zone
    evidence: Reason
    edit: Edit | None = None


Verdict: TypeAlias = Failure | Success


class TaskParam(Record, frozen=True):
    """A tunable parameter: its values, the preferred ones first, and its effect."""

    name: str
    values: tuple[int, ...]
    meaning: str
    because: str = ""


class TaskRule(Record, frozen=True):
    """A rule of a kernel or a limit of the hardware, as text; certain rules exclude what cannot run."""

    rule: str
    because: str
    is_certain: bool = True


class TaskKernel(Record, frozen=True):
    """One implementation: its parameters and rules for the workload on the GPU, and what each macro action moves."""

    name: str
    summary: str
    params: tuple[TaskParam, ...]
    rules: tuple[TaskRule, ...] = ()
    actions: dict[str, tuple[str, ...]] = {}
    num_valid: int = 0


class PredictedConfig(Record, frozen=True):
    """A configuration with the cost model's prediction: time, bottleneck, and the time of each part."""

    kernel: str
    config: Config
    predicted_s: float
    bound_by: str = ""
    zone: Zone | None = None
    parts_s: dict[str, float] = {}


class Nearby(Record, frozen=True):
    """A measured winner of a near workload: its distance in powers of two of a size, and its time."""

    workload: str
    distance: float
    kernel: str
    config: Config
    seconds: float


class TaskFacts(Record, frozen=True):
    """The facts of a question, text and numbers alone, so that they can be a prompt.

    Args:
        limits: The GPU's limits by name, with units in the names.
        kernels: The implementations that can take the workload; none where source is asked for.
        roofline_s: Lower bound of the time.
        zone: Zone of the model's first choice on the roofline.
        ranking: The first choices of the cost model.
        nearby: Winners of the nearest workloads in the record store, nearest first.
        round: Number of this round, from 0.
        refusals: Refusals of the last round.
        results: Gate results of all rounds, oldest first.
        verdicts: Verdicts of the last round.
        sources: Written kernels: the best so far and those of the last round.
    """

    operation: str
    workload: str
    sizes: dict[str, int]
    dtype: str
    gpu: str
    limits: dict[str, float]
    kernels: tuple[TaskKernel, ...]
    roofline_s: float = 0.0
    zone: Zone | None = None
    options: dict[str, int] = {}
    ranking: tuple[PredictedConfig, ...] = ()
    nearby: tuple[Nearby, ...] = ()
    round: int = 0
    refusals: tuple[ProposalRefusal, ...] = ()
    results: tuple[GateResult, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    sources: tuple[SourceProposal, ...] = ()


class CandidateEvidence(Record, frozen=True):
    """The evidence on one candidate, for a judge.

    Args:
        candidate: The cost model's prediction.
        gates: Results in the order of the gates; the last may be a failure.
        kernel: Parameters and actions of its kernel, for an edit; None for source.
        best_s: Least time of all candidates so far; None where there is none.
        roofline_s: Lower bound of the time.
        metrics: Metrics of Nsight Compute by name; empty without a profile.
    """

    candidate: PredictedConfig
    gates: tuple[GateResult, ...]
    kernel: TaskKernel | None = None
    best_s: float | None = None
    roofline_s: float = 0.0
    metrics: dict[str, float] = {}
