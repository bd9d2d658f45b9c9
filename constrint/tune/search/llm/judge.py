"""The built-in judge: rules over the compiler's output, the parts of the cost model, and a profiler's metrics.

The verdict on a failed candidate names the fault and the least change that repairs it; that on a timed candidate names
the bottleneck and the next step. The change is a constraint too, so that a proposer can apply it as it stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from constrint.tune.search.llm.actions import Move, bound_by, moves_against, rule_of, zone_of_part
from constrint.tune.search.llm.records import (
    MAX_REASON,
    MAX_RULE,
    CandidateEvidence,
    Edit,
    Failure,
    Gate,
    Resources,
    Restriction,
    Success,
    Verdict,
)

#: Up to this multiple of the roofline time a candidate has nothing left to gain.
NEAR_ROOFLINE: Final = 1.05
#: Share of the time, in percent, from which a busy part of the GPU is the bottleneck.
BUSY_PERCENT: Final = 60.0
#: Metrics of Nsight Compute for the use of a part, in percent, with the cost model's name of the part.
THROUGHPUTS: Final[Mapping[str, str]] = {
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": "matrix units",
    "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active": "vector units",
    "l1tex__throughput.avg.pct_of_peak_sustained_active": "shared memory",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": "L2",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "DRAM",
}
#: Metrics of stalls per issued instruction, with the part that warps wait for.
STALLS: Final[Mapping[str, str]] = {
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": "latency",
    "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio": "barrier",
    "smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio": "shared memory",
}
#: Moves that repair what the compiler reports.
_SPILLS: Final[tuple[Move, ...]] = (("vectorise", "more"), ("tile", "less"))
_TOO_LARGE: Final[tuple[Move, ...]] = (("pipeline", "less"), ("tile", "less"))


#: Consequence and repair of a failed gate; `compiles` has repairs of its own.
_FAILURES: Final[Mapping[Gate, tuple[str, str]]] = {
    "legal": (
        "A configuration outside the kernel's or the GPU's limits is never launched.",
        "Take the cheapest change that the message names.",
    ),
    "honest": (
        "A time of work that was not done says nothing.",
        "Compute the outputs from the inputs of every call in the kernel itself.",
    ),
    "right": (
        "A fast kernel with wrong results is of no use: its time does not count.",
        "Leave this configuration out.",
    ),
    "fast": ("It has no time that others could be compared with.", "Leave this configuration out."),
}


def judge(evidence: CandidateEvidence) -> Verdict:
    """The verdict on a candidate by rules alone: on the first gate that it failed, else on its time."""
    failed = next((gate for gate in evidence.gates if not gate.passed), None)
    if failed is None:
        return _success(evidence)
    issue = (failed.message or f"it did not pass the gate `{failed.gate}`")[:MAX_REASON]
    if failed.gate == "compiles":
        return _compiler_failure(evidence, failed.resources, issue)
    why, hint = _FAILURES[failed.gate]
    edit = _without(evidence) if failed.gate in ("right", "fast") else None
    return Failure(critical_issue=issue, why_it_matters=why, minimal_fix_hint=hint, edit=edit)


def _compiler_failure(evidence: CandidateEvidence, resources: Resources | None, issue: str) -> Failure:
    if resources is not None and resources.spill_bytes > 0:
        moves, why = _SPILLS, f"{resources.spill_bytes} bytes of each thread go through memory in every use."
        hint = "Give each thread less: more warps, or a smaller tile."
    elif resources is not None:
        fits = f"{resources.smem_bytes:,} bytes of shared memory and {resources.registers} registers of each thread"
        moves, why = _TOO_LARGE, f"A block that takes {fits} is not launched."
        hint = "Take fewer stages, or a smaller tile."
    else:
        moves, why = (), "What does not compile is not launched."
        hint = "Leave this configuration out."
    edit = _edit(evidence, moves, hint) or _without(evidence)
    return Failure(critical_issue=issue, why_it_matters=why, minimal_fix_hint=hint, edit=edit)


def _success(evidence: CandidateEvidence) -> Success:
    part, reason = _bottleneck(evidence)
    seconds = next((gate.seconds for gate in evidence.gates if gate.gate == "fast"), None)
    predicted_s, roofline_s = evidence.candidate.predicted_s, evidence.roofline_s
    lines = [reason]
    if seconds is not None:
        lines.insert(0, f"{seconds * 1e6:.2f} us, predicted {predicted_s * 1e6:.2f} us")
        if evidence.best_s is not None:
            lines.append(f"the best so far takes {evidence.best_s * 1e6:.2f} us")
    is_done = seconds is not None and roofline_s > 0 and seconds <= NEAR_ROOFLINE * roofline_s
    if is_done:
        lines.append(f"nothing can take less than {roofline_s * 1e6:.2f} us")
    return Success(
        bottleneck=part,
        zone=zone_of_part(part),
        evidence="; ".join(filter(None, lines))[:MAX_REASON],
        edit=None if is_done else _edit(evidence, moves_against(part), f"{part} binds it"),
    )


def _bottleneck(evidence: CandidateEvidence) -> tuple[str, str]:
    """The bottleneck, and its evidence: metrics where there are any, else the cost model."""
    busy = {part: evidence.metrics[name] for name, part in THROUGHPUTS.items() if name in evidence.metrics}
    if busy:
        part = max(busy, key=lambda name: busy[name])
        if busy[part] >= BUSY_PERCENT:
            return part, f"measured: {part} busy for {busy[part]:.0f} % of the time"
        stalls = {part: evidence.metrics[name] for name, part in STALLS.items() if name in evidence.metrics}
        waited = max(stalls, key=lambda name: stalls[name]) if stalls else "latency"
        return waited, f"measured: nothing is busier than {busy[part]:.0f} % ({part}); warps wait for {waited}"
    parts_s = evidence.candidate.parts_s
    part = bound_by(parts_s) or evidence.candidate.bound_by or "latency"
    shown = sorted(parts_s.items(), key=lambda item: -item[1])[:3]
    return part, "modelled: " + ", ".join(f"{name} {value * 1e6:.2f} us" for name, value in shown) if shown else ""


def _edit(evidence: CandidateEvidence, moves: tuple[Move, ...], because: str) -> Edit | None:
    """The first move that is possible from the candidate, as a constraint; None where none is."""
    if evidence.kernel is None:
        return None
    rules = (rule_of(move, evidence.candidate.config, evidence.kernel) for move in moves)
    return _adding(evidence, next((rule for rule in rules if 0 < len(rule) <= MAX_RULE), ""), because)


def _without(evidence: CandidateEvidence) -> Edit | None:
    """The constraint that excludes this configuration alone."""
    rule = " or ".join(f"{name} != {value}" for name, value in evidence.candidate.config.items())
    return _adding(evidence, rule, "this configuration did not pass its gates")


def _adding(evidence: CandidateEvidence, rule: str, because: str) -> Edit | None:
    if evidence.kernel is None or not 0 < len(rule) <= MAX_RULE:
        return None
    return Edit(kernel=evidence.kernel.name, add=(Restriction(rule=rule, because=because),))
