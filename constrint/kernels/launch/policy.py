"""Look before the launch: a choice that spills, does not compile or does not fit is not launched; the next one is.

Every choice rests on estimates. Its kernel is compiled before it runs anyway, and the compiler says what it takes. What
it said of a choice that is no good is kept on disk, for each GPU, version of Triton and state of the sources, so that
no later process compiles it again for the same purpose.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from constrint.errors import RESIDENT, CompileError, DoesNotFitError
from constrint.kernels.launch.look import SpilledError
from constrint.kernels.registry import load_spec
from constrint.select.compiled import CompiledKernel, keep, recall
from constrint.select.first_choice import REGISTERS, Choice, Refusal
from constrint.select.limits import SPILLS

#: How many choices that spill are passed over before the one that spills least is launched.
MOST_NEXT = 3
#: What Triton says where one of its compiler's passes gives up.
PASS_FAILED = "PassManager::run failed"
#: Characters that are kept of what a compiler says when it refuses.
MOST_TEXT = 400


class RefusedError(Exception):
    """Raised before a launch: the compiler has refused the kernel before; says what it said."""


class Start(Protocol):
    """Compiles a choice, looks, and launches it or records its launch."""

    def __call__(self, choice: Choice, /, *, may_spill: bool) -> None:
        """Launch.

        Raises:
            SpilledError: When it spills and may not.
            DoesNotFitError, triton.runtime.errors.OutOfResources: When it does not fit the device.
            CompileError, triton.errors.TritonError: When it does not compile.
        """


def launch_what_fits(
    choice: Choice,
    launch: Start,
    refuse: Callable[[Choice, Refusal], Choice],
    given: Sequence[str] = (),
) -> Choice:
    """Launch a choice; where it spills, does not compile or does not fit, the next ones, until one runs clean.

    A measured winner may spill: it was the fastest as it is. What spills no more than the kernel says to be harmless is
    not passed over.

    Args:
        choice: The first choice.
        launch: Launches a choice; raises before anything is enqueued.
        refuse: Remembers the refusal and gives the next choice; raises when there is none.
        given: What else decides about the kernel: names of optional inputs.

    Returns:
        The choice that was launched. Where all that were tried spill, it is the one that spills least.
    """
    from triton.errors import TritonError

    settled = _SETTLED.get(_key(choice, given))
    if settled is not None and settled.may_spill:
        # Another device of the same model may hold less of it: then everything is looked at again.
        with suppress(DoesNotFitError):
            launch(settled.choice, may_spill=True)
            return settled.choice
        settled = None
    spilling: list[tuple[int, Choice]] = []
    while True:
        try:
            if settled is None:
                _look_up(choice, given)
            launch(choice, may_spill=choice.is_measured)
        except SpilledError as error:
            _remember(choice, given, error.compiled)
            spilling.append((error.compiled.spill_bytes, choice))
            following = _next_clean(choice, error, refuse, len(spilling)) if _harms(choice, error) else None
        except RefusedError as error:
            following = _next_that_runs(choice, error, refuse, may_be_none=bool(spilling))
        except (TritonError, RuntimeError, CompileError, DoesNotFitError) as error:
            if isinstance(error, RuntimeError) and PASS_FAILED not in str(error):
                raise
            if not hasattr(error, "required"):
                _remember(choice, given, f"{type(error).__name__}: {error}"[-MOST_TEXT:])
            following = _next_that_runs(choice, error, refuse, may_be_none=bool(spilling))
            if following is not None and not _is_doubted(choice):
                _warn(choice, following, error)
        else:
            _settle(choice, given, _Settled(choice, may_spill=choice.is_measured))
            return choice
        if following is None:
            break
        choice, settled = following, None
    least = min(spilling, key=lambda one: one[0])[1]
    try:
        launch(least, may_spill=True)
    except DoesNotFitError as error:
        # What spills least has blocks that wait for others which are not resident: fewer of them may be.
        following = _next_that_runs(least, error, refuse, may_be_none=False)
        assert following is not None
        _warn(least, following, error)
        return launch_what_fits(following, launch, refuse, given)
    # The last one is what is chosen from now on: nothing was said against it but that it spills.
    _settle(choice, given, _Settled(least, may_spill=True))
    return least


class _Settled(NamedTuple):
    """What this process launches where a choice is asked for, without asking again."""

    choice: Choice
    may_spill: bool


#: By everything that the choice's kernel is compiled for.
_SETTLED: dict[tuple[object, ...], _Settled] = {}
#: As many are kept.
MOST_SETTLED = 65536


def _key(choice: Choice, given: Sequence[str]) -> tuple[object, ...]:
    asked = choice.workload
    sizes = () if asked is None else (asked.dtype, *asked.sizes.values(), *sorted(asked.options.items()))
    where = None if choice.gpu is None else choice.gpu.name
    return where, choice.kernel, *choice.config.items(), *sizes, *given


def _settle(choice: Choice, given: Sequence[str], settled: _Settled) -> None:
    if len(_SETTLED) >= MOST_SETTLED:
        _SETTLED.clear()
    _SETTLED[_key(choice, given)] = settled


def _look_up(choice: Choice, given: Sequence[str]) -> None:
    """Raise what some process has seen of this choice."""
    if choice.gpu is None or choice.workload is None:
        return
    known = recall(choice.gpu, load_spec(choice.kernel), choice.workload, choice.config, given)
    if isinstance(known, str):
        raise RefusedError(known)
    if known is not None and known.spill_bytes and not choice.is_measured:
        raise SpilledError(known)


def _remember(choice: Choice, given: Sequence[str], compiled: CompiledKernel | str) -> None:
    if choice.gpu is not None and choice.workload is not None:
        keep(choice.gpu, load_spec(choice.kernel), choice.workload, choice.config, compiled, given)


def _harms(choice: Choice, error: SpilledError) -> bool:
    """Whether what spills takes time; else it is the least that any of those before it spills, too."""
    return error.compiled.spill_bytes > load_spec(choice.kernel).harmless_spill_bytes


def _next_clean(
    choice: Choice, error: SpilledError, refuse: Callable[[Choice, Refusal], Choice], tried: int
) -> Choice | None:
    """The next choice; None where enough were tried, or none is left."""
    from constrint.errors import ConstrintError

    if tried > MOST_NEXT:
        return None
    try:
        return refuse(choice, Refusal(dict(choice.config), REGISTERS, error.compiled.spill_bytes, 0))
    except ConstrintError:
        return None


def _next_that_runs(
    choice: Choice, error: Exception, refuse: Callable[[Choice, Refusal], Choice], *, may_be_none: bool
) -> Choice | None:
    """The next choice after one that does not run; None where none is left, if that may be."""
    from constrint.errors import ConstrintError

    try:
        return refuse(choice, _refusal(choice, error))
    except ConstrintError:
        if not may_be_none:
            raise
        return None


def _refusal(choice: Choice, error: Any) -> Refusal:
    what = str(getattr(error, "name", "the compiler's patience"))
    return Refusal(dict(choice.config), what, int(getattr(error, "required", 0)), int(getattr(error, "limit", 0)))


def _is_doubted(choice: Choice) -> bool:
    """Whether an estimate beside that of its registers spoke against it: then nothing is to be reported."""
    if choice.gpu is None or choice.workload is None:
        return False
    estimates = load_spec(choice.kernel).problem(choice.gpu, choice.workload).estimates
    doubts = (r for r in estimates if r.name != SPILLS and r.variables <= choice.config.keys())
    return not all(r.holds(choice.config) for r in doubts)


def _warn(choice: Choice, following: Choice, error: Any) -> None:
    where = choice.gpu.name if choice.gpu is not None else "the device"
    is_known = isinstance(error, DoesNotFitError) or not hasattr(error, "name")
    takes = error if is_known else f"it takes {error.required} of {error.name}, the limit is {error.limit}"
    warnings.warn(
        f"{choice.kernel} {choice.workload or ''}: {dict(choice.config)} does not fit {where} after all: "
        f"{str(takes).rstrip('.')}. From now on {following.kernel} {dict(following.config)} is used.{_request(error)}",
        RuntimeWarning,
        stacklevel=5,
    )


def _request(error: Any) -> str:
    """Asks for a report where our own estimate was wrong; blocks that are not resident say what device it is."""
    if getattr(error, "name", "") == RESIDENT:
        return ""
    import triton

    return f" Please report this with Triton's version ({triton.__version__})."
