"""Rendering of a decision: as text of at most 80 columns, and as plain values for JSON."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from constrint.errors import UsageError
from constrint.kernels.registry import contributor, importable_name, load_kernel, load_spec
from constrint.select.winners import listed

if TYPE_CHECKING:
    from constrint.choose.decision import Decision, Program, Request

#: Columns of the text, and of the words at its left.
WIDTH, LABEL = 80, 11
#: Columns of a program's name, and of its time.
NAME, TIME = 24, 10


def render(decision: Decision) -> str:
    """The explanation, at most 80 columns wide: what runs, the evidence, what was passed over, how to force another."""
    request, program = decision.request, decision.program
    where = "a device without a hardware model" if decision.gpu is None else decision.gpu.name
    lines = _labelled("decision", f"{request.workload} on {where}{_end_of(request)}")
    lines += _labelled("runs", _row(program))
    for step in program.steps:
        config = " ".join(f"{name}={value}" for name, value in step.config.items())
        several = f"{step.role} {step.kernel} {_time(step.seconds)}" if len(program.steps) > 1 else ""
        lines += _labelled("", " ".join(filter(None, (several, config))))
    if decision.recorded:
        lines += _labelled("recorded", f"{decision.recorded}: the plan of this call on this machine")
    lines += _labelled("evidence", _evidence(program))
    lines += _labelled("error", _band(program))
    lines += _labelled("answered", program.table or _model_alone(decision))
    lines += _labelled("why", program.why)
    for place, other in enumerate(decision.passed_over):
        lines += _labelled("" if place else "passed over", _row(other))
        lines += _labelled("", _detail(other), indent=2)
    lines += _labelled("force", force_hint(decision))
    return "\n".join(lines)


def _evidence(program: Program) -> str:
    """Origin of the program's time and its note, which may begin with the same word."""
    origin = program.evidence.value
    return program.note if program.note.startswith(origin) else "; ".join(filter(None, (origin, program.note)))


def _model_alone(decision: Decision) -> str:
    """The reason why no table of measured winners answered."""
    for step in decision.program.steps:
        if decision.gpu is not None and step.workload is not None:
            row = listed(load_spec(step.kernel), decision.gpu, step.workload, step.fixed)
            if row is not None:
                entry = row.entry
                return (
                    f"the model: {row.table}, has a winner, {entry.kernel} with {_microseconds(entry.seconds)}, "
                    "which counts where its device code and space are unchanged and CUDA or ROCm is on the machine"
                )
    return "the model: no measured table has this workload"


def _end_of(request: Request) -> str:
    activation = getattr(request.detail, "activation", "")
    return f", then {activation}" if activation else ""


def _row(program: Program) -> str:
    if program.refusal:
        return program.name
    return f"{program.name:<{NAME}} {_time(program.seconds)}"


def _time(seconds: float | None) -> str:
    return "no time predicted" if seconds is None else f"{_microseconds(seconds):>{TIME}}"


def _microseconds(seconds: float) -> str:
    return f"{1e6 * seconds:,.1f} us" if seconds < 1e-3 else f"{1e3 * seconds:,.3f} ms"


def _band(program: Program) -> str:
    if program.band is None:
        return "not recorded for this kind of workload on this GPU"
    return f"{program.band} ({program.band.source})"


def _detail(program: Program) -> str:
    """Reason why a candidate cannot run, or its configurations and the reason for its place."""
    if program.refusal:
        return program.refusal
    configs = [" ".join(f"{name}={value}" for name, value in step.config.items()) for step in program.steps]
    needs = f"runs in {program.needs} alone" if program.needs else ""
    return "; ".join(filter(None, (*configs, needs, program.why)))


def force_hint(decision: Decision) -> str:
    """Instruction for the caller who wants another candidate to run."""
    module: Any = contributor(decision.request.operation)
    if hasattr(module, "force_hint"):
        return str(module.force_hint(decision))
    return f"constrint solve --kernel {_name_of(decision)} lists valid configurations; launch one through its spec"


def _name_of(decision: Decision) -> str:
    """The name for `--kernel`: the operation, or FILE.py:NAME where a file of the user states the only kernel."""
    operation = load_kernel(decision.request.operation)
    try:
        names = {importable_name(spec) for spec in operation.implementations}
    except UsageError:  # a kernel that is no variable of a module
        names = set()
    return names.pop() if len(names) == 1 else decision.request.operation


def _labelled(label: str, text: str, indent: int = 0) -> list[str]:
    """Lines with a label at the left; none for an empty text."""
    if not text:
        return []
    left = " " * (LABEL + 1 + indent)
    rows = [
        line
        for paragraph in text.splitlines()
        for line in textwrap.wrap(paragraph, WIDTH - len(left), break_long_words=False, break_on_hyphens=False)
    ]
    return [f"{label:<{LABEL}} {' ' * indent}{rows[0]}", *(left + row for row in rows[1:])]


def document(decision: Decision) -> dict[str, Any]:
    """The explanation as plain values for JSON."""
    request = decision.request
    stated = {
        "operation": request.operation,
        "sizes": dict(request.workload.sizes),
        "options": dict(request.workload.options),
        "dtype": request.workload.dtype,
        "gpu": None if request.gpu is None else request.gpu.name,
        "directions": list(request.directions),
        "kernel": request.kernel or None,
    }
    plain = decision.to_plain()
    for program, each in zip(decision.programs, (plain["program"], *plain["passed_over"]), strict=True):
        each |= {"seconds": program.seconds, "evidence": None if program.refusal else program.evidence.value}
    return {"request": stated, **plain, "recorded": decision.recorded or None, "force": force_hint(decision)}
