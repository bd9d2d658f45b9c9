"""The candidates of a product that its first calls try: those whose predictions do not tell which one is faster.

A product is tried where its decision rests on predictions, or on measurements of other sizes or machines, and other
programs are within the error of theirs. The library is always among them where it computes the product: by its first
algorithm, which torch's call runs, too, and which is the standard that nothing slower than runs; and by further ones,
where they are worth it. The outcome is remembered by product in memory, and as the call's plan on disk;
`launch/plan/trial.py` measures. Needs torch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

import torch

from constrint.choose import Decision, Evidence, Program, Request, decide
from constrint.errors import ConstrintError
from constrint.kernels.gemm.library.candidates import COMPOSED
from constrint.kernels.gemm.library.spec import ALGORITHM, LIBRARY
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.traced.candidates import Traced
from constrint.kernels.launch.plan.recipe import RecordedCall
from constrint.kernels.launch.plan.trial import Rivals, trials_are_on
from constrint.select.candidate import Config

#: Candidates of our own beside the one that was chosen, at most: each is compiled during the first call.
MOST_COMPILED = 2
#: Error, nine times in ten, of predictions that state none, and the largest that counts.
UNSTATED_ERROR, MOST_ERROR = 0.3, 0.5
#: The library is tried where its predicted time is at most this multiple of the chosen one's.
LIBRARY_REACH = 3.0
#: Algorithms of the library that are tried after its first one, and the predicted time from which they are, if it is
#: within the error of the one chosen: of 22 small products on an H200 further ones were no faster than the first one
#: under 14 us, and up to 10 % faster above. Batches are tried however short they are: a further one ran 17 of the 56
#: batches of `benchmarks/results/h200/gemm_used.csv` that the library ran.
MORE_ALGORITHMS, WORTH_MORE_S = 3, 12e-6
#: Outcomes in memory, at most.
CAPACITY = 65536

#: The program that was fastest, by device and product.
_FASTEST: dict[tuple[Hashable, ...], Program] = {}


def is_due(decision: Decision) -> bool:
    """Whether the first calls of a decision try its candidates."""
    request, detail = decision.request, decision.request.detail
    product = detail.product if isinstance(detail, Traced) else detail
    if not may_try() or request.gpu is None or request.device is None or request.kernel:
        return False
    return isinstance(product, Product) and not product.any_rows and decision.program.evidence is not Evidence.MEASURED


def may_try() -> bool:
    """Whether calls may be tried now: neither is the same result asked for always, nor is a graph made or captured."""
    if not trials_are_on() or torch.are_deterministic_algorithms_enabled() or torch.compiler.is_compiling():
        return False
    return not (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())


def fastest(request: Request) -> Program | None:
    """The program that was fastest in an earlier trial of the product on the device; None where there was none."""
    return _FASTEST.get(_key(request)) if trials_are_on() and not request.kernel else None


def forget_trials() -> None:
    """Drop the outcomes of all trials in memory; plans on disk stay."""
    _FASTEST.clear()


def _key(request: Request) -> tuple[Hashable, ...]:
    return request.device, request.detail


def rivals_of(decision: Decision) -> list[Program]:
    """The candidates to try beside the chosen one, with their configurations, by predicted time."""
    chosen = decision.program
    limit = (1 + _error(chosen)) * (chosen.seconds or 0.0)
    able = [p for p in decision.passed_over if not p.refusal and not p.needs and p.seconds is not None]
    libraries = [p for p in able if is_library(p) and _seconds(p) <= LIBRARY_REACH * max(limit, _seconds(chosen))]
    ours = [p for p in able if not is_library(p) and (1 - _error(p)) * _seconds(p) <= limit]
    ours.sort(key=_seconds)
    complete = []
    for program in ours[:MOST_COMPILED]:
        request = replace(decision.request, kernel=program.name.partition(".")[2], config=None)
        try:
            complete.append(decide(request).program)
        except ConstrintError:  # a device has refused all that it has
            continue
    near = [p for p in (chosen, *libraries) if is_library(p) and (1 - _error(p)) * _seconds(p) <= limit]
    return libraries + complete + [each for program in near for each in variants_of(program)]


def variants_of(program: Program) -> list[Program]:
    """A program of the library's with its product by further algorithms; none where it is short, and no batch."""
    workload = program.step("product").workload
    is_batch = workload is not None and workload.options.get("batch", 1) > 1
    if _seconds(program) < WORTH_MORE_S and not is_batch:
        return []
    return [_with_config(program, {ALGORITHM: place}) for place in range(1, 1 + MORE_ALGORITHMS)]


def _with_config(program: Program, config: Config) -> Program:
    steps = (replace(step, config=config) if step.role == "product" else step for step in program.steps)
    return replace(program, steps=tuple(steps))


def is_standard(program: Program) -> bool:
    """Whether a program is what a user of torch would run: the library's product by its first algorithm."""
    product = program.step("product")
    return product.kernel == LIBRARY and not product.config


def is_library(program: Program) -> bool:
    """Whether a program is the library's product, alone or followed by a pointwise kernel."""
    return program.name in (LIBRARY, COMPOSED)


def _seconds(program: Program) -> float:
    return program.seconds or 0.0


def _error(program: Program) -> float:
    """The error of a program's predicted time, nine times in ten."""
    return min(MOST_ERROR, UNSTATED_ERROR if program.band is None else program.band.nine_in_ten)


def with_rivals(
    made: RecordedCall,
    decision: Decision,
    rivals: Sequence[Program],
    record: Callable[[Program], RecordedCall],
    label: Callable[[Program], str],
    refusals: tuple[type[Exception], ...],
) -> RecordedCall:
    """A recorded call with the recipes of the candidates that it is tried against.

    Args:
        made: The recorded call of the decision.
        decision: The decision.
        rivals: The candidates; those whose plans cannot be recorded are left out.
        record: Records the plan of another program; compiles its kernels.
        label: The name of a program in notes.
        refusals: Exceptions of `record` for programs that do not run.
    """
    if not made.recipe.steps and made.recipe.function is None:
        return made  # without the core there are no trials
    programs, recipes = [decision.program], []
    for program in rivals:
        try:
            recipes.append(record(program).recipe)
        except refusals:
            continue
        programs.append(program)
    if not recipes:
        return made
    seconds = [_seconds(program) for program in programs]

    def settled(measured: Sequence[float], best: int) -> None:
        if len(_FASTEST) >= CAPACITY:
            _FASTEST.clear()
        program = programs[best]
        steps: Any = program.steps
        if len(steps) == 1:
            steps = (replace(steps[0], seconds=measured[best], evidence=Evidence.MEASURED),)
        _FASTEST[_key(decision.request)] = replace(program, steps=steps, note="fastest in a trial on this device")

    standards = [place for place, program in enumerate(programs) if is_standard(program)]
    labels = [label(program) for program in programs]
    return made._replace(rivals=Rivals(recipes, labels, seconds, settled, standards))
