"""Look before the launch: where a program spills, does not compile or does not fit, the next decision runs instead.

A decision rests on estimates. Its kernels are compiled before they run anyway, and the compiler states the registers
and the shared memory that they take. Refusals of the compiler are stored on disk for each GPU, versions of the
compilers and state of the sources, so that no later process compiles the same kernel for the same purpose.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from constrint.choose import REGISTERS, Decision, Refusal
from constrint.choose import refuse as decide_again
from constrint.errors import RESIDENT, CompileError, ConstrintError, DoesNotFitError
from constrint.hwmodels import GpuModel
from constrint.kernels.launch.look import SpilledError
from constrint.kernels.registry import load_spec
from constrint.select.candidate import CompiledKernel, Config
from constrint.select.compiled import keep, recall
from constrint.select.limits import SPILLS
from constrint.select.spec import KernelSpec
from constrint.select.workload import Workload

if TYPE_CHECKING:
    from constrint.kernels.launch.plan.recipe import RecordedCall

#: Decisions that spill and are passed over before the one that spills least is launched.
MOST_NEXT = 3
#: Triton's message where a pass of its compiler gives up.
PASS_FAILED = "PassManager::run failed"
#: Characters of a compiler's refusal that are stored.
MOST_TEXT = 400

#: Remembers a refusal and returns the next decision.
Refuse = Callable[[Decision, Refusal], Decision]


class RefusedError(Exception):
    """Raised before a launch: the compiler refused the kernel in an earlier process; carries its message."""


class Start(Protocol):
    """Compiles the program of a decision, looks, and launches it or records its plan."""

    def __call__(self, decision: Decision, /, *, may_spill: bool) -> None:
        """Launch, or raise before anything is enqueued.

        Raises:
            SpilledError: When it spills and may not.
            DoesNotFitError, triton.runtime.errors.OutOfResources: When it does not fit the device.
            CompileError, triton.errors.TritonError: When it does not compile.
        """


def launch_what_fits(
    decision: Decision, launch: Start, refuse: Refuse = decide_again, optional: Sequence[str] = ()
) -> Decision:
    """Launch a decision; where it spills, does not compile or does not fit, decide again until a program runs.

    A measured winner may spill: it was the fastest as it is. A kernel that spills no more than its spec states as
    harmless is not passed over.

    Args:
        decision: The first decision; of a layer, that of one direction (`decision.of(role)`).
        launch: Launches a decision.
        refuse: Remembers the refusal and returns the next decision; raises when there is none.
        optional: Names of optional inputs that are present, and of other traits that change the compiled kernel.

    Returns:
        The decision that was launched. Where all tried ones spill, it is the one that spills least.

    Raises:
        ConstrintError: When nothing runs.
    """
    from triton.errors import TritonError

    looked = _LOOKED_AT.get(_key(decision, optional))
    if looked is not None and looked.may_spill:
        # Another device of the same model may hold less: then this decision is compiled and looked at anew.
        with suppress(DoesNotFitError):
            launch(looked.decision, may_spill=True)
            return looked.decision
        looked = None
    spilling: list[tuple[int, Decision]] = []
    while True:
        try:
            if looked is None:
                _look_up(decision, optional)
            launch(decision, may_spill=decision.is_measured)
        except SpilledError as error:
            _remember(decision, optional, error.compiled)
            spilling.append((error.compiled.spill_bytes, decision))
            following = _next_clean(decision, error, refuse, len(spilling)) if _harms(decision, error) else None
        except RefusedError as error:
            following = _next_that_runs(decision, error, refuse, may_be_none=bool(spilling))
        except (TritonError, RuntimeError, CompileError, DoesNotFitError) as error:
            if isinstance(error, RuntimeError) and PASS_FAILED not in str(error):
                raise
            if not hasattr(error, "required"):
                _remember(decision, optional, f"{type(error).__name__}: {error}"[-MOST_TEXT:])
            following = _next_that_runs(decision, error, refuse, may_be_none=bool(spilling))
            if following is not None and not _is_doubted(decision):
                _warn(decision, following, error)
        else:
            _note(decision, optional, _Looked(decision, may_spill=decision.is_measured))
            return decision
        if following is None:
            break
        decision, looked = following, None
    least = min(spilling, key=lambda one: one[0])[1]
    try:
        launch(least, may_spill=True)
    except DoesNotFitError as error:
        # Its blocks wait for others that are not resident: a program with fewer blocks may run.
        next_one = refuse(least, _refusal(least, error))
        _warn(least, next_one, error)
        return launch_what_fits(next_one, launch, refuse, optional)
    # `decide` returns this decision from now on: it spills, and nothing else speaks against it.
    _note(decision, optional, _Looked(least, may_spill=True))
    return least


def record_what_fits(
    decision: Decision, record: Callable[[Decision, bool], RecordedCall], optional: Sequence[str] = ()
) -> RecordedCall:
    """Record the plan of a decision; where it spills, does not compile or does not fit, that of the next one.

    A configuration that the caller named runs as it is.

    Args:
        decision: The first decision.
        record: Compiles and records the plan of a decision; takes whether its kernels may spill.
        optional: See `launch_what_fits`.

    Raises:
        ConstrintError: When nothing runs.
    """
    if decision.request.config is not None:
        return record(decision, True)
    made: list[RecordedCall] = []

    def start(chosen: Decision, /, *, may_spill: bool) -> None:
        made[:] = [record(chosen, may_spill)]

    launch_what_fits(decision, start, optional=optional)
    return made[0]


class _Looked(NamedTuple):
    """The decision that a launch found to run for a first decision, and whether it may spill."""

    decision: Decision
    may_spill: bool


#: Decisions that were launched, by everything that the kernel of the first decision is compiled for.
_LOOKED_AT: dict[tuple[object, ...], _Looked] = {}
#: Entries of `_LOOKED_AT`, at most.
CAPACITY = 65536


def _key(decision: Decision, optional: Sequence[str]) -> tuple[object, ...]:
    workload = decision.workload
    sizes = () if workload is None else (workload.dtype, *workload.sizes.values(), *sorted(workload.options.items()))
    gpu = None if decision.gpu is None else decision.gpu.name
    return gpu, decision.program.name, *decision.config.items(), *sizes, *optional


def _note(decision: Decision, optional: Sequence[str], looked: _Looked) -> None:
    if len(_LOOKED_AT) >= CAPACITY:
        _LOOKED_AT.clear()
    _LOOKED_AT[_key(decision, optional)] = looked


def _look_up(decision: Decision, optional: Sequence[str]) -> None:
    """Raise for a refusal or spills that some process stored about this decision's kernel."""
    place = _place_on_disk(decision)
    stored = None if place is None else recall(*place, optional)
    if isinstance(stored, str):
        raise RefusedError(stored)
    if stored is not None and stored.spill_bytes and not decision.is_measured:
        raise SpilledError(stored)


def _remember(decision: Decision, optional: Sequence[str], compiled: CompiledKernel | str) -> None:
    place = _place_on_disk(decision)
    if place is not None:
        keep(*place, compiled, optional)


def _place_on_disk(decision: Decision) -> tuple[GpuModel, KernelSpec, Workload, Config] | None:
    """Key of a decision's stored compilations; None where the program is not one kernel of a modelled GPU."""
    if decision.gpu is None or decision.workload is None or decision.program.name != decision.kernel:
        return None
    return decision.gpu, load_spec(decision.kernel), decision.workload, decision.config


def _harms(decision: Decision, error: SpilledError) -> bool:
    """Whether the spills cost time: more bytes than the spec states as harmless."""
    return error.compiled.spill_bytes > load_spec(decision.kernel).harmless_spill_bytes


def _next_clean(decision: Decision, error: SpilledError, refuse: Refuse, tried: int) -> Decision | None:
    """The next decision; None where enough were tried, or none is left."""
    if tried > MOST_NEXT:
        return None
    try:
        refusal = Refusal(decision.program.name, dict(decision.config), REGISTERS, error.compiled.spill_bytes, 0)
        return refuse(decision, refusal)
    except ConstrintError:
        return None


def _next_that_runs(decision: Decision, error: Exception, refuse: Refuse, *, may_be_none: bool) -> Decision | None:
    """The next decision after one that does not run; None where none is left, if that may be."""
    try:
        return refuse(decision, _refusal(decision, error))
    except ConstrintError:
        if not may_be_none:
            raise
        return None


def _refusal(decision: Decision, error: Any) -> Refusal:
    what = str(getattr(error, "name", "the compiler's patience"))
    numbers = (int(getattr(error, name, 0)) for name in ("required", "limit"))
    return Refusal(decision.program.name, dict(decision.config), what, *numbers)


def _is_doubted(decision: Decision) -> bool:
    """Whether an estimated rule other than the one on registers is broken, so that a refusal was to be expected."""
    if decision.gpu is None or decision.workload is None:
        return False
    estimates = load_spec(decision.kernel).problem(decision.gpu, decision.workload).estimates
    doubts = (r for r in estimates if r.name != SPILLS and r.variables <= decision.config.keys())
    return not all(r.holds(decision.config) for r in doubts)


def _warn(decision: Decision, following: Decision, error: Any) -> None:
    where = decision.gpu.name if decision.gpu is not None else "the device"
    is_stated = isinstance(error, DoesNotFitError) or not hasattr(error, "name")
    takes = error if is_stated else f"it takes {error.required} of {error.name}, the limit is {error.limit}"
    warnings.warn(
        f"{decision.program.name} {decision.workload or ''}: {dict(decision.config)} does not fit {where} after all: "
        f"{str(takes).rstrip('.')}. From now on {following.program.name} {dict(following.config)} is used."
        f"{_report_request(error)}",
        RuntimeWarning,
        stacklevel=5,
    )


def _report_request(error: Any) -> str:
    """Sentence that asks for a report; empty for blocks that are not resident, as on a part of a GPU."""
    if getattr(error, "name", "") == RESIDENT:
        return ""
    import triton

    return f" Please report this with Triton's version ({triton.__version__})."
