"""One decision, made in one place: `decide` leads from a `Request` to the `Decision` that runs it.

1. A caller states a `Request`: operation, workload, GPU or device, directions, and fixed values (`decision.py`).
2. `decide` looks the request up in the memory of this process, then on disk (`decide.py`).
3. Else it gets the operation's candidates, in order: the measured winner, if there is one, before configurations by
   predicted time; candidates that cannot run come last, each with the reason (`candidates.py`).
4. The first candidate is the program of the `Decision`, the others are `passed_over` (`decision.py`). `decide` stores
   the decision, in memory always, on disk for a named GPU.
5. A launcher compiles the program, looks at it and runs it (`kernels/launch/policy.py`). Where it spills or does not
   fit, the launcher calls `refuse`, which remembers the refusal as a rule and decides again.
6. `why` shows the decision with every candidate (`explain.py`, `rendering.py`).
"""

from constrint.choose.decide import REGISTERS, Refusal, decide, forget, refuse
from constrint.choose.decision import BACKWARD, FORWARD, Decision, ErrorBand, Evidence, Program, Request, Step

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
