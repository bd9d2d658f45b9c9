"""`decide`: from a request to the program that runs it, for every operation.

decide(request)             memory, else disk, else the operation's candidates (`candidates.py`): the first one runs
refuse(decision, refusal)   a device refused a step: remember it, decide again
forget()                    decide everything again (`memo.py`)
"""

from __future__ import annotations

from typing import Any

from constrint.choose import memo, refusals
from constrint.choose.decision import Decision
from constrint.choose.memo import forget as forget  # offered here, too
from constrint.choose.refusals import REGISTERS, Refusal
from constrint.choose.request import Request
from constrint.errors import InfeasibleError
from constrint.kernels.registry import contributor


def decide(request: Request) -> Decision:
    """The program that runs a request, and what was passed over.

    Raises:
        InfeasibleError: When nothing fits; carries the conflict.
        UsageError: When the request is malformed, or no implementation takes the workload.
    """
    decision = memo.recall(request)
    if decision is None:
        operation: Any = contributor(request.operation)
        specs = operation.implementations(request) if hasattr(operation, "implementations") else None
        place = None if specs is None else memo.place_of(request, specs)
        decision = memo.load(place, request)
        if decision is None:
            first, *others = operation.candidates(request, refusals.refusals_of(request))
            decision = Decision(request, first, tuple(others))
            memo.store(place, decision)
        memo.remember(decision)
    return decision


def refuse(decision: Decision, refusal: Refusal) -> Decision:
    """Remember that a device refused a program, and decide again; later calls of `decide` follow.

    Args:
        decision: The decision that was refused; of a layer, that of the step alone (`decision.of(role)`).
        refusal: What the device or the compiler refused.

    Raises:
        InfeasibleError: When nothing else fits, with the conflict, or there is no hardware model to choose by.
    """
    request = decision.request
    if request.gpu is None:
        raise InfeasibleError(f"{refusal}; without a hardware model there is no other choice.")
    refusals.add(request, refusal)
    memo.drop(refusal.kernel, request)
    try:
        return decide(request)
    except InfeasibleError:
        if refusal.what == REGISTERS:
            # What spills runs: where there is nothing else it stays the choice.
            refusals.take_back(request, refusal)
        raise
