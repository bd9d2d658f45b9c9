"""Candidates of one implementation of a defined cell, `peephole_694725b0.cuda`: what was measured for a cell like it.

A cell with as many gates, slots, states and reads as a built-in one does the same work but for its pointwise part, a
small part of a step. The measured winner of that cell's implementation runs it, where its configuration is valid
for this cell, too; else the whole space is ranked.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from constrint.choose import Program, Refusal, Request
from constrint.choose.candidates import alternatives, operation_of, program_of_winner
from constrint.choose.candidates import candidates as ranked
from constrint.choose.decision import Evidence
from constrint.choose.explain import check_config
from constrint.errors import ConstrintError
from constrint.kernels.registry import load_spec
from constrint.kernels.rnn.cells import BUILT_IN, RecurrentCell
from constrint.kernels.rnn.spec import SUFFIX, RnnSpec
from constrint.select.spec import KernelSpec
from constrint.select.winners import winner

__all__ = ["alternatives", "candidates", "implementations"]


def candidates(request: Request, refused: Sequence[Refusal]) -> list[Program]:
    """The winner of a built-in cell of the same shape if there is one, else the best of the whole space.

    Raises:
        InfeasibleError: When nothing fits; carries the conflict.
        UsageError: When the operation does not take the workload, or there is no model of the GPU.
    """
    spec, like, gpu = _spec_of(request), _like(_spec_of(request)), request.gpu
    if like is None or gpu is None or request.config is not None:
        return ranked(request, refused)
    entry = winner([like], gpu, replace(request.workload, operation=like.operation), request.fixed)
    if entry is None or any(refusal.config == entry.config for refusal in refused):
        return ranked(request, refused)
    config = {name: value for name, value in entry.config.items() if isinstance(value, int)}
    with suppress(ConstrintError):
        check_config(spec.full_name, gpu, request.workload, spec.problem(gpu, request.workload), config)
        program = program_of_winner(entry, request)
        steps = tuple(replace(step, kernel=spec.full_name, evidence=Evidence.ELSEWHERE) for step in program.steps)
        note = f"{like.full_name}'s {program.note}; a cell of the same gates, states and reads"
        return [replace(program, name=spec.full_name, steps=steps, note=note)]
    return ranked(request, refused)


def implementations(request: Request) -> Sequence[KernelSpec]:
    """The kernels that a decision depends on: its own, and that of the built-in cell."""
    spec = _spec_of(request)
    like = _like(spec)
    return [spec] if like is None else [spec, like]


def _spec_of(request: Request) -> RnnSpec:
    (spec,) = operation_of(request).implementations
    assert isinstance(spec, RnnSpec)
    return spec


def _like(spec: RnnSpec) -> RnnSpec | None:
    """The same implementation of the built-in cell with as many gates, slots, states and reads; None without one."""
    for cell in (BUILT_IN[spec.cell.built_in],):
        if _shape(cell, spec.direction) == _shape(spec.cell, spec.direction):
            found = load_spec(f"{cell.name}{SUFFIX[spec.direction]}.{spec.name}")
            return found if isinstance(found, RnnSpec) else None
    return None


def _shape(cell: RecurrentCell, direction: str) -> tuple[int, ...]:
    return cell.num_gates, cell.num_slots, cell.num_states, cell.num_loads(direction)
