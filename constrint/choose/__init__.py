"""One decision, made in one place: from a `Request` to the `Decision` that runs it.

`request.py` and `decision.py` are the two values, `decide.py` leads from one to the other, `candidates.py` says how an
operation contributes, `refusals.py` and `memo.py` hold what a process remembers, `explain.py` and `rendering.py`
explain decisions.
"""

from constrint.choose.decide import decide, forget, refuse
from constrint.choose.decision import Decision, ErrorBand, Evidence, Program, Step
from constrint.choose.refusals import REGISTERS, Refusal
from constrint.choose.request import BACKWARD, FORWARD, Request

__all__ = [
    "BACKWARD",
    "FORWARD",
    "REGISTERS",
    "Decision",
    "ErrorBand",
    "Evidence",
    "Program",
    "Refusal",
    "Request",
    "Step",
    "decide",
    "forget",
    "refuse",
]
