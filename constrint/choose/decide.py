"""`decide`: from a request to the program that runs it, for every operation.

decide(request)             the decision: from memory, else from disk, else of the operation's first candidate
refuse(decision, refusal)   a device refused a step: remember the refusal, decide again
forget()                    empty the memory, so that everything is decided again (`memo.py`)
"""

from __future__ import annotations

from typing import Any

from constrint.choose import memo, refusals
from constrint.choose.decision import Decision, Request
from constrint.choose.memo import forget as forget  # part of this interface, too
from constrint.choose.refusals import REGISTERS, Refusal
from constrint.errors import InfeasibleError
from constrint.kernels.registry import contributor


def decide(request: Request) -> Decision:
    """The program that runs a request, and the candidates that were passed over.

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
    """Remember that a device refused a program, and decide again; later calls of `decide` heed the refusal.

    Args:
        decision: The refused decision; for a layer, the decision of one step alone (`decision.of(role)`).
        refusal: The configuration that the device or the compiler refused, and the reason.

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
            # A kernel that spills still runs: where no other fits, it stays the choice.
            refusals.take_back(request, refusal)
        raise
