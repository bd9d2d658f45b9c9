"""The one memo of decisions: in memory by `Request.key`, and on disk for later processes.

The disk holds decisions for named GPUs under the GPU's model, the kernels, the request and the tables of winners. It
holds none where a kernel comes from outside of this package, since nothing tells that its code has changed. A stored
decision whose program a device of this process has refused is not used.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from contextlib import suppress

from constrint import cache
from constrint.choose import refusals
from constrint.choose.decision import Decision, Request
from constrint.select.disk_key import key_of
from constrint.select.spec import KernelSpec
from constrint.select.winners import stamp, when_reloaded

#: Decisions in memory, at most.
CAPACITY = 65536
_MEMORY: dict[tuple[Hashable, ...], Decision] = {}
_KIND = "decisions"


def recall(request: Request) -> Decision | None:
    """The decision of this process; None where there is none."""
    return _MEMORY.get(request.key)


def remember(decision: Decision) -> None:
    """Keep a decision in memory, for `decide` to return it from now on."""
    if len(_MEMORY) >= CAPACITY:
        _MEMORY.clear()
    _MEMORY[decision.request.key] = decision


def drop(kernel: str, request: Request) -> None:
    """Forget the decision of a request, and those with a candidate that has the same kernel for the same workload."""
    _MEMORY.pop(request.key, None)
    for key, decision in list(_MEMORY.items()):
        steps = (step for program in decision.programs for step in program.steps)
        if any(step.kernel == kernel and step.workload == request.workload for step in steps):
            del _MEMORY[key]


@when_reloaded
def forget() -> None:
    """Drop all decisions, so that everything is decided again; refusals of devices stay."""
    _MEMORY.clear()


def place_of(request: Request, specs: Sequence[KernelSpec]) -> bytes | None:
    """Key on disk of a request's decision among implementations; None where none is stored."""
    if request.gpu is None or request.device is not None or refusals.refusals_of(request):
        return None
    return key_of(request.gpu, specs, request.subject, stamp(request.gpu))


def load(place: bytes | None, request: Request) -> Decision | None:
    """The decision that some process stored; None where there is none, or this process's device refused it."""
    data = None if place is None else cache.load(_KIND, place)
    if data is not None:
        with suppress(AttributeError, KeyError, TypeError, ValueError):
            decision = Decision.from_plain(json.loads(data), request)
            program = decision.program
            names = [(program.name, step.config) for step in program.steps]
            names += [(step.kernel, step.config) for step in program.steps]
            if names and not any(refusals.was_refused(request, *name) for name in names):
                return decision
    return None


def store(place: bytes | None, decision: Decision) -> None:
    """Store a decision for later processes."""
    if place is not None:
        cache.store(_KIND, place, json.dumps(decision.to_plain()).encode())
